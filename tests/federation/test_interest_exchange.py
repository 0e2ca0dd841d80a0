"""Who wants what: what a newcomer asks for, what peers that came late have missed, and what a restart keeps."""

import pytest

from metromq.errors import PeerViolation
from metromq.federation.city import grid_city
from metromq.federation.effects import Keep, Replay, Send, SendRetained
from metromq.federation.links.frame_bytes import encode_frame
from metromq.federation.links.frames import Announcement, Interest, InterestRequest, Owed, RetainedRequest
from metromq.federation.node import Node


def node(routing: str = "flood-subscriptions", wall_us: int = 1_000_000) -> Node:
    return Node(grid_city(routing, count=4), "b00", 1, 0, lambda: wall_us)


def wants(*items: tuple[str, int]) -> Interest:
    return Interest(False, tuple(Announcement(text, 1, age_ms) for text, age_ms in items), ())


def test_only_a_new_broker_asks_once_for_what_is_retained_where_nobody_is_asked_later() -> None:
    asks = [Send("b10", RetainedRequest(("#",)))]
    exchange = node("flood-publications").exchange
    assert exchange.ask_as_newcomer("b10") == asks
    assert exchange.ask_as_newcomer("b10") == []
    assert node("flood-subscriptions").exchange.ask_as_newcomer("b10") == []
    old = node("flood-publications").exchange
    old.is_new = False
    assert old.ask_as_newcomer("b10") == []


def test_a_digest_that_differs_asks_for_everything() -> None:
    exchange = node().exchange
    exchange.told("b10", wants(("a", 0)), 0)
    known = exchange.interest.digest("b10")
    assert exchange.compare("b10", known, 0) == []
    assert exchange.compare("b10", known + 1, 0) == [Send("b10", InterestRequest())]


def test_who_announces_late_gets_what_it_has_missed_of_new_filters() -> None:
    exchange = node().exchange
    effects = exchange.told("b10", wants(("a", 0), ("b", 7)), 0)
    assert [effect for effect in effects if isinstance(effect, Replay)] == [Replay("b10", (("b", 7000),))]
    assert [effect for effect in effects if isinstance(effect, SendRetained)] == [SendRetained("b10", ("b",))]
    again = exchange.told("b10", wants(("a", 9), ("b", 9)), 0)
    assert again == [], "it has said so before"


def test_members_of_a_share_that_had_some_before_have_missed_nothing() -> None:
    exchange = node().exchange
    first = exchange.told("b10", wants(("$share/g/a", 5)), 0)
    assert Replay("b10", (("$share/g/a", 5000),)) in first, "nobody was there to be chosen"
    second = exchange.told("b01", wants(("$share/g/a", 5)), 0)
    assert not [effect for effect in second if isinstance(effect, Replay)]


def test_what_is_owed_is_kept_counts_after_a_restart_and_is_nobody_elses_business() -> None:
    one = node()
    one.exchange.wanted("a", 1, 0)
    (keep,) = one.exchange.came_untold("a", ("b10",), 400_000, 0)
    assert keep == Keep("", Owed("a", ("b10",), 600_000))
    assert one.exchange.came_untold("a", ("b10",), 300_000, 0) == [], "it is owed for longer already"
    assert keep in one.exchange.snapshot()
    again = node(wall_us=1_500_000)
    again.exchange.wanted("a", 1, 0)
    again.restore("", Owed("a", ("b10",), 600_000), 0)
    assert again.exchange.announcer.untold("a")[0] == -900_000
    with pytest.raises(PeerViolation, match="keep for themselves"):
        one.frame("b10", encode_frame(Owed("a", ("b10",), 1)), 0)


def test_what_a_broker_wants_is_counted_again_only_when_it_changes() -> None:
    exchange = node().exchange
    exchange.told("b10", wants(("a", 0)), 0)
    first = exchange.wanted_by("b10")
    assert first == {"a"}
    assert exchange.wanted_by("b10") is first
    exchange.told("b10", wants(("b", 0)), 0)
    assert exchange.wanted_by("b10") == {"a", "b"}
    exchange.wanted("c", 1, 0)
    assert exchange.wanted_by("b00") == {"c"}
    assert exchange.wanted_by("nobody") == set()
