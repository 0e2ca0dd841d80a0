"""Members join and leave a running city: told to one broker, known to all, and forgotten where they were known."""

from dataclasses import replace

import pytest

from metromq.errors import PeerViolation
from metromq.federation.announcer import Announcer
from metromq.federation.city import BrokerSpec, City, grid_city
from metromq.federation.coordination.coordinator import MemberJoined, MemberLeft
from metromq.federation.coordination.facts import BROKER
from metromq.federation.directory import Directory
from metromq.federation.effects import Keep, NeighboursChanged, Send, SessionFound
from metromq.federation.hybrid_clock import HybridClock
from metromq.federation.interest import PeerInterest
from metromq.federation.links.frame_bytes import encode_frame
from metromq.federation.links.frames import ClientClaim, InterestRequest
from metromq.federation.node import Node
from tests.federation.network import Network, joins, leaves


def enlarged(city: City) -> City:
    """The file that the newcomer starts with."""
    return replace(city, brokers=(*city.brokers, BrokerSpec("late", listen="10.0.0.9:1883")))


@pytest.mark.parametrize("routing", ["central", "flood-publications", "flood-subscriptions", "geographic"])
def test_a_newcomer_is_told_to_one_broker_and_served_by_all(routing: str) -> None:
    network = Network(grid_city(routing, count=4))
    names = sorted(network.nodes)
    network.subscribe("b10", "bus/#")
    network.subscribe("b20", "1/0/#")
    network.add(enlarged(grid_city(routing, count=4)), "late")
    effects = joins(network.nodes["b00"], "late", network.now_us, "10.0.0.9:1883")
    assert [effect for effect in effects if isinstance(effect, NeighboursChanged)] == [
        NeighboursChanged(("b10", "b20", "b30", "late"))
    ]
    network.run("b00", effects)
    network.step(3)
    for name in names:
        assert "late" in network.nodes[name].peers
        assert network.nodes[name].coordinator.book.get(BROKER, "late").value == "10.0.0.9:1883"
        assert "late" in network.nodes[name].coordinator.alive(network.now_us)
    assert len({node.table.digest() for node in network.nodes.values()}) == 1
    network.subscribe("late", "bus/#")
    network.publish("b30", "bus/7", b"to all")
    network.publish("late", "bus/8", b"from late")
    network.publish("late", "1/0/x", b"by area")
    expected = [("b10", b"to all"), ("late", b"to all"), ("b10", b"from late"), ("late", b"from late")]
    assert sorted(network.delivered) == sorted([*expected, ("b20", b"by area")])


@pytest.mark.parametrize("routing", ["central", "flood-publications", "flood-subscriptions", "geographic"])
def test_who_left_for_good_is_forgotten_by_all(routing: str) -> None:
    network = Network(grid_city(routing, count=4))
    network.subscribe("b10", "#")
    network.subscribe("b20", "1/0/#")
    network.step(3)
    network.run("b00", leaves(network.nodes["b00"], "b10", network.now_us))
    network.settle()
    network.lose("b10")
    network.step(10)
    for name in ("b00", "b20", "b30"):
        node = network.nodes[name]
        assert "b10" not in (*node.peers, *node.neighbours, *node.up, *node.coordinator.alive(network.now_us))
        assert node.exchange.interest.peers_for("1/0/x") in ((), ("b20",))
        assert "b10" not in {node.table.owner(area) for area in ("1/0", "1/1", "1/2", "1/3")}
        assert "b10" not in node.router.announce_to("#")
        with pytest.raises(PeerViolation, match="no member"):
            node.frame("b10", encode_frame(InterestRequest()), network.now_us)
        assert node.peer_up("b10", network.now_us) == []
    network.copies.clear()
    network.publish("b30", "1/0/x", b"after")
    assert network.delivered == [("b20", b"after")]
    assert "b10" not in {receiver for _, receiver in network.copies}, "nothing waits for who will not come back"


def test_a_restart_knows_who_came_and_who_went() -> None:
    city = grid_city(count=4)
    node = Node(city, "b00", 1, 0)
    effects = [*joins(node, "late", 0), *leaves(node, "b10", 0)]
    for kept in ([effect for effect in effects if isinstance(effect, Keep)], node.snapshot()):
        again = Node(city, "b00", 2, 0)
        for keep in kept:
            again.restore(keep.peer, keep.frame, 0)
        assert again.peers == ("b20", "b30", "late")
        assert again.table.digest() == node.table.digest()
        assert again.router.announce_to("kitchen") == {"b20", "b30", "late"}
        assert not {effect.peer for effect in again.tick(0) if isinstance(effect, Send)} & {"b10"}


def test_a_member_that_left_may_come_back() -> None:
    node = Node(grid_city(count=4), "b00", 1, 0)
    leaves(node, "b10", 0)
    assert "b10" not in node.peers
    assert node.table.home("1/0") == "b10", "until an heir claims it, the area is still the lost one's"
    joins(node, "b10", 0)
    assert "b10" in node.peers
    joins(node, "b00", 0)
    assert "b00" not in node.peers, "a broker may be told of itself"


def test_interest_of_a_member_that_left_is_gone_and_its_place_is_used_again() -> None:
    interest = PeerInterest()
    for peer in ("b1", "b2"):
        for topic_filter in ("a/#", "$share/g/a"):
            interest.set(peer, topic_filter, 1)
    interest.member_left("b1")
    interest.member_left("b1")
    assert interest.peers_for("a/b") == ("b2",)
    assert interest.members_of("$share/g/a") == {"b2": 1}
    assert (interest.digest("b4"), interest.digest("b5")) == (0, 0)
    interest.set("b4", "a/b", 1)
    interest.set("b5", "x", 1)
    assert interest.peers_for("a/b") == ("b2", "b4")
    assert interest.peers_for("x") == ("b5",)


def test_a_newcomer_is_announced_everything_and_a_leaver_nothing() -> None:
    node = Node(grid_city("flood-subscriptions", count=4), "b00", 1, 0)
    announcer: Announcer = node.exchange.announcer
    node.subscribed("a", 0)
    joins(node, "late", 0)
    assert [item.topic_filter for item in announcer.whole("late", 0).wanted] == ["a"]
    leaves(node, "late", 0)
    assert announcer.digest("late") == 0
    assert "late" not in announcer.concerned()


def test_a_directory_forgets_sessions_at_a_broker_that_left() -> None:
    directory = Directory("b1", ("b1",), HybridClock())
    directory.claimed("b2", ClientClaim("ann", 5, False, False))
    directory.claimed("b3", ClientClaim("bob", 5, False, False))
    directory.member_left("b2")
    assert directory.connected("ann", 9, False, True) == [SessionFound("ann", 9, "")]
    assert SessionFound("bob", 9, "b3", 5) in directory.connected("bob", 9, False, True)


def test_a_node_tells_its_directory_who_left() -> None:
    node = Node(grid_city(count=4), "b00", 1, 0)
    client = next(name for name in "abcdefghij" if node.directory.keeper_of(name) == "b00")
    node.directory.claimed("b10", ClientClaim(client, 5, False, False))
    leaves(node, "b10", 0)
    assert SessionFound(client, 9, "") in node.directory.connected(client, 9, False, True)


def test_events_of_members_come_in_the_right_order() -> None:
    node = Node(grid_city(count=4), "b00", 1, 0)
    joined = [type(event) for event in node.coordinator.join("late", "", 0)]
    left = [type(event) for event in node.coordinator.leave("late", 0)]
    assert joined[0] is MemberJoined, "facts may speak of it"
    assert MemberLeft in left[1:], "it is told first"
