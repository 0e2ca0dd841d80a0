"""A broker whose clients stop publishing a topic leaves its clusters, and nobody loses or doubles a message by that."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from metromq.federation import ZooKeeperSettings, grid_city
from metromq.federation.coordination.facts import CLUSTER, PUBLISHER, SUBSCRIBER
from metromq.lab.sim.sim_city import SimCity
from tests.lab.sim.test_overlay import facts

IDLE_S = 10
COORDINATIONS = ("embedded", "zookeeper", "workers")
each = pytest.mark.parametrize("coordination", COORDINATIONS)


def started(coordination: str, max_topics: int = 100) -> SimCity:
    city = grid_city("overlay", count=4)
    workers = 2 if coordination == "workers" else 0
    overlay = replace(city.overlay, idle_s=IDLE_S, max_topics=max_topics, max_distance_km=200.0, workers=workers)
    if coordination == "embedded":
        made = SimCity(replace(city, overlay=overlay))
    else:
        servers = ZooKeeperSettings(servers=("simulated:2181",))
        made = SimCity(replace(city, overlay=overlay, coordination="zookeeper", zookeeper=servers))
    made.start()
    return made


def every_second(city: SimCity, seconds: int, do: Callable[[int], object]) -> None:
    for number in range(seconds):
        do(number)
        city.run(1.0)


def living(city: SimCity, kind: str) -> dict[str, str]:
    """Facts that are not withdrawn; everybody has the same."""
    found = [{key: value or owner for key, (owner, value) in facts(city, kind, at).items() if owner} for at in NAMES]
    assert all(one == found[0] for one in found)
    return found[0]


NAMES = grid_city("overlay", count=4).names


@each
def test_who_stops_publishing_leaves_and_others_go_on(coordination: str) -> None:
    """b00 founds and leads the cluster, and serves the subscriber at b30; then only b10 goes on."""
    city = started(coordination)
    first, second = city.connect("first", "b00"), city.connect("second", "b10")
    first.publish("bus/7", "begin", 1)
    city.run(1.0)
    getter = city.connect("getter", "b30")
    getter.subscribe("bus/7", 2)
    city.run(1.0)
    second.publish("bus/7", "begin", 1)
    city.run(1.0)
    assert living(city, CLUSTER) == {"b00/bus/7": "b00"}
    assert living(city, PUBLISHER) == {"b00/bus/7": "b00", "b10/bus/7": "b00"}
    assert living(city, SUBSCRIBER) == {"b30/bus/7": "b00"}
    every_second(city, 3 * IDLE_S, lambda number: second.publish("bus/7", str(number), 1 + number % 2))
    assert living(city, CLUSTER) == {"b00/bus/7": "b10"}
    assert living(city, PUBLISHER) == {"b10/bus/7": "b00"}
    assert living(city, SUBSCRIBER) == {"b30/bus/7": "b10"}
    first.publish("bus/7", "again", 1)
    city.run(2.0)
    assert living(city, PUBLISHER) == {"b00/bus/7": "b00", "b10/bus/7": "b00"}
    assert [one.payload for one in city.received("getter")] == ["begin", *map(str, range(3 * IDLE_S)), "again"]


@each
def test_a_topic_that_nobody_publishes_any_more_has_no_facts_and_is_delivered_when_it_comes(coordination: str) -> None:
    city = started(coordination)
    sender, getter = city.connect("sender", "b00"), city.connect("getter", "b30")
    getter.subscribe("bus/#", 2)
    city.run(0.5)
    sender.publish("bus/7", "one", 2)
    city.run(1.0)
    assert living(city, SUBSCRIBER) == {"b30/bus/7": "b00"}
    city.run(2.5 * IDLE_S)
    assert [living(city, kind) for kind in (CLUSTER, PUBLISHER, SUBSCRIBER)] == [{}, {}, {}]
    sender.publish("bus/7", "two", 2)
    city.run(1.0)
    assert living(city, CLUSTER) == {"b00/bus/7": "b00"}
    assert living(city, SUBSCRIBER) == {"b30/bus/7": "b00"}
    assert [one.payload for one in city.received("getter")] == ["one", "two"]


@each
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_who_goes_on_publishing_stays(coordination: str, qos: int) -> None:
    """At QoS 0 too, where the hub asks where a topic goes and remembers the answer."""
    city = started(coordination)
    sender, getter = city.connect("sender", "b00"), city.connect("getter", "b30")
    getter.subscribe("bus/7", 2)
    city.run(1.0)
    epochs: set[int] = set()

    def go_on(number: int) -> None:
        sender.publish("bus/7", str(number), qos)
        host = city.brokers["b20"].host
        assert host is not None
        epochs.add(host.node.table.book.get(PUBLISHER, "b00/bus/7").epoch)

    every_second(city, 4 * IDLE_S, go_on)
    assert len(epochs - {-1}) == 1, "the fact has changed"
    assert living(city, PUBLISHER) == {"b00/bus/7": "b00"}
    assert [one.payload for one in city.received("getter")] == list(map(str, range(4 * IDLE_S)))


def test_what_is_given_back_makes_room_for_other_topics_within_limits() -> None:
    """Facts that were withdrawn stay in every book, so that their number is bounded, too."""
    city = started("embedded", max_topics=2)
    sender, getter = city.connect("sender", "b00"), city.connect("getter", "b30")
    getter.subscribe("#", 1)
    city.run(0.5)
    expected: list[str] = []

    def publish(*topics: str) -> None:
        for topic in topics:
            sender.publish(topic, topic, 1)
            expected.append(topic)
        city.run(1.0)

    publish("a", "b", "c")
    assert sorted(living(city, PUBLISHER)) == ["b00/a", "b00/b"]
    city.run(2.5 * IDLE_S)
    publish("c", "d", "e")
    assert sorted(living(city, PUBLISHER)) == ["b00/c", "b00/d"]
    city.run(2.5 * IDLE_S)
    publish("e", "b")
    assert sorted(living(city, PUBLISHER)) == ["b00/b"], "of e there is no room for facts in this life"
    assert [one.payload for one in city.received("getter")] == expected


def test_a_broker_that_was_away_meanwhile_gives_back_what_it_does_not_publish_any_more() -> None:
    city = started("embedded")
    sender = city.connect("sender", "b00")
    sender.publish("bus/7", "one", 1)
    city.run(1.0)
    city.brokers["b00"].kill()
    city.run(5.0)
    city.brokers["b00"].start()
    city.settle()
    assert living(city, PUBLISHER) == {"b00/bus/7": "b00"}
    city.run(2.5 * IDLE_S)
    assert living(city, PUBLISHER) == {}
