"""Cities in which not everybody greets everybody: companions, rumours, and how soon all know of a death."""

from collections import deque

import pytest

from metromq.federation.city import City, Membership, grid_city
from metromq.federation.coordination.companions import BESIDE, CIRCLES, companions_of
from metromq.federation.coordination.coordinator import Event, Greet, Spread
from metromq.federation.coordination.facts import AREA
from metromq.federation.coordination.rumours import ALIVE, DOUBTED, LOST, Rumour, Rumours
from tests.federation.coordination.test_embedded import World


class WideWorld(World):
    """Coordinators that pass rumours on, each after those that were said before; it counts what they say."""

    def __init__(self, city: City) -> None:
        self.said = 0
        self.greeted = 0  # greetings,
        self.ticked = 0  # those among them that answered none
        self.rumours: list[Rumour] = []
        self._mail: deque[tuple[str, list[Event]]] = deque()
        self._is_delivering = False
        super().__init__(city)

    def kill_all(self) -> None:
        self.down |= set(self.city.names)

    def companionships(self) -> int:
        return sum(len(broker.watch.others()) for broker in self.brokers.values()) // 2

    def deliver(self, name: str, events: list[Event]) -> None:
        self.said += len(events)
        self.rumours += [rumour for event in events if isinstance(event, Spread) for rumour in event.rumours]
        greetings = sum(isinstance(event, Greet) for event in events)
        self.greeted += greetings
        self.ticked += 0 if self._is_delivering else greetings
        self._mail.append((name, events))
        if not self._is_delivering:
            self._is_delivering = True
            while self._mail:
                self._hand_out(*self._mail.popleft())
            self._is_delivering = False

    def _hand_out(self, name: str, events: list[Event]) -> None:
        super().deliver(name, [event for event in events if not isinstance(event, Spread)])
        for event in events:
            if isinstance(event, Spread) and self.reach(name, event.peer):
                heard = self.brokers[event.peer].heard_of(name, event.rumours, event.whole, self.now_us)
                self.deliver(event.peer, heard)


def wide_city(l_b: int = 3, count: int | None = None) -> City:
    city = grid_city(l_b=l_b, l_c=l_b - 1, count=count)
    return City(city.brokers, areas=city.areas, links=city.links, membership=Membership(mesh_up_to=0))


def nobody_is_lost(name: str) -> bool:
    return False


@pytest.mark.parametrize("count", [20, 100, 1000])
def test_everybody_has_a_few_companions_whatever_the_size_of_the_city(count: int) -> None:
    names = tuple(f"b{number}" for number in range(count))
    found = {name: companions_of(name, names, nobody_is_lost) for name in names}
    assert all(4 <= len(some) <= 2 * CIRCLES * BESIDE for some in found.values())
    assert all(name in found[other] for name, some in found.items() for other in some), "it is mutual"
    reached, steps = {names[0]}, 0
    while len(reached) < count:
        reached |= {other for name in reached for other in found[name]}
        steps += 1
    assert steps <= 8, "what companions tell companions reaches everybody in a few steps"


def test_who_is_lost_is_passed_over_and_stays_a_companion() -> None:
    names = tuple(f"b{number}" for number in range(100))
    before = companions_of("b0", names, nobody_is_lost)
    lost = sorted(before)[0]
    after = companions_of("b0", names, lambda name: name == lost)
    assert lost in after
    assert len(after - before) >= 2, "others take its place"


def missed_steps(world: World, lost: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for step in range(1, 60):
        world.step()
        for name, broker in world.brokers.items():
            if name != lost and name not in found and not broker.is_alive(lost, world.now_us):
                found[name] = step
    return found


@pytest.mark.parametrize("steps", [30, 32, 34])
def test_everybody_knows_of_a_death_within_three_hello_intervals(steps: int) -> None:
    world = WideWorld(wide_city())
    world.step(steps)
    world.kill("b121")
    missed = missed_steps(world, "b121")
    assert len(missed) == 63
    assert max(missed.values()) <= 15, "three intervals of half a second"
    assert len(world.owners("1/2/1")) == 1
    assert world.owners("1/2/1") < {"b120", "b122", "b123"}


def test_a_broker_that_is_back_is_known_everywhere_at_once() -> None:
    world = WideWorld(wide_city())
    world.step(30)
    world.kill("b121")
    world.step(30)
    world.start("b121")
    world.step(10)
    assert all(broker.is_alive("b121", world.now_us) for broker in world.brokers.values())
    assert world.owners("1/2/1") == {"b121"}


def rising_city() -> WideWorld:
    """Nobody has started yet."""
    world = WideWorld(wide_city(count=32))
    world.kill_all()
    return world


def test_a_large_city_that_starts_broker_by_broker_takes_nobody_for_lost() -> None:
    world = rising_city()
    for name in world.city.names:
        world.start(name)
        world.step(1)
        world.brokers[name].overslept(world.now_us, 600_000)  # the machine has much to do
        world.step(1)
    world.step(20)
    assert not world.rumours
    assert all(world.owners(area) == {home} for area, home in world.city.homes.items())
    assert all(fact.epoch == 0 for book in world.books.values() for fact in book.of_kind(AREA))


def test_who_stays_away_when_a_large_city_starts_is_lost_in_the_end() -> None:
    world = rising_city()
    first, missing, *others = world.city.names
    for name in (first, *others):
        world.start(name)
    world.step(150)
    assert not any(broker.is_alive(missing, world.now_us) for name, broker in world.brokers.items() if name != missing)


def test_a_broker_that_starts_hears_from_its_companions_who_is_lost() -> None:
    world = WideWorld(wide_city(count=32))
    world.step(30)
    world.kill("b000")
    world.step(30)
    companion = next(name for name, broker in world.brokers.items() if broker.watch.watches("b000"))
    world.kill(companion)
    world.start(companion)
    world.step(30)
    assert not world.brokers[companion].is_alive("b000", world.now_us), "long before its own patience ends"


def test_of_two_companions_one_speaks_and_the_other_one_answers() -> None:
    world = WideWorld(wide_city(count=32))
    world.step(60)
    world.ticked = world.greeted = 0
    world.step(50)
    assert world.greeted == pytest.approx(2 * world.companionships() * 10, rel=0.1), "one greeting each per interval"
    assert world.ticked < 0.6 * world.greeted, "of which only one waits for its own broker to wake"


def test_nobody_is_missed_in_calm_and_a_quiet_city_spreads_nothing() -> None:
    world = WideWorld(wide_city())
    world.step(60)
    before = world.said
    world.step(50)
    hellos = (world.said - before) / len(world.brokers) / 5
    assert hellos <= 2 * 2 * CIRCLES * BESIDE, "per broker and second: eight companions, twice a second"
    assert all(len(broker.alive(world.now_us)) == 64 for broker in world.brokers.values())


def test_a_site_that_is_cut_off_serves_every_area_and_gives_them_back() -> None:
    world = WideWorld(wide_city())
    world.step(30)
    site = {"b000", "b001", "b002", "b003"}
    world.split(site)
    world.step(150)
    for name in site:
        assert set(world.brokers[name].alive(world.now_us)) == site
        assert {fact.owner for fact in world.books[name].of_kind(AREA)} <= site
    others = set(world.city.names) - site
    assert all(set(world.brokers[name].alive(world.now_us)) == others for name in others)
    world.cuts.clear()
    world.step(150)
    assert all(len(broker.alive(world.now_us)) == 64 for broker in world.brokers.values())
    assert all(world.owners(area) == {home} for area, home in world.city.homes.items())


def test_half_a_city_finds_the_other_half_lost_and_back() -> None:
    world = WideWorld(wide_city())
    world.step(30)
    side = {name for name in world.city.names if name < "b2"}
    world.split(side)
    world.step(150)
    assert all(set(world.brokers[name].alive(world.now_us)) == side for name in side)
    world.cuts.clear()
    world.step(150)
    assert all(len(broker.alive(world.now_us)) == 64 for broker in world.brokers.values())
    assert all(world.owners(area) == {home} for area, home in world.city.homes.items())


def test_who_is_spoken_of_has_the_last_word() -> None:
    world = WideWorld(wide_city())
    world.step(30)
    one = world.brokers["b000"]
    slander = Rumour("b333", one.incarnation, 5, LOST)
    world.deliver("b000", one.heard_of("b001", (slander,), False, world.now_us))
    world.step(10)
    assert all(broker.is_alive("b333", world.now_us) for broker in world.brokers.values())


def test_of_two_rumours_the_later_sign_of_life_counts_and_at_one_the_worse() -> None:
    rumours = Rumours()
    assert rumours.hear(Rumour("b1", 1, 5, LOST), 0)
    assert rumours.is_lost("b1")
    assert not rumours.hear(Rumour("b1", 1, 5, ALIVE), 0)
    assert not rumours.hear(Rumour("b1", 1, 5, LOST), 0), "it is passed on once"
    assert rumours.hear(Rumour("b1", 1, 6, ALIVE), 0)
    assert not rumours.is_lost("b1")
    assert rumours.digest() == 0
    assert rumours.hear(Rumour("b1", 1, 6, DOUBTED), 100)
    assert not rumours.run_out(99)
    assert rumours.run_out(100) == ("b1",)
    assert rumours.is_lost("b1")
    assert rumours.hear(Rumour("b1", 2, 0, ALIVE), 0)
    assert not rumours.lost
