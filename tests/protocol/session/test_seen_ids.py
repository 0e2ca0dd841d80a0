"""What a session has had: ids that come twice, and those of messages sent at QoS 0."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metromq.errors import BytesDamaged
from metromq.protocol import Packer
from metromq.protocol.session.seen_ids import BLOCK, MAX_IDS, RECENT, SeenIds, unpack_seen

IDS = st.lists(st.tuples(st.sampled_from(("b1", "b2")), st.integers(0, 20)))


def test_what_waits_is_taken_out_however_often_it_was_queued() -> None:
    seen = SeenIds()
    for offset in (1, 2, 2, 3):
        seen.add("b1", offset)
    left = seen.without({"b1": {2}, "b2": {3}})
    assert [left.holds("b1", offset) for offset in (1, 2, 3)] == [True, False, True]
    assert seen.holds("b1", 2)


def test_a_message_at_qos_0_is_not_had_for_sure() -> None:
    seen = SeenIds()
    seen.add_fleeting("b1", 7)
    assert seen.holds_fleeting("b1", 7)
    assert not seen.holds("b1", 7)
    assert unpack_seen(seen.pack()).holds_fleeting("b1", 7)


def test_what_was_sent_at_qos_0_counts_as_had_when_its_client_asks_for_more() -> None:
    seen = SeenIds()
    seen.add("b1", 9)
    seen.add_fleeting("b1", 7)
    seen.add_fleeting("b2", 3)
    assert seen.settle()
    assert not seen.settle()
    seen.add_fleeting("b1", 8)
    assert [seen.holds("b1", offset) for offset in (7, 8, 9)] == [True, False, True]
    assert seen.holds("b2", 3)


def test_no_bytes_are_nothing() -> None:
    assert not unpack_seen(b"").holds("b1", 0)


@given(IDS, IDS, IDS)
def test_it_holds_what_a_plain_set_would_hold(
    ids: list[tuple[str, int]], more: list[tuple[str, int]], gone: list[tuple[str, int]]
) -> None:
    seen, other = SeenIds(), SeenIds()
    for origin, offset in ids:
        seen.add(origin, offset)
    for origin, offset in more:
        other.add(origin, offset)
    seen.merge(other)
    without: dict[str, set[int]] = {}
    for origin, offset in gone:
        without.setdefault(origin, set()).add(offset)
    for made, known in (
        (seen, {*ids, *more}),
        (seen.copy(), {*ids, *more}),
        (unpack_seen(seen.pack()), {*ids, *more}),
        (unpack_seen(seen.pack_plainly()), {*ids, *more}),
        (seen.without(without), {*ids, *more} - {*gone}),
    ):
        every = [(origin, offset) for origin in ("b1", "b2") for offset in range(22)]
        assert {one for one in every if made.holds(*one)} == known


def test_what_waits_at_a_higher_qos_was_not_had_at_qos_0() -> None:
    seen = SeenIds()
    for offset in (6, 7):
        seen.add_fleeting("b1", offset)
    seen.waits_surely("b1", 7)
    seen.waits_surely("b2", 7)
    assert [seen.holds_fleeting("b1", offset) for offset in (6, 7)] == [True, False]


def test_what_was_sent_at_qos_0_is_forgotten_when_two_parts_of_a_session_meet() -> None:
    seen = SeenIds()
    seen.add("b1", 1)
    seen.add_fleeting("b1", 2)
    seen.forget_fleeting()
    assert [seen.holds_fleeting("b1", offset) for offset in (1, 2)] == [True, False]
    seen.add_fleeting("b1", 3)
    assert seen.holds_fleeting("b1", 3)


def test_what_was_queued_again_and_again_pushes_nothing_out() -> None:
    seen = SeenIds()
    for offset in range(MAX_IDS // 4):
        seen.add("b1", offset)
    for _ in range(20):  # as a long queue that is put in order after each move
        for offset in range(MAX_IDS // 4, MAX_IDS // 2):
            seen.add("b1", offset)
    assert all(seen.holds("b1", offset) for offset in range(MAX_IDS // 2))


@pytest.mark.parametrize("step", [1, 3, 70, 5_000_000])
def test_the_newest_are_known_whatever_order_they_came_in(step: int) -> None:
    """Copies come late, and as many as a session can carry are known, but for one block."""
    dice = random.Random(step)
    ids = [step * number for number in range(3 * MAX_IDS)]
    late = ids[:]
    for place in range(0, len(late) - 100, 37):  # each of these is overtaken by up to a hundred others
        late.insert(place + dice.randint(1, 100), late.pop(place))
    seen = SeenIds()
    for offset in late:
        seen.add("b1", offset)
    newest = ids[-MAX_IDS + BLOCK + RECENT :]
    for made in (seen, unpack_seen(seen.pack()), seen.copy()):
        assert all(made.holds("b1", offset) for offset in newest)
        assert not any(made.holds("b1", offset + 1) for offset in newest if step > 1)
        assert not made.holds("b1", 0)


@pytest.mark.parametrize(("step", "bytes_each"), [(3, 2.2), (70_000, 4.3), (1 << 40, 8.6)])
def test_it_is_bounded_in_bytes(step: int, bytes_each: float) -> None:
    seen = SeenIds()
    for number in range(4 * MAX_IDS):
        seen.add("b1", step * number)
        seen.add("b2", number // 2)
    assert len(seen.pack()) < bytes_each * MAX_IDS + 8 * 2 * RECENT


def test_many_origins_share_the_room() -> None:
    seen = SeenIds()
    for number in range(100):
        for origin in range(500):
            seen.add(f"b{origin}", number)
    known = sum(seen.holds(f"b{origin}", number) for origin in range(500) for number in range(100))
    assert MAX_IDS // 2 < known <= MAX_IDS
    assert all(seen.holds(f"b{origin}", 99) for origin in range(500))


def test_what_was_not_stored_is_taken_back() -> None:
    seen = SeenIds()
    for offset in range(3 * BLOCK):
        seen.add("b1", offset)
    seen.take_back("b1", BLOCK + 7)
    seen.take_back("b1", 4 * BLOCK)
    for offset in range(2 * BLOCK, 3 * BLOCK):  # a whole block
        seen.take_back("b1", offset)
    known = [offset for offset in range(4 * BLOCK) if seen.holds("b1", offset)]
    assert known == [offset for offset in range(2 * BLOCK) if offset != BLOCK + 7]


def test_a_session_that_takes_over_more_than_it_can_carry_keeps_the_newest() -> None:
    seen, other = SeenIds(), SeenIds()
    for offset in range(0, 2 * MAX_IDS, 2):
        seen.add("b1", offset)
    for offset in range(1, 2 * MAX_IDS, 2):
        other.add("b1", offset)
    seen.merge(other)
    assert all(seen.holds("b1", offset) for offset in range(MAX_IDS + BLOCK, 2 * MAX_IDS))
    assert len(seen.pack()) < 2.2 * MAX_IDS


def test_damaged_blocks_are_named() -> None:
    damaged = Packer().u32(0xFFFFFFFF).u32(1).text("b1").blob(b"").u32(1).u64(0).u8(3).blob(b"abc").done()
    with pytest.raises(BytesDamaged, match="3 bytes"):
        unpack_seen(damaged)
