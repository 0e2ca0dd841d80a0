"""A session with a long queue moves in small turns: nobody else waits for it, at the old broker or at the new one."""

from itertools import pairwise

import pytest

from metromq.federation import grid_city
from metromq.federation.host.departures import ENTRIES_PER_TURN, TURNS_UNDER_WAY
from metromq.lab.sim.sim_city import SimCity
from metromq.protocol.session import HubSettings

QUEUED = 3000
OTHERS = 20  # records of a turn that have nothing to do with the number of messages
KEPT_IN_MEMORY = 100  # the rest waits in the journal


def city_with_a_queue(payload_bytes: int = 10, queued: int = QUEUED) -> SimCity:
    """At b0 messages wait for a client that is away."""
    settings = HubSettings(memory_entries=KEPT_IN_MEMORY)
    city = SimCity(grid_city("flood-subscriptions", l_b=1, l_c=0, count=3), settings=settings)
    city.start()
    city.connect("s", "b0", keeps=True).subscribe("t", 2)
    publisher = city.connect("p", "b2")
    city.run(1.0)
    city.client("s").vanish()
    for number in range(queued):
        publisher.publish("t", str(number).rjust(payload_bytes), 1)
        if number % 50 == 0:
            city.run(0.05)
    city.run(1.0)
    return city


def most_records_in_a_turn(city: SimCity, broker: str, queued: int) -> int:
    """While the client comes to b1: what one event makes a broker write, at most."""
    records = city.brokers[broker].disk.records
    turns = [len(records)]

    def is_done() -> bool:
        turns.append(len(records))
        return len(city.received("s")) >= queued

    city.client("s").connect("b1", keeps=True)
    assert city.clock.run_until(is_done, 60.0)
    return max(after - before for before, after in pairwise(turns))


def payloads(city: SimCity) -> list[int]:
    return [int(delivery.payload) for delivery in city.received("s")]


def test_a_turn_of_the_old_broker_sends_few_messages() -> None:
    city = city_with_a_queue()
    assert most_records_in_a_turn(city, "b0", QUEUED) <= ENTRIES_PER_TURN + OTHERS
    assert payloads(city) == list(range(QUEUED))


def test_a_turn_of_the_new_broker_takes_few_messages() -> None:
    city = city_with_a_queue()
    assert most_records_in_a_turn(city, "b1", QUEUED) <= ENTRIES_PER_TURN + OTHERS
    assert payloads(city) == list(range(QUEUED))


def test_large_messages_leave_in_turns_of_few() -> None:
    city = city_with_a_queue(payload_bytes=300_000, queued=20)
    assert most_records_in_a_turn(city, "b0", 20) < 20, "three make a megabyte; for each there are two records"
    assert payloads(city) == list(range(20))


def test_no_more_is_sent_than_the_new_broker_stores() -> None:
    city = city_with_a_queue()
    city.client("s").connect("b1", keeps=True)
    city.run(0.03)
    city.network.hold("b1", "b0")  # its acknowledgements do not come
    city.run(0.4)
    hub = city.brokers["b0"].hub
    assert hub is not None
    sent = QUEUED - hub.sessions.by_client_id["s"].backlog.waiting()
    assert 0 < sent <= (TURNS_UNDER_WAY + 3) * ENTRIES_PER_TURN, "a few turns were acknowledged before"
    assert city.brokers["b0"].backlog("b1") <= TURNS_UNDER_WAY + OTHERS
    city.network.heal()
    assert city.clock.run_until(lambda: len(city.received("s")) >= QUEUED, 60.0)
    city.run(5.0)
    assert payloads(city) == list(range(QUEUED))


@pytest.mark.parametrize("name", ["s1", "s2", "s3"])  # each with its own directory, which may be the one out of reach
def test_a_session_that_goes_on_before_all_of_it_has_come_remembers_what_it_has_had(name: str) -> None:
    """The old broker had copies of it, in the queue that went on with the session."""
    city = SimCity(grid_city("flood-subscriptions", l_b=1, l_c=0, count=4))
    city.start()
    city.connect(name, "b0", keeps=True).subscribe("t", 2)
    publisher = city.connect("p", "b2")
    city.run(1.0)
    city.brokers["b3"].kill()  # so that the old broker goes on to get what comes for the session
    city.client(name).vanish()
    city.client(name).connect("b1", keeps=True)
    city.run(1.5)
    city.network.hold("b0", "b1")  # and cannot pass it on
    for number in range(QUEUED):
        if number == QUEUED // 3:
            city.run(0.1)
            city.client(name).vanish()
        publisher.publish("t", str(number), 2)
        if number % 50 == 0:
            city.run(0.01)
    assert QUEUED // 3 <= len(city.received(name)) < QUEUED
    city.client(name).connect("b0", keeps=True)
    city.run(0.02)
    city.client(name).vanish()
    city.client(name).connect("b2", keeps=True)
    city.run(0.5)
    city.network.heal()
    city.brokers["b3"].start()
    assert city.clock.run_until(lambda: len(city.received(name)) >= QUEUED, 60.0)
    city.run(10.0)
    assert sorted(int(delivery.payload) for delivery in city.received(name)) == list(range(QUEUED))
