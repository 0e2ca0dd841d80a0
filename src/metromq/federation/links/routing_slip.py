"""A routing slip: what travels with one copy of a message, as bytes that the journal keeps until the peer has it."""

from dataclasses import dataclass
from functools import lru_cache

from metromq.federation.distribution import Hop
from metromq.federation.links.batch import CHECK
from metromq.protocol.session.packing import Packer, Unpacker


@dataclass(frozen=True, slots=True)
class RoutingSlip:
    stage: int
    flags: int
    served: tuple[str, ...]
    shares: tuple[str, ...]
    shares_done: tuple[str, ...]


@lru_cache(maxsize=4096)
def slip_of(hop: Hop, flags: int = 0) -> bytes:
    packer = Packer().u8(hop.stage).u8(flags | (CHECK if hop.check else 0))
    for names in (hop.served, hop.shares, hop.shares_done):
        packer.u16(len(names))
        for name in names:
            packer.text(name)
    return packer.done()


@lru_cache(maxsize=4096)
def read_slip(note: bytes) -> RoutingSlip:
    reader = Unpacker(note)
    stage, flags = reader.u8(), reader.u8()
    lists = [tuple(reader.text() for _ in range(reader.u16())) for _ in range(3)]
    return RoutingSlip(stage, flags, *lists)
