"""A client waits for its session while whoever has it is heard and only slow, and not for one that is gone."""

import pytest

from metromq.federation import grid_city
from metromq.federation.host import roaming
from metromq.lab.sim.sim_city import SimCity

SLOW_S = 0.9  # two ways take longer than a client waits for an answer; nobody is missed for that
MESSAGES = [f"m{number}" for number in range(20)]


class Watched:
    """What the mover is told."""

    def __init__(self) -> None:
        self.present: list[bool] = []

    def opened(self, client: object, session_present: bool) -> None:
        self.present.append(session_present)

    def ended(self, client: object, problem: str) -> None: ...

    def delivered(self, client: object, delivery: object) -> None: ...

    def settled(self, client: object, token: int, code: int) -> None: ...


def slow_city() -> SimCity:
    city = SimCity(grid_city("geographic", count=3, hello_interval_ms=500))
    city.start()
    city.run(3.0)
    names = city.city.names
    for one in names:
        for other in names:
            if one != other:
                city.network.slow(one, other, SLOW_S)
    city.run(5.0)
    return city


def moved(city: SimCity, client: str) -> tuple[list[bool], list[str]]:
    """A client with messages that wait for it goes from the first broker to the second; what it is told and gets."""
    first, second, third = city.city.names
    mover, watched = city.connect(client, first, keeps=True), Watched()
    mover._observer = watched
    mover.subscribe("#", 2)
    city.run(3.0)
    mover.disconnect()
    city.run(3.0)
    writer = city.connect("writer", third)
    for payload in MESSAGES:
        writer.publish("3/3/x", payload, 2)
    city.run(10.0)
    mover.connect(second, True)
    city.run(20.0)
    return watched.present, [delivery.payload for delivery in city.received(client)]


# Directories are drawn by name: some of these have theirs at the old broker, at the new one, or at the third.
@pytest.mark.parametrize("client", ["c0", "c1", "c2", "c3", "c4", "c5"])
def test_a_session_that_comes_slowly_is_waited_for(client: str) -> None:
    assert moved(slow_city(), client) == ([True], MESSAGES)


def test_who_is_not_heard_is_not_waited_for_any_longer() -> None:
    city = slow_city()
    city.network.heal()
    first, second, _ = city.city.names
    mover, watched = city.connect("c0", first, keeps=True), Watched()
    mover._observer = watched
    mover.subscribe("#", 2)
    city.run(3.0)
    mover.vanish()
    city.brokers[first].pause()
    began = city.clock.now
    mover.connect(second, True)
    assert city.clock.run_until(lambda: bool(watched.present), 30.0)
    assert watched.present == [False]
    assert city.clock.now - began < (roaming.STATE_S + roaming.PATIENT_S) / 2
