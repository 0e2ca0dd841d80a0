"""A broker that empties itself: a few clients at a time, wills only of those that stay away, nothing left behind."""

import dataclasses

from metromq.federation import grid_city, with_area, with_broker, without_areas, without_broker
from metromq.federation.host import DRAINED, Host
from metromq.federation.host.leaving import GONE, PARTS, RETURN_S, STAYS
from metromq.lab.sim.sim_city import SimCity


def started(count: int = 3) -> SimCity:
    sim = SimCity(grid_city("geographic", count=count, hello_interval_ms=200))
    sim.start()
    return sim


def host_of(sim: SimCity, name: str) -> Host:
    host = sim.brokers[name].host
    assert host is not None
    return host


def test_clients_go_a_few_at_a_time_and_newcomers_are_sent_elsewhere() -> None:
    sim = started()
    first, second, _ = sim.city.names
    clients = [sim.connect(f"c{number}", first, keeps=True) for number in range(40)]
    host = host_of(sim, first)
    sim.brokers[first].run(lambda: host.leaving.drain(10.0))
    sim.run(2.0)
    assert 15 <= sum(not client.is_open for client in clients) <= 25
    late = sim.connect("late", first)
    assert not late.is_open
    assert sim.connect("c39", second, keeps=True).is_open
    sim.run(20.0)
    assert host.leaving.state == DRAINED
    assert not sim.brokers[first].hub.sessions.by_client_id  # type: ignore[union-attr]
    sim.brokers[first].run(host.leaving.resume)
    assert host.leaving.state == STAYS
    assert sim.connect("late", first).is_open


def test_a_client_that_comes_back_elsewhere_is_not_lost() -> None:
    sim = started()
    first, second, third = sim.city.names
    watch = sim.connect("watch", third)
    watch.subscribe("will/#", 1)
    for name in ("back", "lost"):
        sim.connect(name, first, keeps=True, will=(f"will/{name}", name))
    sim.settle()
    sim.brokers[first].run(host_of(sim, first).leaving.drain)
    sim.run(1.0)
    sim.connect("back", second, keeps=True, will=("will/back", "back"))
    sim.run(15.0)
    assert [delivery.payload for delivery in sim.received("watch")] == ["lost"]


def test_what_waits_for_a_broker_that_was_taken_out_is_forgotten_in_the_end() -> None:
    sim = started()
    first, second, third = sim.city.names
    sim.connect("sub", third, keeps=True).subscribe("bus/#", 1)
    pub = sim.connect("pub", first)
    sim.settle()
    sim.brokers[third].kill()
    pub.publish("bus/1", "never taken", 1)
    sim.run(5.0)
    assert host_of(sim, first).links[third].backlog.unsettled()
    backlog = host_of(sim, first).links[third].backlog
    sim.change(second, lambda city: without_broker(without_areas(city, third), third))
    sim.run(5.0)
    assert third not in host_of(sim, first).node.peers
    assert backlog.unsettled(), "it may still be sent to an heir"
    sim.run(70.0)
    assert not backlog.unsettled(), "the journal may forget it"


def test_a_leaver_that_cannot_leave_yet_says_why_and_goes_on_later() -> None:
    sim = started(2)
    first, second = sim.city.names
    host = host_of(sim, first)
    sim.brokers[first].run(lambda: host.leaving.leave("somebody"))
    host.node.greetings.versions.spoken[second] = 4
    sim.run(1.0)
    assert any("cannot follow" in text for text in host.leaving.waits_for())
    host.node.greetings.versions.spoken[second] = 5
    assert sim.clock.run_until(lambda: host.leaving.state == "has left", 60.0)


def test_a_newcomers_name_may_be_one_that_left() -> None:
    sim = started(2)
    first, second = sim.city.names
    sim.join("b40", first, "0/0")
    sim.settle()
    assert sim.leave("b40")
    sim.settle()
    sim.join("b40", first, "0/0")
    sim.run(5.0)
    assert sim.owner("0/0", second) == "b40"


def test_who_was_killed_when_it_had_just_left_does_not_come_back() -> None:
    sim = started()
    third = sim.city.names[2]
    host = host_of(sim, third)
    sim.brokers[third].run(lambda: host.leaving.leave("somebody"))
    sim.clock.run_until(lambda: host.leaving.state == PARTS, 60.0)
    sim.run(1.0)
    sim.brokers[third].kill()
    sim.brokers[third].start()
    sim.run(1.0)
    assert not sim.connect("late", third).is_open
    sim.run(RETURN_S)
    assert host_of(sim, third).leaving.state == GONE


def test_who_left_and_is_a_member_again_stays() -> None:
    sim = started()
    first, _, third = sim.city.names
    spec = sim.city.by_name[third]
    assert host_of(sim, third).city.by_name[third] == spec
    sim.change(first, lambda city: without_broker(without_areas(city, third), third))
    sim.run(3.0)
    sim.brokers[third].kill()
    sim.change(first, lambda city: with_broker(city, dataclasses.replace(spec, area="")))
    sim.run(3.0)
    sim.brokers[third].start()
    sim.run(5.0)
    assert host_of(sim, third).leaving.state == STAYS
    assert sim.connect("c", third).is_open


def test_who_leaves_begins_again_when_another_description_overrules_that() -> None:
    sim = started()
    first, second, third = sim.city.names
    host = host_of(sim, first)
    sim.brokers[first].run(lambda: host.leaving.leave("somebody"))
    sim.clock.run_until(lambda: host.leaving.state == PARTS, 60.0)
    sim.change(third, lambda city: with_area(city, "3/3", second))  # it has not heard, and wins by its name
    sim.run(0.02)
    assert first in host_of(sim, third).node.peers
    sim.run(30.0)
    assert host.leaving.state == GONE
    assert first not in host_of(sim, third).node.peers
