"""Reads a journal that another process writes: never locks, never changes a file, never returns half a record."""

import struct
from pathlib import Path
from typing import Final, final

from metromq.errors import JournalDamaged, JournalError, OffsetsGone
from metromq.journal.codec import MESSAGE
from metromq.journal.segment import list_segments, open_segment
from metromq.journal.shelf import Shelf

LISTINGS: Final = 5  # a listing taken while segments come and go may miss one


@final
class JournalReader:
    """Follows a directory; every call looks again at what is there."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._shelf = Shelf(str(directory), False)

    def bounds(self) -> tuple[int, int]:
        """The first readable offset, and one past the last whole record; (0, 0) when there is nothing yet."""
        self._refresh()
        segments = self._shelf.segments
        return (segments[0].base, segments[-1].end_offset) if segments else (0, 0)

    def read(self, start: int, limit: int, max_bytes: int = 8 << 20) -> list[tuple[int, bytes]]:
        """(offset, body) of messages from `start` on: at most `limit`, and no more once `max_bytes` is passed.

        OffsetsGone says where to go on when `start` was removed or lost; a result never reaches across such a gap.
        """
        first, end = self.bounds()
        if start >= end or limit <= 0:
            return []
        if start < first:
            raise OffsetsGone(str(self.directory), start, first)
        try:
            return self._read(start, limit, max_bytes)
        except FileNotFoundError as error:
            first, _ = self.bounds()
            raise OffsetsGone(str(self.directory), start, max(first, start + 1)) from error
        except JournalDamaged:
            self._reset()  # the writer may have repaired and replaced the file since it was opened
            self._refresh()
            return self._read(start, limit, max_bytes)

    def read_block(self, start: int, limit: int, max_bytes: int) -> tuple[bytes, bytes, int]:
        """The same messages as `read`, or fewer of them: lengths (32 bits each), bodies in a row, and how many.

        No object is made per message: this is for readers of millions.
        """
        first, end = self.bounds()
        if first <= start < end and limit > 0:
            try:
                found = self._shelf.gather(start, limit, max_bytes)
            except (FileNotFoundError, JournalDamaged):
                found = b"", b"", 0
            if found[2]:
                return found
        bodies = [body for _, body in self.read(start, limit, max_bytes)]
        return struct.pack(f"<{len(bodies)}I", *map(len, bodies)), b"".join(bodies), len(bodies)

    def close(self) -> None:
        self._reset()

    def _read(self, start: int, limit: int, max_bytes: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        size = 0
        for kind, offset, body in self._shelf.scan(start):
            if kind != MESSAGE:
                continue
            if offset != start + len(found):
                if not found:
                    raise self._shelf.gone(start, offset)
                break
            found.append((offset, body))
            size += len(body)
            if len(found) >= limit or size >= max_bytes:
                break
        end = self._shelf.segments[-1].end_offset
        if not found and start < end:  # nothing was written behind the gap yet
            raise self._shelf.gone(start, end)
        return found

    def _refresh(self) -> None:
        for _ in range(LISTINGS):
            names = self._list()
            self._drop_what_is_gone(names)
            try:
                self._take_up(names)
                return
            except FileNotFoundError:  # retention took a file after it was listed
                self._reset()
        raise JournalError(f"{self.directory}: segments vanish faster than they can be opened")

    def _drop_what_is_gone(self, names: list[tuple[int, int, str]]) -> None:
        segments = self._shelf.segments
        if segments and (not names or names[-1][0] < segments[-1].number or segments[-1].replaced()):
            self._reset()  # another journal lies in this directory now, or a repaired one
        while self._shelf.segments and self._shelf.segments[0].number < names[0][0]:
            self._shelf.remove_first()

    def _take_up(self, names: list[tuple[int, int, str]]) -> None:
        segments = self._shelf.segments
        newest = segments[-1].number if segments else 0
        if segments and names[-1][0] > newest:  # complete now: all of its bytes must be records
            segments[-1].size = segments[-1].file_size()
        for number, base, name in names:
            if number > newest:
                self._shelf.add(open_segment(self.directory, number, base, name))
        if segments:
            segments[-1].size = segments[-1].follow(segments[-1].file_size())

    def _list(self) -> list[tuple[int, int, str]]:
        for _ in range(LISTINGS):
            try:
                names = list_segments(self.directory)
            except FileNotFoundError:
                return []
            if not names or names[-1][0] - names[0][0] == len(names) - 1:
                return names
        raise JournalError(f"{self.directory}: segments between {names[0][2]} and {names[-1][2]} are missing")

    def _reset(self) -> None:
        self._shelf.close()
        self._shelf = Shelf(str(self.directory), False)
