"""Our own bytes: what was written comes back, what is cut or changed is refused, and old bytes stay readable."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.errors import BytesDamaged
from metromq.federation.coordination.facts import AREA, Fact
from metromq.federation.links.frame_bytes import decode_frame, encode_frame
from metromq.federation.links.frames import Announcement, Facts, Interest
from metromq.federation.links.inbox import DELIVER, SHARE, Inbox
from metromq.protocol.packing import Packer, Unpacker
from metromq.protocol.session.records import encode_cursor

FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "u8": st.integers(0, 0xFF),
    "u16": st.integers(0, 0xFFFF),
    "u32": st.integers(0, 0xFFFF_FFFF),
    "u64": st.integers(0, (1 << 64) - 1),
    "i64": st.integers(-(1 << 63), (1 << 63) - 1),
    "blob": st.binary(max_size=300),
    "text": st.text(max_size=300),
    "number": st.integers(0, (1 << 64) - 1),
    "short_blob": st.binary(max_size=300),
    "short_text": st.text(max_size=300),
}
ITEMS = st.one_of(*(st.tuples(st.just(name), values) for name, values in FIELDS.items()))


@given(st.lists(ITEMS, min_size=1))
@settings(deadline=None)
def test_what_was_packed_comes_back(items: list[tuple[str, Any]]) -> None:
    packer = Packer()
    for name, value in items:
        getattr(packer, name)(value)
    data = packer.done()
    reader = Unpacker(data)
    assert [getattr(reader, name)() for name, _ in items] == [value for _, value in items]
    reader.finish()
    with pytest.raises(BytesDamaged, match="1 bytes are left over"):
        read_all(data + b"\0", items)
    with pytest.raises(BytesDamaged):
        read_all(data[:-1], items)


def read_all(data: bytes, items: list[tuple[str, Any]]) -> None:
    reader = Unpacker(data)
    for name, _ in items:
        getattr(reader, name)()
    reader.finish()


@given(st.binary(max_size=40), st.lists(st.sampled_from(sorted(FIELDS)), max_size=8))
@settings(deadline=None)
def test_other_bytes_are_read_or_refused_by_name(data: bytes, names: list[str]) -> None:
    reader = Unpacker(data)
    try:
        for name in names:
            getattr(reader, name)()
    except BytesDamaged:
        pass


@pytest.mark.parametrize(
    ("read", "data", "problem"),
    [
        (Unpacker.u8, b"", "1 bytes are needed at 0, and 0 are left"),
        (Unpacker.u64, b"1234567", "8 bytes are needed at 0, and 7 are left"),
        (Unpacker.blob, b"\x05\0\0\0abcd", "5 bytes are needed at 4, and 4 are left"),
        (Unpacker.short_blob, b"\xff\xff\xff\xff\x7f", "34359738367 bytes are needed"),
        (Unpacker.number, b"\x80" * 11, "the number before 10 has no end"),
        (Unpacker.short_text, b"\x02\xc3\x28", "the text before 3 is not UTF-8"),
    ],
)
def test_refusals_say_where(read: Callable[[Unpacker], object], data: bytes, problem: str) -> None:
    with pytest.raises(BytesDamaged) as caught:
        read(Unpacker(data))
    assert str(caught.value).startswith(problem)


def test_bytes_of_earlier_releases_stay_readable() -> None:
    """Written by the code before there was one Packer; journals and snapshots with such bytes are on disks."""
    old = bytes.fromhex("070302701101000000000000010000feffffffffffffff030000005ac3bc020000000001")
    packer = Packer().u8(7).u16(515).u32(70_000).u64(1 << 40).i64(-2).text("Zü").blob(b"\0\1")
    assert packer.done() == old
    interest = Interest(True, (Announcement("a/#", 3, 1 << 35),), ("b/+",))
    assert encode_frame(interest).hex() == "03010103612f23038080808080010103622f2b"
    assert decode_frame(encode_frame(interest)) == interest
    table = bytes.fromhex("020203312f3003623130ac0201320362323000")  # areas, before there were facts
    assert decode_frame(table) == Facts((Fact(AREA, "1/0", "b10", 300), Fact(AREA, "2", "b20", 0)))
    inbox = Inbox()
    inbox.restore_cursor("b1", 1 << 40, 41)
    inbox.received("b2", 9, DELIVER | SHARE)
    assert inbox.dump().hex() == ("010262318080808080202a0102623208090000000000000000000008090000000000000000")


@given(FIELDS["text"], FIELDS["u64"], FIELDS["i64"])
def test_a_cursor_is_written_as_a_packer_would(peer: str, journal: int, sequence: int) -> None:
    assert encode_cursor(peer, journal, sequence) == Packer().text(peer).u64(journal).i64(sequence).done()


def test_a_number_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="-1 has no bytes"):
        Packer().number(-1)
