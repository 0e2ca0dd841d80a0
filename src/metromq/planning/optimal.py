"""The exact planner: HiGHS on one thread, warm-started, with a time limit that still returns a plan and its gap."""

from dataclasses import dataclass

import numpy as np

from metromq.planning import programs
from metromq.planning.anneal import anneal
from metromq.planning.arrays import Arrays, Ints, make_plan, no_plan, plain_shortage, price
from metromq.planning.baselines import simple_bound
from metromq.planning.bounds import lower_bound
from metromq.planning.branch import Tree
from metromq.planning.fitting import pack
from metromq.planning.homing import stay_home
from metromq.planning.long_anneal import COMPILED
from metromq.planning.long_runs import LongRuns
from metromq.planning.model import INFEASIBLE, NOT_FOUND, Clock, Limits, Plan, Watch, nobody
from metromq.planning.programs import Formulation
from metromq.planning.proving import Bounding
from metromq.planning.set_prices import sets_bound
from metromq.planning.solver import Solved, solve_program
from metromq.planning.starts import warm_start
from metromq.planning.timing import Deadline, Helpers

BOUND_ROUNDS = 150  # enough to rule devices out; the program itself finds the rest of the bound
SWEEPS = 60  # of annealing before the program: a good start closes most of the tree
SEED = 1  # of that annealing: the same problem gets the same plan
FAR = 0.05  # a bound by pairs farther than this from the plan is worth a bound by sets
SETS_FROM = 400  # containers times devices; smaller problems are solved by the tree before sets say much
SETS_MOST = 300  # containers; beyond, a round takes minutes
SETS_PART, MORE_PART = 0.98, 0.25  # of the time left, for the bound by sets and for more annealing before it


@dataclass(frozen=True, slots=True)
class Parts:
    """Which of its own parts the exact planner uses; `python -m bench planner` measures what each is worth."""

    anneal: bool = True
    tree: bool = True  # else the solver's own search
    lists: bool = True  # at the nodes of the tree
    sets: bool = True  # a bound by sets of containers where that by pairs is far away


ALL_PARTS = Parts()
NO_PARTS = Parts(anneal=False, tree=False, lists=False, sets=False)


def optimal(
    arrays: Arrays,
    limits: Limits,
    clock: Clock,
    watch: Watch = nobody,
    time: Deadline | None = None,
    parts: Parts = ALL_PARTS,
    helpers: Helpers | None = None,
) -> Plan:
    """The tight program, warm-started from greedy and local search."""
    started = clock()
    time = time or Deadline.after(limits.seconds, clock)
    start, _ = warm_start(arrays, time.share(0.1))
    if start is None and arrays.count:
        packing = pack(arrays, time.share(0.25))
        if packing.impossible:
            return no_plan(arrays, INFEASIBLE, packing.reason, clock() - started, "optimal")
        start = packing.where
    if start is not None and arrays.count:
        if parts.anneal:
            start, _ = anneal(arrays, start, SWEEPS, np.random.default_rng(SEED), time.share(0.25))
        start = stay_home(arrays, start, time)
        time.keep(arrays, start)
        watch("proving", price(arrays, start).objective, None)
    return _solve(arrays, tight_form(arrays), start, limits, time, started, "optimal", watch, parts, helpers)


def tight_form(arrays: Arrays) -> Formulation:
    """Transports as flows where the links are few, by pairs of devices where they are many or hops are not paths."""
    arcs = int((arrays.hops == 1).sum())
    few = 2 * arcs < len(arrays.capacity) ** 2
    return programs.flow if few and programs.links_carry_hops(arrays) else programs.tight


def optimal_cold(arrays: Arrays, limits: Limits, clock: Clock) -> Plan:
    """The tight program without start and bound, to compare formulations alone."""
    time = Deadline.after(limits.seconds, clock)
    return _solve(arrays, tight_form(arrays), None, limits, time, clock(), "optimal-cold")


def optimal_paper(arrays: Arrays, limits: Limits, clock: Clock, time: Deadline | None = None) -> Plan:
    """The paper's own program, cold, as a point of comparison."""
    time = time or Deadline.after(limits.seconds, clock)
    return _solve(arrays, programs.paper, None, limits, time, clock(), "optimal-paper")


def fits_at_all(arrays: Arrays, limits: Limits, clock: Clock) -> bool:
    """Whether a placement that fits was found: by repairing greedy's, or where that gets stuck, by packing."""
    time = Deadline.after(limits.seconds, clock)
    return warm_start(arrays, time, passes=0)[0] is not None or pack(arrays, time).where is not None


def _solve(
    arrays: Arrays,
    form: Formulation,
    start: Ints | None,
    limits: Limits,
    time: Deadline,
    started: float,
    method: str,
    watch: Watch = nobody,
    parts: Parts = NO_PARTS,
    helpers: Helpers | None = None,
) -> Plan:
    clock = time.clock
    if not arrays.count:
        return make_plan(arrays, np.zeros(0, dtype=np.int64), 0.0, "optimal", clock() - started, method)
    short = plain_shortage(arrays)
    if short:
        return no_plan(arrays, INFEASIBLE, short, clock() - started, method)
    allowed = arrays.load[:, None] <= arrays.capacity[None, :]
    floor = simple_bound(arrays)
    if start is not None:
        cost = price(arrays, start).objective
        known = lower_bound(arrays, cost, BOUND_ROUNDS, time.share(0.5))
        floor, allowed = known.value, known.allowed
        time.job.raise_bound(floor)
        sized = arrays.linear.size >= SETS_FROM and arrays.count <= SETS_MOST
        if parts.sets and sized and cost - floor > max(FAR, limits.gap) * abs(cost):
            start, floor = _by_sets(arrays, start, floor, limits, time, watch, helpers)
            cost = price(arrays, start).objective
        if cost - floor <= limits.gap * abs(cost):
            return make_plan(arrays, start, floor, "optimal", clock() - started, method)
    rest = Limits(max(limits.seconds - (clock() - started), 0.01), limits.gap)
    program = form(arrays, allowed)
    if parts.tree:
        found = Tree(arrays, program, start, rest, watch, parts.lists).run(time, floor)
        solved = Solved(found.where, found.bound, found.finished, found.finished and found.where is None)
    else:
        solved = solve_program(program, start, rest, watch, time)
    if solved.impossible and start is None:
        return _nothing(arrays, time, clock() - started, method)
    fitting = [where for where in (solved.where, start) if where is not None and price(arrays, where).fits]
    if not fitting:
        text = f"no placement was found in {limits.seconds:g} s, nor proven impossible; give more time"
        return no_plan(arrays, NOT_FOUND, text, clock() - started, method)
    where = stay_home(arrays, min(fitting, key=lambda where: price(arrays, where).objective), time)
    status = "optimal" if solved.proven else "interrupted" if time.job.stopped else "time-limit"
    return make_plan(arrays, where, max(solved.bound, floor), status, clock() - started, method)


def _by_sets(
    arrays: Arrays,
    start: Ints,
    floor: float,
    limits: Limits,
    time: Deadline,
    watch: Watch,
    helpers: Helpers | None,
) -> tuple[Ints, float]:
    """Where the tree would take days: a longer search for the plan, and the bound by sets; helpers do both at once."""
    runs = None if arrays.goal.latency else LongRuns(arrays, start, time.share(MORE_PART), helpers)
    both = COMPILED and bool(len(arrays.pair_price))
    if runs is not None and (helpers is None or not both):
        start = _longer(arrays, runs, time)
    cost = price(arrays, start).objective

    def tell(found: float) -> None:
        time.job.raise_bound(found)
        watch("bounding", cost, max(found, floor))

    if not both:
        enough = cost - limits.gap * abs(cost)
        return start, max(floor, sets_bound(arrays, start, enough, time.share(SETS_PART), tell))
    bounding = Bounding(arrays, start, cost, time.share(SETS_PART), helpers)
    bounding.climb()
    if runs is not None and helpers is not None:
        start = _longer(arrays, runs, time)
        cost = price(arrays, start).objective
    return start, max(floor, bounding.prove(cost - limits.gap * abs(cost), tell))


def _longer(arrays: Arrays, runs: LongRuns, time: Deadline) -> Ints:
    start = stay_home(arrays, runs.best(), time)
    time.keep(arrays, start)
    return start


def _nothing(arrays: Arrays, time: Deadline, seconds: float, method: str) -> Plan:
    """The program has no solution; the packing with the least overload says where it hurts."""
    packing = pack(arrays, time)
    reason = packing.reason if packing.impossible else "no placement fits, as the program has shown"
    return no_plan(arrays, INFEASIBLE, reason, seconds, method)
