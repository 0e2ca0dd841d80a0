"""Feeds bytes to the wire in every way a network may: whole, byte by byte, with the tail of a next packet."""

from metromq.protocol.wire.decoding import Framer, decode
from metromq.protocol.wire.packets import Packet

LIMIT = 1 << 20
NEXT = bytes.fromhex("c000")  # a PINGREQ that follows
WAYS = ("whole", "byte by byte", "with a tail")


def frames(raw: bytes, way: str) -> tuple[int, bytes]:
    """The first byte and body of the one packet in `raw`, fed the given way."""
    framer = Framer(LIMIT)
    if way == "byte by byte":
        for index in range(len(raw)):
            assert framer.next() is None
            framer.feed(raw[index : index + 1])
    else:
        framer.feed(raw if way == "whole" else raw + NEXT[:1])
    frame = framer.next()
    assert frame is not None, "no whole packet"
    assert framer.next() is None
    framer.feed(NEXT if way != "with a tail" else NEXT[1:])
    assert framer.next() == (0xC0, b"")
    return frame


def decoded(raw: bytes, version: int, server: bool, way: str = "whole") -> Packet:
    first_byte, body = frames(raw, way)
    return decode(first_byte, body, version, server)
