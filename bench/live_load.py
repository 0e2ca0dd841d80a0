"""Live traffic beside something else: 20,000 messages a second through a broker, and how long they are on their way.

A process of one thread, which sleeps between messages and so leaves the cores to what is measured. It stands for
clients on machines of their own: where the system lets it, it goes before everybody else when its moment comes, so that
the times are the broker's and not those of a client that waits for a core.
"""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bench.generator import connect, packet, some

RATE = 20_000
TOPIC = "live/air"
TICK_S = 0.001
STAMP_BYTES = 20
POINTS = (50, 90, 99, 99.9)


class Traffic:
    """Publishes a few messages every millisecond, each with the time at which it was to be sent."""

    def __init__(self, port: int) -> None:
        self._publisher = connect(port, "bench-live-publisher")
        self._subscriber = connect(port, "bench-live-subscriber", filter=TOPIC)
        self._publisher.setblocking(True)
        self._size = len(packet(TOPIC, payload=bytes(STAMP_BYTES)))
        self._rest = b""
        self._due_ns = time.monotonic_ns()
        self._waits: list[int] = []
        self._first_ns = self._due_ns

    def run(self) -> None:
        """Answers a line on standard input with a line, until it is closed."""
        orders = sys.stdin.fileno()
        while True:
            left_s = (self._due_ns - time.monotonic_ns()) / 1e9
            ready, _, _ = select.select([self._subscriber, orders], [], [], max(0.0, left_s))
            if self._subscriber in ready:
                self._listen()
            if time.monotonic_ns() >= self._due_ns:
                self._publish()
            if orders in ready:
                if not os.read(orders, 100):
                    return
                print(json.dumps(self._tell()), flush=True)

    def _publish(self) -> None:
        """A pause counts for all that it delays: what was due is sent, with the time at which it was due."""
        stamp = b"%0*d" % (STAMP_BYTES, self._due_ns)
        self._publisher.sendall(packet(TOPIC, payload=stamp) * int(RATE * TICK_S))
        self._due_ns += int(TICK_S * 1e9)

    def _listen(self) -> None:
        data = self._rest + some(self._subscriber, 1 << 16)
        now = time.monotonic_ns()
        size = self._size
        count = len(data) // size
        self._waits += [now - int(data[end - STAMP_BYTES : end]) for end in range(size, count * size + 1, size)]
        self._rest = data[count * size :]

    def _tell(self) -> dict[str, float]:
        """Of what came since it was last asked: messages a second, and milliseconds at each point."""
        waits, self._waits = sorted(self._waits), []
        began, self._first_ns = self._first_ns, time.monotonic_ns()
        told = {f"p{point:g}": waits[int(len(waits) * point / 100)] / 1e6 for point in POINTS if waits}
        return told | {"rate": len(waits) / (self._first_ns - began) * 1e9}


class Load:
    """A process that publishes and listens."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.pid = process.pid

    def since(self) -> dict[str, float]:
        """What it says of the time since the last such question."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("?\n")
        self._process.stdin.flush()
        told: dict[str, float] = json.loads(self._process.stdout.readline())
        return told


@contextmanager
def live(port: int) -> Iterator[Load]:
    pipe = subprocess.PIPE
    arguments = [sys.executable, "-m", "bench.live_load", str(port)]
    with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            load = Load(process)
            load.since()
            yield load
        finally:
            assert process.stdin is not None
            process.stdin.close()


if __name__ == "__main__":
    with suppress(OSError, AttributeError):  # not everybody may, and not every system can
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    Traffic(int(sys.argv[1])).run()
