"""When the journal stood where, so that an age becomes an offset."""

from bisect import bisect_right
from collections import deque
from operator import itemgetter
from typing import Final, final

from metromq.protocol import Packer, Unpacker
from metromq.protocol.session import KIND_LINK, KIND_REPLAY, Hub, Message

MARK_EVERY_US: Final = 1_000_000
MAX_LATELY: Final = 16  # announcements that are a little late need not lead far back
MAX_MARKS: Final = 4096  # beyond, the older ones are thinned out: they lead a little further back than needed


@final
class Marks:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._marks: list[tuple[int, int]] = []  # wall clock, next offset
        self._lately: deque[tuple[int, int]] = deque(maxlen=MAX_LATELY)  # the same of the last ticks
        self._latest = -1  # the offset of the last of these

    def mark(self) -> None:
        """At every tick, and when a peer has spoken: the sooner after a message, the nearer an age leads to it."""
        log = self._hub.commits.log
        if log is None:
            return
        wall_us, offset = self._hub.clock.wall_us, log.next_offset()
        if offset != self._latest:
            self._latest = offset
            self._lately.append((wall_us, offset))
        if not self._marks or wall_us - self._marks[-1][0] >= MARK_EVERY_US:
            self._add(wall_us, offset)

    def recalled(self, message: Message) -> None:
        """The journal is read again after a restart: when it stood here."""
        wall_us = message.arrived_us if message.kind == KIND_LINK else message.time_us
        is_timed = wall_us and message.kind != KIND_REPLAY and not message.retain  # others may have another's time
        if is_timed and (not self._marks or wall_us - self._marks[-1][0] >= MARK_EVERY_US):
            self._add(wall_us, message.offset)

    def _add(self, wall_us: int, offset: int) -> None:
        self._marks.append((wall_us, offset))
        if len(self._marks) > MAX_MARKS:
            half = MAX_MARKS // 2
            self._marks = self._marks[:half:2] + self._marks[half:]

    def away_us(self) -> int:
        """How long ago the journal got its last message; -1: it never did."""
        return max(0, self._hub.clock.wall_us - self._marks[-1][0]) if self._marks else -1

    def offset_at(self, since_us: int) -> int:
        """Where what came since that time begins, or somewhat earlier; -1: nobody knows."""
        if not self._marks:
            return -1
        start = self._marks[0][1]
        for wall_us, offset in self._marks:
            if wall_us > since_us:
                break
            start = max(start, offset)
        for wall_us, offset in self._lately:
            if wall_us > since_us:
                break
            start = max(start, offset)
        return start

    def no_later(self, came_us: int, offset: int) -> int:
        """The time, if what has this offset can have come then; otherwise that of the mark after it."""
        place = bisect_right(self._marks, offset, key=itemgetter(1))
        return min(came_us, self._marks[place][0]) if place < len(self._marks) else came_us

    def pack(self, packer: Packer) -> None:
        packer.u32(len(self._marks))
        for wall_us, offset in self._marks:
            packer.u64(wall_us).i64(offset)

    def unpack(self, reader: Unpacker) -> None:
        self._marks = [(reader.u64(), reader.i64()) for _ in range(reader.u32())]
