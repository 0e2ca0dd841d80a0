"""Takeover, return and healing of splits, with coordinators that talk over a network that comes and goes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.federation.city import City, Membership, grid_city
from metromq.federation.coordination.coordinator import Event, FactsChanged, Greet, Tell
from metromq.federation.coordination.embedded import EmbeddedCoordinator
from metromq.federation.coordination.facts import AREA, Book, Fact
from metromq.federation.routing.geographic import AreaSuccession

STEP_US = 100_000


class World:
    """Coordinators and the links between them; every step is a tenth of a second."""

    def __init__(self, city: City) -> None:
        self.city = city
        self.now_us = 0
        self.lives = dict.fromkeys(city.names, 1)
        self.clients: dict[str, int] = {}
        self.down: set[str] = set()
        self.cuts: set[frozenset[str]] = set()
        self.brokers = {name: self.found(name) for name in city.names}

    def found(self, name: str) -> EmbeddedCoordinator:
        return EmbeddedCoordinator(self.city, name, self.lives[name], AreaSuccession(self.city), self.now_us)

    @property
    def books(self) -> dict[str, Book]:
        return {name: broker.book for name, broker in self.brokers.items()}

    def reach(self, one: str, other: str) -> bool:
        return one not in self.down and other not in self.down and frozenset((one, other)) not in self.cuts

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self.now_us += STEP_US
            for name in sorted(self.brokers):
                if name not in self.down:
                    self.deliver(name, self.brokers[name].tick(self.now_us, self.clients.get(name, 0)))

    def deliver(self, name: str, events: list[Event]) -> None:
        """As a node does: what cannot be sent is lost."""
        for event in events:
            if isinstance(event, FactsChanged):
                facts = tuple(change.after for change in event.changes)
                for peer in event.tell:
                    self.tell(name, peer, facts)
            elif isinstance(event, Tell):
                self.tell(name, event.peer, event.facts)
            elif isinstance(event, Greet) and self.reach(name, event.peer):
                self.deliver(event.peer, self.brokers[event.peer].greeted(name, event.greeting, self.now_us))

    def tell(self, name: str, peer: str, facts: tuple[Fact, ...]) -> None:
        if peer in self.brokers and self.reach(name, peer):
            self.deliver(peer, self.brokers[peer].told(name, facts, self.now_us))

    def kill(self, name: str) -> None:
        self.down.add(name)

    def start(self, name: str) -> None:
        self.down.discard(name)
        self.lives[name] += 1
        kept = self.brokers[name].book.facts()
        self.brokers[name] = self.found(name)
        self.brokers[name].restore(kept, self.now_us)

    def split(self, side: set[str]) -> None:
        self.cuts |= {frozenset((one, other)) for one in side for other in set(self.city.names) - side}

    def owners(self, area: str) -> set[str]:
        return {book.owner(AREA, area) for name, book in self.books.items() if name not in self.down}


def test_the_nearest_member_of_the_cluster_takes_over_within_two_seconds() -> None:
    world = World(grid_city())
    world.step(30)
    world.kill("b12")
    world.step(20)
    assert world.owners("1/2") == {"b13"}
    world.start("b12")
    world.step(30)
    assert world.owners("1/2") == {"b12"}


def test_the_least_loaded_member_takes_over() -> None:
    city = grid_city()
    world = World(
        City(city.brokers, areas=city.areas, links=city.links, membership=Membership(takeover="least-loaded"))
    )
    world.clients = {"b10": 3, "b11": 1, "b13": 2}
    world.step(30)
    world.kill("b12")
    world.step(40)
    assert world.owners("1/2") == {"b11"}, "b00 has fewer clients, but belongs to another cluster"


def test_a_broker_that_somebody_still_hears_is_not_replaced() -> None:
    world = World(grid_city())
    world.cuts = {frozenset(("b12", other)) for other in world.city.names if other not in ("b12", "b11")}
    world.step(100)
    assert world.owners("1/2") == {"b12"}
    assert all(broker.watch.is_alive("b12") for broker in world.brokers.values())


def test_a_lone_broker_serves_every_area_of_its_own_side_only() -> None:
    world = World(grid_city())
    world.step(30)
    world.split({"b12"})
    world.step(100)
    assert {world.books["b12"].owner(AREA, area) for area in world.city.homes} == {"b12"}
    assert world.books["b00"].owner(AREA, "1/2") == "b13"
    assert world.books["b00"].owner(AREA, "0/0") == "b00"
    world.cuts.clear()
    world.step(60)
    for area, home in world.city.homes.items():
        assert world.owners(area) == {home}


FAULTS = st.lists(
    st.tuples(st.sampled_from(["kill", "start", "split", "heal", "wait"]), st.sets(st.integers(0, 8), min_size=1)),
    max_size=8,
)


@given(FAULTS)
@settings(deadline=None, max_examples=40)
def test_tables_agree_and_every_living_home_owns_its_areas_after_any_faults(
    faults: list[tuple[str, set[int]]],
) -> None:
    world = World(grid_city(count=9))
    for what, numbers in faults:
        names = {world.city.names[number] for number in numbers}
        for name in sorted(names):
            if what == "kill" and len(world.down) < 8:
                world.kill(name)
            elif what == "start" and name in world.down:
                world.start(name)
        if what == "split":
            world.split(names)
        elif what == "heal":
            world.cuts.clear()
        world.step(25)
    world.cuts.clear()
    world.step(150)
    living = [name for name in world.city.names if name not in world.down]
    assert len({world.books[name].digest() for name in living}) == 1
    for area, home in world.city.homes.items():
        owner = world.books[living[0]].owner(AREA, area)
        assert owner == home if home in living else owner in living
