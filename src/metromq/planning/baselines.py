"""The paper's baselines: greedy (largest workload first, cheapest device with room) and random (any with room)."""

import numpy as np

from metromq.planning.arrays import Arrays, Ints, make_plan, no_plan, plain_shortage
from metromq.planning.model import INFEASIBLE, NOT_FOUND, Clock, Plan


def greedy_places(arrays: Arrays, sees_placed: bool = False, by_kind: bool = False) -> tuple[Ints, int]:
    """Device numbers, and the container that found no room or -1.

    The paper's greedy places "without considering interdependencies between MQTT broker and IoT service containers":
    it sees the device's own power and the clients' traffic. With `sees_placed` it also counts the traffic to containers
    that are placed already, which makes better starts. It "sorts distributed MQTT brokers and service containers in
    order of required workload": all of them together, or with `by_kind` brokers by themselves, then services.
    """
    where = np.full(arrays.count, -1, dtype=np.int64)
    free = arrays.capacity.copy()
    is_service = np.arange(arrays.count) >= len(arrays.problem.topics)
    order = np.lexsort((-arrays.load, is_service & by_kind))  # stable: of equals the first one listed
    for i in order.tolist():
        cost = arrays.linear[i].copy()
        if sees_placed:
            edges, others = arrays.neighbours[i]
            placed = where[others] >= 0
            cost += arrays.hops[:, where[others[placed]]] @ arrays.pair_price[edges[placed]]
        cost[free < arrays.load[i]] = np.inf
        best = int(np.argmin(cost))
        if not np.isfinite(cost[best]):
            return where, i
        where[i] = best
        free[best] -= arrays.load[i]
    return where, -1


def random_places(arrays: Arrays, rng: np.random.Generator, shuffled: bool = False) -> tuple[Ints, int]:
    """Brokers, then services, or all in random order, each on a uniformly drawn device of those with room."""
    where = np.full(arrays.count, -1, dtype=np.int64)
    free = arrays.capacity.copy()
    order = rng.permutation(arrays.count) if shuffled else np.arange(arrays.count)
    for i in order.tolist():
        room = np.flatnonzero(free >= arrays.load[i])
        if not len(room):
            return where, i
        where[i] = rng.choice(room)
        free[where[i]] -= arrays.load[i]
    return where, -1


def greedy(arrays: Arrays, clock: Clock, by_kind: bool = False) -> Plan:
    """The paper's greedy as a plan, in either reading of its order."""
    started = clock()
    where, stuck = greedy_places(arrays, by_kind=by_kind)
    return _plan(arrays, where, stuck, clock() - started, "greedy-by-kind" if by_kind else "greedy")


def random(arrays: Arrays, rng: np.random.Generator, clock: Clock) -> Plan:
    """The paper's random placement as a plan."""
    started = clock()
    where, stuck = random_places(arrays, rng)
    return _plan(arrays, where, stuck, clock() - started, "random")


def _plan(arrays: Arrays, where: Ints, stuck: int, seconds: float, method: str) -> Plan:
    if stuck < 0:
        return make_plan(arrays, where, simple_bound(arrays), "feasible", seconds, method)
    certain = plain_shortage(arrays)
    if certain:
        return no_plan(arrays, INFEASIBLE, certain, seconds, method)
    placed = where >= 0
    used = np.bincount(where[placed], weights=arrays.load[placed], minlength=len(arrays.capacity))
    room = arrays.capacity - used
    best = int(np.argmax(room))
    short = arrays.load[stuck] - room[best]
    text = (
        f"{method} found no device for {arrays.names[stuck]}: it needs {arrays.load[stuck]:,.0f} workload, the most "
        f"room is {room[best]:,.0f} on {arrays.problem.devices[best].name}, short by {short:,.0f}; others may fit"
    )
    return no_plan(arrays, NOT_FOUND, text, seconds, method)


def simple_bound(arrays: Arrays) -> float:
    """Every container on its own cheapest device, no traffic between containers: cheap, and never too high."""
    return float(arrays.linear.min(axis=1).sum())
