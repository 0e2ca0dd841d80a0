"""The slow twin of the journal: a plain list of records, and helpers that look at the files from outside."""

import struct
from pathlib import Path

from metromq.journal import Journal

Record = tuple[int, int, bytes]  # kind, offset or -1, body


class ListJournal:
    """What the journal should hold: records that reached the operating system, and those that are still buffered."""

    def __init__(self) -> None:
        self.flushed: list[Record] = []
        self.buffered: list[Record] = []
        self.next_offset = 0

    def append_message(self, body: bytes) -> int:
        self.buffered.append((1, self.next_offset, body))
        self.next_offset += 1
        return self.next_offset - 1

    def append(self, kind: int, body: bytes) -> None:
        self.buffered.append((kind, -1, body))

    def flush(self) -> None:
        self.flushed += self.buffered
        self.buffered = []

    def crash(self) -> None:
        self.buffered = []
        self.next_offset = len(self.messages())

    def messages(self) -> list[tuple[int, bytes]]:
        return messages_of(self.flushed)


def messages_of(records: list[Record]) -> list[tuple[int, bytes]]:
    return [(offset, body) for kind, offset, body in records if kind == 1]


def replayed(journal: Journal) -> list[Record]:
    return list(journal.replay()[1])


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.seg"))


def boundaries(segment: Path) -> list[int]:
    """The byte where each record of a whole segment starts, and where the last one ends; found without the codec."""
    data = segment.read_bytes()
    places = [32]
    while places[-1] < len(data):
        (length,) = struct.unpack_from("<I", data, places[-1])
        places.append(places[-1] + 11 + length)
    assert places[-1] == len(data)
    return places


def fill(journal: Journal, count: int, body_bytes: int = 20) -> list[Record]:
    """Two messages, then a control record, and so on, flushed every fifth; what was written."""
    written: list[Record] = []
    for index in range(count):
        body = bytes([index % 251]) * body_bytes
        if index % 3 == 2:
            journal.append(6, body)
            written.append((6, -1, body))
        else:
            written.append((1, journal.append_message(body), body))
        if index % 5 == 4:
            journal.flush()
    journal.flush()
    return written
