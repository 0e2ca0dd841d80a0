"""How soon a lost broker is missed, and that late greetings do not make the city change hands again and again."""

import pytest

from metromq.federation.city import grid_city
from metromq.federation.coordination.coordinator import Beat
from metromq.federation.coordination.facts import AREA
from tests.builds import plain_only
from tests.federation.coordination.test_embedded import STEP_US, World


def epochs(world: World) -> int:
    """How many times areas changed hands."""
    return max(sum(fact.epoch for fact in book.of_kind(AREA)) for book in world.books.values())


def missed_after_steps(world: World, lost: str) -> dict[str, int]:
    """For each living broker, how many steps after its end the lost one is missed there."""
    world.kill(lost)
    found: dict[str, int] = {}
    for step in range(1, 100):
        world.step()
        for name, broker in world.brokers.items():
            if name != lost and name not in found and not broker.watch.is_alive(lost):
                found[name] = step
    return found


@pytest.mark.parametrize("count", [2, 3, 5, 9, 16])
@pytest.mark.parametrize("steps", [30, 32, 34])
def test_everybody_misses_a_lost_broker_within_a_second_and_a_half(count: int, steps: int) -> None:
    """0.5 s between hellos, three of them; a step is 0.1 s, and one more passes on what a neighbour found."""
    world = World(grid_city(count=count))
    world.step(steps)
    missed = missed_after_steps(world, world.city.names[1])
    assert len(missed) == count - 1
    assert 9 <= min(missed.values()) <= max(missed.values()) <= 17, missed


def test_a_broker_without_area_is_missed_as_soon() -> None:
    world = World(grid_city("flood-subscriptions", count=5))
    world.step(30)
    assert max(missed_after_steps(world, world.city.names[2]).values()) <= 17


def test_a_broker_whose_greetings_come_late_is_not_replaced_again_and_again() -> None:
    """Its own ticks come every 1.7 s: too late for three hellos, but it lives."""
    world = World(grid_city(count=5))
    world.step(30)
    slow = world.city.names[2]
    for number in range(600):
        world.now_us += STEP_US
        for name in world.city.names:
            if name != slow or number % 17 == 0:
                world.deliver(name, world.brokers[name].tick(world.now_us, 0))
    assert epochs(world) <= 8, "without damping it is 210"


@plain_only
def test_who_is_late_itself_judges_nobody() -> None:
    """One broker gets its turn, and with it what was sent to it, only now and then."""
    world = World(grid_city(count=5))
    world.step(30)
    slow = world.city.names[2]
    own = world.brokers[slow]
    hear, waiting = own.watch.heard, list[tuple[str, tuple[Beat, ...], int]]()
    own.watch.heard = lambda *words: waiting.append(words)  # type: ignore[method-assign]
    for number in range(600):
        world.now_us += STEP_US
        for name in world.city.names:
            if name != slow or number % 16 == 0:
                world.deliver(name, world.brokers[name].tick(world.now_us, 0))
        assert all(own.watch.is_alive(name) for name in world.city.names), "it took its own lateness for their end"
        if number % 16 == 0:
            for peer, beats, _ in waiting:
                hear(peer, beats, world.now_us)
            waiting.clear()


def test_nobody_takes_over_on_its_own_while_another_watcher_hears_the_broker() -> None:
    """b12 cannot be heard by b13, its heir; b11 hears it, but tells so only now and then."""
    world = World(grid_city())
    world.step(30)
    world.cuts = {frozenset(("b12", other)) for other in world.city.names if other not in ("b12", "b11")}
    world.step(200)
    assert world.owners("1/2") == {"b12"}
    assert epochs(world) == 0


def test_a_broker_that_was_wrongly_taken_for_gone_gets_more_time_until_it_is_forgiven() -> None:
    world = World(grid_city(count=3))
    lost = world.city.names[1]
    world.step(30)
    waits = []
    for rest_steps in (0, 0, 1500):
        world.step(rest_steps)
        world.split({lost})
        waits.append(steps_until_missed(world, lost))
        world.cuts.clear()
        world.step(30)
    assert waits[0] <= 17 < waits[1], waits
    assert waits[2] <= 17, waits


def steps_until_missed(world: World, lost: str) -> int:
    steps = 0
    while world.brokers[world.city.names[0]].watch.is_alive(lost):
        world.step()
        steps += 1
    return steps


def test_a_broker_that_has_just_started_gives_the_others_time_to_find_it() -> None:
    """Peers pause up to three seconds before they dial a broker again that was away."""
    world = World(grid_city(count=3))
    world.step(30)
    back = world.city.names[0]
    world.kill(back)
    world.step(50)
    world.start(back)
    world.split({back})
    world.step(29)
    assert all(world.brokers[back].watch.is_alive(name) for name in world.city.names)
    world.step(20)
    assert world.books[back].owned_by(AREA, back) == tuple(world.city.homes), "it is really alone"
