"""The planner for cities where the exact one is too slow: annealing for the plan, message passing for its bound."""

from dataclasses import replace

import numpy as np

from metromq.planning.anneal import anneal
from metromq.planning.arrays import Arrays, Floats, Ints, make_plan, no_plan, price
from metromq.planning.bounds import lower_bound
from metromq.planning.model import Clock, Limits, Plan, Watch, nobody
from metromq.planning.starts import warm_start

SWEEPS = 2_000  # more than any city gets through in its time; small ones stop here
BOUND_ROUNDS = 2_000
BOUND_SHARE = 0.4  # of the time; the rest looks for the plan
SCHEDULE = (0.15, 0.02)  # cooler than for small problems: a good start is worth keeping when each sweep is dear
RESERVE_S = 0.2  # to price the plan and hand it back within the time
FORBIDDEN = 1e9  # a price no path longer than the limit can hide behind


def large(arrays: Arrays, limits: Limits, seed: int, clock: Clock, watch: Watch = nobody) -> Plan:
    """A plan and its bound within the time, whatever the size; the same seed and enough time give the same plan."""
    started = clock()
    end = started + max(limits.seconds - min(RESERVE_S, limits.seconds / 10), 0.0)
    start = warm_start(arrays, clock, started + 0.2 * limits.seconds)
    if start is None:
        text = "no placement was found by greedy with repair: capacity is too short, or try --method optimal"
        return no_plan(arrays, text, clock() - started, "large")
    rng = np.random.default_rng(seed)
    watch("searching", price(arrays, start).objective, None)
    search_end = end - BOUND_SHARE * (end - clock())
    best = _best_worst(
        arrays, anneal(arrays, start, SWEEPS, rng, clock, search_end, schedule=SCHEDULE), rng, clock, search_end
    )
    cost = price(arrays, best).objective
    watch("bounding", cost, None)
    bound = lower_bound(arrays, cost, BOUND_ROUNDS, clock, end, lambda found: watch("bounding", cost, found))
    proven = cost - bound.value <= limits.gap * abs(cost)
    return make_plan(arrays, best, bound.value, "optimal" if proven else "feasible", clock() - started, "large")


def _best_worst(arrays: Arrays, best: Ints, rng: np.random.Generator, clock: Clock, end: float) -> Ints:
    """With a price on the worst path: forbid the longest paths one hop at a time while that pays."""
    while arrays.goal.latency and clock() < end:
        now = price(arrays, best)
        if not now.worst_hops:
            return best
        limit = now.worst_hops - 1
        tighter = replace(arrays, linear=arrays.linear + FORBIDDEN * (arrays.reach > limit))
        far: Floats = np.where(arrays.hops > limit, FORBIDDEN, 0.0)
        found = anneal(tighter, best, SWEEPS, rng, clock, end, far)
        if price(arrays, found).objective >= now.objective:
            return best
        best = found
    return best
