"""Requests for records and their answers: round trips, and only documented errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metromq.errors import MalformedPacket, UsageError
from metromq.protocol.replay import (
    FetchAnswer,
    FetchRequest,
    decode_answer,
    decode_request,
    encode_answer,
    hold,
    split_since,
)

numbers = st.integers(-1, 1 << 60)


@given(numbers, numbers, numbers, st.text(max_size=5), st.text(max_size=5), st.text(max_size=5), st.integers(0, 99))
def test_requests(start: int, to: int, since: int, name: str, origin: str, journal: str, most: int) -> None:
    request = FetchRequest(start, to, since, name, origin, journal, most)
    assert vars_of(decode_request(request.encode())) == vars_of(request)


def vars_of(request: FetchRequest) -> tuple[object, ...]:
    names = ("start", "to", "since_us", "topic_filter", "origin", "journal", "max_bytes")
    return tuple(getattr(request, name) for name in names)


@given(st.lists(st.tuples(st.integers(0, 1 << 60), st.binary(max_size=20))), st.text(), st.booleans())
def test_answers(records: list[tuple[int, bytes]], error: str, unused: bool) -> None:
    answer = FetchAnswer("b1", "journal")
    answer.first, answer.end, answer.next, answer.code = 1, 9, 5, "gone" if error else ""
    answer.error, answer.unused = error, bool(error) and unused
    hold(answer, records)
    again = decode_answer(encode_answer(answer))
    assert again.bodies_list() == records
    for name in ("broker", "journal", "first", "end", "next", "code", "error", "unused", "kept_since_us"):
        assert getattr(again, name) == getattr(answer, name)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{", "no JSON"),
        (b"[]", "JSON object"),
        (b'{"from": "1"}', "from must be a whole number"),
        (b'{"from": true}', "from must be a whole number"),
        (b'{"colour": 1}', "'colour' is none of"),
        (b'{"filter": 1}', "filter must be text"),
    ],
)
def test_what_is_no_request(data: bytes, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        decode_request(data)


@given(st.binary(max_size=40))
def test_what_is_no_answer(data: bytes) -> None:
    try:
        decode_answer(data)
    except MalformedPacket:
        pass


def test_topics_of_replays() -> None:
    assert split_since("$replay/since/10m/a/+/#") == ("10m", "a/+/#")
    for name in ("$replay/since/10m", "$replay/since/10m/", "$replay/since//a", "$replay/since/1h/$share/g/a"):
        with pytest.raises(UsageError):
            split_since(name)
