"""Segments in a row, read by offset: what the writer and the readers in other processes share."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, final

from metromq.errors import JournalDamaged, OffsetsGone
from metromq.journal.codec import (
    GAP,
    HEAD_BYTES,
    HEADER_BYTES,
    MESSAGE,
    SKIP,
    decode_gap,
    gather_messages,
    peek_record,
    record_body,
)
from metromq.journal.index import load_index, save_index
from metromq.journal.segment import Cursor, Segment

READ_BLOCK_BYTES: Final = 16 << 10
OPEN_FILES: Final = 64  # segments whose file stays open for reading


@final
class Shelf:
    """Segments by number without holes. Bytes before a segment's `size` are records; its index is made when needed."""

    def __init__(self, directory: str, saves_indexes: bool) -> None:
        self.directory = directory
        self._saves_indexes = saves_indexes  # only the writer changes the directory
        self.segments: list[Segment] = []
        self._numbers: list[int] = []
        self._bases: list[int] = []
        self._opened: list[Segment] = []
        self._block = b""
        self._block_start = 0
        self._block_segment: Segment | None = None
        self._hint_offset = -1  # the message that starts at or after ...
        self._hint_position = 0  # ... this byte of ...
        self._hint_segment: Segment | None = None  # ... this segment

    def add(self, segment: Segment) -> None:
        self.segments.append(segment)
        self._numbers.append(segment.number)
        self._bases.append(segment.base)

    def remove_first(self) -> Segment:
        segment = self.segments.pop(0)
        self._numbers.pop(0)
        self._bases.pop(0)
        if segment in self._opened:
            self._opened.remove(segment)
        segment.close()
        self.forget_blocks()
        return segment

    def close(self) -> None:
        for segment in self.segments:
            segment.close()

    def forget_blocks(self) -> None:
        """The end of a file was cut: bytes that were read may be gone."""
        self._block_segment = None
        self._hint_segment = None

    def first_offset(self) -> int:
        return self._bases[0]

    def read(self, offset: int) -> bytes:
        """The body of a message that is in the files; cheap when the one after it is read next."""
        segment, position, current = self._place(offset)
        while position + HEAD_BYTES <= segment.size:
            at = self._load(segment, position, HEAD_BYTES)
            head = peek_record(self._block, at, segment.salt)
            if head < 0:
                raise JournalDamaged(segment.path, position, "no valid record")
            end = position + HEAD_BYTES + (head >> 8)
            if head & 0xFF == MESSAGE:
                if current == offset:
                    at = self._load(segment, position, end - position)
                    body = record_body(self._block, at, segment.salt)
                    if body is None:
                        raise JournalDamaged(segment.path, position, f"the checksum of offset {offset} is wrong")
                    self._hint(segment, offset + 1, end)
                    return body
                current += 1
            elif head & 0xFF == SKIP:
                segment.skipped = True
            position = end
        following = self._after(segment)
        first = following.base if following is not None else segment.end_offset
        raise self.gone(offset, first)

    def gone(self, offset: int, first: int) -> OffsetsGone:
        """Why there is no message from `offset` up to `first`."""
        segment = self.segments[bisect_right(self._bases, offset) - 1]
        if segment.skipped:
            return OffsetsGone(self.directory, offset, first, "left out after a power cut", True)
        return OffsetsGone(self.directory, offset, first, "they were lost to damage that was accepted")

    def scan(self, offset: int) -> Iterator[tuple[int, int, bytes]]:
        """(kind, offset or -1, body) of the message `offset` and all records after it; gaps are stepped over."""
        segment, position, current = self._place(offset)
        return self._records(segment, position, current, offset)

    def gather(self, offset: int, most: int, room: int) -> tuple[bytes, bytes, int]:
        """Lengths (32 bits each) and bodies of the message `offset` and those after it, in a row, and how many.

        Never beyond the end of a segment; none where anything stands in the way, which `scan` tells.
        """
        segment, position, current = self._place(offset)
        self._touch(segment)
        asked = min(room + (room >> 2) + READ_BLOCK_BYTES, segment.size - position)
        data = segment.pread(asked, position) if asked > 0 else b""
        lengths, bodies, stop = gather_messages(data, segment.salt, offset - current, most, room)
        count = len(bodies)
        if count:
            self._hint(segment, offset + count, position + stop)
        return b"".join(lengths), b"".join(bodies), count

    def records(self, number: int, position: int, next_offset: int) -> Iterator[tuple[int, int, bytes]]:
        """The same from a byte in segment `number`, where the next message has the offset `next_offset`."""
        segment = self.segments[bisect_left(self._numbers, number)]
        return self._records(segment, position, next_offset, -1)

    def _records(self, segment: Segment, position: int, current: int, start: int) -> Iterator[tuple[int, int, bytes]]:
        started = start < 0
        while True:
            self._touch(segment)
            cursor = Cursor(segment, position)
            while True:
                records = cursor.batch(segment.size)
                if not records:
                    break
                for at, kind, body in records:
                    if kind == MESSAGE:
                        current += 1
                        if current > start:
                            started = True
                            self._hint(segment, current, at + HEAD_BYTES + len(body))
                            yield MESSAGE, current - 1, body
                    elif kind in (GAP, SKIP):
                        current = decode_gap(body)
                        segment.skipped = kind == SKIP
                    elif started:
                        yield kind, -1, body
            if cursor.position < segment.size:
                raise JournalDamaged(segment.path, cursor.position, "no valid record")
            following = self._after(segment)
            if following is None:
                return
            if current != following.base:
                raise JournalDamaged(segment.path, segment.size, _short(current, following.base))
            segment = following
            position = HEADER_BYTES

    def _after(self, segment: Segment) -> Segment | None:
        index = bisect_right(self._numbers, segment.number)
        return self.segments[index] if index < len(self.segments) else None

    def _place(self, offset: int) -> tuple[Segment, int, int]:
        """Where to start looking for a message: segment, byte, the offset of the next message from there."""
        if offset < self._bases[0]:
            raise OffsetsGone(self.directory, offset, self._bases[0])
        segment = self.segments[bisect_right(self._bases, offset) - 1]
        if segment is self._hint_segment and offset == self._hint_offset:
            return segment, self._hint_position, offset
        self._touch(segment)
        if segment.walked < segment.size:
            self._index(segment)
        position, ordinal = segment.locate(offset - segment.base)
        return segment, position, segment.base + ordinal

    def _touch(self, segment: Segment) -> None:
        """Bound the open files; one that was closed opens again when it is read."""
        if segment not in self._opened:
            self._opened.append(segment)
            if len(self._opened) > OPEN_FILES:
                self._opened.pop(0).close()

    def _index(self, segment: Segment) -> None:
        """Segments older than the snapshot are looked into when they are first read."""
        following = self._after(segment)
        if following is not None and load_index(segment):
            return
        if segment.follow(segment.size) < segment.size:
            raise JournalDamaged(segment.path, segment.walked, "no valid record")
        if following is None:
            return
        if following.base != segment.end_offset:
            raise JournalDamaged(segment.path, segment.size, _short(segment.end_offset, following.base))
        if self._saves_indexes:
            save_index(segment)

    def _hint(self, segment: Segment, offset: int, position: int) -> None:
        self._hint_segment = segment
        self._hint_offset = offset
        self._hint_position = position

    def _load(self, segment: Segment, position: int, need: int) -> int:
        """Have `need` bytes from `position` on in the block; where they start in it."""
        at = position - self._block_start
        if segment is self._block_segment and at >= 0 and at + need <= len(self._block):
            return at
        self._block = segment.pread(max(need, READ_BLOCK_BYTES), position)
        self._block_start = position
        self._block_segment = segment
        if len(self._block) < need:
            self._block_segment = None
            raise JournalDamaged(segment.path, position, "the file ends inside a record")
        return 0


def _short(end: int, base: int) -> str:
    return f"records are missing at its end: offsets {end} to {base - 1} are lost"
