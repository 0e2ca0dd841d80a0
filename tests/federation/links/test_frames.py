"""Frames and batches survive the wire; anything else is refused with a documented error."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.errors import MetroError, PeerViolation
from metromq.federation.coordination.coordinator import Beat, Greeting
from metromq.federation.coordination.facts import AREA, Fact
from metromq.federation.coordination.rumours import Rumour
from metromq.federation.links.batch import CHECK, SYNC, LinkMessage, decode_batch, encode_batch
from metromq.federation.links.frame_bytes import decode_frame, encode_frame
from metromq.federation.links.frames import (
    OLDEST,
    VERSION,
    Announcement,
    ClientAnswer,
    ClientClaim,
    ClientMoved,
    ClientReleased,
    ClockCompared,
    ClockTold,
    Facts,
    Followers,
    Frame,
    Gossip,
    Hello,
    Interest,
    InterestRequest,
    Owed,
    Rest,
    RetainedRequest,
)
from metromq.federation.stages import FINAL
from metromq.protocol.session.message import KIND_LINK, Message

TEXT = st.text(max_size=12)
NUMBER = st.integers(0, 1 << 62)
BEATS = st.builds(Beat, TEXT, NUMBER, NUMBER, NUMBER, NUMBER, st.booleans())
GREETINGS = st.builds(
    Greeting, NUMBER, NUMBER, st.lists(BEATS, max_size=4).map(tuple), st.just(0), st.just(False), st.just(0)
)
WIDE_GREETINGS = st.builds(
    Greeting, NUMBER, NUMBER, st.lists(BEATS, max_size=4).map(tuple), NUMBER, st.booleans(), NUMBER
)
BEFORE_COUNTS = WIDE_GREETINGS.map(lambda greeting: greeting._replace(following=0))
RUMOURS = st.builds(Rumour, TEXT, NUMBER, NUMBER, st.integers(0, 2))
FRAMES: st.SearchStrategy[Frame] = st.one_of(
    st.builds(Hello, st.just(VERSION), NUMBER, WIDE_GREETINGS, NUMBER, TEXT, NUMBER, NUMBER, NUMBER, NUMBER),
    st.builds(Hello, st.just(VERSION - 1), NUMBER, BEFORE_COUNTS, NUMBER, TEXT, NUMBER, NUMBER, NUMBER, NUMBER),
    st.builds(Hello, st.just(OLDEST), NUMBER, GREETINGS, NUMBER, TEXT, NUMBER, NUMBER, NUMBER, st.just(0)),
    st.builds(Facts, st.lists(st.builds(Fact, TEXT, TEXT, TEXT, NUMBER, TEXT), max_size=4).map(tuple)),
    st.builds(
        Interest,
        st.booleans(),
        st.lists(st.builds(Announcement, TEXT, NUMBER, NUMBER), max_size=4).map(tuple),
        st.lists(TEXT, max_size=4).map(tuple),
        NUMBER,
    ),
    st.builds(ClockTold, NUMBER),
    st.builds(Owed, TEXT, st.lists(TEXT, max_size=3).map(tuple), NUMBER),
    st.builds(ClockCompared, NUMBER, NUMBER),
    st.builds(Gossip, st.lists(RUMOURS, max_size=4).map(tuple), st.booleans()),
    st.builds(Followers, NUMBER, st.binary(max_size=30)),
    st.just(Rest()),
    st.just(InterestRequest()),
    st.builds(RetainedRequest, st.lists(TEXT, max_size=4).map(tuple)),
    st.builds(ClientClaim, TEXT, NUMBER, st.booleans(), st.booleans(), TEXT, NUMBER, st.booleans()),
    st.builds(ClientAnswer, TEXT, NUMBER, TEXT, st.booleans(), NUMBER, NUMBER),
    st.builds(ClientMoved, TEXT, NUMBER, TEXT, st.booleans(), TEXT, NUMBER, st.booleans(), NUMBER),
    st.builds(ClientReleased, TEXT, NUMBER),
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


def test_topic_tables_in_old_journals_are_areas() -> None:
    old = bytes((2, 1)) + b"\x031/2" + b"\x03b13" + bytes((4,))
    assert decode_frame(old) == Facts((Fact(AREA, "1/2", "b13", 4),))


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
    stage, limit = draw(st.integers(0, FINAL)), draw(st.integers(0, 255))
    return LinkMessage(message, stage, draw(NUMBER), flags, draw(names), draw(names), draw(names), limit)


MESSAGE_FIELDS = [
    "topic",
    "payload",
    "qos",
    "retain",
    "properties",
    "expires_at_us",
    "time_us",
    "publisher",
    "kind",
    "origin",
    "origin_offset",
    "offset",
]


def shown(entry: LinkMessage) -> tuple[object, ...]:
    own = (entry.stage, entry.sequence, entry.flags, entry.served, entry.shares, entry.shares_done, entry.limit)
    return (*own, *(getattr(entry.message, field) for field in MESSAGE_FIELDS))


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
