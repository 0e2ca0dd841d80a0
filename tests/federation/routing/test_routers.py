"""Routers as one network: loop-free whatever tables say, one copy per interested peer when they agree."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.federation.city import grid_city
from metromq.federation.coordination.facts import AREA, Fact
from metromq.federation.node import Node
from metromq.federation.routing import ROUTINGS
from metromq.federation.stages import CLIENT, FINAL

TOPICS = ("1/2/0/x", "1/temperature", "3", "kitchen/light", "$SYS/uptime")
FILTERS = ("#", "1/+/0/#", "1/2/#", "+/temperature", "kitchen/+", "3")


def nodes(routing: str) -> dict[str, Node]:
    city = grid_city(routing, count=9)
    found = {name: Node(city, name, 1, 0) for name in city.names}
    for name, node in found.items():
        for peer in set(city.names) - {name}:
            node.up.opened(peer)
    return found


def subscribe(network: dict[str, Node], name: str, topic_filter: str, members: int = 1) -> None:
    network[name].exchange.announcer.want(topic_filter, members, 0)
    for peer in network[name].router.announce_to(topic_filter):
        network[peer].exchange.interest.set(name, topic_filter, members)


def travel(network: dict[str, Node], start: str, topic: str) -> tuple[list[tuple[str, str, int]], list[str]]:
    """Every copy between brokers, and the broker that serves each shared subscription."""
    copies: list[tuple[str, str, int]] = []
    shares: list[str] = []
    queue = [(start, CLIENT, (), (), ())]
    while queue:
        at, stage, served, listed, done = queue.pop(0)
        route = network[at].routes.route(topic, stage, start, 7, served, listed, done)
        shares += [f"{at} {share}" for share in route.shares]
        for hop in route.hops:
            assert hop.stage > stage, "a stage only grows"
            assert hop.peer != at
            copies.append((at, hop.peer, hop.stage))
            queue.append((hop.peer, hop.stage, hop.served, hop.shares, hop.shares_done))  # type: ignore[arg-type]
        assert len(copies) < 200, "the message runs in a circle"
    return copies, shares


def matches(topic_filter: str, topic: str) -> bool:
    wanted, names = topic_filter.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False
    for position, name in enumerate(wanted):
        if name == "#":
            return True
        if position >= len(names) or name not in ("+", names[position]):
            return False
    return len(wanted) == len(names)


BROKER = st.integers(0, 8)
SUBSCRIPTIONS = st.lists(st.tuples(BROKER, st.sampled_from(FILTERS)), max_size=8)


@given(st.sampled_from(sorted(ROUTINGS)), SUBSCRIPTIONS, BROKER, st.sampled_from(TOPICS))
@settings(deadline=None, max_examples=250)
def test_everyone_who_wants_it_gets_one_copy(
    routing: str, subscriptions: list[tuple[int, str]], start: int, topic: str
) -> None:
    network = nodes(routing)
    names = sorted(network)
    for number, topic_filter in subscriptions:
        subscribe(network, names[number], topic_filter)
    copies, _ = travel(network, names[start], topic)
    receivers = [receiver for _, receiver, _ in copies]
    assert len(receivers) == len(set(receivers)), "one copy per broker"
    wanting = {names[number] for number, text in subscriptions if matches(text, topic)} - {names[start]}
    if topic.startswith("$"):
        assert not copies
        return
    assert wanting <= set(receivers)
    if routing == "flood-publications":
        return
    final = {receiver for _, receiver, stage in copies if stage == FINAL}
    assert final <= wanting
    assert len(receivers) <= len(wanting) + 1, "besides the interested, at most the broker that distributes"


TABLES = st.lists(st.tuples(BROKER, st.sampled_from(["1/2", "1/0", "3/0"]), BROKER, st.integers(1, 3)), max_size=20)


@given(TABLES, SUBSCRIPTIONS, BROKER, st.sampled_from(TOPICS))
@settings(deadline=None, max_examples=250)
def test_no_message_runs_in_a_circle_whatever_tables_say(
    tables: list[tuple[int, str, int, int]], subscriptions: list[tuple[int, str]], start: int, topic: str
) -> None:
    network = nodes("geographic")
    names = sorted(network)
    for at, area, owner, epoch in tables:
        network[names[at]].coordinator.book.merge([Fact(AREA, area, names[owner], epoch)])
    for number, topic_filter in subscriptions:
        subscribe(network, names[number], topic_filter)
    copies, _ = travel(network, names[start], topic)
    assert len(copies) <= 4 * len(names)


MEMBERS = st.dictionaries(BROKER, st.integers(1, 3), min_size=1)


@given(st.sampled_from(sorted(ROUTINGS)), MEMBERS, SUBSCRIPTIONS, BROKER, st.sampled_from(TOPICS[:4]))
@settings(deadline=None, max_examples=250)
def test_exactly_one_broker_serves_a_shared_subscription(
    routing: str, members: dict[int, int], subscriptions: list[tuple[int, str]], start: int, topic: str
) -> None:
    network = nodes(routing)
    names = sorted(network)
    for number, topic_filter in subscriptions:
        subscribe(network, names[number], topic_filter)
    for number, count in members.items():
        subscribe(network, names[number], "$share/g/#", count)
    _, served = travel(network, names[start], topic)
    assert len(served) == 1
    assert served[0].split()[0] in {names[number] for number in members}


def test_members_are_served_in_proportion() -> None:
    network = nodes("geographic")
    names = sorted(network)
    subscribe(network, names[1], "$share/g/1/2/#", 3)
    subscribe(network, names[5], "$share/g/1/2/#", 1)
    owner = network[network[names[0]].table.owner("1/2")]
    counts = dict.fromkeys(names, 0)
    for number in range(2000):
        route = owner.routes.route("1/2/x", 1, names[0], number)
        for hop in route.hops:
            counts[hop.peer] += len(hop.shares)
        counts[owner.name] += len(route.shares)
    assert sum(counts.values()) == 2000
    assert counts[names[1]] == pytest.approx(1500, rel=0.1)


def test_a_broker_without_its_owner_serves_its_own_members_itself() -> None:
    network = nodes("geographic")
    node = network["b32"]
    subscribe(network, "b32", "$share/g/1/2/#", 1)
    assert node.routes.route("1/2/x").shares == ()
    node.peer_down(node.table.owner("1/2"), 0)
    route = node.routes.route("1/2/x")
    assert route.shares == ("$share/g/1/2/#",)
    assert [hop.shares_done for hop in route.hops] == [("$share/g/1/2/#",)]


def test_explanations_name_the_way() -> None:
    network = nodes("geographic")
    text = "\n".join(network["b32"].router.explain("1/2/0/test"))
    assert "belongs to area 1/2" in text
    assert "no area" in "\n".join(network["b32"].router.explain("kitchen/light"))
    assert "covers topics in 4 of 16 areas" in "\n".join(network["b32"].router.explain("1/+/2/#"))
    for routing in ROUTINGS:
        assert nodes(routing)["b32"].router.explain("a/b")
