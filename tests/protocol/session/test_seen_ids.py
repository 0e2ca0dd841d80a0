"""What a session has had: ids that come twice, and those of messages sent at QoS 0."""

from metromq.protocol.session.seen_ids import SeenIds, unpack_seen


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


def test_no_bytes_are_nothing() -> None:
    assert not unpack_seen(b"").holds("b1", 0)
