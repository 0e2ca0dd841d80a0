"""Loads that the bench does not make itself: a process with the peer's own library does, on the generator's core."""

import json
import subprocess
import weakref
from typing import Any

from bench.generator import CPU, PAYLOAD_BYTES
from bench.measured import Measured, Probe
from bench.peers import ZENOH_LOAD, ZENOH_VENV, Running
from metromq.errors import UsageError


class _Load:
    """The process; each line that it reads is one measurement."""

    def __init__(self, broker: Running, pairs: int, fan: int, topics: int, payload_bytes: int) -> None:
        words = ["load", *map(str, (broker.port, pairs, fan, topics, payload_bytes, broker.pid))]
        self._process = subprocess.Popen(
            [str(ZENOH_VENV / "bin" / "python"), str(ZENOH_LOAD), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def measure(self, rate: float, seconds: float) -> dict[str, Any]:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{rate} {seconds}\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise UsageError("the load of Zenoh's own library ended early")
        found: dict[str, Any] = json.loads(line)
        return found

    def end(self) -> None:
        """It ends with its input."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)


def outside(
    broker: Running, pairs: int, fan: int, topics: int, seconds: float, payload_bytes: int = PAYLOAD_BYTES
) -> Measured:
    load = _Load(broker, pairs, fan, topics, payload_bytes)
    try:
        found = load.measure(0, seconds)
    finally:
        load.end()
    return Measured({"rate": found["rate"], CPU: found["cpu_us"]}, found["lost"])


def outside_probe(broker: Running, pairs: int, rate: float) -> Probe:
    load = _Load(broker, pairs, 1, 0, PAYLOAD_BYTES)

    def take(seconds: float) -> tuple[list[int], int]:
        found = load.measure(rate, seconds)
        return found["latencies"], found["lost"]

    weakref.finalize(take, load.end)
    return take
