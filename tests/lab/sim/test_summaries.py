"""Brokers whose clients want more than others should have to know: whole simulated brokers."""

import dataclasses

import pytest

from metromq.federation import City, grid_city
from metromq.lab.sim.sim_city import SimCity

FEW = 5  # below one prefix
MANY = 40


def city_of(routing: str = "flood-subscriptions", mesh_up_to: int = 16, few: int = FEW) -> SimCity:
    plain = grid_city(routing, count=4, hello_interval_ms=200, mesh_up_to=mesh_up_to)
    city = SimCity(with_entries(plain, few * 4))
    city.start()
    city.run(1.0)
    return city


def with_entries(city: City, entries: int) -> City:
    return dataclasses.replace(city, membership=dataclasses.replace(city.membership, interest_entries=entries))


def known(city: SimCity, broker: str, of: str) -> set[str]:
    """What one broker knows of another's wishes."""
    host = city.brokers[broker].host
    assert host is not None
    return {item.topic_filter for item in host.node.exchange.interest.filters_of(of)}


def payloads(city: SimCity, client: str) -> list[str]:
    return [delivery.payload for delivery in city.received(client)]


@pytest.mark.parametrize("mesh_up_to", [16, 0])
@pytest.mark.parametrize("routing", ["flood-subscriptions", "geographic", "central"])
def test_many_filters_are_one_entry_at_every_peer(routing: str, mesh_up_to: int) -> None:
    city = city_of(routing, mesh_up_to)
    central, here, *others = city.brokers
    others.append(central)
    reader, writer = city.connect("reader", here), city.connect("writer", others[0])
    for number in range(MANY):
        reader.subscribe(f"house/{number}/door", 1)
    reader.subscribe("garden/gate", 1)
    city.run(2.0)
    told = [other for other in others if known(city, other, here)]
    assert told
    for other in told:
        entries = known(city, other, here)
        assert "garden/gate" in entries
        assert "house/#" in entries
        assert len(entries) <= 2 + FEW // 2, "those that came since are summarised a little later"
    for number in (0, 7, MANY - 1):
        writer.publish(f"house/{number}/door", f"{number}", 1)
    writer.publish("house/99/door", "nobody wants it", 1)
    city.run(2.0)
    assert payloads(city, "reader") == ["0", "7", f"{MANY - 1}"]


def test_of_more_filters_below_a_prefix_nobody_is_told_or_asked() -> None:
    city = city_of()
    here = next(iter(city.brokers))
    reader = city.connect("reader", here)
    for number in range(MANY):
        reader.subscribe(f"house/{number}/door", 1)
    city.run(5.0)
    host = city.brokers[here].host
    assert host is not None
    counters, sent = host.node.counters, [host.node.counters.frames_out]
    announced = counters.interest_out
    city.run(1.0)
    sent.append(counters.frames_out)
    for number in range(MANY, 3 * MANY):
        reader.subscribe(f"house/{number}/door", 1)
    city.run(1.0)
    sent.append(counters.frames_out)
    assert counters.interest_out == announced
    assert sent[2] - sent[1] <= sent[1] - sent[0] + len(city.brokers), "greetings"


def test_few_filters_are_announced_one_by_one_again() -> None:
    city = city_of()
    here, other, *_ = city.brokers
    reader, writer = city.connect("reader", here), city.connect("writer", other)
    for number in range(MANY):
        reader.subscribe(f"house/{number}/door", 1)
    city.run(1.0)
    for number in range(1, MANY):
        reader.unsubscribe(f"house/{number}/door")
    city.run(1.0)
    assert known(city, other, here) <= {f"house/{number}/door" for number in range(FEW)}
    writer.publish("house/0/door", "still wanted", 1)
    city.run(1.0)
    assert payloads(city, "reader") == ["still wanted"]


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_value_retained_before_anybody_asked_is_there_for_a_new_filter_below_a_prefix(is_cut: bool) -> None:
    """Also when its broker cannot be asked any more: who hears of a prefix sends what it retains for all of it."""
    city = city_of()
    here, other, *_ = city.brokers
    city.connect("writer", other).publish("house/99/door", "closed", 1, retain=True)
    city.run(1.0)
    reader = city.connect("reader", here)
    for number in range(MANY):
        reader.subscribe(f"house/{number}/door", 1)
    city.run(5.0)
    if is_cut:
        city.network.cut(here, other)
        city.run(1.0)
    city.connect("late", here).subscribe("house/99/door", 1)
    city.run(2.0)
    assert payloads(city, "late") == ["closed"]


def test_what_was_published_while_the_brokers_could_not_speak_comes() -> None:
    """Of filters that are older than the summary and of some that came after it, and once."""
    city = city_of()
    here, other, *rest = city.brokers
    city.connect("reader", here).subscribe("house/0/door", 1)
    city.run(1.0)
    for one in (here, *rest):
        city.network.cut(one, other)
    city.run(5.0)
    reader = city.clients["reader"]
    for number in range(1, MANY):
        reader.subscribe(f"house/{number}/door", 1)
    city.run(2.0)
    writer = city.connect("writer", other)
    for number in range(MANY):
        writer.publish(f"house/{number}/door", f"{number}", 1)
    city.run(1.0)
    assert payloads(city, "reader") == []
    city.network.heal()
    city.run(10.0)
    assert sorted(payloads(city, "reader"), key=int) == [f"{number}" for number in range(MANY)]
