"""Cities in which most links are opened when they are needed, and rest when they are not: whole simulated brokers."""

import random

import pytest

from metromq.federation import grid_city
from metromq.lab.growth import city_of, join, measure
from metromq.lab.sim.sim_city import SimCity

COUNT = 24


def wide_city(count: int = COUNT) -> SimCity:
    city = SimCity(grid_city(l_b=3, l_c=2, count=count, hello_interval_ms=200, mesh_up_to=0))
    city.start()
    city.run(2.0)
    return city


def up(city: SimCity) -> dict[str, set[str]]:
    return {
        name: {peer for peer, link in broker.host.links.items() if link.up}
        for name, broker in city.brokers.items()
        if broker.host is not None
    }


def strangers(city: SimCity) -> tuple[str, str]:
    """Two brokers that keep no link to each other; the second is at home in an area."""
    linked = up(city)
    return next((one, other) for one in linked for other in linked if other != one and other not in linked[one])


def area_of(city: SimCity, broker: str) -> str:
    return city.city.by_name[broker].area.split()[0]


def payloads(city: SimCity, client: str) -> list[str]:
    return [delivery.payload for delivery in city.received(client)]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_first_message_for_a_peer_without_a_link_opens_one_and_is_not_lost(qos: int) -> None:
    city = wide_city()
    one, other = strangers(city)
    area = area_of(city, other)
    city.connect("reader", other).subscribe(f"{area}/#", qos)
    city.run(0.1)
    writer = city.connect("writer", one)
    for number in range(5):
        writer.publish(f"{area}/x", str(number), qos)
    city.run(0.2)
    assert payloads(city, "reader") == ["0", "1", "2", "3", "4"]
    assert other in up(city)[one]


def test_a_link_that_nobody_needs_rests_and_wakes() -> None:
    city = wide_city()
    before = up(city)
    one, other = strangers(city)
    area = area_of(city, other)
    city.connect("reader", other).subscribe(f"{area}/#", 1)
    writer = city.connect("writer", one)
    writer.publish(f"{area}/x", "first", 1)
    city.run(1.0)
    assert other in up(city)[one]
    city.run(60.0)
    assert up(city) == before, "only companions are left"
    assert not [text for _, _, text in city.events if "is down" in text], "an end that was wanted is no fault"
    writer.publish(f"{area}/x", "second", 1)
    city.run(0.2)
    assert payloads(city, "reader") == ["first", "second"]
    host = city.brokers[other].host
    assert host is not None
    assert host.node.greetings.silences.before(one, int(host.hub.clock.now * 1_000_000)) == 0, (
        "its silence was no fault either"
    )


def test_what_waits_for_a_lost_peer_comes_when_it_is_back() -> None:
    city = wide_city()
    one, other = strangers(city)
    area = area_of(city, other)
    city.connect("reader", other, keeps=True).subscribe("other/topics", 1)
    city.connect("reader2", other, keeps=True).subscribe(f"{area}/#", 1)
    city.run(0.5)
    writer = city.connect("writer", one)
    city.brokers[other].kill()
    city.run(3.0)
    token = writer.publish(f"{area}/x", "meanwhile", 1)
    city.run(40.0)
    assert token in writer.acknowledged
    city.brokers[other].start()
    city.settle()
    city.connect("reader2", other, keeps=True)
    city.run(1.0)
    assert payloads(city, "reader2") == ["meanwhile"]


def test_a_session_that_moves_asks_only_those_that_may_send_to_it() -> None:
    city = wide_city()
    one, other = strangers(city)
    area = area_of(city, one)
    city.connect("roamer", one, keeps=True).subscribe(f"{area}/#", 1)
    city.run(0.5)
    before = {name: len(links) for name, links in up(city).items()}
    city.connect("roamer", other, keeps=True)
    writer = city.connect("writer", one)
    writer.publish(f"{area}/x", "after", 1)
    city.run(2.0)
    assert payloads(city, "roamer") == ["after"]
    opened = sum(len(links) for links in up(city).values()) - sum(before.values())
    assert opened <= 10, "not a link between the new broker and everybody"
    held = [
        name for name, broker in city.brokers.items() if broker.hub and "roamer" in broker.hub.sessions.by_client_id
    ]
    assert held == [other]


def test_two_strangers_that_are_cut_speak_through_a_companion_of_the_other() -> None:
    city = wide_city()
    one, other = strangers(city)
    area = area_of(city, other)
    city.network.cut(one, other)
    city.connect("reader", other).subscribe(f"{area}/#", 1)
    writer = city.connect("writer", one)
    writer.publish(f"{area}/x", "around", 1)
    city.run(20.0)
    assert payloads(city, "reader") == ["around"]
    host = city.brokers[one].host
    assert host is not None
    assert host.via(other)


def test_a_city_costs_each_broker_the_same_whatever_its_size() -> None:
    """`metromq lab run growth/size` measures up to 5,000; CPU is not compared here, since it depends on the machine."""
    small, large = measure(40, 1), measure(120, 1)
    assert large.connections <= 1.2 * small.connections
    assert large.bytes_per_s <= 1.2 * small.bytes_per_s
    assert max(small.death_intervals, large.death_intervals) <= 3
    assert max(small.return_intervals, large.return_intervals) <= 5
    assert max(small.join_intervals, large.join_intervals) <= 5


def test_a_newcomer_is_complete_within_five_hello_intervals() -> None:
    city = SimCity(city_of(16))
    city.start()
    city.run(2.0)
    joined = join(city, "newcomer", random.Random(1))
    assert len(joined.others_s) == 16, "everybody is asked"
    assert joined.complete_s <= 5 * city.city.membership.hello_interval_ms / 1000, joined


def test_the_measured_cities_are_whole() -> None:
    assert len(city_of(100).names) == 100
    assert max(map(len, city_of(1000).cluster_members.values())) <= 4
