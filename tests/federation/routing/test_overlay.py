"""The overlay routing: clusters and choices become facts, messages go along them, and everybody gets them once."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.federation.city import BrokerSpec, City, LinkSecurity, OverlaySettings, grid_city
from metromq.federation.effects import GoAround
from metromq.federation.explaining import explain_step
from metromq.federation.routing.overlay import OverlayWays
from metromq.federation.routing.overlay_map import TopicOverlay
from metromq.federation.stages import HOP_LIMIT
from tests.federation.network import Network

KM = 1 / 111.195  # in degrees of latitude


def line_city(*kilometres: int, max_distance_km: float = 10.0, max_topics: int = 100) -> City:
    """Brokers in a line, each named after its place."""
    brokers = tuple(BrokerSpec(f"at{km}", latitude=km * KM, longitude=0.0) for km in kilometres)
    overlay = OverlaySettings(max_distance_km=max_distance_km, max_topics=max_topics)
    return City(brokers, routing="overlay", overlay=overlay, links=LinkSecurity(secret="a secret for tests"))


def ways_of(network: Network, name: str) -> OverlayWays:
    ways = network.nodes[name].router.ways
    assert isinstance(ways, OverlayWays)
    return ways


def clusters(network: Network, topic: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Founder: leader and members; every broker that is there sees the same."""
    seen = []
    for name in network.nodes:
        if name not in network.lost:
            found = ways_of(network, name).clusters(topic)
            seen.append({one.founder: (one.leader, tuple(sorted(one.members))) for one in found})
    assert all(one == seen[0] for one in seen)
    return seen[0]


def feeds(network: Network, topic: str) -> dict[str, str]:
    return dict(next(iter(network.nodes.values())).router.ways.map.topics[topic].feeds)  # type: ignore[attr-defined]


def test_publishers_near_each_other_form_a_cluster_and_far_ones_found_their_own() -> None:
    network = Network(line_city(0, 5, 40, 44, 90))
    for name in ("at0", "at5", "at40", "at44"):
        network.publish(name, "bus/7")
        network.step(0.1)
    assert clusters(network, "bus/7") == {"at0": ("at0", ("at0", "at5")), "at40": ("at40", ("at40", "at44"))}


def test_messages_go_straight_within_a_cluster_and_between_leaders_beyond() -> None:
    network = Network(line_city(0, 5, 40, 44))
    for name in network.nodes:
        network.publish(name, "bus/7")
        network.step(0.1)
        network.subscribe(name, "bus/7")
    network.step(0.2)
    network.copies.clear()
    network.delivered.clear()
    network.publish("at5", "bus/7", b"here")
    assert network.copies == [("at5", "at0"), ("at0", "at40"), ("at40", "at44")]
    assert sorted(network.delivered) == [(name, b"here") for name in sorted(network.nodes)]
    network.copies.clear()
    network.publish("at40", "bus/7")
    assert sorted(network.copies) == [("at0", "at5"), ("at40", "at0"), ("at40", "at44")]


def test_a_subscriber_waits_until_somebody_publishes_and_then_gets_even_the_first_message() -> None:
    network = Network(line_city(0, 20, 90))
    network.subscribe("at20", "bus/7")
    network.step(0.3)
    assert not ways_of(network, "at20").map.topics
    network.publish("at0", "bus/7", b"first")
    assert network.delivered == [("at20", b"first")]
    network.step(0.3)
    assert feeds(network, "bus/7") == {"at20": "at0"}
    network.publish("at90", "bus/7", b"second")  # a far publisher goes through the one that was chosen
    assert network.copies[-2:] == [("at90", "at0"), ("at0", "at20")]


def test_a_subscriber_chooses_the_nearest_cluster() -> None:
    network = Network(line_city(0, 60, 80))
    network.publish("at0", "bus/7")
    network.publish("at80", "bus/7")
    network.step(0.2)
    network.subscribe("at60", "bus/7")
    network.step(0.2)
    assert feeds(network, "bus/7") == {"at60": "at80"}


def test_a_wildcard_chooses_for_each_topic_and_a_shared_group_for_none() -> None:
    network = Network(line_city(0, 60, 80))
    network.subscribe("at60", "bus/#")
    network.run("at60", network.nodes["at60"].subscribed("$share/g/car/#", 0))
    network.settle()
    for name, topic in (("at0", "bus/1"), ("at80", "bus/2"), ("at80", "car/1")):
        network.publish(name, topic)
    network.step(0.3)
    assert feeds(network, "bus/1") == {"at60": "at0"}
    assert feeds(network, "bus/2") == {"at60": "at80"}
    assert feeds(network, "car/1") == {}
    network.run("at60", network.nodes["at60"].unsubscribed("bus/#", 0))
    network.step(0.3)
    assert feeds(network, "bus/1") == {}


def test_a_broker_that_joins_or_leaves_a_topic_changes_only_its_own_facts() -> None:
    network = Network(line_city(0, 5, 40))
    network.publish("at0", "bus/7")
    network.publish("at40", "bus/7")
    network.step(0.2)
    book = network.nodes["at0"].coordinator.book
    before = {(fact.kind, fact.key): fact for fact in book.facts()}
    network.publish("at5", "bus/7")
    network.step(0.2)
    after = {(fact.kind, fact.key): fact for fact in book.facts()}
    assert set(after) - set(before) == {("publisher", "at5/bus/7")}
    assert all(after[key] == fact for key, fact in before.items())


def test_a_lost_leader_is_replaced_by_the_nearest_member_and_messages_go_on() -> None:
    network = Network(line_city(0, 3, 9, 60, max_distance_km=20))
    for name in network.nodes:
        network.publish(name, "bus/7")
        network.step(0.1)
        network.subscribe(name, "bus/7")
    network.step(1)
    assert clusters(network, "bus/7")["at0"] == ("at0", ("at0", "at3", "at9"))
    network.lose("at0")
    network.step(10)
    assert clusters(network, "bus/7")["at0"] == ("at3", ("at3", "at9"))
    network.copies.clear()
    network.delivered.clear()
    network.publish("at9", "bus/7", b"on")
    assert {("at9", "at3"), ("at3", "at60")} <= set(network.copies)
    assert {("at3", b"on"), ("at60", b"on")} <= set(network.delivered)


def test_a_lost_publisher_is_left_for_another_and_what_waited_goes_around() -> None:
    network = Network(line_city(0, 60, 80, 120))
    for name in ("at80", "at0"):
        network.publish(name, "bus/7")
        network.step(0.1)
    network.subscribe("at60", "bus/7")
    network.step(0.2)
    assert feeds(network, "bus/7") == {"at60": "at80"}
    network.lose("at80")
    node = network.nodes["at0"]
    around = []
    for _ in range(100):
        network.now_us += 100_000
        for name in ("at0", "at60", "at120"):
            effects = network.nodes[name].tick(network.now_us)
            around += [(name, effect.peer) for effect in effects if isinstance(effect, GoAround)]
            network.run(name, effects)
        network.settle()
    assert ("at0", "at80") in around
    assert feeds(network, "bus/7") == {"at60": "at0"}
    hops = node.routes.route("bus/7", 2, "at0", 1, ("at0",), check=True, targets=("at60",)).hops
    assert [(hop.peer, hop.stage_name) for hop in hops] == [("at60", "final")]


def test_topics_beyond_the_limit_go_straight_and_are_no_facts() -> None:
    network = Network(line_city(0, 5, max_topics=2))
    network.subscribe("at5", "#")
    for number in range(4):
        network.publish("at0", f"bus/{number}", b"x")
    network.step(0.3)
    assert len(ways_of(network, "at5").map.topics) == 2
    assert len(network.delivered) == 4


def test_explaining_shows_cluster_leader_and_utility() -> None:
    network = Network(line_city(0, 5, 60))
    for name in ("at0", "at5"):
        network.publish(name, "bus/7")
        network.step(0.1)
    network.subscribe("at60", "bus/7")
    network.step(0.2)
    told = " ".join(network.nodes["at60"].router.explain("bus/7"))
    assert "at0 (at0, at5; at0 leads)" in told
    assert "gets it from" in told
    assert "utility" in told
    told = " ".join(network.nodes["at5"].router.explain("bus/7"))
    assert "at5 is in the cluster at0" in told
    step = explain_step(network.nodes["at5"], "bus/7")
    assert [(hop.peer, hop.stage) for hop in step.hops] in ([("at60", "final")], [("at0", "relay")])
    assert len(network.nodes["at5"].router.ways.map.topics["bus/7"].clusters) == 2  # type: ignore[attr-defined]


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 5), st.integers(0, 2)),
        st.tuples(st.just("subscribe"), st.integers(0, 5), st.integers(0, 3)),
        st.tuples(st.just("step"), st.integers(0, 2), st.just(0)),
    ),
    max_size=40,
)


@given(ACTIONS, st.integers(0, 5), st.integers(0, 2))
@settings(deadline=None, max_examples=150)
def test_whatever_the_clusters_everybody_gets_a_message_once(
    actions: list[tuple[str, int, int]], start: int, qos: int
) -> None:
    city = line_city(0, 4, 8, 30, 34, 60)
    network = Network(city)
    for verb, number, more in actions:
        if verb == "publish":
            network.publish(city.names[number], f"bus/{more}")
        elif verb == "subscribe":
            network.subscribe(city.names[number], ("bus/0", "bus/1", "bus/+", "bus/2")[more])
        else:
            network.step(0.1 * number)
    network.delivered.clear()
    network.publish(city.names[start], "bus/0", b"here", qos)
    wanting = {name for name, filters in network.wanted.items() if {"bus/0", "bus/+"} & filters}
    assert sorted(network.delivered) == [(name, b"here") for name in sorted(wanting)]


@given(st.randoms(use_true_random=False), st.integers(0, 2))
@settings(deadline=None, max_examples=150)
def test_even_when_no_two_brokers_see_the_same_clusters(dice: Random, qos: int) -> None:
    """Facts decide ways, not who gets a message: every broker is given a map of its own, and one copy reaches each."""
    city = line_city(*range(0, 60, 10))
    network = Network(city)
    for name in city.names:
        network.subscribe(name, "bus/0")
    for name in city.names:
        ways = ways_of(network, name)
        for one in city.names:
            if dice.random() < 0.6:
                overlay = ways.map.topics.setdefault("bus/0", TopicOverlay())
                overlay.clusters[one] = dice.choice(city.names)
                overlay.leaders[dice.choice(city.names)] = dice.choice(city.names)
                overlay.feeds[one] = dice.choice(city.names)
    network.publish(city.names[0], "bus/0", b"here", qos)
    assert sorted(network.delivered) == [(name, b"here") for name in city.names]
    assert len(network.copies) < HOP_LIMIT * len(city.names)


@pytest.mark.parametrize("count", [4, 16])
def test_a_grid_can_be_an_overlay(count: int) -> None:
    network = Network(grid_city("overlay", count=count))
    network.publish("b00", "bus/7")
    network.step(0.2)
    assert list(clusters(network, "bus/7")) == ["b00"]
