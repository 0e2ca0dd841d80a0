"""Live traffic beside something else: 20,000 messages a second through a broker, and how long they are on their way.

A process of one thread, which sleeps between messages and so leaves the cores to what is measured. It stands for
clients on machines of their own: where the system lets it, it goes before everybody else when its moment comes, so that
the times are the broker's and not those of a client that waits for a core. On a virtual machine, moments in which the
host gave a core to others (steal) are left out, and told: they fall on whoever is measured then.
"""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.generator import connect, packet, some

RATE = 20_000
TOPIC = "live/air"
TICK_S = 0.001
STAMP_BYTES = 20
POINTS = (50, 90, 99, 99.9)
SLICE_NS = 100_000_000  # what came in one of these counts, or not, as a whole
STEAL = 8  # the column of /proc/stat


class Traffic:
    """Publishes a few messages every millisecond, each with the time at which it was to be sent."""

    def __init__(self, port: int) -> None:
        self._publisher = connect(port, "bench-live-publisher")
        self._subscriber = connect(port, "bench-live-subscriber", filter=TOPIC)
        self._publisher.setblocking(True)
        self._size = len(packet(TOPIC, payload=bytes(STAMP_BYTES)))
        self._rest = b""
        self._due_ns = time.monotonic_ns()
        self._count = 0
        self._first_ns = self._due_ns
        self._slices = Slices(stolen)

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
            self._slices.look(time.monotonic_ns())
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
        self._count += count
        self._slices.add([now - int(data[end - STAMP_BYTES : end]) for end in range(size, count * size + 1, size)])
        self._rest = data[count * size :]

    def _tell(self) -> dict[str, float]:
        """Of what came since it was last asked: messages a second, milliseconds at each point, and how much of the
        time counts for these."""
        waits, share = self._slices.taken()
        waits.sort()
        began, self._first_ns = self._first_ns, time.monotonic_ns()
        count, self._count = self._count, 0
        told = {f"p{point:g}": waits[int(len(waits) * point / 100)] / 1e6 for point in POINTS if waits}
        return told | {"rate": count / (self._first_ns - began) * 1e9, "share": share}


class Slices:
    """Waits, slice by slice. A slice in which the host took something counts for nothing, nor does the next one: what
    was delayed may have come then."""

    def __init__(self, stolen: Callable[[], int]) -> None:
        self._stolen = stolen
        self._taken = stolen()
        self._ends_ns = 0
        self._disturbed = True
        self._open: list[int] = []
        self._kept: list[int] = []
        self._other: list[int] = []
        self._good = self._all = 0

    def add(self, waits: list[int]) -> None:
        self._open += waits

    def look(self, now_ns: int) -> None:
        """Ends a slice whose time is over."""
        if now_ns < self._ends_ns:
            return
        before, self._taken = self._taken, self._stolen()
        earlier, self._disturbed = self._disturbed, self._taken != before
        if self._disturbed or earlier:
            self._other += self._open
        else:
            self._kept += self._open
            self._good += 1
        self._all += 1
        self._open = []
        self._ends_ns = now_ns + SLICE_NS

    def taken(self) -> tuple[list[int], float]:
        """The waits that count, and the share of slices that they are from; then it begins anew.

        Where the host left nothing alone, all waits count, and the share is 0.
        """
        waits, share = self._kept or self._other, self._good / max(self._all, 1)
        self._kept, self._other, self._good, self._all = [], [], 0, 0
        return waits, share


def stolen() -> int:
    """What the host took from this machine so far, in ticks; 0 where nobody tells."""
    try:
        return int(Path("/proc/stat").read_text().split(maxsplit=STEAL + 1)[STEAL])
    except OSError:
        return 0


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
