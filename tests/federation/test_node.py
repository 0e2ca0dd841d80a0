"""A node as its host sees it: effects in, effects out, and the same node again after a restart."""

import random
from collections.abc import Callable

import pytest

from metromq.errors import PeerViolation
from metromq.federation.city import grid_city
from metromq.federation.coordination.coordinator import Greeting
from metromq.federation.coordination.facts import AREA, FILTER, Fact
from metromq.federation.distribution import Arrival, distribute
from metromq.federation.effects import Effect, FactsLearnt, Keep, Replay, Reroute, RoutesChanged, Send, SendRetained
from metromq.federation.links.frame_bytes import encode_frame
from metromq.federation.links.frames import (
    VERSION,
    Announcement,
    Facts,
    Hello,
    Interest,
    InterestRequest,
    RetainedRequest,
)
from metromq.federation.node import Node
from metromq.federation.stages import CLIENT, HANDOVER, OWNER
from tests.federation.network import leaves

CITY = grid_city()


def node(name: str, *up: str) -> Node:
    found = Node(CITY, name, 1, 0)
    for peer in up:
        found.peer_up(peer, 0)
    return found


def wants(text: str, age_ms: int = 0, members: int = 1) -> bytes:
    return encode_frame(Interest(False, (Announcement(text, members, age_ms),), ()))


def of_kind(effects: list[Effect], kind: type) -> list[Effect]:
    return [effect for effect in effects if isinstance(effect, kind)]


def test_a_subscription_goes_to_the_owner_and_is_taken_back() -> None:
    broker = node("b13", "b12", "b00")
    sent = of_kind(broker.subscribed("1/2/#", 0), Send)
    assert sent == [Send("b12", Interest(False, (Announcement("1/2/#", 1, 0),), ()))]
    assert of_kind(broker.unsubscribed("1/2/#", 0), Send) == [Send("b12", Interest(False, (), ("1/2/#",)))]
    assert len(of_kind(broker.subscribed("kitchen", 0), Send)) == 2


def test_interest_is_kept_and_brings_retained_and_missed_messages() -> None:
    broker = node("b12", "b13")
    effects = broker.frame("b13", wants("1/2/#"), 0)
    assert [type(effect) for effect in effects] == [Keep, RoutesChanged], "who announces at once asks by itself"
    assert broker.frame("b13", wants("1/2/#", age_ms=9), 0) == [], "nothing new"
    late = broker.frame("b13", wants("1/2/+", age_ms=9), 0)
    assert of_kind(late, Replay) == [Replay("b13", (("1/2/+", 9000),))]
    assert of_kind(late, SendRetained) == [SendRetained("b13", ("1/2/+",))]
    assert [hop.peer for hop in broker.routes.route("1/2/x").hops] == ["b13"]


def test_a_hello_with_another_digest_asks_for_everything() -> None:
    broker, peer = node("b12", "b13"), node("b13", "b12")
    peer.subscribed("1/2/a", 0)
    hello = of_kind(peer.tick(10_000_000), Send)
    frame = next(effect.frame for effect in hello if isinstance(effect, Send) and effect.peer == "b12")
    answer = broker.frame("b13", encode_frame(frame), 0)
    assert Send("b13", InterestRequest()) in answer
    (whole,) = peer.frame("b12", encode_frame(InterestRequest()), 0)
    assert isinstance(whole, Send)
    broker.frame("b13", encode_frame(whole.frame), 0)
    assert Send("b13", InterestRequest()) not in broker.frame("b13", encode_frame(frame), 0)


def test_a_restarted_node_knows_what_it_kept() -> None:
    broker = node("b12", "b13", "b00")
    kept = [effect for text in ("1/2/#", "$share/g/1/2/#") for effect in broker.frame("b13", wants(text), 0)]
    table = encode_frame(Facts((Fact(AREA, "0/3", "b02", 4),)))
    kept += broker.frame("b00", table, 0)
    for source in (of_kind(kept, Keep), list(broker.snapshot())):
        again = Node(CITY, "b12", 2, 0)
        for keep in source:
            assert isinstance(keep, Keep)
            again.restore(keep.peer, keep.frame, 0)
        assert again.exchange.interest.digest("b13") == broker.exchange.interest.digest("b13")
        assert again.table.digest() == broker.table.digest()
        assert [hop.peer for hop in again.routes.route("1/2/x").hops] == ["b13"]


def test_takeover_reroutes_announces_and_pulls_what_is_retained() -> None:
    broker = node("b13", "b10", "b11", "b00")
    broker.subscribed("1/2/#", 0)
    entry = Fact(AREA, "1/2", "b10", 1)
    effects = broker.frame("b00", encode_frame(Facts((entry,))), 0)
    assert FactsLearnt((entry,)) in effects
    assert Reroute("1/2", "b12", "b10") in effects
    assert Send("b10", Interest(False, (Announcement("1/2/#", 1, 1),), ())) in effects
    assert Send("b11", Facts((entry,))) in effects
    assert Send("b00", Facts((entry,))) not in effects
    effects = broker.tick(10_000_000)
    assert broker.table.owner("1/2") == "b13", "b10 was never heard"
    assert Send("b00", RetainedRequest(("1/2/#",))) in effects
    hops = {hop.peer: hop.stage for hop in broker.routes.route("1/2/x").hops}
    assert hops == {"b12": HANDOVER}


def test_a_home_broker_claims_its_area_back_and_says_so_to_everyone() -> None:
    broker = node("b12", "b13", "b00")
    effects = broker.frame("b13", encode_frame(Facts((Fact(AREA, "1/2", "b13", 5),))), 0)
    assert broker.table.owner("1/2") == "b12"
    assert broker.table.epoch("1/2") == 6
    assert {effect.peer for effect in effects if isinstance(effect, Send) and isinstance(effect.frame, Facts)} == {
        "b13",
        "b00",
    }
    assert [(hop.peer, hop.stage) for hop in node("b33").routes.route("1/2/x").hops] == [("b12", OWNER)]


def test_peers_that_break_the_rules_are_told_apart() -> None:
    broker = node("b12", "b13")
    with pytest.raises(PeerViolation, match="not in the city's file"):
        broker.frame("b13", encode_frame(Facts((Fact(AREA, "1/2", "mallory", 5),))), 0)
    unknown = encode_frame(Facts((Fact(AREA, "9/9", "b13", 5), Fact(FILTER, "bus/#", "b13", 0))))
    assert FactsLearnt((Fact(FILTER, "bus/#", "b13", 0),)) in broker.frame("b13", unknown, 0), "areas are fixed"
    with pytest.raises(PeerViolation, match=f"version {VERSION + 1}"):
        broker.frame("b13", encode_frame(Hello(VERSION + 1, 0, Greeting(1, 0, ()))), 0)


def test_a_cached_route_follows_interest() -> None:
    broker = node("b12", "b13", "b00")
    assert broker.routes.route("1/2/x").hops == ()
    broker.frame("b13", wants("1/2/x"), 0)
    assert len(broker.routes.route("1/2/x").hops) == 1
    broker.frame("b00", wants("1/#"), 0)
    assert len(broker.routes.route("1/2/x").hops) == 2
    broker.frame("b13", encode_frame(Interest(True, (), ())), 0)
    assert [hop.peer for hop in broker.routes.route("1/2/x").hops] == ["b00"]


CHANGES: tuple[Callable[[Node, int], object], ...] = (
    lambda broker, now_us: broker.frame("b13", wants("1/2/x"), now_us),
    lambda broker, now_us: broker.frame("b00", wants("1/2/#"), now_us),
    lambda broker, now_us: broker.frame("b00", encode_frame(Interest(False, (), ("1/2/#",))), now_us),
    lambda broker, now_us: broker.frame("b13", encode_frame(Interest(True, (), ())), now_us),
    lambda broker, now_us: broker.frame("b00", wants("$share/g/1/2/x", members=2), now_us),
    lambda broker, now_us: broker.frame("b00", encode_frame(Interest(False, (), ("$share/g/1/2/x",))), now_us),
    lambda broker, now_us: broker.subscribed("$share/h/#", now_us),
    lambda broker, now_us: broker.unsubscribed("$share/h/#", now_us),
    lambda broker, now_us: broker.frame("b00", encode_frame(Facts((Fact(AREA, "1/2", "b00", 7),))), now_us),
    lambda broker, now_us: broker.peer_down("b13", now_us),
    lambda broker, now_us: broker.peer_up("b13", now_us),
    lambda broker, now_us: leaves(broker, "b13", now_us),
)
ARRIVALS = (
    Arrival("1/2/x", CLIENT, "b12"),
    Arrival("1/2/x", OWNER, "b31"),
    Arrival("1/2/x", OWNER, "b30"),
    Arrival("1/2/x", HANDOVER, "b31", served=("b13",)),
    Arrival("1/2/x", HANDOVER, "b31", served=("b00", "b13")),
    Arrival("1/2/x", OWNER, "b31", limit=3),
    Arrival("1/2/x", OWNER, "b31", check=True),
    Arrival("1/2/x", OWNER, "b31", shares_done=("$share/g/1/2/x",)),
    Arrival("plain", OWNER, "b31"),
)


def test_a_remembered_route_is_the_one_that_would_be_found_now() -> None:
    broker = node("b12", "b13", "b00")
    dice = random.Random(11)
    steps = [*CHANGES[:-1] * 3]
    dice.shuffle(steps)
    for now_us, change in enumerate((*steps, CHANGES[-1])):
        change(broker, now_us)
        for item in (*ARRIVALS, *ARRIVALS):
            fresh, _ = distribute(broker.routes, item)
            words = item.topic, item.stage, item.origin, item.number, item.served, (), item.shares_done
            assert broker.routes.route(*words, item.check, item.limit) == fresh, (now_us, item)


def test_the_way_of_a_peers_message_is_looked_up_once() -> None:
    broker = node("b12", "b13", "b00")
    first = broker.routes.route("1/2/x", OWNER, "b31", 1, ("b13",))
    assert broker.routes.route("1/2/x", OWNER, "b31", 2, ("b13",)) is first
    broker.frame("b00", wants("1/2/x"), 0)
    assert [hop.peer for hop in broker.routes.route("1/2/x", OWNER, "b31", 3, ("b13",)).hops] == ["b00"]


def test_a_remote_subscription_takes_little_memory() -> None:
    import tracemalloc

    broker = node("b12", "b13")
    broker.frame("b13", wants("1/2/warm/up"), 0)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(5000):
        broker.frame("b13", wants(f"1/2/sensor/{number}/temperature"), 0)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert used / 5000 <= 500
