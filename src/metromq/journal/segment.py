"""One segment file as its readers see it: name, header, a sparse index of its messages, blocks of whole records."""

import os
import re
from bisect import bisect_right
from pathlib import Path
from typing import Final, final

from metromq.errors import JournalDamaged, JournalError
from metromq.journal.codec import (
    GAP,
    HEADER_BYTES,
    MESSAGE,
    SKIP,
    decode_gap,
    decode_header,
    walk_records,
)

INDEX_MESSAGES: Final = 64  # an index mark at least every so many messages
INDEX_BYTES: Final = 32 << 10  # and every so many bytes, because acknowledgements lie between messages
BLOCK_BYTES: Final = 1 << 20

_NAME: Final = re.compile(r"(\d{8})-(\d{20})\.seg")


def segment_name(number: int, base: int) -> str:
    return f"{number:08d}-{base:020d}.seg"


def list_segments(directory: Path) -> list[tuple[int, int, str]]:
    """(number, base offset, name) of every segment file, by number."""
    found: list[tuple[int, int, str]] = []
    for name in os.listdir(directory):
        match = _NAME.fullmatch(name)
        if match is not None:
            found.append((int(match.group(1)), int(match.group(2)), name))
    found.sort()
    return found


@final
class Segment:
    """What is known of a segment; `walked` and `count` say how far its index reaches."""

    def __init__(self, path: str, number: int, base: int, salt: int) -> None:
        self.path = path
        self.name = os.path.basename(path)
        self.number = number
        self.base = base
        self.salt = salt
        self.size = HEADER_BYTES  # bytes that hold whole records
        self.count = 0  # messages up to `walked`
        self.walked = HEADER_BYTES
        self.resume = -1  # where offsets go on after a gap at the end of this segment,
        self.skipped = False  # which a power cut left, not damage
        self.modified = 0.0
        self.marks = [0]  # ordinals of messages whose record starts at ...
        self.positions = [HEADER_BYTES]  # ... these bytes
        self._fd = -1

    def handle(self) -> int:
        if self._fd < 0:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        return self._fd

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def pread(self, size: int, position: int) -> bytes:
        fd = self.handle()
        try:
            return os.pread(fd, size, position)
        except OSError as error:
            raise JournalError(f"{self.path}: cannot read at byte {position}: {error.strerror}") from error

    def file_size(self) -> int:
        return os.fstat(self.handle()).st_size

    def replaced(self) -> bool:
        """Whether the name stands for another file than the one that is open."""
        try:
            return self._fd >= 0 and os.stat(self.path).st_ino != os.fstat(self._fd).st_ino
        except FileNotFoundError:
            return True

    @property
    def end_offset(self) -> int:
        """The offset after the last message that was walked."""
        return self.resume if self.resume >= 0 else self.base + self.count

    def note(self, position: int) -> None:
        """Count the message whose record starts at `position`."""
        if self.count - self.marks[-1] >= INDEX_MESSAGES or position - self.positions[-1] >= INDEX_BYTES:
            self.marks.append(self.count)
            self.positions.append(position)
        self.count += 1

    def forget_from(self, count: int) -> None:
        """Take back the messages from the ordinal `count` on: they did not reach the disk."""
        while len(self.marks) > 1 and self.marks[-1] >= count:
            self.marks.pop()
            self.positions.pop()
        self.count = count

    def follow(self, end: int) -> int:
        """Index the whole records between `walked` and `end`; the byte after the last of them."""
        cursor = Cursor(self, self.walked, BLOCK_BYTES)
        while True:
            records = cursor.batch(end)
            if not records:
                return self.walked
            for position, kind, body in records:
                if kind == MESSAGE:
                    self.note(position)
                elif kind in (GAP, SKIP):
                    self.resume = decode_gap(body)
                    self.skipped = kind == SKIP
            self.walked = cursor.position

    def locate(self, ordinal: int) -> tuple[int, int]:
        """The nearest mark at or before the message `ordinal`: (its byte, its ordinal)."""
        at = bisect_right(self.marks, ordinal) - 1
        return self.positions[at], self.marks[at]


@final
class Cursor:
    """Reads whole records of one segment, block by block; blocks grow while the reader goes on."""

    def __init__(self, segment: Segment, position: int, block: int = BLOCK_BYTES >> 7) -> None:
        self.segment = segment
        self.position = position
        self._block = block

    def batch(self, end: int) -> list[tuple[int, int, bytes]]:
        """(byte, kind, body) of the next whole records before `end`; empty when the next bytes are none."""
        size = self._block
        while self.position < end:
            asked = min(size, end - self.position)
            data = self.segment.pread(asked, self.position)
            records, stop, need = walk_records(data, self.position, self.segment.salt)
            if records:
                self.position += stop
                self._block = min(2 * self._block, BLOCK_BYTES)
                return records
            if need <= asked or self.position + need > end or len(data) < asked:
                break
            size = need
        return []


def open_segment(directory: Path, number: int, base: int, name: str) -> Segment:
    """Reads and checks the header; JournalDamaged names the file when it does not fit its name."""
    path = str(directory / name)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.pread(fd, HEADER_BYTES, 0)
        status = os.fstat(fd)
    finally:
        os.close(fd)
    try:
        header_number, header_base, salt = decode_header(data)
    except JournalError as error:
        raise JournalDamaged(path, 0, str(error)) from error
    if (header_number, header_base) != (number, base):
        raise JournalDamaged(path, 0, f"the header says number {header_number}, base offset {header_base}")
    segment = Segment(path, number, base, salt)
    segment.size = status.st_size
    segment.modified = status.st_mtime
    return segment
