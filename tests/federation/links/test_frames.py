"""Frames and batches survive the wire; anything else is refused with a documented error."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.errors import MetroError, PeerViolation
from metromq.federation.links.batch import CHECK, SYNC, LinkMessage, decode_batch, encode_batch
from metromq.federation.links.frames import (
    Announcement,
    Beat,
    ClientAnswer,
    ClientClaim,
    ClientMoved,
    ClientReleased,
    Frame,
    Hello,
    Interest,
    InterestRequest,
    RetainedRequest,
    SessionState,
    Table,
    TableEntry,
    decode_frame,
    encode_frame,
)
from metromq.protocol.session.message import KIND_LINK, Message

TEXT = st.text(max_size=12)
NUMBER = st.integers(0, 1 << 62)
BEATS = st.builds(Beat, TEXT, NUMBER, NUMBER, NUMBER, NUMBER)
FRAMES: st.SearchStrategy[Frame] = st.one_of(
    st.builds(Hello, NUMBER, NUMBER, NUMBER, NUMBER, st.lists(BEATS, max_size=4).map(tuple)),
    st.builds(Table, st.lists(st.builds(TableEntry, TEXT, TEXT, NUMBER), max_size=4).map(tuple)),
    st.builds(
        Interest,
        st.booleans(),
        st.lists(st.builds(Announcement, TEXT, NUMBER, NUMBER), max_size=4).map(tuple),
        st.lists(TEXT, max_size=4).map(tuple),
    ),
    st.just(InterestRequest()),
    st.builds(RetainedRequest, st.lists(TEXT, max_size=4).map(tuple)),
    st.builds(ClientClaim, TEXT, NUMBER, st.booleans(), st.booleans(), TEXT, NUMBER, st.booleans()),
    st.builds(ClientAnswer, TEXT, NUMBER, TEXT, st.booleans()),
    st.builds(ClientMoved, TEXT, NUMBER, TEXT, st.booleans(), TEXT, NUMBER, st.booleans()),
    st.builds(ClientReleased, TEXT, NUMBER),
    st.builds(SessionState, TEXT, NUMBER, st.booleans(), st.binary(max_size=40)),
)


@given(FRAMES)
@settings(deadline=None, max_examples=200)
def test_frames_survive_the_wire(frame: Frame) -> None:
    data = encode_frame(frame)
    assert decode_frame(data) == frame
    with pytest.raises(PeerViolation):
        decode_frame(data + b"\0")
    with pytest.raises(PeerViolation):
        decode_frame(data[:-1])


@given(st.binary(max_size=60))
@settings(deadline=None, max_examples=300)
def test_other_bytes_are_refused_by_name(data: bytes) -> None:
    for decode in (decode_frame, lambda found: decode_batch(found, 0)):
        try:
            decode(data)
        except MetroError:
            continue


@st.composite
def entries(draw: st.DrawFn) -> LinkMessage:
    qos = draw(st.integers(0, 2))
    message = Message(
        draw(TEXT),
        draw(st.binary(max_size=20)),
        qos,
        draw(st.booleans()),
        draw(st.binary(max_size=10)),
        draw(st.sampled_from([0, 5_000_000])),
        draw(NUMBER),
        draw(TEXT),
        KIND_LINK,
        draw(st.sampled_from(["b1", "b2"])),
        draw(NUMBER) if qos else -1,
    )
    names = st.lists(st.sampled_from(["b1", "b7", "$share/g/a"]), max_size=3).map(tuple)
    flags = draw(st.sampled_from([0, CHECK, SYNC, CHECK | SYNC]))
    return LinkMessage(message, draw(st.integers(0, 3)), draw(NUMBER), flags, draw(names), draw(names), draw(names))


def shown(entry: LinkMessage) -> tuple[object, ...]:
    own = (entry.stage, entry.sequence, entry.flags, entry.served, entry.shares, entry.shares_done)
    return (*own, vars(entry.message))


@given(st.lists(entries(), max_size=5))
@settings(deadline=None, max_examples=200)
def test_batches_survive_the_wire(batch: list[LinkMessage]) -> None:
    data = encode_batch(batch, 1_000_000)
    assert [shown(entry) for entry in decode_batch(data, 1_000_000)] == [shown(entry) for entry in batch]
    with pytest.raises(PeerViolation):
        decode_batch(data + b"\0", 0)
    with pytest.raises(PeerViolation):
        decode_batch(data[:-1], 0)


def test_expiry_travels_as_the_time_that_is_left() -> None:
    data = encode_batch([LinkMessage(Message("a", b"", 1, expires_at_us=7_000_000, origin="b1"), 3)], 4_000_000)
    assert decode_batch(data, 90_000_000)[0].message.expires_at_us == 93_000_000
