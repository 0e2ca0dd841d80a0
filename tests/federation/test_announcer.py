"""What was announced, and who has surely heard it."""

from metromq.federation import grid_city
from metromq.federation.announcer import Announcer
from metromq.federation.node import Node
from metromq.federation.silences import UNNOTICED_US

SECOND_US = 1_000_000


def announcer() -> Announcer:
    """Of b00, in a city in which every subscription is announced to b11 and b22."""
    return Node(grid_city("flood-subscriptions", count=3), "b00", 1, 0).routes.announcer


def test_a_filter_is_unheard_until_all_have_said_that_they_heard_us_since() -> None:
    ours = announcer()
    ours.want("a", 1, SECOND_US)
    for peer in ("b11", "b22"):
        assert ours.changes(peer, 2 * SECOND_US) is not None
        ours.was_heard(peer, SECOND_US)
    assert ours.unheard("a", 3 * SECOND_US) == SECOND_US
    ours.was_heard("b11", 3 * SECOND_US)
    assert ours.unheard("a", 3 * SECOND_US) == SECOND_US
    ours.was_heard("b22", 2 * SECOND_US)
    assert ours.unheard("a", 3 * SECOND_US) == 0


def test_who_does_not_greet_has_heard_it_when_a_dead_link_would_have_been_noticed() -> None:
    ours = announcer()
    ours.want("a", 1, SECOND_US)
    for peer in ("b11", "b22"):
        ours.changes(peer, SECOND_US)
    assert ours.unheard("a", UNNOTICED_US) == SECOND_US
    assert ours.unheard("a", SECOND_US + UNNOTICED_US) == 0


def test_who_is_told_everything_again_must_hear_it_again() -> None:
    ours = announcer()
    ours.want("a", 1, SECOND_US)
    for peer in ("b11", "b22"):
        ours.changes(peer, SECOND_US)
        ours.was_heard(peer, 2 * SECOND_US)
    assert ours.unheard("a", 2 * SECOND_US) == 0
    ours.whole("b11", 3 * SECOND_US)
    assert ours.unheard("a", 3 * SECOND_US) == SECOND_US


def test_nobody_needs_to_hear_of_what_nobody_wants() -> None:
    assert announcer().unheard("a", SECOND_US) == 0


def test_what_may_be_lost_with_a_link_is_told_again_with_its_age() -> None:
    ours = announcer()
    for topic_filter, at_us in (("heard", SECOND_US), ("lost", 3 * SECOND_US)):
        ours.want(topic_filter, 1, at_us)
        assert ours.changes("b11", at_us) is not None
    ours.was_heard("b11", 2 * SECOND_US)
    digest = ours.digest("b11")
    ours.link_opened("b11")
    frame = ours.changes("b11", 5 * SECOND_US)
    assert frame is not None
    assert [(item.topic_filter, item.age_ms) for item in frame.wanted] == [("lost", 2_000)]
    assert ours.digest("b11") == digest


def test_a_summary_is_as_old_as_what_its_reader_may_not_have_heard() -> None:
    ours = Announcer(Node(grid_city("flood-subscriptions", count=3), "b00", 1, 0).router, most=1)
    ours.want("a/1", 1, SECOND_US)
    ours.changes("b11", SECOND_US)
    ours.want("a/2", 1, 4 * SECOND_US)
    assert ours.regroup()
    frame = ours.changes("b11", 5 * SECOND_US)
    assert frame is not None
    assert [(item.topic_filter, item.age_ms) for item in frame.wanted] == [("a/#", 4_000)]
    ours.want("a/2", 0, 5 * SECOND_US)
