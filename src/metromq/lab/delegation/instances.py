"""Random placement problems with the paper's printed parameters, and choices for those it leaves open.

Printed (Table 3): capacity 20,000-40,000, 10 workload/Mbps for brokers, 1-50 for services, 0.13-0.25 mW/workload,
10 Gbps links in a partially connected mesh. Open: the ranges of traffic, the density of the mesh, in which order
greedy and random take containers. One printed number is changed: at 0.0137 mW/Mbps a hop costs a hundredth of what a
broker spends on the same Mbps, so where containers run would hardly matter; savings as published appear at 100 to
1,000 times that price. CHOSEN is what `metromq lab run delegation/sweep` found to fit best, and the figures use it;
the defaults of Family, with 0.0137 W/Mbps, are those of the bench.
"""

from dataclasses import dataclass, replace

import numpy as np

from metromq.planning import Device, Problem, Service, Topic, compile_arrays

PRINTED_MW_PER_MBPS = 0.0137
BROKER_WORKLOAD_PER_MBPS = 10.0
CAPACITY = (20_000.0, 40_000.0)
SERVICE_WORKLOAD_PER_MBPS = (1.0, 50.0)
MW_PER_WORKLOAD = (0.13, 0.25)


@dataclass(frozen=True, slots=True)
class Family:
    """How instances are drawn; every traffic is uniform between 0 and the given Mbps."""

    devices: int = 6
    topics: int = 10
    services: int = 6
    utilisation: float = 0.2  # the share of topics that a service uses, on average; with few topics some use none
    network_mw_per_mbps: float = 1000 * PRINTED_MW_PER_MBPS
    client_mbps: float = 80.0  # tau
    user_mbps: float = 80.0  # dsd
    topic_mbps: float = 200.0  # dst
    spread: float = 1.0  # the share of devices that have clients of a topic or users of a service
    density: float = 0.15  # the share of further links beside a random spanning tree
    workload_ratio: float | None = None  # all workload by all capacity, reached by scaling capacities; None: as drawn
    greedy_by_kind: bool = False  # greedy sorts brokers and services each by themselves
    random_shuffled: bool = False  # random takes containers in random order, not brokers first


CHOSEN = Family(
    client_mbps=100.0,
    user_mbps=55.0,
    topic_mbps=200.0,
    network_mw_per_mbps=300 * PRINTED_MW_PER_MBPS,
    greedy_by_kind=True,
    random_shuffled=True,
)


def draw(family: Family, rng: np.random.Generator) -> Problem:
    """One instance; the same state of `rng` gives the same."""
    names = tuple(f"d{i}" for i in range(family.devices))
    capacity = rng.uniform(*CAPACITY, family.devices)
    efficiency = rng.uniform(*MW_PER_WORKLOAD, family.devices)
    topics = tuple(Topic(f"t{i}", _clients(family, family.client_mbps, names, rng)) for i in range(family.topics))
    problem = Problem(
        broker_workload_per_mbps=BROKER_WORKLOAD_PER_MBPS,
        network_mw_per_mbps=family.network_mw_per_mbps,
        devices=tuple(Device(n, float(c), float(e)) for n, c, e in zip(names, capacity, efficiency, strict=True)),
        hops=mesh(family.devices, family.density, rng),
        topics=topics,
        services=tuple(_service(f"s{i}", family, names, rng) for i in range(family.services)),
    )
    return problem if family.workload_ratio is None else scaled(problem, family.workload_ratio)


def scaled(problem: Problem, workload_ratio: float) -> Problem:
    """Capacities by one common factor, so that all workload takes this share of them."""
    capacity = sum(device.capacity_workload for device in problem.devices)
    factor = float(compile_arrays(problem).load.sum()) / workload_ratio / capacity
    devices = tuple(replace(d, capacity_workload=d.capacity_workload * factor) for d in problem.devices)
    return replace(problem, devices=devices)


def _clients(family: Family, most: float, names: tuple[str, ...], rng: np.random.Generator) -> dict[str, float]:
    here = rng.random(len(names)) < family.spread
    if not here.any():
        here[rng.integers(len(names))] = True
    return {names[d]: float(rng.uniform(0, most)) for d in np.flatnonzero(here)}


def _service(name: str, family: Family, names: tuple[str, ...], rng: np.random.Generator) -> Service:
    used = np.flatnonzero(rng.random(family.topics) < family.utilisation)
    mqtt, user = rng.uniform(*SERVICE_WORKLOAD_PER_MBPS, 2)
    topics = {f"t{t}": float(rng.uniform(0, family.topic_mbps)) for t in used}
    return Service(name, float(mqtt), float(user), topics, _clients(family, family.user_mbps, names, rng))


def mesh(devices: int, density: float, rng: np.random.Generator) -> tuple[tuple[int, ...], ...]:
    """Hops of a partially connected mesh: a random spanning tree, and each other link with the given probability."""
    linked = np.triu(rng.random((devices, devices)) < density, 1)
    order = rng.permutation(devices)
    for n in range(1, devices):
        linked[order[n], order[rng.integers(n)]] = True
    hops = np.where(linked | linked.T, 1.0, np.inf)
    np.fill_diagonal(hops, 0.0)
    for k in range(devices):
        hops = np.minimum(hops, hops[:, k, None] + hops[None, k, :])
    return tuple(tuple(int(h) for h in row) for row in hops)
