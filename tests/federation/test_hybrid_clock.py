"""Of two retained values the one stays that was set later, also where clocks are some milliseconds apart."""

import pytest

from metromq.federation import grid_city
from metromq.federation.hybrid_clock import MAX_ROUND_TRIP_US, HybridClock
from metromq.lab.sim.sim_city import SimCity
from metromq.lab.sim.sim_client import SimClient, SimDelivery
from metromq.lab.storm.history import ROUTINGS

TOPIC = "0/0/0/0/a"
LINK_S = 0.02
CLIENT_S = 0.0005


def near_clients(sender: str, receiver: str) -> float:
    """Brokers are far from each other, clients near to theirs."""
    return LINK_S if sender.startswith("b") and receiver.startswith("b") else CLIENT_S


def city_of(routing: str) -> tuple[SimCity, list[SimClient]]:
    city = SimCity(grid_city(routing, count=3, hello_interval_ms=200), near_clients)
    for number, broker in enumerate(city.brokers.values()):
        broker.skew_us = (0, 15_000, -3_000)[number]
    city.start()
    city.run(3.0)
    return city, [city.connect(f"client {name}", name) for name in city.city.names]


def served(city: SimCity, broker: str) -> list[str]:
    client = city.connect(f"probe {broker}", broker)
    client.subscribe(TOPIC, 1)
    city.run(2.0)
    return [item.payload for item in client.received]


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize(("first", "second"), [(1, 0), (1, 2), (0, 1), (2, 0)])
def test_the_later_value_stays_though_its_broker_has_the_slower_clock(routing: str, first: int, second: int) -> None:
    city, clients = city_of(routing)
    token = clients[first].publish(TOPIC, "first", 1, True)
    assert city.clock.run_until(lambda: token in clients[first].acknowledged, 5.0)
    clients[second].publish(TOPIC, "second", 1, True)  # long before anything of the first has come here
    city.settle()
    assert [served(city, name) for name in city.city.names] == [["second"]] * 3


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("routing", ROUTINGS)
def test_who_acts_on_a_message_acts_after_what_was_before_it(routing: str, qos: int) -> None:
    """A clock is set, and nobody has heard of that when the next message comes: not the value, another one."""
    city, clients = city_of(routing)
    clients[0].subscribe("signal", qos)
    city.run(1.0)
    city.brokers[city.city.names[1]].skew_us += 50_000
    clients[1].publish(TOPIC, "first", 1, True)
    clients[1].publish("signal", "go on", qos)
    assert city.clock.run_until(lambda: has(clients[0].received), 5.0)
    clients[0].publish(TOPIC, "second", 1, True)
    city.settle()
    assert [served(city, name) for name in city.city.names] == [["second"]] * 3


def has(received: list[SimDelivery]) -> bool:
    return any(item.payload == "go on" for item in received)


def test_clocks_that_are_read_over_a_long_way_are_not_believed() -> None:
    clock = HybridClock(lambda: 1000)
    clock.compared("b", 500, MAX_ROUND_TRIP_US + 1)
    assert clock.stamp_us() == 1000
    clock.compared("b", 500, MAX_ROUND_TRIP_US)
    assert clock.stamp_us() == 1500
    clock.forget("b")
    assert clock.stamp_us() == 1501


def test_time_goes_on_as_by_the_fastest_clock_when_that_has_left() -> None:
    now_us = 1000
    clock = HybridClock(lambda: now_us)
    clock.compared("b", 500, 10)
    clock.compared("c", -300, 10)
    clock.forget("b")
    now_us = 2000
    assert clock.stamp_us() == 2500
