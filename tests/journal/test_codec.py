"""Records and headers: round trips, every cut, every flipped byte, and the search that tells a torn tail apart."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.errors import JournalError
from metromq.journal.codec import (
    HEAD_BYTES,
    HEADER_BYTES,
    MAX_BODY_BYTES,
    decode_gap,
    decode_header,
    encode_gap,
    encode_header,
    encode_record,
    find_record,
    peek_record,
    record_body,
    walk_records,
)

SALTS = st.integers(0, 2**32 - 1)
RECORDS = st.lists(st.tuples(st.integers(1, 63), st.binary(max_size=40)), max_size=8)


@settings(deadline=None, max_examples=100)
@given(RECORDS, SALTS, st.integers(0, 10**9))
def test_records_come_back_with_their_places(records: list[tuple[int, bytes]], salt: int, base: int) -> None:
    data = b"".join(encode_record(kind, body, salt) for kind, body in records)
    found, stop, need = walk_records(data, base, salt)
    assert [(kind, body) for _, kind, body in found] == records
    assert (stop, need) == (len(data), HEAD_BYTES)
    for position, kind, body in found:
        assert peek_record(data, position - base, salt) == len(body) << 8 | kind
        assert record_body(data, position - base, salt) == body


@settings(deadline=None, max_examples=60)
@given(RECORDS, SALTS)
def test_every_cut_gives_the_whole_records_before_it(records: list[tuple[int, bytes]], salt: int) -> None:
    encoded = [encode_record(kind, body, salt) for kind, body in records]
    data = b"".join(encoded)
    ends = [sum(len(one) for one in encoded[: count + 1]) for count in range(len(encoded))]
    for cut in range(len(data)):
        found, stop, need = walk_records(data[:cut], 0, salt)
        whole = [end for end in ends if end <= cut]
        assert len(found) == len(whole)
        assert stop == (whole[-1] if whole else 0)
        assert need > cut - stop  # says that more bytes could make it a record


def test_a_flipped_byte_ends_the_walk_at_its_record() -> None:
    salt = 7
    data = encode_record(1, b"first", salt) + encode_record(1, b"second", salt)
    first_end = HEAD_BYTES + 5
    for at in range(first_end, len(data)):
        broken = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
        found, stop, need = walk_records(broken, 0, salt)
        assert [body for _, _, body in found] == [b"first"]
        assert (stop, need) == (first_end, 0)


@pytest.mark.parametrize("kind", [0, 64, 255])
def test_kinds_out_of_range_are_refused(kind: int) -> None:
    with pytest.raises(JournalError, match=f"kind {kind}"):
        encode_record(kind, b"", 0)


def test_zeros_are_no_record() -> None:
    assert walk_records(bytes(4096), 0, 0) == ([], 0, 0)
    assert find_record(bytes(4096), 0, 0) == -1


def test_a_length_over_the_limit_is_no_record() -> None:
    whole = encode_record(1, b"", 0)
    huge = (MAX_BODY_BYTES + 1).to_bytes(4, "little") + whole[4:]
    assert peek_record(huge, 0, 0) == -1


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=60), st.binary(max_size=30), st.binary(max_size=30), SALTS)
def test_a_record_is_found_behind_any_garbage(garbage: bytes, body: bytes, tail: bytes, salt: int) -> None:
    data = garbage + encode_record(1, body, salt) + tail
    assert 0 <= find_record(data, 0, salt) <= len(garbage)


def test_a_record_of_another_segment_is_not_one_of_this() -> None:
    """A client that puts the bytes of a record into its payload cannot make a torn tail look like damage."""
    inside = encode_record(1, b"forged", 1)
    torn = encode_record(1, b"x" + inside + b"y" * 20, 2)[:-3]
    assert find_record(torn, 0, 2) == -1


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**63), SALTS)
def test_headers_come_back(number: int, base: int, salt: int) -> None:
    header = encode_header(number, base, salt)
    assert len(header) == HEADER_BYTES
    assert decode_header(header) == (number, base, salt)


def test_every_flipped_byte_of_a_header_is_noticed() -> None:
    header = encode_header(3, 1000, 77)
    for at in range(HEADER_BYTES):
        with pytest.raises(JournalError, match="header"):
            decode_header(header[:at] + bytes([header[at] ^ 1]) + header[at + 1 :])
    for cut in range(HEADER_BYTES):
        with pytest.raises(JournalError, match=f"{cut} of {HEADER_BYTES}"):
            decode_header(header[:cut])


def test_gaps_come_back() -> None:
    found, _, _ = walk_records(encode_gap(1 << 40, 5), 0, 5)
    assert decode_gap(found[0][2]) == 1 << 40
