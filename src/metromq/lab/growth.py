"""What a broker costs in cities of 16 to 5,000, and how soon all know of a death, a return and a newcomer.

Every city is run with the product's own hosts under the virtual clock. Nobody publishes, so what is counted is the
price of being a city. Then brokers are killed, one after the other, and started again, and new ones join.
"""

import gc
import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from metromq.federation import City, grid_city
from metromq.federation.host import Host
from metromq.lab.report import Report, RunOptions, Trend
from metromq.lab.sim.sim_broker import SimBroker
from metromq.lab.sim.sim_city import SimCity

SIZES: Final = (16, 100, 1000, 5000)
WARM_UP_S: Final = 4.0
IDLE_S: Final = 2.0
DEATHS: Final = 4
JOINS: Final = 2
STEP_S: Final = 0.02
MOST_S: Final = 6.0  # to wait for somebody's knowledge
NOTES: Final = (
    "Whole simulated brokers, links of 2 ms, hello_interval_ms = 500, routing = geographic, clusters of about four.",
    "Connections: open streams at a broker, in and out. Bytes: what it writes to peers in a second in which nothing "
    "happens. CPU: of the machine that runs the simulation, per broker and second, its network included.",
    f"Death and return: of {DEATHS} brokers, killed and started at any moment; after so long 99 of 100 others knew.",
    f"Join: of {JOINS} brokers, which take over an area; after so long 99 of 100 others knew each and its area, "
    "it knew all areas and had links to its companions, and a client at it got what was published elsewhere.",
)


@dataclass(frozen=True, slots=True)
class Size:
    """What one city cost."""

    brokers: int
    connections: float
    bytes_per_s: float
    cpu_ms_per_s: float
    death_intervals: float
    return_intervals: float
    join_intervals: float


CURVES: Final[dict[str, Callable[[Size], float]]] = {
    "connections": lambda one: one.connections,
    "bytes per second": lambda one: one.bytes_per_s,
    "CPU ms per second": lambda one: one.cpu_ms_per_s,
    "death, hello intervals": lambda one: one.death_intervals,
    "return, hello intervals": lambda one: one.return_intervals,
    "join, hello intervals": lambda one: one.join_intervals,
}
COSTS: Final = ("connections", "bytes per second", "CPU ms per second")


def city_of(count: int) -> City:
    """Each broker is at home in at least one area; four of them share a cluster."""
    l_b = max(2, math.ceil(math.log(count, 4)))
    return grid_city(l_b=l_b, l_c=l_b - 1, count=count)


def measure(count: int, seed: int) -> Size:
    city = city_of(count)
    sim = SimCity(city)
    for broker in sim.brokers.values():
        broker.start()
    gc.freeze()  # what is built now stays: to look through it again and again would be counted as the brokers' work
    sim.run(WARM_UP_S)
    gc.freeze()
    before, started = sim.network.bytes_written, time.process_time()
    sim.run(IDLE_S)
    cpu_s, written = time.process_time() - started, sim.network.bytes_written - before
    connections = len(sim.network.streams) / count
    interval_s = city.membership.hello_interval_ms / 1000
    chance = random.Random(seed)
    names = chance.sample(city.names, DEATHS)
    moments_s = [chance.random() * interval_s for _ in names]
    deaths = _known_after(sim, {name: sim.brokers[name].kill for name in names}, moments_s, False)
    returns = _known_after(sim, {name: sim.brokers[name].start for name in names}, moments_s, True)
    joins = [join(sim, f"newcomer{number}", chance) for number in range(JOINS)]
    gc.unfreeze()
    return Size(
        count,
        connections,
        written / IDLE_S / count,
        1000 * cpu_s / IDLE_S / count,
        _percentile(deaths) / interval_s,
        _percentile(returns) / interval_s,
        max(joined.complete_s for joined in joins) / interval_s,
    )


def _known_after(
    sim: SimCity, actions: dict[str, Callable[[], None]], moments_s: list[float], alive: bool
) -> list[float]:
    """Lets something happen to brokers; for each of them and every other, the seconds until that one knew."""
    happened = {name: sim.clock.now + moment_s for name, moment_s in zip(actions, moments_s, strict=True)}
    for (_, action), moment_s in zip(actions.items(), moments_s, strict=True):
        sim.clock.after(moment_s, action)
    observers = [broker for broker in sim.brokers.values() if broker.name not in actions]
    waiting = [(name, observer) for name in actions for observer in observers]
    found: list[float] = []
    while waiting and sim.clock.now - max(happened.values()) < MOST_S:
        sim.run(STEP_S)
        left = [pair for pair in waiting if not _knows(*pair, alive)]
        found += [sim.clock.now - happened[name] for name, _ in set(waiting) - set(left)]
        waiting = left
    return found + [math.inf] * len(waiting)


def _knows(name: str, observer: SimBroker, alive: bool) -> bool:
    return observer.host is not None and observer.host.is_alive(name) is alive


@dataclass(frozen=True, slots=True)
class Joined:
    """Seconds from a newcomer's start; `others_s`: until each of the others knew it, and that its area is its own."""

    others_s: list[float]
    own_s: float  # until it knew the areas of all, and had its links
    reader_s: float  # until its client got a message

    @property
    def complete_s(self) -> float:
        return max(_percentile(self.others_s), self.own_s, self.reader_s)


def join(sim: SimCity, name: str, chance: random.Random) -> Joined:
    """A broker joins at another one and takes an area over, and a client at it wants what is published in another."""
    at, writer_at = chance.sample([broker.name for broker in sim.brokers.values() if broker.running], 2)
    area, topic = chance.sample(sorted(_homes(sim, at)), 2)
    writer = sim.connect(f"writer of {name}", writer_at)
    reader = sim.client(f"reader of {name}")
    others = [broker for broker in sim.brokers.values() if broker.running]
    started = sim.clock.now
    sim.join(name, at, area)
    newcomer = sim.brokers[name]
    known: dict[str, float] = {}
    own_s = reader_s = math.inf
    is_subscribed = False
    reader.connect(name)
    while sim.clock.now - started < MOST_S and (len(known) < len(others) or max(own_s, reader_s) == math.inf):
        sim.run(STEP_S)
        sim.events.clear()
        passed_s = sim.clock.now - started
        known.update((one.name, passed_s) for one in others if one.name not in known and _has_met(one, name, area))
        if own_s == math.inf and _is_at_home(newcomer, sim.brokers[at], area):
            own_s = passed_s
        if reader.is_open and not is_subscribed:
            is_subscribed = True
            reader.subscribe(f"{topic}/#", 1)
        if reader.received and reader_s == math.inf:
            reader_s = passed_s
        writer.publish(f"{topic}/x", str(passed_s), 1)
    missing = [math.inf] * (len(others) - len(known))
    return Joined([*known.values(), *missing], own_s, reader_s)


def _homes(sim: SimCity, at: str) -> Mapping[str, str]:
    host = sim.brokers[at].host
    assert host is not None
    return host.city.homes


def _has_met(observer: SimBroker, name: str, area: str) -> bool:
    host = observer.host
    return host is not None and host.is_alive(name) and host.node.table.owner(area) == name


def _is_at_home(newcomer: SimBroker, other: SimBroker, area: str) -> bool:
    """Whether it knows what the other one does, and has the links that it should have."""
    own, host = newcomer.host, other.host
    if own is None or host is None or own.node.description.epoch != host.node.description.epoch:
        return False
    linked = all(peer in own.links and own.links[peer].up for peer in own.node.neighbours)
    return linked and own.node.table.owner(area) == newcomer.name and _owners(own) == _owners(host)


def _owners(host: Host) -> dict[str, str]:
    return {fact.key: fact.owner for fact in host.node.table.entries()}


def _percentile(values: list[float]) -> float:
    return sorted(values)[math.ceil(len(values) * 0.99) - 1]


def run(figure: str, options: RunOptions) -> Report:
    """`instances` is the number of brokers of the largest city, for those who have less time."""
    sizes = [size for size in SIZES if options.instances is None or size <= options.instances]
    found: list[Size] = []
    for number, size in enumerate(sizes):
        options.progress(number, len(sizes))
        found.append(measure(size, options.seed))
    options.progress(len(sizes), len(sizes))
    series = {name: [(float(one.brokers), value(one)) for one in found] for name, value in CURVES.items()}
    return Report(
        figure,
        series,
        (),
        "brokers",
        "per broker",
        NOTES,
        trends=[*_flat(found), *_in_time(found)],
    )


def _flat(found: list[Size]) -> list[Trend]:
    large = [one for one in found if one.brokers >= 100]
    if len(large) < 2:
        return []
    trends: list[Trend] = []
    for name in COSTS:
        value = CURVES[name]
        ratio = value(large[-1]) / value(large[0])
        rule = f"{large[-1].brokers} brokers cost each at most twice what 100 do"
        trends.append(Trend(name, rule, f"{ratio:.2f} times", ratio <= 2))
    return trends


def _in_time(found: list[Size]) -> list[Trend]:
    worst = (
        max(one.death_intervals for one in found),
        max(one.return_intervals for one in found),
        max(one.join_intervals for one in found),
    )
    return [
        Trend("death", "known to 99 of 100 within 3 hello intervals", f"{worst[0]:.2f}", worst[0] <= 3),
        Trend("return", "known to 99 of 100 within 5 hello intervals", f"{worst[1]:.2f}", worst[1] <= 5),
        Trend("join", "complete within 5 hello intervals", f"{worst[2]:.2f}", worst[2] <= 5),
    ]
