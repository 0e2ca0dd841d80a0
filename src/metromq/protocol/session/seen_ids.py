"""Which messages a session has had: so that one that reaches it by a second way, around a move, is recognised."""

from array import array
from bisect import bisect_left, bisect_right
from typing import Final, final

from metromq.errors import BytesDamaged
from metromq.protocol.packing import Packer, Unpacker

MAX_IDS: Final = 32_768  # of one session; a copy that comes later than this many others is not recognised
BLOCK: Final = 1024  # ids that are kept in order in one piece, in two bytes each where they are close together,
RECENT: Final = 256  # and how many of an origin wait for that, as they came

_FLEETING: Final = "\0"  # behind the origin of what was sent at QoS 0
_IN_BLOCKS: Final = 0xFFFFFFFF  # begins what this release packs; older ones began with a number of origins
_CODES: Final = {2: "H", 4: "I", 8: "q"}


@final
class _Ids:
    """Of one origin: the newest as they came, the others sorted, in blocks that do not overlap."""

    def __init__(self) -> None:
        self.recent: array[int] = array("q")
        self.bases: list[int] = []  # the first number of each block, and what its numbers are more than that
        self.blocks: list[array[int]] = []
        self.greatest = -1  # known or forgotten
        self.count = 0

    def holds(self, offset: int) -> bool:
        if offset > self.greatest:
            return False
        place = bisect_right(self.bases, offset) - 1
        if place >= 0:
            block, more = self.blocks[place], offset - self.bases[place]
            found = bisect_left(block, more)
            if found < len(block) and block[found] == more:
                return True
        return offset in self.recent

    def sort(self) -> None:
        """All into blocks, each number once."""
        if not self.recent:
            return
        ids = set(self.recent)
        # From where on blocks change: usually the last one is filled up.
        place = max(0, bisect_right(self.bases, min(ids)) - 1)
        if place == len(self.bases) - 1 and len(self.blocks[place]) == BLOCK and min(ids) > self.last(place):
            place += 1
        for base, block in zip(self.bases[place:], self.blocks[place:], strict=True):
            ids.update([base + more for more in block])
            self.count -= len(block)
        del self.bases[place:], self.blocks[place:]
        self.count += len(ids) - len(self.recent)
        self.recent = array("q")
        ordered = sorted(ids)
        for start in range(0, len(ordered), BLOCK):
            self.put(len(self.blocks), ordered[start : start + BLOCK])

    def last(self, place: int) -> int:
        return self.bases[place] + self.blocks[place][-1]

    def put(self, place: int, ids: list[int]) -> None:
        """A block where it belongs among the others."""
        base = ids[0]
        span = ids[-1] - base
        code = "H" if span < 1 << 16 else "I" if span < 1 << 32 else "q"
        self.bases.insert(place, base)
        self.blocks.insert(place, array(code, [number - base for number in ids]))

    def all(self) -> list[int]:
        found = [base + more for base, block in zip(self.bases, self.blocks, strict=True) for more in block]
        return found + list(self.recent)

    def remove(self, offset: int) -> int:
        """How often it was here."""
        if not self.holds(offset):
            return 0
        before = self.count
        self.sort()
        place = bisect_right(self.bases, offset) - 1
        base = self.bases.pop(place)
        kept = [base + more for more in self.blocks.pop(place) if base + more != offset]
        if kept:
            self.put(place, kept)
        self.count -= 1
        return before - self.count

    def replace(self, ids: list[int]) -> None:
        self.bases, self.blocks = [], []
        self.recent = array("q", ids)
        self.count = len(ids)
        self.sort()

    def forget(self) -> int:
        """What is oldest goes: the first block, or half of the only one. How much that was, with what was twice."""
        before = self.count
        self.sort()
        if len(self.blocks) > 1:
            self.count -= len(self.blocks[0])
            del self.bases[0], self.blocks[0]
        else:
            ids = self.all()
            self.replace(ids[(len(ids) + 1) // 2 :])
        return before - self.count

    def copy(self) -> "_Ids":
        made = _Ids()
        made.recent = self.recent[:]
        made.bases, made.blocks = self.bases[:], self.blocks[:]  # a block is made once and does not change
        made.greatest, made.count = self.greatest, self.count
        return made


@final
class SeenIds:
    """The newest ids by origin. Adding is cheap, and so is looking up what is newer than all; only sessions that have
    moved look up what may be older."""

    def __init__(self) -> None:
        self._by_origin: dict[str, _Ids] = {}
        self._count = 0

    def add_fleeting(self, origin: str, offset: int) -> None:
        """It was sent at QoS 0, and may be lost: it need not be sent so again."""
        self.add(origin + _FLEETING, offset)

    def waits_surely(self, origin: str, offset: int) -> None:
        """It was sent at QoS 0, and is sent once more at a higher one: the first may be lost."""
        self.take_back(origin + _FLEETING, offset)

    def forget_fleeting(self) -> None:
        for origin in [origin for origin in self._by_origin if origin.endswith(_FLEETING)]:
            self._count -= self._by_origin.pop(origin).count

    def settle(self) -> bool:
        """What was sent at QoS 0 counts as had from now on; whether there was anything."""
        found = [origin for origin in self._by_origin if origin.endswith(_FLEETING)]
        for fleeting in found:
            ids = self._by_origin.pop(fleeting)
            self._count -= ids.count
            for offset in ids.all():
                self.add(fleeting[: -len(_FLEETING)], offset)
        return bool(found)

    def add(self, origin: str, offset: int) -> None:
        ids = self._by_origin.get(origin)
        if ids is None:
            ids = self._by_origin[origin] = _Ids()
        if offset > ids.greatest:
            ids.greatest = offset
        ids.recent.append(offset)
        ids.count += 1
        self._count += 1
        if len(ids.recent) >= RECENT or self._count > MAX_IDS:
            self._tidy(ids)

    def _tidy(self, ids: _Ids) -> None:
        """What was queued more than once is here as often: that goes first."""
        before = ids.count
        ids.sort()
        self._count += ids.count - before
        while self._count > MAX_IDS:
            longest = max(self._by_origin, key=lambda origin: self._by_origin[origin].count)
            self._count -= self._by_origin[longest].forget()

    def take_back(self, origin: str, offset: int) -> None:
        """It was not stored, and has not been had."""
        ids = self._by_origin.get(origin)
        if ids is not None:
            self._count -= ids.remove(offset)

    def holds_fleeting(self, origin: str, offset: int) -> bool:
        return self.holds(origin, offset) or self.holds(origin + _FLEETING, offset)

    def holds(self, origin: str, offset: int) -> bool:
        ids = self._by_origin.get(origin)
        return ids is not None and ids.holds(offset)

    def without(self, gone: dict[str, set[int]]) -> "SeenIds":
        """All but these. One that was queued twice is here twice, and both go."""
        made = self.copy()
        for origin, offsets in gone.items():
            ids = made._by_origin.get(origin)
            if ids is not None:
                made._count -= ids.count
                ids.replace([offset for offset in ids.all() if offset not in offsets])
                made._count += ids.count
        return made

    def merge(self, other: "SeenIds") -> None:
        for origin, ids in other._by_origin.items():
            known = self._by_origin.get(origin)
            if known is None:
                self._by_origin[origin] = known = ids.copy()
                self._count += known.count
            else:
                before = known.count
                known.recent.extend(array("q", ids.all()))
                known.count += ids.count
                known.greatest = max(known.greatest, ids.greatest)
                known.sort()
                self._count += known.count - before
            self._tidy(known)

    def copy(self) -> "SeenIds":
        made = SeenIds()
        made._by_origin = {origin: ids.copy() for origin, ids in self._by_origin.items()}
        made._count = self._count
        return made

    def pack(self) -> bytes:
        packer = Packer().u32(_IN_BLOCKS).u32(len(self._by_origin))
        for origin, ids in self._by_origin.items():
            packer.text(origin).blob(ids.recent.tobytes()).u32(len(ids.blocks))
            for base, block in zip(ids.bases, ids.blocks, strict=True):
                packer.u64(base).u8(block.itemsize).blob(block.tobytes())
        return packer.done()

    def pack_plainly(self) -> bytes:
        """As releases read it that do not know of blocks."""
        packer = Packer().u32(len(self._by_origin))
        for origin, ids in self._by_origin.items():
            packer.text(origin).blob(array("q", ids.all()).tobytes())
        return packer.done()


def _code(size: int) -> str:
    if size not in _CODES:
        raise BytesDamaged(f"ids of {size} bytes each")
    return _CODES[size]


def unpack_seen(data: bytes) -> SeenIds:
    """No bytes: nothing."""
    made = SeenIds()
    reader = Unpacker(data)
    first = reader.u32() if data else 0
    for _ in range(reader.u32() if first == _IN_BLOCKS else first):
        ids = made._by_origin[reader.text()] = _Ids()
        ids.recent.frombytes(reader.blob())
        ids.count = len(ids.recent)
        for _ in range(reader.u32() if first == _IN_BLOCKS else 0):
            ids.bases.append(reader.u64())
            block = array(_code(reader.u8()))
            block.frombytes(reader.blob())
            ids.blocks.append(block)
            ids.count += len(block)
        ids.greatest = max(max(ids.recent, default=-1), ids.last(len(ids.blocks) - 1) if ids.blocks else -1)
        made._count += ids.count
    return made
