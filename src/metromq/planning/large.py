"""The planner for cities where the exact one is too slow: annealing for the plan, message passing for its bound.

How much is searched is planned in steps, by the size of the problem and the time limit, before the first step: the
same seed gives the same plan on a slow machine and on a fast one. The clock only ends what would be late, and the
status says so.
"""

from dataclasses import replace

import numpy as np

from metromq.planning.anneal import anneal
from metromq.planning.arrays import Arrays, Floats, Ints, make_plan, no_plan, price
from metromq.planning.bounds import lower_bound
from metromq.planning.fitting import pack
from metromq.planning.homing import stay_home
from metromq.planning.model import INFEASIBLE, NOT_FOUND, Clock, Limits, Plan, Watch, nobody
from metromq.planning.starts import warm_start
from metromq.planning.timing import Deadline

SWEEPS = 2_000  # more than any city gets through in its time; small ones stop here
BOUND_ROUNDS = 2_000
SCHEDULE = (0.15, 0.02)  # cooler than for small problems: a good start is worth keeping when each sweep is dear
RESERVE_S, RESERVE_PART = 0.3, 0.02  # at least, to price the plan and hand it back within the time
FORBIDDEN = 1e9  # a price no path longer than the limit can hide behind

# What a sweep takes on a slow machine with nothing else to do, for planning only: a part for itself, one per step, and
# one per number that a step changes. A machine that needs twice as long still ends in time.
SWEEP_S = 1e-3
STEP_S = 60e-6
NUMBER_S = 1.5e-9
START_PART, SEARCH_PART = 0.05, 0.2  # of the time limit, as planned
START_AT_MOST, SEARCH_AT_MOST = 0.25, 0.5  # of what is left, as enforced


def planned_sweeps(arrays: Arrays, seconds: float) -> int:
    """How many passes over all containers fit into the time, by estimate."""
    changed = 2 * len(arrays.pair_price) / max(arrays.count, 1) * len(arrays.capacity)
    return max(1, int(seconds / (SWEEP_S + arrays.count * (STEP_S + NUMBER_S * changed))))


def large(
    arrays: Arrays, limits: Limits, seed: int, clock: Clock, watch: Watch = nobody, time: Deadline | None = None
) -> Plan:
    """A plan and its bound within the time, whatever the size; `time` is given where it has begun to run before."""
    started = clock()
    reserve = min(max(RESERVE_S, RESERVE_PART * limits.seconds), limits.seconds / 10)
    time = (time or Deadline.after(limits.seconds, clock)).earlier(reserve)
    passes = planned_sweeps(arrays, START_PART * limits.seconds)
    start, finished = warm_start(arrays, time.share(START_AT_MOST), passes)
    if start is None:
        packing = pack(arrays, time.share(SEARCH_AT_MOST))
        if packing.where is None:
            status = INFEASIBLE if packing.impossible else NOT_FOUND
            return no_plan(arrays, status, packing.reason, clock() - started, "large")
        start = packing.where
        time.keep(arrays, start)
    rng = np.random.default_rng(seed)
    watch("searching", price(arrays, start).objective, None)
    sweeps = min(SWEEPS, planned_sweeps(arrays, SEARCH_PART * limits.seconds))
    search_time = time.share(SEARCH_AT_MOST)
    best, ended = anneal(arrays, start, sweeps, rng, search_time, schedule=SCHEDULE, passes=passes)
    finished &= ended
    best, ended = _best_worst(arrays, best, sweeps, rng, search_time, passes)
    finished &= ended
    best = stay_home(arrays, best, time)
    time.keep(arrays, best)
    cost = price(arrays, best).objective
    watch("bounding", cost, None)

    def tell(found: float) -> None:
        time.job.raise_bound(found)
        watch("bounding", cost, found)

    bound = lower_bound(arrays, cost, BOUND_ROUNDS, time, tell)
    proven = cost - bound.value <= limits.gap * abs(cost)
    status = "optimal" if proven else "interrupted" if time.job.stopped else "feasible" if finished else "time-limit"
    return make_plan(arrays, best, bound.value, status, clock() - started, "large")


def _best_worst(
    arrays: Arrays, best: Ints, sweeps: int, rng: np.random.Generator, time: Deadline, passes: int
) -> tuple[Ints, bool]:
    """With a price on the worst path: forbid the longest paths one hop at a time while that pays."""
    finished = True
    while arrays.goal.latency:
        now = price(arrays, best)
        if not now.worst_hops or not finished:
            break
        limit = now.worst_hops - 1
        tighter = replace(arrays, linear=arrays.linear + FORBIDDEN * (arrays.reach > limit))
        far: Floats = np.where(arrays.hops > limit, FORBIDDEN, 0.0)
        found, finished = anneal(tighter, best, sweeps, rng, time, far, passes=passes)
        if price(arrays, found).objective >= now.objective:
            break
        best = found
    return best, finished
