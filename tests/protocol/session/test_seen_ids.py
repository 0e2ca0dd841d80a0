"""What a session has had: ids that come twice, and those of messages sent at QoS 0."""

from hypothesis import given
from hypothesis import strategies as st

from metromq.protocol.session.seen_ids import MAX_IDS, SeenIds, unpack_seen

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
    for offset in range(10 * MAX_IDS):
        seen.add("b2", offset)
    assert len(seen.pack()) < 8 * MAX_IDS + 100
