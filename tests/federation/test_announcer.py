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
