"""While a broker is dead, sessions that moved cost others nothing: what reaches their new place is not sent on too."""

import pytest

from metromq.federation import grid_city
from metromq.lab.sim.sim_city import SimCity

MESSAGES = [f"m{number}" for number in range(50)]


def bytes_between(city: SimCity) -> int:
    hosts = [broker.host for broker in city.brokers.values() if broker.host is not None]
    return sum(sum(host.receiving.bytes.values()) for host in hosts)


@pytest.mark.parametrize("routing", ["geographic", "flood-subscriptions", "flood-publications", "central"])
def test_a_session_that_moved_while_a_broker_is_dead_gets_messages_once_and_by_one_way(routing: str) -> None:
    city = SimCity(grid_city(routing, count=4, hello_interval_ms=200))
    city.start()
    city.run(3.0)
    first, second, third, dead = city.city.names
    mover = city.connect("mover", first, keeps=True)
    mover.subscribe("#", 2)
    city.run(1.0)
    city.brokers[dead].kill()
    city.run(5.0)
    for place in (second, third, second, first, second):
        mover.connect(place, True)
        city.run(2.0)
    publisher = city.connect("publisher", third)
    city.run(1.0)
    before = bytes_between(city)
    for payload in MESSAGES:
        publisher.publish("0/0/0/0/a", payload * 200, 2)
        city.run(0.05)
    city.run(3.0)
    assert [delivery.payload for delivery in city.received("mover")] == [payload * 200 for payload in MESSAGES]
    size = sum(len(payload) * 200 for payload in MESSAGES)
    # To whoever is responsible, to the subscriber, and to the brokers that it left, which send it on no more.
    assert bytes_between(city) - before < 3.5 * size
    city.brokers[dead].start()
    city.settle()
    assert [delivery.payload for delivery in city.received("mover")] == [payload * 200 for payload in MESSAGES]
    hubs = [broker.hub for broker in city.brokers.values() if broker.hub is not None]
    assert sum(hub.sessions.get("mover") is not None for hub in hubs) == 1
