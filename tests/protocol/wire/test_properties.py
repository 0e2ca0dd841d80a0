"""Properties: the standard's table, and the short cut for PUBLISH against the slow way."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.errors import MalformedPacket, PeerViolation, ProtocolViolation, UsageError
from metromq.protocol.wire.encoding import encode_ack, encode_publish
from metromq.protocol.wire.packets import KIND_NAMES, PUBACK, PUBLISH, Properties
from metromq.protocol.wire.properties import (
    RULES,
    WILL,
    decode_raw,
    encode_properties,
    encode_raw,
    read_properties,
    split_publish_properties,
)
from metromq.protocol.wire.reader import PacketReader
from metromq.protocol.wire.values import binary, string, u16, u32, varint
from tests.protocol.wire.strategies import properties

# Table 2-4 of the standard, typed in once more: identifier, an example value, the packets. W is the will.
TABLE = """
01 01                   PUBLISH W
02 00000001             PUBLISH W
03 000161               PUBLISH W
08 000161               PUBLISH W
09 000161               PUBLISH W
0b 01                   PUBLISH SUBSCRIBE
11 00000001             CONNECT CONNACK DISCONNECT
12 000161               CONNACK
13 0001                 CONNACK
15 000161               CONNECT CONNACK AUTH
16 000161               CONNECT CONNACK AUTH
17 01                   CONNECT
18 00000001             W
19 01                   CONNECT
1a 000161               CONNACK
1c 000161               CONNACK DISCONNECT
1f 000161               CONNACK PUBACK PUBREC PUBREL PUBCOMP SUBACK UNSUBACK DISCONNECT AUTH
21 0001                 CONNECT CONNACK
22 0001                 CONNECT CONNACK
23 0001                 PUBLISH
24 01                   CONNACK
25 01                   CONNACK
26 000161000162         CONNECT CONNACK PUBLISH W PUBACK PUBREC PUBREL PUBCOMP SUBSCRIBE SUBACK UNSUBSCRIBE UNSUBACK DISCONNECT AUTH
27 00000001             CONNECT CONNACK
28 01                   CONNACK
29 01                   CONNACK
2a 01                   CONNACK
"""  # noqa: E501
ROWS = [line.split() for line in TABLE.strip().splitlines()]
CARRIERS = [(WILL, "W")] + [
    (kind, name) for kind, name in enumerate(KIND_NAMES) if kind and not name.startswith("PING")
]


def test_the_table_is_whole() -> None:
    assert [int(row[0], 16) for row in ROWS] == sorted(RULES)


@pytest.mark.parametrize(("row", "carrier"), list(product(ROWS, CARRIERS)), ids=lambda part: str(part[0]))
def test_which_packet_may_carry_which_property(row: list[str], carrier: tuple[int, str]) -> None:
    kind, name = carrier
    raw = bytes.fromhex(row[0] + row[1])
    block = varint(len(raw)) + raw
    if name in row[2:]:
        found = read_properties(PacketReader(block), kind)
        assert encode_properties(found, kind) == block
        assert found != Properties()
    else:
        with pytest.raises(MalformedPacket, match=f"0x{row[0].upper()} is not allowed in"):
            read_properties(PacketReader(block), kind)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row[0]))
def test_which_property_may_stand_twice(row: list[str]) -> None:
    """Only user properties, and subscription identifiers in PUBLISH."""
    kind = next(kind for kind, name in CARRIERS if name in row[2:])
    raw = bytes.fromhex(row[0] + row[1]) * 2
    block = varint(len(raw)) + raw
    if row[0] in ("26", "0b"):
        assert encode_properties(read_properties(PacketReader(block), kind), kind) == block
    else:
        with pytest.raises(ProtocolViolation, match="stands twice"):
            read_properties(PacketReader(block), kind)


def slow_split(raw: bytes, packet: int) -> tuple[Properties, int, int, int, tuple[int, ...]]:
    """What split_publish_properties finds, by way of Properties."""
    found = read_properties(PacketReader(varint(len(raw)) + raw), packet)
    expiry_s = -1 if found.message_expiry_s is None else found.message_expiry_s
    return (
        decode_raw(encode_raw(found)),
        expiry_s,
        found.will_delay_s or 0,
        found.topic_alias or 0,
        found.subscription_identifiers,
    )


def fast_split(raw: bytes, packet: int) -> tuple[Properties, int, int, int, tuple[int, ...]]:
    found = split_publish_properties(b"..." + raw + b"...", 3, 3 + len(raw), packet)
    return decode_raw(found.unchanged), found.expiry_s, found.delay_s, found.topic_alias, tuple(found.identifiers or ())


PIECES = [bytes.fromhex(row[0] + row[1]) for row in ROWS] + [
    b"\x26\0\0\0\0",
    b"\x01\x02",
    b"\x23\0\0",
    b"\x0b\0",
    b"\x80\1",
]


@given(
    pieces=st.lists(st.sampled_from(PIECES), max_size=6), cut=st.integers(0, 3), packet=st.sampled_from([PUBLISH, WILL])
)
@settings(max_examples=300)
def test_the_short_cut_finds_what_the_slow_way_finds(pieces: list[bytes], cut: int, packet: int) -> None:
    raw = b"".join(pieces)
    raw = raw[: len(raw) - cut]
    try:
        expected = slow_split(raw, packet)
    except PeerViolation as error:
        with pytest.raises(type(error)):
            fast_split(raw, packet)
        return
    assert fast_split(raw, packet) == expected


@given(found=properties(PUBLISH))
@settings(max_examples=100)
def test_raw_properties_keep_values_and_order(found: Properties) -> None:
    again = decode_raw(encode_raw(found))
    assert again.user == found.user
    assert (again.payload_format, again.content_type) == (found.payload_format, found.content_type)
    assert (again.response_topic, again.correlation_data) == (found.response_topic, found.correlation_data)
    assert (again.message_expiry_s, again.topic_alias, again.subscription_identifiers) == (None, None, ())


def test_values_that_do_not_fit_are_our_own_mistakes() -> None:
    for write, value in ((u16, 65536), (u16, -1), (u32, 1 << 32), (u32, -1), (varint, 268_435_456), (varint, -1)):
        with pytest.raises(UsageError, match=str(value)):
            write(value)
    for text in ("\0", "\ud800", "a" * 65536):
        with pytest.raises(UsageError):
            string(text)
    with pytest.raises(UsageError, match="65536"):
        binary(bytes(65536))
    with pytest.raises(UsageError, match="payload_format"):
        encode_raw(Properties(payload_format=2))


@pytest.mark.parametrize("packet_id", [0, -1, 65536])
def test_publish_and_acknowledgement_need_a_packet_identifier(packet_id: int) -> None:
    with pytest.raises(UsageError, match=str(packet_id)):
        encode_publish(5, b"a", b"", 1, False, False, packet_id)
    with pytest.raises(UsageError, match=str(packet_id)):
        encode_ack(PUBACK, packet_id, 0, 5)


def test_topic_longer_than_the_standard_allows() -> None:
    assert encode_publish(4, b"a" * 65535, b"", 0, False, False, 0)[:6].hex() == "30818004ffff"
    with pytest.raises(UsageError, match=r"MQTT-4\.7\.3-3"):
        encode_publish(4, b"a" * 65536, b"", 0, False, False, 0)


@pytest.mark.parametrize(("number", "raw"), [(0, "00"), (127, "7f"), (128, "8001"), (16383, "ff7f"), (16384, "808001")])
def test_variable_byte_integers(number: int, raw: str) -> None:
    """Table 1-1: the shortest form [MQTT-1.5.5-1]."""
    assert varint(number).hex() == raw
    assert PacketReader(bytes.fromhex(raw)).varint() == number


def test_a_megabyte_of_properties_is_read_in_one_go() -> None:
    """Copying what was read so far at every property would keep a broker busy for minutes."""
    raw = b"\x26\0\0\0\0\x0b\x01" * 150_000
    found = split_publish_properties(raw, 0, len(raw), PUBLISH)
    assert found.unchanged == b"\x26\0\0\0\0" * 150_000
    assert found.identifiers == [1] * 150_000
