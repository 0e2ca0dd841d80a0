"""A routing slip: what travels with one copy of a message, as bytes that the journal keeps until the peer has it."""

from dataclasses import dataclass
from functools import lru_cache

from metromq.errors import BytesDamaged
from metromq.federation.hop import Hop
from metromq.federation.links.batch import CHECK, PASSED, SYNC
from metromq.federation.stages import CLIENT, FINAL, HANDOVER, HOP_LIMIT, OWNER, RELAY
from metromq.protocol import Packer, Unpacker

_WITH_LIMIT = 0x80  # in the first byte; slips in journals of earlier versions have no limit and count stages otherwise
REMEMBERED_LENGTH = 512  # slips with longer names of shared subscriptions are not remembered: they may be huge
_FLAGS = CHECK | SYNC | PASSED
_OLD_STAGES = (CLIENT, OWNER, HANDOVER, FINAL)


@dataclass(frozen=True, slots=True)
class RoutingSlip:
    stage: int
    flags: int
    served: tuple[str, ...]
    shares: tuple[str, ...]
    shares_done: tuple[str, ...]
    limit: int
    targets: tuple[str, ...] = ()

    def is_for(self, name: str) -> bool:
        """Whether a QoS 0 message is for the subscribers of the broker that gets it, too."""
        return name in self.targets if self.targets else name not in self.served


def slip_of(hop: Hop, flags: int = 0) -> bytes:
    is_long = sum(len(name) for name in (*hop.shares, *hop.shares_done)) > REMEMBERED_LENGTH
    return _pack(hop, flags) if is_long else _remembered_slip(hop, flags)


@lru_cache(maxsize=4096)
def _remembered_slip(hop: Hop, flags: int) -> bytes:
    return _pack(hop, flags)


def _pack(hop: Hop, flags: int) -> bytes:
    flags |= (CHECK if hop.check else 0) | (PASSED if hop.passed else 0)
    packer = Packer().u8(_WITH_LIMIT | hop.stage).u8(flags).u8(hop.limit)
    # Slips of relays have a fourth list; journals of earlier versions hold none of relays.
    lists = (hop.served, hop.shares, hop.shares_done)
    for names in (*lists, hop.targets) if hop.stage == RELAY else lists:
        packer.u16(len(names))
        for name in names:
            packer.text(name)
    return packer.done()


def read_slip(note: bytes) -> RoutingSlip:
    return _read(Unpacker(note)) if len(note) > REMEMBERED_LENGTH else _remembered_reading(note)


@lru_cache(maxsize=4096)
def _remembered_reading(note: bytes) -> RoutingSlip:
    return _read(Unpacker(note))


def is_slip(data: bytes) -> bool:
    """Whether these bytes are a slip that some version wrote, and nothing beside it."""
    reader = Unpacker(data)
    try:
        slip = _read(reader)
    except (BytesDamaged, IndexError):
        return False
    return reader.at_end() and CLIENT < slip.stage <= FINAL and not slip.flags & ~_FLAGS and slip.limit <= HOP_LIMIT


def _read(reader: Unpacker) -> RoutingSlip:
    first, flags = reader.u8(), reader.u8()
    if first & _WITH_LIMIT:
        stage, limit = first & ~_WITH_LIMIT, reader.u8()
    else:
        stage, limit = _OLD_STAGES[first], HOP_LIMIT
    lists = [tuple(reader.text() for _ in range(reader.u16())) for _ in range(4 if stage == RELAY else 3)]
    return RoutingSlip(stage, flags, lists[0], lists[1], lists[2], limit, lists[3] if stage == RELAY else ())
