"""What two brokers learn from greetings: whose clock is wrong, once; and which words the other understands."""

from dataclasses import replace

import pytest

from metromq.errors import PeerViolation
from metromq.federation.city import grid_city
from metromq.federation.coordination.coordinator import Greet, Greeting
from metromq.federation.effects import ClockSkewed, Keep
from metromq.federation.greetings import Greetings
from metromq.federation.links.frames import ClockCompared, ClockTold, Hello
from metromq.federation.links.versions import RUMOURS_SINCE, SAID_SINCE
from metromq.federation.node import Node

CITY = grid_city(count=4)


class End:
    """One of two brokers; `wall_us` is its clock."""

    def __init__(self, name: str, wall_us: int) -> None:
        self.wall_us = wall_us
        self.greetings: Greetings = Node(CITY, name, 1, 0, lambda: self.wall_us).greetings

    def hello(self, peer: str, now_us: int) -> Hello:
        return self.greetings.hello(Greet(peer, Greeting(1, 0, ())), 0, now_us)


def exchange(one: End, other: End, rounds: int, now_us: int) -> list[object]:
    """What the first one says of the other's clock; a greeting takes a millisecond."""
    said: list[object] = []
    for number in range(rounds):
        start_us = now_us + 1_000_000 * number
        other.greetings.compare_clocks("b00", one.hello("b10", start_us), start_us + 1000)
        for end in (one, other):
            end.wall_us += 1000
        said += one.greetings.compare_clocks("b10", other.hello("b00", start_us + 1000), start_us + 2000)
        for end in (one, other):
            end.wall_us += 999_000
    return said


def test_a_wrong_clock_is_said_once_and_once_that_it_is_right_again() -> None:
    one, other = End("b00", 10_000_000), End("b10", 70_000_000)
    warnings = exchange(one, other, 4, 0)
    assert [(type(effect), effect.apart) for effect in warnings if isinstance(effect, ClockSkewed)] == [
        (ClockSkewed, True)
    ]
    other.wall_us -= 60_000_000
    (again,) = [effect for effect in exchange(one, other, 12, 10_000_000) if isinstance(effect, ClockSkewed)]
    assert not again.apart
    one.greetings.member_left("b10")
    assert one.greetings.skews.of("b10") is None


def test_a_restart_knows_how_far_ahead_a_peers_clock_was() -> None:
    one, other = End("b00", 10_000_000), End("b10", 70_000_000)
    assert [effect for effect in exchange(one, other, 4, 0) if isinstance(effect, Keep)] == one.greetings.snapshot()
    (ahead,) = kept(one)
    assert (ahead.ahead_us // 1_000_000, ahead.behind_us) == (60, 0)
    other.wall_us -= 90_000_000
    assert len([effect for effect in exchange(one, other, 12, 10_000_000) if isinstance(effect, Keep)]) == 1
    (behind,) = kept(one)
    assert (behind.ahead_us, round(behind.behind_us, -6)) == (0, 30_000_000)
    again = End("b00", 10_000_000)
    again.greetings.restore("b10", ahead)
    assert again.greetings.clock.stamp_us() >= 70_000_000
    exchange(again, End("b10", 11_000_000), 3, 0)  # it was set meanwhile
    assert kept(again)[0].ahead_us < 2_000_000


def kept(end: End) -> list[ClockCompared]:
    return [keep.frame for keep in end.greetings.snapshot() if isinstance(keep.frame, ClockCompared)]


def test_words_are_said_to_who_reads_them() -> None:
    greetings = End("b00", 0).greetings
    for version in range(RUMOURS_SINCE - 1, SAID_SINCE + 1):
        greetings.versions.spoken["b10"] = version
        assert greetings.reads_rumours("b10") == (version >= RUMOURS_SINCE)
        assert greetings.reads_time("b10") == (version >= SAID_SINCE)


def test_a_greeting_of_a_later_release_is_refused() -> None:
    one, other = End("b00", 0), End("b10", 0)
    hello = other.hello("b00", 0)
    one.greetings.heard("b10", hello, 0)
    with pytest.raises(PeerViolation, match="version 99"):
        one.greetings.heard("b10", replace(hello, version=99), 0)


def test_time_that_is_told_is_stamped_later() -> None:
    greetings = End("b00", 5).greetings
    assert greetings.time_told(ClockTold(1_000)) == []
    assert greetings.clock.happened_us == 1_000
    assert greetings.clock.stamp_us() > 1_000


def test_guests_are_greeted_now_and_then() -> None:
    node = Node(CITY, "b00", 1, 0)
    far_us = CITY.membership.hello_interval_ms * CITY.membership.far_factor * 1000
    asked: list[int] = []
    contacts = node.coordinator.contacts()
    assert contacts.guests(node.up) == [], "everybody has a link here, so that nobody is a guest"
    for now_us in range(0, 3 * far_us, far_us // 4):
        before = node.greetings._greeted_us
        node.greetings.guests(node.up, now_us)
        if node.greetings._greeted_us != before:
            asked.append(now_us)
    assert asked == [far_us, 2 * far_us]
