"""The vectorised decoder against the broker's own, message by message."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.errors import JournalError
from metromq.pipeline.decode import decode_batch
from metromq.pipeline.schemas import KINDS, LANDED_MESSAGES
from metromq.protocol.session.message import Message
from metromq.protocol.session.records import Target, decode_message, encode_message

TARGETS = st.lists(
    st.builds(
        Target,
        st.integers(0, 2**32 - 1),
        st.integers(0, 7),
        st.lists(st.integers(1, 2**28), max_size=3).map(tuple),
    ),
    max_size=5,
)
MESSAGES = st.builds(
    Message,
    topic=st.text(max_size=20),
    payload=st.binary(max_size=50),
    qos=st.integers(0, 2),
    retain=st.booleans(),
    properties=st.binary(max_size=10),
    expires_at_us=st.sampled_from([0, 1_700_000_000_000_000]),
    time_us=st.integers(0, 2**60),
    publisher=st.text(max_size=10),
    kind=st.integers(0, 3),
    origin=st.sampled_from(["", "b2", "bröker"]),
    origin_offset=st.integers(-1, 2**62),
)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(MESSAGES, TARGETS), max_size=8), st.integers(0, 2**62))
def test_like_the_brokers_decoder(pairs: list[tuple[Message, list[Target]]], first: int) -> None:
    bodies = [encode_message(message, targets, 7, 9) for message, targets in pairs]
    table = decode_batch("b1", first, bodies)
    assert table.schema == LANDED_MESSAGES
    table = table.set_column(2, "time", table["time"].cast("int64")).set_column(
        12, "expires_at", table["expires_at"].cast("int64")
    )
    for number, (row, body) in enumerate(zip(table.to_pylist(), bodies, strict=True)):
        twin = decode_message(body).message
        assert row == {
            "broker": "b1",
            "offset": first + number,
            "time": twin.time_us,
            "kind": KINDS[twin.kind],
            "topic": twin.topic,
            "payload": twin.payload,
            "qos": twin.qos,
            "retain": twin.retain,
            "publisher": twin.publisher,
            "origin": twin.origin,
            "origin_offset": twin.origin_offset,
            "properties": twin.properties,
            "expires_at": twin.expires_at_us or None,
        }


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.one_of(st.binary(max_size=80), MESSAGES.map(lambda m: encode_message(m, [])[:-1])), min_size=1, max_size=4
    )
)
def test_only_documented_errors(bodies: list[bytes]) -> None:
    try:
        decode_batch("b1", 0, bodies)
    except JournalError:
        pass


def test_a_cut_record_is_named() -> None:
    whole = encode_message(Message("a", b"", origin="b2", origin_offset=3), [Target(1, 1, (2, 3))])
    with pytest.raises(JournalError, match="near offset 6"):
        decode_batch("b1", 5, [whole, whole[:-1]])


def test_a_topic_that_is_not_text_is_refused() -> None:
    body = encode_message(Message("aa", b""), [])
    with pytest.raises(JournalError, match=r"topic .* not UTF-8"):
        decode_batch("b1", 0, [body.replace(b"aa", b"\xff\xff")])
