"""Brokers of two releases in one city: each link speaks the newest version that both ends read."""

import pytest

from metromq.errors import ProtocolViolation, UsageError
from metromq.federation import grid_city, with_area
from metromq.federation.links.frames import OLDEST, VERSION, offer_text, read_offer
from metromq.federation.node import Node
from metromq.lab.sim.sim_city import SimCity

OLD = "b20"


def city_with_an_old_broker() -> SimCity:
    sim = SimCity(grid_city(count=4, hello_interval_ms=200))
    sim.brokers[OLD].link_version = OLDEST
    sim.start()
    return sim


def test_two_versions_run_in_one_city_and_the_old_one_is_upgraded() -> None:
    sim = city_with_an_old_broker()
    sub = sim.connect("sub", OLD, keeps=True)
    sub.subscribe("1/2/#", 2)
    pub = sim.connect("pub", "b00")
    sim.settle()
    spoken = {(name, peer): version for name, broker in sim.brokers.items() for peer, version in speaks(broker)}
    assert spoken["b00", "b10"] == VERSION
    assert spoken["b00", OLD] == spoken[OLD, "b00"] == OLDEST
    pub.publish("1/2/a", "before", 2)
    sim.settle()
    with pytest.raises(UsageError, match=f"{OLD} cannot follow: upgrade"):
        sim.change("b00", lambda city: with_area(city, "1/2", "b30"))
    sim.brokers[OLD].kill()
    sim.brokers[OLD].link_version = 0
    sim.run(1.0)
    sim.brokers[OLD].start()
    sim.settle()
    assert dict(speaks(sim.brokers["b00"]))[OLD] == VERSION
    sim.change("b00", lambda city: with_area(city, "1/2", "b30"))
    sim.settle()
    assert sim.owner("1/2", OLD) == "b30"
    sim.connect("sub", OLD, keeps=True)
    pub.publish("1/2/a", "after", 2)
    sim.settle()
    assert [delivery.payload for delivery in sim.received("sub")] == ["before", "after"]


def speaks(broker: object) -> list[tuple[str, int]]:
    host = getattr(broker, "host", None)
    return list(host.node.greetings.versions.spoken.items()) if host is not None else []


def test_offers_are_read_and_those_of_strangers_are_refused() -> None:
    node = Node(grid_city(count=4), "b00", 1, 0)
    node.greetings.versions.offered("b10", offer_text(VERSION + 3))
    assert node.greetings.versions.spoken["b10"] == VERSION, "a later release reads ours too"
    node.greetings.versions.offered("b10", "")
    assert node.greetings.versions.spoken["b10"] == OLDEST, "releases before the offer read only that"
    for text in ("x", "4-", "-", "4-99999999999999999999"):
        assert read_offer(text) == (OLDEST, OLDEST)
    with pytest.raises(ProtocolViolation, match=f"b10 reads versions {VERSION + 1} to 99"):
        node.greetings.versions.offered("b10", f"{VERSION + 1}-99")
