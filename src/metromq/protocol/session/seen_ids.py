"""Which messages a session has had: so that one that reaches it by a second way, around a move, is recognised."""

from array import array
from typing import Final, final

from metromq.protocol.packing import Packer, Unpacker

MAX_IDS: Final = 8192  # of one session; a copy that comes later than this many others is not recognised


_FLEETING: Final = "\0"  # behind the origin of what was sent at QoS 0


@final
class SeenIds:
    """The newest ids by origin. Adding is cheap, and so is looking up what is newer than all; only sessions that have
    moved look up what may be older."""

    def __init__(self) -> None:
        self._by_origin: dict[str, array[int]] = {}
        self._greatest: dict[str, int] = {}  # of each origin, known or forgotten
        self._count = 0

    def add_fleeting(self, origin: str, offset: int) -> None:
        """It was sent at QoS 0, and may be lost: it need not be sent so again."""
        self.add(origin + _FLEETING, offset)

    def waits_surely(self, origin: str, offset: int) -> None:
        """It was sent at QoS 0, and is sent once more at a higher one: the first may be lost."""
        known = self._by_origin.get(origin + _FLEETING)
        if known is not None and offset in known:
            known.remove(offset)
            self._count -= 1

    def forget_fleeting(self) -> None:
        for origin in [origin for origin in self._by_origin if origin.endswith(_FLEETING)]:
            self._count -= len(self._by_origin.pop(origin))
            del self._greatest[origin]

    def settle(self) -> bool:
        """What was sent at QoS 0 counts as had from now on; whether there was anything."""
        found = [origin for origin in self._by_origin if origin.endswith(_FLEETING)]
        for fleeting in found:
            offsets = self._by_origin.pop(fleeting)
            del self._greatest[fleeting]
            self._count -= len(offsets)
            for offset in offsets:
                self.add(fleeting[: -len(_FLEETING)], offset)
        return bool(found)

    def add(self, origin: str, offset: int) -> None:
        known = self._by_origin.get(origin)
        if known is None:
            known = array("q")
            self._by_origin[origin] = known
            self._greatest[origin] = offset
        elif offset > self._greatest[origin]:
            self._greatest[origin] = offset
        known.append(offset)
        self._count += 1
        if self._count > MAX_IDS:
            self._forget()

    def take_back(self, origin: str, offset: int) -> None:
        """It was not stored, and has not been had."""
        known = self._by_origin.get(origin)
        if known is not None and offset in known:
            known.remove(offset)
            self._count -= 1

    def _forget(self) -> None:
        """What was queued more than once is here as often: that goes first. Then the older half of the longest list."""
        self._by_origin = {origin: array("q", dict.fromkeys(known)) for origin, known in self._by_origin.items()}
        self._count = sum([len(known) for known in self._by_origin.values()])
        if self._count <= MAX_IDS // 2:
            return
        longest = max(self._by_origin, key=lambda origin: len(self._by_origin[origin]))
        known = self._by_origin[longest]
        half = (len(known) + 1) // 2
        del known[:half]
        self._count -= half

    def holds_fleeting(self, origin: str, offset: int) -> bool:
        return self.holds(origin, offset) or self.holds(origin + _FLEETING, offset)

    def holds(self, origin: str, offset: int) -> bool:
        known = self._by_origin.get(origin)
        return known is not None and offset <= self._greatest[origin] and offset in known

    def without(self, ids: dict[str, set[int]]) -> "SeenIds":
        """All but these. One that was queued twice is here twice, and both go."""
        made = SeenIds()
        for origin, offsets in self._by_origin.items():
            gone = ids.get(origin)
            kept = array("q", [offset for offset in offsets if offset not in gone]) if gone else offsets[:]
            made._by_origin[origin] = kept
            made._count += len(kept)
        made._greatest = self._greatest.copy()
        return made

    def merge(self, other: "SeenIds") -> None:
        for origin, offsets in other._by_origin.items():
            had = set(self._by_origin.get(origin, ()))
            for offset in offsets:
                if offset not in had:
                    had.add(offset)
                    self.add(origin, offset)

    def copy(self) -> "SeenIds":
        made = SeenIds()
        made._by_origin = {origin: offsets[:] for origin, offsets in self._by_origin.items()}
        made._greatest = self._greatest.copy()
        made._count = self._count
        return made

    def pack(self) -> bytes:
        packer = Packer().u32(len(self._by_origin))
        for origin, offsets in self._by_origin.items():
            packer.text(origin).blob(offsets.tobytes())
        return packer.done()


def unpack_seen(data: bytes) -> SeenIds:
    """No bytes: nothing."""
    made = SeenIds()
    reader = Unpacker(data)
    for _ in range(reader.u32() if data else 0):
        origin = reader.text()
        offsets = array("q")
        offsets.frombytes(reader.blob())
        made._by_origin[origin] = offsets
        made._greatest[origin] = max(offsets, default=-1)
        made._count += len(offsets)
    return made
