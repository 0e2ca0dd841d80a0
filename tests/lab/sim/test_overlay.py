"""The overlay on whole simulated brokers: who is a publisher, and what a lost relay leaves behind."""

from dataclasses import replace

from metromq.federation import City, grid_city, steps_to
from metromq.federation.coordination.facts import PUBLISHER, SUBSCRIBER
from metromq.lab.sim.sim_city import SimCity


def facts(city: SimCity, kind: str, at: str = "b00") -> dict[str, tuple[str, str]]:
    host = city.brokers[at].host
    assert host is not None
    return {fact.key: (fact.owner, fact.value) for fact in host.node.table.book.of_kind(kind)}


def started(count: int = 4) -> SimCity:
    city = SimCity(grid_city("overlay", count=count))
    city.start()
    return city


def test_only_publishers_are_in_clusters_at_every_quality_of_service() -> None:
    city = started()
    getter = city.connect("getter", "b30")
    getter.subscribe("bus/#", 1)
    city.run(0.5)
    for qos in (0, 1, 2):
        sender = city.connect(f"sender{qos}", "b00")
        for _ in range(3):
            sender.publish(f"bus/{qos}", "x", qos)
            city.run(0.5)
    assert len(city.received("getter")) == 9
    assert facts(city, PUBLISHER) == {f"b00/bus/{qos}": ("b00", "b00") for qos in (0, 1, 2)}
    assert facts(city, SUBSCRIBER) == {f"b30/bus/{qos}": ("b30", "b00") for qos in (0, 1, 2)}


def test_what_waits_for_a_lost_relay_goes_around_it() -> None:
    """b30 gets the topic from b20, which is killed; what b00 has sent it meanwhile arrives before b20 is back."""
    city = started()
    near, far = city.connect("near", "b20"), city.connect("far", "b00")
    near.publish("bus/7", "n1", 1)
    city.run(0.5)
    getter = city.connect("getter", "b30", keeps=True)
    getter.subscribe("bus/7", 1)
    city.run(0.5)
    far.publish("bus/7", "f1", 1)
    city.run(0.5)
    server = facts(city, SUBSCRIBER)["b30/bus/7"][1]
    assert server == "b20"
    city.brokers["b20"].kill()
    far.publish("bus/7", "f2", 1)
    city.run(0.2)
    assert [one.payload for one in city.received("getter")] == ["f1"]
    city.run(5.0)
    assert [one.payload for one in city.received("getter")] == ["f1", "f2"]
    assert facts(city, SUBSCRIBER)["b30/bus/7"] == ("b30", "b00")
    city.brokers["b20"].start()
    city.settle()
    assert [one.payload for one in city.received("getter")] == ["f1", "f2"]


def test_a_running_city_becomes_an_overlay_and_something_else_again() -> None:
    city = SimCity(grid_city("flood-subscriptions", count=4))
    city.start()
    getter, sender = city.connect("getter", "b30"), city.connect("sender", "b00")
    getter.subscribe("bus/7", 1)
    city.run(0.5)
    number = 0
    for routing in ("overlay", "geographic", "overlay", "flood-subscriptions"):
        for step in steps_to(_city(city), replace(_city(city), routing=routing)):
            host = city.brokers["b00"].host
            assert host is not None
            host.change_city(step, "test")
            for _ in range(5):
                number += 1
                sender.publish("bus/7", str(number), 1)
                city.run(0.1)
            city.run(2.0)
        assert _city(city).routing == routing
        if routing == "overlay":
            assert facts(city, PUBLISHER)["b00/bus/7"] == ("b00", "b00")
            assert facts(city, SUBSCRIBER)["b30/bus/7"] == ("b30", "b00")
    assert [one.payload for one in city.received("getter")] == [str(one) for one in range(1, number + 1)]


def _city(city: SimCity) -> City:
    host = city.brokers["b30"].host
    assert host is not None
    return host.node.city
