"""Cities of real processes for the tests: `metromq up` or `metromq demo` as a child, everything gone at the end."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from metromq.city_file import city_text
from metromq.control.data_directory import lives, read_place
from metromq.federation.city import Membership, grid_city

T = TypeVar("T")
DEADLINE_S = 60.0


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("METROMQ_")}
    return {**kept, "COLUMNS": "160", "PYTHONUNBUFFERED": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def metromq(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "metromq.cli.main", *words],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=DEADLINE_S,
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def wait_for(question: Callable[[], T | None], what: str, deadline_s: float = DEADLINE_S) -> T:
    """Asks until the answer is neither None nor False."""
    end = time.monotonic() + deadline_s
    while True:
        answer = question()
        if answer is not None and answer is not False:
            return answer
        assert time.monotonic() < end, f"{what} did not happen in {deadline_s:g} s"
        time.sleep(0.05)


def write_city(directory: Path, brokers: int) -> Path:
    """A geographic city whose ports are the system's, and whose brokers miss each other soon."""
    city = grid_city("geographic", count=brokers)
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "city.toml"
    file.write_text(city_text(replace(city, name="test", membership=Membership(300, 3, 1))))
    return file


class CityProcess:
    """A command that keeps a city running."""

    def __init__(self, process: subprocess.Popen[bytes], data: Path, output: Path) -> None:
        self.process = process
        self.data = data
        self._output = output
        self.pids: set[int] = set()

    def output(self) -> str:
        return self._output.read_text()

    def says(self, text: str, deadline_s: float = DEADLINE_S) -> None:
        def said() -> bool:
            assert text in self.output() or self.process.poll() is None, self.output()
            return text in self.output()

        wait_for(said, f"saying {text!r}", deadline_s)
        self.note_pids()

    def note_pids(self) -> None:
        for directory in self.data.iterdir():
            place = read_place(directory)
            if place is not None:
                self.pids.add(place.pid)

    def place(self, name: str) -> tuple[int, int]:
        """The process number and the port of a broker."""
        place = read_place(self.data / name)
        assert place is not None
        return place.pid, int(place.listen.rpartition(":")[2])

    def status(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(metromq("status", "--data", str(self.data), "--json", check=False).stdout)
        self.note_pids()
        return answer

    def ask(self, name: str) -> dict[str, Any]:
        """What a broker says itself."""
        place = read_place(self.data / name)
        assert place is not None
        with urllib.request.urlopen(f"http://{place.http}/status", timeout=DEADLINE_S) as answer:
            said: dict[str, Any] = json.load(answer)
        return said

    def broker(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = next(broker for broker in self.status()["brokers"] if broker["name"] == name)
        return found

    def end(self, number: signal.Signals) -> int:
        self.note_pids()
        self.process.send_signal(number)
        return self.process.wait(timeout=DEADLINE_S)

    def all_gone(self) -> bool:
        return not any(lives(pid) for pid in self.pids)


@contextlib.contextmanager
def city_process(directory: Path, *words: str) -> Iterator[CityProcess]:
    """`metromq WORDS --data DIRECTORY/data`; ended by its number, and its brokers with it, whatever happens."""
    directory.mkdir(parents=True, exist_ok=True)
    output = directory / "output.txt"
    data = directory / "data"
    data.mkdir(exist_ok=True)
    with output.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "metromq.cli.main", *words, "--data", str(data)],
            stdout=out,
            stderr=out,
            env=environment(),
        )
    running = CityProcess(process, data, output)
    try:
        yield running
    finally:
        running.note_pids()
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(timeout=DEADLINE_S)
        finally:
            for pid in running.pids:
                if lives(pid):
                    os.kill(pid, signal.SIGKILL)
