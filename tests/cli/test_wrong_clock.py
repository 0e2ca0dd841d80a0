"""A live city in which one broker has a wrong clock (libfaketime): status, metrics and the log say so."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from metromq.city_file import city_text
from metromq.control import RunningBroker
from metromq.control.data_directory import read_place
from tests.cli.cities import DEADLINE_S, environment, metromq, wait_for
from tests.cli.test_serve_city import city
from tests.peers import free_ports

AHEAD_S = 600
LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))


@contextlib.contextmanager
def serve(file: Path, data: Path, name: str, ahead_s: int, *words: str) -> Iterator[Path]:
    """A broker whose wall clock is ahead, and its log."""
    command = [sys.executable, "-m", "metromq.cli.main", "serve", "--city", str(file), "--data", str(data)]
    fake = {"LD_PRELOAD": str(LIBRARIES[0]), "FAKETIME": f"+{ahead_s}s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    log = data.parent / f"{name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, "--name", name, *words], stderr=out, env={**environment(), **(fake if ahead_s else {})}
        )
    try:
        yield log
    finally:
        process.terminate()
        assert process.wait(timeout=DEADLINE_S) == 0


def skews(data: Path) -> dict[str, float] | None:
    done = metromq("status", "--data", str(data), "--json", check=False)
    brokers: list[dict[str, Any]] = json.loads(done.stdout)["brokers"] if done.stdout else []
    found = {broker["name"]: link["clock_ahead_s"] for broker in brokers for link in broker["links"]}
    return found if len(found) == 2 and None not in found.values() else None


def place(data: Path, name: str) -> RunningBroker:
    found = read_place(data / name)
    assert found is not None
    return found


@pytest.mark.skipif(not LIBRARIES, reason="needs libfaketime (Debian package libfaketime)")
@pytest.mark.skipif(bool(os.environ.get("LD_PRELOAD")), reason="another library is preloaded")
def test_a_wrong_clock_is_measured_shown_and_warned_about(tmp_path: Path) -> None:
    file, data = tmp_path / "city.toml", tmp_path / "data"
    file.write_text(city_text(city(tuple(free_ports(2)))))
    data.mkdir()
    with serve(file, data, "b00", 0) as log, serve(file, data, "b20", AHEAD_S):
        wait_for(lambda: (data / "b00" / "broker.json").is_file(), "b00 running")
        wait_for(lambda: (data / "b20" / "broker.json").is_file(), "b20 running")
        found = wait_for(lambda: skews(data), "clocks being compared")
        assert found["b00"] == pytest.approx(AHEAD_S, abs=1.0)
        assert found["b20"] == pytest.approx(-AHEAD_S, abs=1.0)
        table = metromq("status", "--data", str(data), "--links").stdout
        assert "+600.0 s" in table
        assert "b20: its clock is 10.0 min ahead of the others'" in table
        with urlopen(f"http://{place(data, 'b00').http}/metrics", timeout=DEADLINE_S) as page:
            assert 'metromq_link_clock_ahead_s{peer="b20"} 600.' in page.read().decode().replace("599.9", "600.")
        assert "clocks differ" in log.read_text()
