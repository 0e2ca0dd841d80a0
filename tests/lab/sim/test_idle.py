"""A city in which nothing happens: how often its brokers wake, and that they notice a death in time all the same."""

import pytest

from metromq.federation import grid_city
from metromq.lab.sim.sim_city import SimCity

HELLO_S = 0.5  # the default
IDLE_S = 4.0
LATE_S = 0.1


def idle_city(mesh_up_to: int) -> SimCity:
    city = SimCity(grid_city(count=10, mesh_up_to=mesh_up_to))
    city.start()
    city.run(5.0)
    return city


@pytest.mark.parametrize("mesh_up_to", [16, 0])
def test_a_broker_ticks_when_something_is_due(mesh_up_to: int) -> None:
    city = idle_city(mesh_up_to)
    rests: list[float] = []
    for _ in range(int(IDLE_S / 0.01)):
        city.run(0.01)
        rests += [broker.host.rest_s() for broker in city.brokers.values() if broker.host is not None]
    if mesh_up_to:
        assert max(rests) == HELLO_S / 2  # for a greeting, and once between two
    else:
        assert 0.9 * HELLO_S < max(rests) < HELLO_S  # for a greeting; a later tick would look like a standstill
    calm = sum(rest_s > HELLO_S / 5 for rest_s in rests)
    assert calm > len(rests) / 2


def test_a_tick_that_comes_a_little_late_is_no_standstill() -> None:
    """Otherwise a CONNECT that is read just before it would be taken for an old one."""
    city = idle_city(0)
    broker = next(iter(city.brokers.values()))
    assert broker.host is not None
    for _ in range(100):
        city.run(0.01)
        now, wall_us = broker.host.hub.clock.now, broker.host.hub.clock.wall_us
        broker.host.hub.at(city.clock.now + 1.0 + LATE_S, wall_us)
        assert not broker.host.roaming.still_us()
        broker.host.hub.at(now, wall_us)
    broker.host.hub.at(city.clock.now + 1.0 + 2 * HELLO_S, wall_us)
    assert broker.host.roaming.still_us() > HELLO_S * 1_000_000


@pytest.mark.parametrize("mesh_up_to", [16, 0])
@pytest.mark.parametrize("moment_s", [0.003, 0.11, 0.24, 0.37, 0.49])
def test_a_death_is_known_within_three_hello_intervals(mesh_up_to: int, moment_s: float) -> None:
    city = idle_city(mesh_up_to)
    city.run(moment_s)
    victim, *others = city.brokers.values()
    victim.kill()
    city.run(3 * HELLO_S)
    unaware = [one.name for one in others if one.host is not None and one.host.is_alive(victim.name)]
    assert not unaware
    wrongly = [
        (one.name, other.name)
        for one in others
        for other in others
        if one.host is not None and not one.host.is_alive(other.name)
    ]
    assert not wrongly
