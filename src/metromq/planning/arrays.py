"""The problem as arrays: containers are numbered, topics first, and every price is a matrix that solvers index.

The whole objective is `sum_i linear[i, x_i] + sum_e pair_price[e] * hops[x_a(e), x_b(e)]`, plus the worst-path term:
a quadratic semi-assignment with capacities.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from metromq.planning.model import Goal, Placement, Plan, Problem

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

ROOM = 1e-9  # relative slack of a capacity, so that a device filled to the brim is not refused for rounding


@dataclass(frozen=True, slots=True)
class Arrays:
    """One problem with one goal, ready for numbers. `neighbours[i]` lists (edge, other container) of container i."""

    problem: Problem
    goal: Goal
    load: Floats  # workload per container
    capacity: Floats  # per device, with the rounding slack already added
    power: Floats  # [container, device] mW, without pairs
    traffic: Floats  # [container, device] Mbps x hops to its clients
    reach: Ints  # [container, device] hops to its farthest client
    linear: Floats  # [container, device] price, without pairs
    hops: Floats
    edge_topic: Ints  # container number of the topic of each pair with traffic
    edge_service: Ints
    edge_mbps: Floats
    pair_price: Floats  # price of one hop for the pair
    present: Ints  # device number, -1 for new containers
    neighbours: tuple[tuple[Ints, Ints], ...]

    @property
    def count(self) -> int:
        return len(self.load)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"topic {t.name}" for t in self.problem.topics) + tuple(
            f"service {s.name}" for s in self.problem.services
        )


@dataclass(frozen=True, slots=True)
class Price:
    """What a placement costs, in all the units a goal may weigh."""

    power_mw: float
    network_mbps: float
    worst_hops: int
    moves: int
    objective: float
    load: Floats
    fits: bool


def compile_arrays(problem: Problem, goal: Goal | None = None) -> Arrays:
    """Turns names into numbers once, so that no solver looks a name up."""
    goal = goal or Goal()
    index = {device.name: i for i, device in enumerate(problem.devices)}
    count, width = len(problem.topics) + len(problem.services), len(problem.devices)
    client = np.zeros((count, width))
    load = np.zeros(count)
    edges: list[tuple[int, int, float]] = []
    topic_index = {topic.name: i for i, topic in enumerate(problem.topics)}
    for i, topic in enumerate(problem.topics):
        for name, mbps in topic.client_mbps.items():
            client[i, index[name]] = mbps
    used = np.zeros(len(problem.topics))
    for i, service in enumerate(problem.services, start=len(problem.topics)):
        for name, mbps in service.user_mbps.items():
            client[i, index[name]] = mbps
        for name, mbps in service.topic_mbps.items():
            used[topic_index[name]] += mbps
            if mbps > 0:
                edges.append((topic_index[name], i, mbps))
        mqtt = sum(service.topic_mbps.values()) + service.cloud_mbps
        load[i] = service.mqtt_workload_per_mbps * mqtt + service.user_workload_per_mbps * client[i].sum()
    topics = len(problem.topics)
    load[:topics] = problem.broker_workload_per_mbps * (client[:topics].sum(axis=1) + used)
    return _priced(problem, goal, load, client, edges)


def _priced(problem: Problem, goal: Goal, load: Floats, client: Floats, edges: list[tuple[int, int, float]]) -> Arrays:
    hops = np.array(problem.hops, dtype=np.float64)
    traffic = client @ hops
    reach = np.array([hops[row > 0].max(axis=0, initial=0) for row in client]).reshape(client.shape).astype(np.int64)
    efficiency = np.array([device.mw_per_workload for device in problem.devices])
    power = load[:, None] * efficiency[None, :] + problem.network_mw_per_mbps * traffic
    present = _numbers(problem, goal.present)
    linear = goal.power * power + goal.traffic * traffic
    if goal.move:
        moved = (present[:, None] >= 0) & (present[:, None] != np.arange(len(problem.devices))[None, :])
        linear = linear + goal.move * moved
    mbps = np.array([m for _, _, m in edges], dtype=np.float64)
    first = np.array([t for t, _, _ in edges], dtype=np.int64)
    second = np.array([s for _, s, _ in edges], dtype=np.int64)
    capacity = np.array([device.capacity_workload for device in problem.devices]) * (1 + ROOM)
    return Arrays(
        problem=problem,
        goal=goal,
        load=load,
        capacity=capacity,
        power=power,
        traffic=traffic,
        reach=reach,
        linear=linear,
        hops=hops,
        edge_topic=first,
        edge_service=second,
        edge_mbps=mbps,
        pair_price=(goal.power * problem.network_mw_per_mbps + goal.traffic) * mbps,
        present=present,
        neighbours=_neighbours(len(load), first, second),
    )


def _neighbours(count: int, first: Ints, second: Ints) -> tuple[tuple[Ints, Ints], ...]:
    rows: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for e, (a, b) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        rows[a].append((e, b))
        rows[b].append((e, a))
    return tuple(
        (np.array([e for e, _ in row], dtype=np.int64), np.array([other for _, other in row], dtype=np.int64))
        for row in rows
    )


def _numbers(problem: Problem, placement: Placement | None) -> Ints:
    index = {device.name: i for i, device in enumerate(problem.devices)}
    where = placement or Placement({}, {})
    topics = [index.get(where.topics.get(topic.name, ""), -1) for topic in problem.topics]
    services = [index.get(where.services.get(service.name, ""), -1) for service in problem.services]
    return np.array(topics + services, dtype=np.int64)


def place_numbers(problem: Problem, placement: Placement) -> Ints:
    """A placement by name as device numbers; -1 where it names no known device."""
    return _numbers(problem, placement)


def place_names(problem: Problem, where: Ints) -> Placement:
    """Device numbers as a placement by name."""
    names = [problem.devices[d].name for d in where.tolist()]
    topics = len(problem.topics)
    return Placement(
        {topic.name: device for topic, device in zip(problem.topics, names[:topics], strict=True)},
        {service.name: device for service, device in zip(problem.services, names[topics:], strict=True)},
    )


def price(arrays: Arrays, where: Ints) -> Price:
    """Prices a whole placement from scratch: the reference that every incremental price must agree with."""
    every = np.arange(arrays.count)
    apart = arrays.hops[where[arrays.edge_topic], where[arrays.edge_service]]
    network = float(arrays.traffic[every, where].sum() + (arrays.edge_mbps * apart).sum())
    carried = float((arrays.edge_mbps * apart).sum()) * arrays.problem.network_mw_per_mbps
    power = float(arrays.power[every, where].sum()) + carried
    load = np.bincount(where, weights=arrays.load, minlength=len(arrays.capacity)).astype(np.float64)
    worst = int(max(arrays.reach[every, where].max(initial=0), apart.max(initial=0)))
    moves = int(((arrays.present >= 0) & (arrays.present != where)).sum())
    total = float(arrays.linear[every, where].sum() + (arrays.pair_price * apart).sum())
    limit = arrays.goal.max_moves
    fits = bool((load <= arrays.capacity).all()) and (limit is None or moves <= limit)
    return Price(power, network, worst, moves, total + arrays.goal.latency * worst, load, fits)


def make_plan(arrays: Arrays, where: Ints, bound: float, status: str, seconds: float, method: str) -> Plan:
    """A priced plan; the bound never exceeds the price, whatever a solver's tolerance says."""
    cost = price(arrays, where)
    bound = float(min(bound, cost.objective))  # solvers hand over numpy numbers, whose comparisons JSON refuses
    gap = (cost.objective - bound) / abs(cost.objective) if cost.objective else 0.0
    return Plan(
        placement=place_names(arrays.problem, where),
        power_mw=cost.power_mw,
        bound_mw=bound,
        gap=gap,
        network_mbps=cost.network_mbps,
        load={d.name: float(x) for d, x in zip(arrays.problem.devices, cost.load, strict=True)},
        status=status,
        seconds=seconds,
        objective=cost.objective,
        worst_hops=cost.worst_hops,
        moves=cost.moves,
        method=method,
    )


def no_plan(arrays: Arrays, status: str, shortage: str, seconds: float, method: str) -> Plan:
    """The answer without a placement, as proven or only not found; prices are NaN, and `shortage` says why."""
    nothing = float("nan")
    return Plan(
        Placement({}, {}),
        nothing,
        nothing,
        nothing,
        nothing,
        {},
        status,
        seconds,
        objective=nothing,
        shortage=shortage,
        method=method,
    )


def plain_shortage(arrays: Arrays) -> str:
    """What adding up shows: a container that fits nowhere, or too much in all; else nothing."""
    if not arrays.count:
        return ""
    largest = int(np.argmax(arrays.capacity))
    device = arrays.problem.devices[largest]
    i = int(np.argmax(arrays.load))
    short = arrays.load[i] - arrays.capacity[largest]
    if short > 0:
        return (
            f"{arrays.names[i]} needs {arrays.load[i]:,.0f} workload, but the largest capacity is "
            f"{device.capacity_workload:,.0f} ({device.name}): short by {short:,.0f}"
        )
    total, need = arrays.capacity.sum(), arrays.load.sum()
    if need > total:
        return f"all containers need {need:,.0f} workload, all devices have {total:,.0f}: short by {need - total:,.0f}"
    return ""
