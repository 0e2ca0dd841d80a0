"""Takeover, return and healing of splits, with coordinators that talk over a network that comes and goes."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.federation.city import City, Membership, grid_city
from metromq.federation.coordination.core import TopicTable
from metromq.federation.coordination.embedded import EmbeddedCoordinator
from metromq.federation.links.frames import Hello, TableEntry

STEP_US = 100_000


class World:
    """Coordinators and the links between them; every step is a tenth of a second."""

    def __init__(self, city: City) -> None:
        self.city = city
        self.now_us = 0
        self.tables = {name: TopicTable(city.homes) for name in city.names}
        self.brokers = {name: EmbeddedCoordinator(city, name, 1, self.tables[name], self.now_us) for name in city.names}
        self.down: set[str] = set()
        self.cuts: set[frozenset[str]] = set()
        self.lives = dict.fromkeys(city.names, 1)

    def reach(self, one: str, other: str) -> bool:
        return one not in self.down and other not in self.down and frozenset((one, other)) not in self.cuts

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self.now_us += STEP_US
            for name in self.city.names:
                if name in self.down:
                    continue
                self.brokers[name].claims(self.now_us)
                for other in self.brokers[name].due(self.now_us):
                    if self.reach(name, other):
                        beats = self.brokers[name].beats(self.now_us)
                        self.brokers[other].heard(Hello(1, 1, 0, 0, beats), self.now_us)
                        self.brokers[other].merge(self.tables[name].entries(), self.now_us)

    def kill(self, name: str) -> None:
        self.down.add(name)

    def start(self, name: str) -> None:
        self.down.discard(name)
        self.lives[name] += 1
        self.brokers[name] = EmbeddedCoordinator(self.city, name, self.lives[name], self.tables[name], self.now_us)

    def split(self, side: set[str]) -> None:
        self.cuts |= {frozenset((one, other)) for one in side for other in set(self.city.names) - side}

    def owners(self, area: str) -> set[str]:
        return {self.tables[name].owner(area) for name in self.city.names if name not in self.down}


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
    for name, broker in world.brokers.items():
        broker.set_clients({"b10": 3, "b11": 1, "b13": 2}.get(name, 0))
    world.step(30)
    world.kill("b12")
    world.step(40)
    assert world.owners("1/2") == {"b11"}, "b00 has fewer clients, but belongs to another cluster"


def test_a_broker_that_somebody_still_hears_is_not_replaced() -> None:
    world = World(grid_city())
    world.cuts = {frozenset(("b12", other)) for other in world.city.names if other not in ("b12", "b11")}
    world.step(100)
    assert world.owners("1/2") == {"b12"}
    assert all(broker.is_alive("b12", world.now_us) for broker in world.brokers.values())


def test_a_lone_broker_serves_every_area_of_its_own_side_only() -> None:
    world = World(grid_city())
    world.step(30)
    world.split({"b12"})
    world.step(100)
    assert {world.tables["b12"].owner(area) for area in world.city.homes} == {"b12"}
    assert world.tables["b00"].owner("1/2") == "b13"
    assert world.tables["b00"].owner("0/0") == "b00"
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
    assert len({world.tables[name].digest() for name in living}) == 1
    for area, home in world.city.homes.items():
        owner = world.tables[living[0]].owner(area)
        assert owner == home if home in living else owner in living


ENTRIES = st.lists(
    st.builds(TableEntry, st.sampled_from(["0/0", "0/1", "9/9"]), st.sampled_from("abc"), st.integers(0, 3)),
    max_size=8,
)


@given(ENTRIES, st.randoms())
@settings(deadline=None, max_examples=200)
def test_entries_merge_to_the_same_table_in_any_order(entries: list[TableEntry], random: Random) -> None:
    homes = {"0/0": "a", "0/1": "b"}
    one, other = TopicTable(homes), TopicTable(homes)
    one.merge(entries)
    shuffled = entries * 2
    random.shuffle(shuffled)
    for entry in shuffled:
        other.merge([entry])
    assert one.digest() == other.digest()
    for area, home in homes.items():
        best = max([(e.epoch, e.owner) for e in entries if e.area == area], default=(0, home))
        assert one.owner(area) == max(best, (0, home))[1]
