"""Whatever one side encodes, the other decodes to the same value; broken bytes give only documented errors."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.errors import MalformedPacket, PeerViolation, ProtocolViolation
from metromq.protocol.reasons import NAMES
from metromq.protocol.wire.decoding import Framer, decode
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import MQTT5, MQTT31, MQTT311, Packet
from tests.protocol.wire.feeding import LIMIT, decoded
from tests.protocol.wire.strategies import VERSIONS, packets

BOTH_SIDES = [(version, server) for version in (MQTT31, MQTT311, MQTT5) for server in (True, False)]


@pytest.mark.parametrize(("version", "server"), BOTH_SIDES)
@given(data=st.data())
@settings(max_examples=150)
def test_every_packet_survives_the_wire(version: int, server: bool, data: st.DataObject) -> None:
    packet = data.draw(packets(version, server))
    raw = encode(packet, version)
    assert decoded(raw, version, server) == packet
    assert encode(decoded(raw, version, server), version) == raw


@given(version=VERSIONS, server=st.booleans(), data=st.data())
@settings(max_examples=100)
def test_any_cut_of_a_stream_gives_the_same_packets(version: int, server: bool, data: st.DataObject) -> None:
    sent = data.draw(st.lists(packets(version, server), min_size=1, max_size=4))
    raw = b"".join(encode(packet, version) for packet in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    framer = Framer(LIMIT)
    got: list[Packet] = []
    for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        framer.feed(raw[start:end])
        while (frame := framer.next()) is not None:
            got.append(decode(frame[0], frame[1], version, server))
    assert got == sent


def attempt(first_byte: int, body: bytes, version: int, server: bool) -> Packet | PeerViolation:
    """Decodes; any other error than a peer's violation goes through and fails the test."""
    try:
        return decode(first_byte, body, version, server)
    except (MalformedPacket, ProtocolViolation) as error:
        return error


def only_documented_errors(first_byte: int, body: bytes, version: int, server: bool) -> None:
    """An error must carry a code of the standard and say where it stands, a value must survive the wire again."""
    result = attempt(first_byte, body, version, server)
    if isinstance(result, PeerViolation):
        assert result.reason_code in NAMES
        assert result.reason_code >= 0x80
        assert any(word in str(result) for word in ("[MQTT-", "section", "bytes", "ends"))
    else:
        assert decoded(encode(result, version), version, server) == result


@given(first_byte=st.integers(0, 255), body=st.binary(max_size=60), version=VERSIONS, server=st.booleans())
@settings(max_examples=400)
def test_random_bytes_give_only_documented_errors(first_byte: int, body: bytes, version: int, server: bool) -> None:
    only_documented_errors(first_byte, body, version, server)


@given(version=VERSIONS, server=st.booleans(), data=st.data())
@settings(max_examples=400)
def test_mutated_packets_give_only_documented_errors(version: int, server: bool, data: st.DataObject) -> None:
    raw = bytearray(encode(data.draw(packets(version, server)), version))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(raw) - 1))
        match data.draw(st.sampled_from(["change", "insert", "delete"])):
            case "change":
                raw[position] = data.draw(st.integers(0, 255))
            case "insert":
                raw.insert(position, data.draw(st.integers(0, 255)))
            case _ if len(raw) > 1:
                del raw[position]
    frame = cut(bytes(raw))
    if isinstance(frame, PeerViolation):
        assert frame.reason_code in (0x81, 0x95)
    elif frame is not None:
        only_documented_errors(frame[0], frame[1], version, server)


def cut(raw: bytes) -> tuple[int, bytes] | PeerViolation | None:
    framer = Framer(LIMIT)
    framer.feed(raw)
    try:
        return framer.next()
    except PeerViolation as error:
        return error
