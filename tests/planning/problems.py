"""Small problems for Hypothesis, and the slow twin of every planner: all placements, one by one."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from metromq.planning.arrays import Arrays, Price, price
from metromq.planning.model import Device, Problem, Service, Topic
from metromq.planning.problem_files import hops_of_links

MBPS = st.sampled_from([0.0, 1.0, 2.5, 4.0, 7.0])
NETWORK = st.sampled_from([0.0, 0.0137, 1.0, 20.0])


def clock() -> Callable[[], float]:
    """A clock that never runs out: planners stop by themselves."""
    return lambda: 0.0


def ticking(step_s: float = 0.01) -> Callable[[], float]:
    """A clock that goes on with every look at it: the same end on every machine."""
    ticks = itertools.count()
    return lambda: next(ticks) * step_s


@st.composite
def problems(draw: st.DrawFn, most_containers: int = 6) -> Problem:
    """Two to four devices and a handful of containers; capacities from too short to plenty."""
    names = tuple(f"d{i}" for i in range(draw(st.integers(2, 4))))
    links = [(names[i], names[draw(st.integers(0, i - 1))]) for i in range(1, len(names))]
    count = draw(st.integers(1, most_containers))
    brokers = draw(st.integers(0, count))
    rates = st.dictionaries(st.sampled_from(names), MBPS, max_size=len(names))
    topics = tuple(Topic(f"t{i}", draw(rates)) for i in range(brokers))
    used = st.dictionaries(st.sampled_from([t.name for t in topics] or ["-"]), MBPS, max_size=3)
    services = tuple(
        Service(
            f"s{i}",
            draw(st.sampled_from([1.0, 10.0, 30.0])),
            draw(st.sampled_from([1.0, 10.0, 30.0])),
            draw(used) if topics else {},
            draw(rates),
        )
        for i in range(count - brokers)
    )
    size = st.sampled_from([50.0, 100.0, 200.0, 400.0, 1000.0])
    devices = tuple(Device(name, draw(size), draw(st.sampled_from([0.13, 0.2, 0.25]))) for name in names)
    return Problem(10.0, draw(NETWORK), devices, hops_of_links(links, names), topics, services)


def brute_force(arrays: Arrays) -> Price | None:
    """The cheapest placement that fits, by trying all of them."""
    best: Price | None = None
    for places in itertools.product(range(len(arrays.capacity)), repeat=arrays.count):
        cost = price(arrays, np.array(places, dtype=np.int64))
        if cost.fits and (best is None or cost.objective < best.objective):
            best = cost
    return best


def document() -> dict[str, Any]:
    """A valid placement file, fresh for every change."""
    return {
        "broker_workload_per_mbps": 10,
        "network_mw_per_mbps": 1.5,
        "devices": [
            {"name": "mast", "capacity_workload": 400, "mw_per_workload": 0.2},
            {"name": "kiosk", "capacity_workload": 300, "mw_per_workload": 0.13},
            {"name": "depot", "capacity_workload": 500, "mw_per_workload": 0.25},
        ],
        "links": [["mast", "kiosk"], ["kiosk", "depot"]],
        "topics": [
            {"name": "air", "client_mbps": {"mast": 6, "depot": 2}},
            {"name": "noise", "client_mbps": {"kiosk": 3}},
        ],
        "services": [
            {
                "name": "map",
                "mqtt_workload_per_mbps": 20,
                "user_workload_per_mbps": 5,
                "topic_mbps": {"air": 4, "noise": 2},
                "user_mbps": {"depot": 8},
            }
        ],
    }
