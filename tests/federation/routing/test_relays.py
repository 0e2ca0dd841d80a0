"""Longer ways than three links: lines and clusters deliver exactly once, and nothing ever runs in a circle."""

import inspect
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.federation.city import grid_city
from metromq.federation.effects import NeighboursChanged
from metromq.federation.explaining import explain_step
from metromq.federation.node import Node
from metromq.federation.routing import ROUTINGS, Router
from metromq.federation.stages import CLIENT, FINAL, HOP_LIMIT, RELAY, may_follow
from tests.federation.network import Network
from tests.federation.routing.relays import MadRouter, routed

QOS = st.integers(0, 2)


@given(st.integers(0, 5), st.sets(st.integers(0, 5)), QOS)
@settings(deadline=None, max_examples=60)
def test_a_line_of_six_delivers_exactly_once(start: int, wanting: set[int], qos: int) -> None:
    with routed(grid_city("flood-publications", count=6), "line") as city:
        network = Network(city)
        names = city.names
        for number in wanting:
            network.subscribe(names[number], "bus/#")
        network.publish(names[start], "bus/7", b"here", qos)
        assert sorted(network.delivered) == [(names[number], b"here") for number in sorted(wanting)]
        assert len(network.copies) == 5
        assert len(network.nodes[names[start]].neighbours) == (1 if start in (0, 5) else 2)


@given(st.integers(0, 15), st.sets(st.integers(0, 15)), QOS)
@settings(deadline=None, max_examples=60)
def test_clusters_with_leaders_deliver_exactly_once(start: int, wanting: set[int], qos: int) -> None:
    with routed(grid_city(), "clusters") as city:
        network = Network(city)
        for number in wanting:
            network.subscribe(city.names[number], "bus/#")
        network.publish(city.names[start], "bus/7", b"here", qos)
        assert sorted(network.delivered) == [(city.names[number], b"here") for number in sorted(wanting)]


def test_a_way_through_clusters_passes_six_brokers() -> None:
    with routed(grid_city(), "clusters") as city:
        network = Network(city)
        network.subscribe("b33", "bus/#")
        network.publish("b01", "bus/7")
        assert network.copies == [("b01", "b00"), ("b00", "b10"), ("b10", "b20"), ("b20", "b30"), ("b30", "b33")]
        assert network.nodes["b33"].neighbours == ("b30",)
        step = explain_step(network.nodes["b10"], "bus/7", RELAY, "b01")
        assert [(hop.peer, hop.stage, hop.why) for hop in step.hops] == [("b20", "relay", "leads a cluster")]


def test_a_cluster_whose_leader_is_lost_gets_another_and_links_to_it() -> None:
    with routed(grid_city(), "clusters") as city:
        network = Network(city)
        network.subscribe("b33", "bus/#")
        network.step(3)
        network.lose("b20")
        network.step(10)
        # Nobody else had a link to them, so each thought itself alone and claimed; the greatest claim won everywhere.
        assert {node.table.owner("2") for name, node in network.nodes.items() if name != "b20"} == {"b23"}
        assert network.nodes["b22"].neighbours == ("b23",)
        network.publish("b01", "bus/7", b"again")
        assert network.delivered == [("b33", b"again")]
        assert ("b10", "b23") in network.copies


@given(st.randoms(use_true_random=False), st.integers(0, 6), st.integers(0, 5), st.sets(st.integers(0, 5)), QOS)
@settings(deadline=None, max_examples=150)
def test_no_message_goes_further_than_its_limit_whatever_a_router_says(
    random: Random, limit: int, start: int, wanting: set[int], qos: int
) -> None:
    MadRouter.random = random
    with routed(grid_city("flood-publications", count=6), "mad") as city:
        nodes = {name: Node(city, name, 1, 0) for name in city.names}
        for name in nodes:
            for number in wanting - {city.names.index(name)}:
                nodes[name].exchange.interest.set(city.names[number], "#", 1)
        queue: list[tuple[str, int, int, int, tuple[str, ...], tuple[str, ...]]]
        queue = [(city.names[start], CLIENT, limit, 0, (), ())]
        seen = 0
        while queue and seen < 2000:
            at, stage, left, links, served, path = queue.pop()
            assert links <= limit, "it crossed more links than it may"
            assert left == limit - links
            before = nodes[at].routes.copies_dropped
            route = nodes[at].routes.route("a", stage, city.names[start], 7, served, limit=left)
            assert nodes[at].routes.copies_dropped - before == len(route.dropped)
            assert not (left == 0 and route.hops)
            for hop in route.hops:
                assert hop.peer != at
                assert may_follow(stage, hop.stage)
                assert not (hop.stage == RELAY and hop.peer in (*path, city.names[start])), "it was there before"
                seen += 1
                queue.append((hop.peer, hop.stage, hop.limit, links + 1, hop.served, (*path, at)))


def test_the_limit_ends_a_ring_that_forgets_who_was_served() -> None:
    with routed(grid_city("flood-publications", count=6), "ring") as city:
        nodes = {name: Node(city, name, 1, 0) for name in city.names}
        at, stage, limit, links = city.names[0], CLIENT, HOP_LIMIT, 0
        while (
            hops := nodes[at].routes.route("a", stage, at, 7, (), limit=limit).hops
        ):  # says everywhere that it began here
            (hop,) = hops
            at, stage, limit, links = hop.peer, hop.stage, hop.limit, links + 1
        assert links == HOP_LIMIT
        assert nodes[at].routes.copies_dropped == 1
        step = explain_step(nodes[at], "a", RELAY, at, (), limit=0)
        assert step.hops == ()
        assert f"drops the copies for {nodes[at].neighbours[0]}: the message has crossed 16 links" in step.reasons[-1]


def test_a_copy_that_would_turn_back_is_dropped_and_explained() -> None:
    with routed(grid_city("flood-publications", count=6), "line") as city:
        node = Node(city, city.names[1], 1, 0)
        route = node.routes.route("a", 3, city.names[0])
        assert (route.hops, route.dropped) == ((), (city.names[2],))
        assert "earlier stage" in explain_step(node, "a", 3, city.names[0]).reasons[-1]


def test_the_limit_travels_with_each_copy() -> None:
    with routed(grid_city("flood-publications", count=6), "line") as city:
        network = Network(city)
        network.subscribe(city.names[5], "bus/#")
        network.publish(city.names[0], "bus/7", b"near", limit=4)
        assert network.delivered == []
        assert network.nodes[city.names[4]].routes.copies_dropped == 1
        network.publish(city.names[0], "bus/7", b"far", limit=5)
        assert network.delivered == [(city.names[5], b"far")]


@pytest.mark.parametrize("word", sorted(ROUTINGS))
def test_routers_have_few_methods(word: str) -> None:
    methods = {name for name, _ in inspect.getmembers(Router, inspect.isfunction) if not name.startswith("_")}
    assert methods == {"key", "neighbours", "announce_to", "decide", "explain"}
    own = {name for name, _ in inspect.getmembers(ROUTINGS[word].router, inspect.isfunction) if name[0] != "_"}
    assert own == methods


def test_the_four_routings_keep_links_to_all_others() -> None:
    for word in sorted(ROUTINGS):
        node = Node(grid_city(word), "b12", 1, 0)
        assert node.neighbours == node.peers
        assert not [effect for effect in node.tick(0) if isinstance(effect, NeighboursChanged)]
        assert FINAL not in {hop.stage for hop in node.routes.route("1/0/x").hops} or word == "flood-publications"
