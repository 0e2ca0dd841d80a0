"""What a link says beside a message, as bytes that the journal keeps with each copy."""

from dataclasses import dataclass
from functools import lru_cache

from metromq.federation.distribution import Hop
from metromq.federation.links.batch import CHECK
from metromq.protocol.packing import Packer, Unpacker


@dataclass(frozen=True, slots=True)
class Note:
    stage: int
    flags: int
    served: tuple[str, ...]
    shares: tuple[str, ...]
    shares_done: tuple[str, ...]


@lru_cache(maxsize=4096)
def note_of(hop: Hop, flags: int = 0) -> bytes:
    packer = Packer().u8(hop.stage).u8(flags | (CHECK if hop.check else 0))
    for names in (hop.served, hop.shares, hop.shares_done):
        packer.u16(len(names))
        for name in names:
            packer.text(name)
    return packer.done()


@lru_cache(maxsize=4096)
def read_note(note: bytes) -> Note:
    reader = Unpacker(note)
    stage, flags = reader.u8(), reader.u8()
    lists = [tuple(reader.text() for _ in range(reader.u16())) for _ in range(3)]
    return Note(stage, flags, *lists)
