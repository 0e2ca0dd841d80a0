"""What a broker costs in cities of 16 to 5,000, and how soon all know of a death and of a return.

Every city is run with the product's own hosts under the virtual clock. Nobody publishes, so what is counted is the
price of being a city. Then brokers are killed, one after the other, and started again.
"""

import gc
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from metromq.federation import City, grid_city
from metromq.lab.report import Report, RunOptions, Trend
from metromq.lab.sim.sim_broker import SimBroker
from metromq.lab.sim.sim_city import SimCity

SIZES: Final = (16, 100, 1000, 5000)
WARM_UP_S: Final = 4.0
IDLE_S: Final = 2.0
DEATHS: Final = 4
STEP_S: Final = 0.02
MOST_S: Final = 6.0  # to wait for somebody's knowledge
NOTES: Final = (
    "Whole simulated brokers, links of 2 ms, hello_interval_ms = 500, routing = geographic, clusters of about four.",
    "Connections: open streams at a broker, in and out. Bytes: what it writes to peers in a second in which nothing "
    "happens. CPU: of the machine that runs the simulation, per broker and second, its network included.",
    f"Death and return: of {DEATHS} brokers, killed and started at any moment; after so long 99 of 100 others knew.",
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


CURVES: Final[dict[str, Callable[[Size], float]]] = {
    "connections": lambda one: one.connections,
    "bytes per second": lambda one: one.bytes_per_s,
    "CPU ms per second": lambda one: one.cpu_ms_per_s,
    "death, hello intervals": lambda one: one.death_intervals,
    "return, hello intervals": lambda one: one.return_intervals,
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
    gc.unfreeze()
    return Size(
        count,
        connections,
        written / IDLE_S / count,
        1000 * cpu_s / IDLE_S / count,
        _percentile(deaths) / interval_s,
        _percentile(returns) / interval_s,
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
    worst = max(one.death_intervals for one in found), max(one.return_intervals for one in found)
    return [
        Trend("death", "known to 99 of 100 within 3 hello intervals", f"{worst[0]:.2f}", worst[0] <= 3),
        Trend("return", "known to 99 of 100 within 5 hello intervals", f"{worst[1]:.2f}", worst[1] <= 5),
    ]
