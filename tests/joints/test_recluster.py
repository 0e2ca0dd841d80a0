"""A live overlay gets other clusters by `metromq recluster` while paho's clients publish: nothing lost or doubled.

Broker processes as `metromq up` starts them, and the commands as a user gives them. The observer knows only what
clients sent and got, and what `explain` says.
"""

import asyncio
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from metromq.control import CityOptions, RunningCity, live_ask, trace
from metromq.federation import City, grid_city
from metromq.pipeline.reclustering import Proposal, TopicClusters, save_proposal
from tests.clients.paho_client import Paho, client, unique
from tests.peers import play

pytestmark = pytest.mark.timeout(400)
TOPIC = "bus/7"
# On a machine that is too slow a broker would be missed meanwhile, and messages would go around it.
GRID = grid_city("overlay", count=4, hello_interval_ms=2000)
CITY = replace(GRID, overlay=replace(GRID.overlay, max_distance_km=1000.0))
NORTH, EAST, WEST, SOUTH = CITY.names
PATIENCE_S = 60.0
LEAST = 60  # messages of each publisher between two changes


class Stream:
    """Publishes one message after the other at one broker, each when the one before is acknowledged."""

    def __init__(self, paho: Paho, name: str, qos: int) -> None:
        self.sent: list[str] = []
        self._paho, self._name, self._qos = paho, name, qos
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.005):
            payload = f"{self._name} {len(self.sent)}"
            self._paho.publish(TOPIC, payload.encode(), self._qos)
            self.sent.append(payload)

    def stop(self) -> list[str]:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        return self.sent


def more(streams: list[Stream]) -> None:
    wanted = [len(one.sent) + LEAST for one in streams]
    end = time.monotonic() + PATIENCE_S
    while any(len(one.sent) < least for one, least in zip(streams, wanted, strict=True)):
        assert time.monotonic() < end, "a publisher stands still"
        time.sleep(0.02)


def proposal(file: Path, clusters: Mapping[str, str], leaders: Mapping[str, str], feeds: Mapping[str, str]) -> Path:
    one = TopicClusters(TOPIC, 1, clusters, leaders, feeds, 2.0, 1.0, 2.0, 1.0, 1.0)
    save_proposal(Proposal("2026-03-01", CITY.identity, 1, (one,)), file)
    return file


def metromq(data: Path, *words: str) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "metromq.cli.main", *words, "--data", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


def explains(city: City, data: Path, *wanted: str) -> None:
    """Until every broker knows it; asked as `metromq explain` asks, without a process for each question."""
    end = time.monotonic() + PATIENCE_S
    for name in city.names:
        while not all(text in (told := _explained(city, data, name)) for text in wanted):
            assert time.monotonic() < end, told
            time.sleep(0.1)


def _explained(city: City, data: Path, name: str) -> str:
    step = asyncio.run(trace(TOPIC, name, True, live_ask(city, data))).legs[0].step
    return " ".join(step.reasons) if step is not None else ""


def test_clusters_change_under_load_by_the_command(tmp_path: Path) -> None:
    data = tmp_path / "data"

    async def story() -> None:
        running = RunningCity(CITY, data, (), CityOptions("memory"), print)
        try:
            await running.start(lambda keeper: None)
            await running.joined(lambda up, wanted: None)
            await asyncio.to_thread(_change_under_load, running.city, data, tmp_path)
        finally:
            await running.stop()

    play(story(), 380)


def _change_under_load(city: City, data: Path, files: Path) -> None:
    apart = proposal(
        files / "apart.json",
        {NORTH: NORTH, EAST: NORTH, WEST: WEST},
        {NORTH: EAST, WEST: WEST},
        {SOUTH: WEST},
    )
    together = proposal(files / "together.json", {NORTH: NORTH, EAST: NORTH, WEST: NORTH}, {NORTH: WEST}, {SOUTH: EAST})
    with ExitStack() as stack:

        def at(broker: str) -> Paho:
            return stack.enter_context(client(city.broker(broker).port, client_id=unique(broker)))

        publishers = {name: at(name) for name in (NORTH, EAST, WEST)}
        for name, publisher in publishers.items():  # one after the other, so that all join the first one's cluster
            publisher.publish(TOPIC, b"first", 1)
            explains(city, data, f"{name}; {NORTH} leads" if name != NORTH else f"{NORTH} ({NORTH}; {NORTH} leads)")
        readers = {name: at(name) for name in (SOUTH, NORTH, EAST)}
        for reader in readers.values():
            reader.subscribe(TOPIC, 2)
        explains(city, data, f"form 1 cluster: {NORTH} ({NORTH}, {EAST}, {WEST}; {NORTH} leads)")
        streams = [Stream(publishers[name], name, qos) for name, qos in ((NORTH, 1), (EAST, 2), (WEST, 2))]
        more(streams)
        assert "would change" in metromq(data, "recluster", str(apart), "--dry-run")
        explains(city, data, "form 1 cluster")
        for file, clusters, server in (
            (apart, (f"{NORTH} ({NORTH}, {EAST}; {EAST} leads)", f"{WEST} ({WEST}; {WEST} leads)"), WEST),
            (together, (f"{NORTH} ({NORTH}, {EAST}, {WEST}; {WEST} leads)", "form 1 cluster"), EAST),
        ):
            told = metromq(data, "recluster", str(file))
            assert f"{TOPIC}: {SOUTH} gets it from {server}" in told
            explains(city, data, *clusters)
            assert f"{SOUTH} gets it from {server}" in metromq(data, "explain", TOPIC, "--from", SOUTH)
            more(streams)
        sent = [payload for one in streams for payload in one.stop()]
        for name, reader in readers.items():
            got = _received(reader, len(sent))
            assert not set(sent) - got.keys(), f"{name} misses {sorted(set(sent) - got.keys())[:5]} of {len(sent)}"
            assert not [payload for payload, count in got.items() if count > 1], f"{name} got some twice"


def _received(reader: Paho, count: int) -> Counter[str]:
    got = [message.payload.decode() for message in reader.take(count)]
    assert reader.nothing_more()
    return Counter(got)
