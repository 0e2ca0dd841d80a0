"""What is sent again because somebody else is responsible now, or because a peer could not be heard: nothing twice."""

import functools
import itertools

import pytest

from metromq.federation import grid_city
from metromq.federation.links.batch import LinkMessage
from metromq.federation.stages import FINAL
from metromq.lab.sim.network import constant_latency
from metromq.lab.sim.sim_city import SimCity
from tests.federation.host.one_host import OneHost, from_peer


def city_of_four() -> SimCity:
    city = SimCity(grid_city("geographic", l_b=1, l_c=0))
    city.start()
    for name in city.brokers:
        city.connect(f"p{name}", name, keeps=True)
    return city


def publish(city: SimCity, sent: list[str], *brokers: str) -> None:
    for broker in brokers:
        sent.append(f"{broker} {len(sent)}")
        city.client(f"p{broker}").publish("1/t", sent[-1], 2)
    city.run(0.05)


@pytest.mark.parametrize("wait_s", [0.01, 0.4, 3.0, 10.0])
def test_an_owner_dies_and_returns(wait_s: float) -> None:
    """Before anybody knows, while it is suspected, and long after its area has another owner."""
    city, sent = city_of_four(), list[str]()
    city.connect("s", "b3", keeps=True)
    city.client("s").subscribe("1/#", 2)
    city.run(3.0)
    publish(city, sent, "b0", "b2", "b3")
    city.brokers["b1"].kill()
    publish(city, sent, "b0", "b2", "b3")
    city.run(wait_s)
    publish(city, sent, "b0", "b2", "b3")
    city.brokers["b1"].start()
    publish(city, sent, "b0", "b2", "b3")
    city.settle()
    city.run(5.0)
    assert sorted(delivery.payload for delivery in city.received("s")) == sorted(sent)


@pytest.mark.parametrize("wait_s", [0.01, 0.4, 3.0, 10.0])
def test_a_subscriber_behind_a_cut_gets_what_it_missed(wait_s: float) -> None:
    """It subscribes where nobody can hear of it; its broker asks for all since then when the cut heals."""
    city, sent = city_of_four(), list[str]()
    for name in ("b0", "b1", "b2"):
        city.network.cut("b3", name)
    city.connect("s", "b3", keeps=True)
    city.client("s").subscribe("1/#", 2)
    city.run(2.0)
    publish(city, sent, "b0", "b1")
    city.run(wait_s)
    publish(city, sent, "b0", "b1", "b3")
    city.network.heal()
    city.settle()
    city.run(5.0)
    got = [delivery.payload for delivery in city.received("s")]
    assert sorted(got) == sorted(sent)


@pytest.mark.parametrize("wait_s", [0.4, 3.0, 10.0])
def test_the_owners_own_subscriber_gets_what_a_stand_in_took(wait_s: float) -> None:
    """Its session is on the disk of the broker that is away: only a hand-over can bring it what came meanwhile."""
    city, sent = city_of_four(), list[str]()
    city.connect("s", "b1", keeps=True)
    city.client("s").subscribe("1/#", 2)
    city.run(3.0)
    publish(city, sent, "b0", "b2")
    city.brokers["b1"].kill()
    publish(city, sent, "b0", "b2", "b3")
    city.run(wait_s)
    publish(city, sent, "b0", "b2", "b3")
    city.brokers["b1"].start()
    city.connect("s", "b1", keeps=True)
    publish(city, sent, "b0", "b2")
    city.settle()
    city.run(5.0)
    assert sorted(delivery.payload for delivery in city.received("s")) == sorted(sent)


def test_what_a_session_got_here_at_qos_0_does_not_come_again_when_it_asks_for_more() -> None:
    """Another part of the session arrives, and with it the time since when some broker had not heard of the filter."""
    one = OneHost()
    one.subscribe("s", "1/#", 0)
    one.batch("b1", [LinkMessage(from_peer("1/t", b"x", "b1", 5), FINAL, 1)])
    assert one.got("s") == ["x"]
    one.city.client("s").subscribe("1/#", 2)
    one.city.run(0.1)
    session = one.host.hub.sessions.by_client_id["s"]
    one.broker.run(lambda: one.host._catch_up.for_session(session, "1/#", 60_000_000))
    assert one.got("s") == ["x"]


def test_what_came_before_the_session_did_comes_with_it() -> None:
    one = OneHost()
    one.subscribe("other", "1/#", 2)
    one.batch("b1", [LinkMessage(from_peer("1/t", b"x", "b1", 5), FINAL, 1)])
    one.subscribe("s", "1/#", 2)
    session = one.host.hub.sessions.by_client_id["s"]
    one.broker.run(lambda: one.host._catch_up.for_session(session, "1/#", 60_000_000))
    assert one.got("s") == ["x"]


@pytest.mark.parametrize("wait_s", [0.35, 0.5, 0.7, 0.9])
def test_what_an_owner_held_back_overtakes_nothing_when_its_filter_goes_to_another(wait_s: float) -> None:
    """It hands the central broker what it distributed lately: what waits goes to the new owner, and not both ways."""
    city = SimCity(grid_city("delegation", count=3), latency=constant_latency(0.03))
    city.start()
    central, first, second = city.brokers
    for name in city.brokers:
        city.connect(f"s{name}", name, keeps=True)
        city.client(f"s{name}").subscribe("1/t", 2)
    city.connect("p", first, keeps=True)
    city.run(2.0)
    numbers = itertools.count()
    for owner in (first, second):
        host = city.brokers[central].host
        assert host is not None
        city.brokers[central].run(functools.partial(host.delegate, "1/#", owner))
        for _ in range(60 if owner == second else 4):
            city.client("p").publish("1/t", f"{next(numbers):05}", 2)
            city.run(0.02)
        city.run(wait_s)
    city.settle()
    for name in city.brokers:
        got = [delivery.payload for delivery in city.received(f"s{name}")]
        assert got == [f"{number:05}" for number in range(64)], name
