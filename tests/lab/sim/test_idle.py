"""A city in which nothing happens: how often its brokers wake, and that they notice a death in time all the same."""

import pytest

from metromq.federation import grid_city
from metromq.federation.links.mqtt_transport import KEEPALIVE_S
from metromq.lab.sim.network import StreamListener
from metromq.lab.sim.sim_broker import _Dialled as Dialled
from metromq.lab.sim.sim_city import SimCity
from metromq.protocol.wire import MQTT5, encode
from metromq.protocol.wire.packets import Pingreq

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


class Spy:
    """Sees what a stream brings."""

    def __init__(self, listener: StreamListener, seen: list[bytes]) -> None:
        self._listener = listener
        self._seen = seen

    def received(self, data: bytes) -> None:
        self._seen.append(data)
        self._listener.received(data)

    def closed(self, problem: str) -> None:
        self._listener.closed(problem)


@pytest.mark.parametrize("mesh_up_to", [16, 0])
def test_links_that_carry_greetings_are_not_pinged(mesh_up_to: int) -> None:
    """A ping wakes two brokers, and what it would prove a greeting proves that returns one of ours."""
    city = idle_city(mesh_up_to)
    seen: list[bytes] = []
    for end in city.network.streams:
        assert end.listener is not None
        end.listener = Spy(end.listener, seen)
    city.run(2.5 * KEEPALIVE_S)
    ping = encode(Pingreq(), MQTT5)
    assert seen
    assert not [data for data in seen if data == ping]


class Deaf:
    """A stream that brings nothing any more, and nobody is told."""

    def received(self, data: bytes) -> None: ...

    def closed(self, problem: str) -> None: ...


@pytest.mark.parametrize("mesh_up_to", [16, 0])
@pytest.mark.parametrize("clock_set_s", [0, -3600, 3600])
def test_a_link_that_brings_nothing_is_noticed_all_the_same(mesh_up_to: int, clock_set_s: int) -> None:
    """The peer still greets, over its own link, so only ours is in doubt; a clock that is set changes nothing."""
    city = idle_city(mesh_up_to)
    one = next(iter(city.brokers.values()))
    assert one.host is not None
    peer = next(peer for peer, link in one.host.links.items() if link.up)
    city.run(KEEPALIVE_S + 1.0)
    one.skew_us = clock_set_s * 1_000_000
    between = [end for end in city.network.streams if (end.own, end.far) == (one.name, peer)]
    (ours,) = [end for end in between if isinstance(end.listener, Dialled)]
    assert ours.other is not None
    ours.listener = ours.other.listener = Deaf()
    before = len(city.events)
    city.run(1.5 * KEEPALIVE_S + 3 * HELLO_S)
    lost = [text for _, name, text in city.events[before:] if name == one.name and "link is down" in text]
    assert len(lost) == 1
    assert f"peer={peer} " in lost[0]
    assert "PINGREQ" in lost[0]
