"""Runs between brokers: cut and named as they were sent, and nothing else is taken for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metromq.errors import MalformedPacket
from metromq.federation.links.runs import decode_run, encode_run
from metromq.protocol.wire.encoding import encode_publish


@given(
    newer=st.booleans(),
    topic=st.text(st.characters(codec="utf-8", exclude_characters="\0#+"), min_size=1, max_size=40),
    payload=st.binary(max_size=300),
    count=st.integers(1, 5),
    note=st.binary(max_size=20),
)
def test_a_run_comes_back_as_it_was(newer: bool, topic: str, payload: bytes, count: int, note: bytes) -> None:
    packet = encode_publish(5 if newer else 4, topic.encode(), payload, 0, False, False, 0)
    run = decode_run(encode_run(newer, "b01", note, packet * count))
    assert (run.newer, run.origin, run.note, run.size) == (newer, "b01", note, len(packet))
    assert run.topic() == topic.encode()
    assert run.payloads() == [payload] * count


@given(st.binary(max_size=60))
def test_other_bytes_are_refused_by_name(data: bytes) -> None:
    try:
        run = decode_run(data)
    except MalformedPacket:
        return
    assert run.packets[0] == 0x30
    assert len(run.packets) % run.size == 0


def test_half_a_packet_is_no_run() -> None:
    packet = encode_publish(4, b"a", b"payload", 0, False, False, 0)
    with pytest.raises(MalformedPacket, match="whole QoS 0 packets"):
        decode_run(encode_run(False, "b01", b"", packet + packet[:-1]))
