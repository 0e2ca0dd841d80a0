"""The framer cuts packets out of any pieces, refuses what is too large early, and copies little."""

import pytest

from metromq.errors import MalformedPacket, PeerViolation
from metromq.protocol.reasons import PACKET_TOO_LARGE
from metromq.protocol.wire.decoding import Framer
from metromq.protocol.wire.encoding import varint
from metromq.protocol.wire.framer import packet_bounds


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16383, 16384, 2097151, 2097152])
def test_every_length_of_the_remaining_length(size: int) -> None:
    framer = Framer(1 << 22)
    body = b"x" * size
    raw = b"\x30" + varint(size) + body
    framer.feed(raw)
    assert framer.next() == (0x30, body)
    assert framer.next() is None
    framer.feed(raw[:3])
    framer.feed(raw[3:])
    assert framer.next() == (0x30, body)


def test_remaining_length_of_five_bytes_is_malformed() -> None:
    """[MQTT-1.5.5-1], also when the bytes come one at a time."""
    framer = Framer(1 << 30)
    framer.feed(b"\x30\xff\xff\xff\xff")
    with pytest.raises(MalformedPacket, match=r"MQTT-1\.5\.5-1"):
        framer.next()
    slow = Framer(1 << 30)
    for byte in b"\x30\xff\xff\xff":
        slow.feed(bytes([byte]))
        assert slow.next() is None
    slow.feed(b"\xff")
    with pytest.raises(MalformedPacket, match=r"MQTT-1\.5\.5-1"):
        slow.next()


def test_too_large_is_refused_at_its_header() -> None:
    framer = Framer(100)
    framer.feed(b"\x30\x62" + b"x" * 98)
    assert framer.next() is not None
    framer.feed(b"\x30")
    assert framer.next() is None
    framer.feed(b"\x63")
    with pytest.raises(PeerViolation, match="101 bytes") as caught:
        framer.next()
    assert caught.value.reason_code == PACKET_TOO_LARGE


def test_padded_remaining_length_is_accepted() -> None:
    """3.1.1 does not demand the shortest form, and encoders of small devices pad; we read what is unambiguous."""
    framer = Framer(100)
    framer.feed(b"\xc0\x80\x00\x30\x81\x80\x00x")
    assert framer.next() == (0xC0, b"")
    assert framer.next() == (0x30, b"x")


def test_many_packets_in_one_piece() -> None:
    framer = Framer(100)
    framer.feed(b"\xc0\x00" * 1000 + b"\xe0")
    for _ in range(1000):
        assert framer.next() == (0xC0, b"")
    assert framer.next() is None
    framer.feed(b"\x00")
    assert framer.next() == (0xE0, b"")


def test_pieces_fed_before_the_first_is_taken() -> None:
    framer = Framer(100)
    framer.feed(b"\xc0\x00\xd0")
    framer.feed(b"\x00")
    framer.feed(b"")
    assert [framer.next(), framer.next(), framer.next()] == [(0xC0, b""), (0xD0, b""), None]


def test_large_packet_in_small_pieces() -> None:
    """A megabyte in pieces of 16 bytes; copying everything at every piece would take minutes."""
    framer = Framer(1 << 21)
    raw = b"\x30" + varint(1 << 20) + bytes(1 << 20)
    for start in range(0, len(raw), 16):
        framer.feed(raw[start : start + 16])
        if start + 16 < len(raw):
            assert framer.next() is None
    assert framer.next() == (0x30, bytes(1 << 20))


def test_bounds_of_a_packet_anywhere_in_a_chunk() -> None:
    """What the server's fast path asks: where the body is, or how much must be there to tell."""
    data = b"\xc0\x00" + b"\x30" + varint(200) + bytes(200) + b"\xe0"
    assert packet_bounds(data, 0, 1000) == (2, 2)
    assert packet_bounds(data, 2, 1000) == (5, 205)
    assert packet_bounds(data[:100], 2, 1000) == (5, 205)
    assert packet_bounds(data[:4], 2, 1000) == (0, 5)
    assert packet_bounds(data, 205, 1000) == (0, 207)
    with pytest.raises(PeerViolation, match=r"203 bytes is over the limit of 202 \[MQTT-3\.2\.2-15\]"):
        packet_bounds(data, 2, 202)
    with pytest.raises(MalformedPacket, match=r"shortest form \[MQTT-1\.5\.5-1\]"):
        packet_bounds(b"\xc0\x80\x00", 0, 1000)
    assert packet_bounds(b"\xc0\x80\x00", 0, 1000, padded=True) == (3, 3)
