"""Filters change hands between live brokers while paho's clients publish: nothing lost, doubled or overtaken."""

import contextlib
import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from metromq.city_file import city_text
from metromq.control import delegate, delegations
from metromq.control.city_status import NoAnswer, post
from metromq.federation import City, grid_city
from tests.chaos.brokers import Brokers
from tests.clients.paho_client import Paho, client, properties, unique

CITY = grid_city("delegation", count=3, hello_interval_ms=300)
CENTRAL, FIRST, SECOND = CITY.names
WAIT_S = 60.0


@contextlib.contextmanager
def running(city: City, data: Path) -> Iterator[Brokers]:
    brokers = Brokers(city, data, (0.0,) * len(city.names))
    try:
        brokers.open()
        yield brokers
    finally:
        brokers.close()


def hand_to(brokers: Brokers, topic_filter: str, broker: str) -> str:
    """The broker that has the filter afterwards; retried, for links may still be on their way up."""
    for _ in range(20):
        found = brokers.run(delegate(CITY, brokers.data, topic_filter, broker, WAIT_S))
        owner = found.broker if found is not None else ""
        if owner == broker or (not owner and broker in ("", CENTRAL)):
            return owner
        threading.Event().wait(0.3)
    return owner


class Stream:
    """A publisher that goes on until it is told to stop; what was acknowledged is in `sent`."""

    def __init__(self, port: int, topic: str) -> None:
        self.sent: list[int] = []
        self._topic = topic
        self._paho = Paho(5, unique("stream"), clean=False)
        assert self._paho.connect(port, properties=properties("CONNECT", SessionExpiryInterval=3600))[0] == 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._publish, daemon=True)
        self._thread.start()

    def _publish(self) -> None:
        for number in itertools.count():
            self._paho.publish(self._topic, str(number).encode(), 2)
            self.sent.append(number)
            if self._end.wait(0.002):
                return

    def more(self, count: int) -> None:
        wanted = len(self.sent) + count
        while len(self.sent) < wanted:
            assert self._thread.is_alive()
            threading.Event().wait(0.01)

    def stop(self) -> list[int]:
        self._end.set()
        self._thread.join(WAIT_S)
        self._paho.close()
        return self.sent


def port(brokers: Brokers, name: str) -> int:
    return brokers.by_name[name].address[1]


def test_a_filter_goes_round_the_city_under_load_and_nobody_notices(tmp_path: Path) -> None:
    with running(CITY, tmp_path) as brokers, contextlib.ExitStack() as stack:
        readers = [stack.enter_context(client(port(brokers, name))) for name in CITY.names]
        for reader in readers:
            reader.subscribe("parking/#", 2)
        streams = [Stream(port(brokers, name), f"parking/{name}") for name in (CENTRAL, FIRST)]
        for owner in (FIRST, SECOND, CENTRAL, SECOND, FIRST):
            assert hand_to(brokers, "parking/#", owner) in (owner, "")
            for stream in streams:
                stream.more(20)
        sent = {f"parking/{name}": stream.stop() for name, stream in zip((CENTRAL, FIRST), streams, strict=True)}
        for reader in readers:
            got = reader.take(sum(len(numbers) for numbers in sent.values()))
            for topic, numbers in sent.items():
                assert [int(message.payload) for message in got if message.topic == topic] == numbers
            assert reader.nothing_more()


def test_the_owner_is_killed_its_filter_falls_back_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    with running(CITY, tmp_path) as brokers, client(port(brokers, SECOND)) as reader:
        reader.subscribe("air/#", 2)
        assert hand_to(brokers, "air/#", FIRST) == FIRST
        stream = Stream(port(brokers, SECOND), "air/1")
        stream.more(50)
        brokers.by_name[FIRST].kill()
        stream.more(100)
        end = threading.Event()
        for _ in range(200):
            if not brokers.run(delegations(CITY, tmp_path)):
                break
            end.wait(0.1)
        assert not brokers.run(delegations(CITY, tmp_path)), "the central broker has it again"
        stream.more(50)
        brokers.by_name[FIRST].launch()
        brokers.await_start(brokers.by_name[FIRST])
        sent = stream.stop()
        got = sorted(int(message.payload) for message in reader.take(len(sent)))
        assert got == sent
        assert reader.nothing_more()


def kept(newcomer: Paho, count: int) -> list[Any]:
    """So many retained messages. What was published a moment before may come live too, and before them."""
    found: list[Any] = []
    while len(found) < count:
        found += [message for message in newcomer.take(1) if message.retain]
    return found


def test_retained_values_go_with_their_filter(tmp_path: Path) -> None:
    with running(CITY, tmp_path) as brokers, client(port(brokers, FIRST)) as publisher:
        for number in range(100):
            publisher.publish(f"lamp/{number}", b"on", 1, True)
        for owner in (SECOND, FIRST):
            assert hand_to(brokers, "lamp/#", owner) == owner
            publisher.publish("lamp/7", owner.encode(), 1, True)
            for name in CITY.names:
                with client(port(brokers, name)) as newcomer:
                    newcomer.subscribe("lamp/#", 1)
                    retained = kept(newcomer, 100)
                    assert len({message.topic for message in retained}) == 100
                    assert [m.payload for m in retained if m.topic == "lamp/7"] == [owner.encode()]


def test_the_command_shows_moves_and_returns_filters_and_strangers_cannot(tmp_path: Path) -> None:
    file = tmp_path / "city.toml"
    file.write_text(city_text(CITY), encoding="utf-8")
    file.chmod(0o600)

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        options = ["--city", str(file), "--data", str(tmp_path)]
        line = [sys.executable, "-m", "metromq.cli.main", "delegate", *words, *options]
        return subprocess.run(line, capture_output=True, text=True, check=False, timeout=WAIT_S)

    with running(CITY, tmp_path) as brokers:
        assert hand_to(brokers, "a/#", FIRST) == FIRST
        assert json.loads(command("--json").stdout)[0]["broker"] == FIRST
        assert f"{SECOND} is responsible for a/#" in command("a/#", SECOND).stdout
        assert "neither lies within" in command("+/b", SECOND).stderr
        assert f"{FIRST} is responsible for a/b." in command("a/b", FIRST).stdout
        merged = command("a/b", SECOND)
        assert (merged.returncode, merged.stdout) == (0, f"{SECOND} is responsible for a/b, as a part of a/#.\n")
        assert "not delegated any more" in command("a/#", "--return").stdout
        assert "Nothing is delegated" in command().stdout
        with pytest.raises(NoAnswer):
            brokers.run(post(brokers.by_name[CENTRAL].http, "/delegate", "wrong", b'{"filter": "a", "broker": ""}'))
