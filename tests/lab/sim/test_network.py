"""The simulated network connects as a kernel does, and brokers find each other soon after it is whole again."""

import pytest

from metromq.federation import grid_city
from metromq.lab.sim.clock import VirtualClock
from metromq.lab.sim.network import Network, StreamEnd, StreamListener, constant_latency
from metromq.lab.sim.sim_city import SimCity

ROUND_TRIP_S = 0.02
BACK_S = 2.5  # less than the three seconds that the contract leaves links to come up


class Ear:
    def accept(self, end: StreamEnd) -> StreamListener | None:
        return self

    def received(self, data: bytes) -> None: ...

    def closed(self, problem: str) -> None: ...


class Dialling:
    """One end dials the other at the very beginning."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.network = Network(self.clock, constant_latency(ROUND_TRIP_S / 2))
        self.network.acceptors["b"] = Ear()
        self.answers: list[str] = []
        self.waits = True

    def dial(self) -> None:
        self.network.dial("a", "b", self._connected, self.answers.append, lambda: self.waits)

    def _connected(self, end: StreamEnd) -> None:
        self.answers.append(f"connected at {self.clock.now:.2f}")


def test_it_takes_a_round_trip() -> None:
    world = Dialling()
    world.dial()
    world.clock.run(10.0)
    assert world.answers == ["connected at 0.02"]


def test_who_is_not_there_or_cut_off_refuses() -> None:
    world = Dialling()
    world.network.cut("a", "b")
    world.dial()
    world.clock.run(1.0)
    world.network.heal()
    del world.network.acceptors["b"]
    world.dial()
    world.clock.run(1.0)
    assert world.answers == ["connection refused", "connection refused"]


@pytest.mark.parametrize("held", [("a", "b"), ("b", "a")], ids=["SYN", "answer"])
@pytest.mark.parametrize(
    ("healed", "answers"),
    [
        (0.5, ["connected at 1.02"]),
        (0.99, ["connected at 1.02"]),
        (1.5, ["connected at 3.02"]),
        (2.99, ["connected at 3.02"]),
        (3.5, []),
    ],
)
def test_what_is_lost_is_sent_again_after_one_second_and_after_three(
    held: tuple[str, str], healed: float, answers: list[str]
) -> None:
    """The next one would come after seven: whoever dials has given up by then."""
    world = Dialling()
    world.network.hold(*held)
    world.dial()
    world.clock.run(healed)
    world.network.heal()
    world.clock.run(30.0)
    assert world.answers == answers


def test_an_answer_that_is_lost_on_its_way_comes_with_the_next_one() -> None:
    world = Dialling()
    world.dial()
    world.clock.run(ROUND_TRIP_S / 2)
    world.network.hold("b", "a")
    world.clock.run(0.5)
    world.network.heal()
    world.clock.run(5.0)
    assert world.answers == ["connected at 1.02"]


def test_nothing_more_is_sent_for_who_has_gone() -> None:
    world = Dialling()
    world.network.hold("a", "b")
    world.dial()
    world.clock.run(0.5)
    world.network.heal()
    world.waits = False
    world.clock.run(5.0)
    assert world.answers == []


def back_after_s(city: SimCity) -> float:
    healed = city.clock.now
    city.network.heal()
    assert city.clock.run_until(city.is_joined, 60.0)
    return city.clock.now - healed


@pytest.mark.parametrize("one_way", [True, False])
@pytest.mark.parametrize("lost_s", [0.7 * number for number in range(1, 24)])
def test_links_that_could_not_be_opened_are_open_soon_after_the_network_is_whole(one_way: bool, lost_s: float) -> None:
    """A broker that starts while its packets, or those of others, are lost: nothing answers its tries."""
    city = SimCity(grid_city("central", count=3, hello_interval_ms=200))
    city.start()
    late, *others = city.city.names
    city.brokers[late].kill()
    for other in others:
        city.network.hold(other, late)
        if not one_way:
            city.network.hold(late, other)
    city.brokers[late].start()
    city.run(lost_s)
    assert back_after_s(city) < BACK_S


@pytest.mark.parametrize("cut_s", [0.7 * number for number in range(1, 24)])
def test_links_that_were_refused_are_open_soon_after_the_network_is_whole(cut_s: float) -> None:
    city = SimCity(grid_city("central", count=3, hello_interval_ms=200))
    city.start()
    city.network.split([city.city.names[0]], city.city.names)
    city.run(cut_s)
    assert back_after_s(city) < BACK_S
