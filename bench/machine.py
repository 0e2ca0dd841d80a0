"""What the machine tells: which cores there are, who else is at work, what a process costs, how fast the disk syncs."""

import os
import resource
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
BUSY_SHARE = 0.15  # of one core: above this, other work may have changed a result


# The core of the broker and the core of the generator, as seen at the start; the same one when there is only one.
CORES = (max(os.sched_getaffinity(0)), min(os.sched_getaffinity(0)))


def raise_file_limit() -> None:
    """Thousands of clients need as many descriptors; brokers inherit the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


def _machine_seconds() -> float:
    """Time that all cores spent in programs, or that the host took away (softirq belongs to whoever sends)."""
    fields = [int(text) for text in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, steal = fields[0], fields[1], fields[2], fields[7]
    return (user + nice + system + steal) * TICK_S


@dataclass(frozen=True, slots=True)
class Shares:
    """How much of one core each party used during a measurement."""

    broker: float
    generator: float
    others: float

    @property
    def disturbed(self) -> bool:
        return self.others > BUSY_SHARE


def average(shares: Sequence[Shares]) -> Shares:
    return Shares(
        fmean([one.broker for one in shares]),
        fmean([one.generator for one in shares]),
        fmean([one.others for one in shares]),
    )


class Watch:
    """Watches the machine from its creation to `stop`."""

    def __init__(self, broker_pid: int, known_pids: Sequence[int] = ()) -> None:
        self._pid = broker_pid
        self._known = known_pids  # brokers that take turns with this one: no strangers
        self._wall = time.monotonic()
        self._broker = cpu_seconds(broker_pid)
        self._expected = sum(cpu_seconds(pid) for pid in known_pids)
        self._generator = time.process_time()
        self._machine = _machine_seconds()

    def stop(self) -> Shares:
        wall = max(time.monotonic() - self._wall, TICK_S)
        broker = cpu_seconds(self._pid) - self._broker
        generator = time.process_time() - self._generator
        expected = sum(cpu_seconds(pid) for pid in self._known) - self._expected
        others = max(0.0, _machine_seconds() - self._machine - broker - generator - expected)
        return Shares(broker / wall, generator / wall, others / wall)


def fdatasync_rate(directory: Path, seconds: float = 1.0) -> float:
    """Appends of 4 KiB that the disk makes durable in a second, one after the other."""
    block = os.urandom(4096)
    with tempfile.TemporaryFile(dir=directory) as file:
        count = 0
        start = time.monotonic()
        while time.monotonic() - start < seconds:
            os.write(file.fileno(), block)
            os.fdatasync(file.fileno())
            count += 1
        return count / (time.monotonic() - start)
