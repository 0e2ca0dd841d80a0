"""A simulated disk: the journal and snapshot of one broker, and what of them a crash leaves."""

from bisect import bisect_left
from collections.abc import Iterator
from typing import final

from mypy_extensions import mypyc_attr

from metromq.errors import OffsetsGone
from metromq.protocol.session import Log, records

Record = tuple[int, int, bytes]  # kind, offset or -1, body


@mypyc_attr(native_class=False)  # tests plant bugs in it
class Disk:
    """What is left of a broker when its process is gone."""

    def __init__(self, journal_id: str) -> None:
        self.journal_id = journal_id
        self.records: list[Record] = []
        self.places: list[int] = []  # where the message of each offset is among the records
        self.written = 0  # so many records outlive the process
        self.synced = 0  # and so many a power cut
        self.state: bytes | None = None  # the snapshot
        self.state_covers = 0  # records that it stands for
        self.lives = 0

    def write(self) -> None:
        """The operating system has everything."""
        self.written = len(self.records)

    def sync(self) -> None:
        self.write()
        self.synced = self.written

    def keep_state(self, state: bytes) -> None:
        self.sync()
        self.state, self.state_covers = state, self.written

    def crash(self, power: bool = False, torn: bool = False) -> None:
        """The process is killed, or (`power`) the whole machine loses what was not synced.

        `torn`: the disk has got half of its bytes; a record that is not whole is cut off, as recovery does.
        """
        safe = max(self.synced, self.state_covers)
        if torn:
            self.written = safe + self._whole(safe)
        elif power:
            self.written = safe
        del self.records[self.written :]
        while self.places and self.places[-1] >= self.written:
            self.places.pop()
        self.synced = min(self.synced, self.written)

    def _whole(self, first: int) -> int:
        """How many records from the first one are whole when half of the bytes are there."""
        sizes = [len(body) for _, _, body in self.records[first:]]
        left, whole = sum(sizes) // 2, 0
        while whole < len(sizes) and sizes[whole] <= left:
            left -= sizes[whole]
            whole += 1
        return whole

    def after_state(self) -> Iterator[Record]:
        return iter(self.records[self.state_covers :])


@final
class DiskLog(Log):
    """The disk as a hub sees it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def append_message(self, body: bytes) -> int:
        disk = self._disk
        offset = len(disk.places)
        disk.places.append(len(disk.records))
        disk.records.append((records.MESSAGE, offset, body))
        return offset

    def append(self, kind: int, body: bytes) -> None:
        self._disk.records.append((kind, -1, body))

    def read(self, offset: int) -> bytes:
        places = self._disk.places
        if not 0 <= offset < len(places):
            raise OffsetsGone("simulated disk", offset, 0, "nothing has such an offset")
        return self._disk.records[places[offset]][2]

    def scan(self, offset: int) -> Iterator[Record]:
        disk = self._disk
        known = bisect_left(disk.places, disk.written)
        return iter(disk.records[disk.places[offset] : disk.written] if offset < known else ())

    def full(self) -> bool:
        return False

    def next_offset(self) -> int:
        return len(self._disk.places)

    def flush(self) -> None:
        self._disk.write()
