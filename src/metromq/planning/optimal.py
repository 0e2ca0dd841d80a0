"""The exact planner: HiGHS on one thread, warm-started, with a time limit that still returns a plan and its gap."""

import numpy as np

from metromq.planning import programs
from metromq.planning.anneal import anneal
from metromq.planning.arrays import Arrays, Ints, make_plan, no_plan, price
from metromq.planning.baselines import simple_bound
from metromq.planning.bounds import lower_bound
from metromq.planning.branch import Tree
from metromq.planning.model import Clock, Limits, Plan, Watch, nobody
from metromq.planning.programs import Formulation
from metromq.planning.solver import Solved, solve_program
from metromq.planning.starts import warm_start

BOUND_ROUNDS = 150  # enough to rule devices out; the program itself finds the rest of the bound
SWEEPS = 60  # of annealing before the program: a good start closes most of the tree
SEED = 1  # of that annealing: the same problem gets the same plan


def optimal(arrays: Arrays, limits: Limits, clock: Clock, watch: Watch = nobody) -> Plan:
    """The tight program, warm-started from greedy and local search."""
    started = clock()
    start = warm_start(arrays, clock, started + limits.seconds / 10)
    if start is None and arrays.count:
        start = packed(arrays, Limits(limits.seconds / 4, limits.gap))
    if start is not None and arrays.count:
        start = anneal(arrays, start, SWEEPS, np.random.default_rng(SEED), clock, started + limits.seconds / 4)
        watch("proving", price(arrays, start).objective, None)
    return _solve(arrays, tight_form(arrays), start, limits, clock, started, "optimal", watch)


def tight_form(arrays: Arrays) -> Formulation:
    """Transports as flows where the links are few, by pairs of devices where they are many or hops are not paths."""
    arcs = int((arrays.hops == 1).sum())
    few = 2 * arcs < len(arrays.capacity) ** 2
    return programs.flow if few and programs.links_carry_hops(arrays) else programs.tight


def optimal_cold(arrays: Arrays, limits: Limits, clock: Clock) -> Plan:
    """The tight program without start and bound, to compare formulations alone."""
    return _solve(arrays, tight_form(arrays), None, limits, clock, clock(), "optimal-cold")


def optimal_paper(arrays: Arrays, limits: Limits, clock: Clock) -> Plan:
    """The paper's own program, cold, as a point of comparison."""
    return _solve(arrays, programs.paper, None, limits, clock, clock(), "optimal-paper")


def fits_at_all(arrays: Arrays, limits: Limits, clock: Clock) -> bool:
    """Whether any placement fits, by repairing greedy's or, where that gets stuck, by a program without prices."""
    return warm_start(arrays, clock, clock()) is not None or packed(arrays, limits) is not None


def packed(arrays: Arrays, limits: Limits) -> Ints | None:
    """A placement that fits, by a program without prices; None when it found none, which may be for want of time."""
    builder, place = programs.assignment(arrays, np.ones(arrays.linear.shape, dtype=np.bool_), overflow=True)
    where = solve_program(builder.build(place), None, limits).where
    return where if where is not None and price(arrays, where).fits else None


def _solve(
    arrays: Arrays,
    form: Formulation,
    start: Ints | None,
    limits: Limits,
    clock: Clock,
    started: float,
    method: str,
    watch: Watch = nobody,
) -> Plan:
    if not arrays.count:
        return make_plan(arrays, np.zeros(0, dtype=np.int64), 0.0, "optimal", clock() - started, method)
    allowed = arrays.load[:, None] <= arrays.capacity[None, :]
    if not allowed.any(axis=1).all() or arrays.load.sum() > arrays.capacity.sum():
        return no_plan(arrays, shortage(arrays, limits, clock), clock() - started, method)
    floor = simple_bound(arrays)
    if start is not None:
        cost = price(arrays, start).objective
        known = lower_bound(arrays, cost, BOUND_ROUNDS, clock, started + limits.seconds / 2)
        floor, allowed = known.value, known.allowed
        if cost - floor <= limits.gap * abs(cost):
            return make_plan(arrays, start, floor, "optimal", clock() - started, method)
    left = max(limits.seconds - (clock() - started), 0.01)
    program, rest = form(arrays, allowed), Limits(left, limits.gap)
    if method == "optimal":
        found = Tree(arrays, program, start, rest, watch).run(clock, started + limits.seconds, floor)
        solved = Solved(found.where, found.bound, found.finished, found.finished and found.where is None)
    else:
        solved = solve_program(program, start, rest, watch)
    seconds = clock() - started
    if solved.impossible and start is None:
        return no_plan(arrays, shortage(arrays, limits, clock), seconds, method)
    fitting = [where for where in (solved.where, start) if where is not None and price(arrays, where).fits]
    if not fitting:
        text = f"no placement was found in {limits.seconds:g} s, nor proven impossible; give more time"
        return no_plan(arrays, text, seconds, method)
    where = min(fitting, key=lambda where: price(arrays, where).objective)
    return make_plan(
        arrays, where, max(solved.bound, floor), "optimal" if solved.proven else "time-limit", seconds, method
    )


def shortage(arrays: Arrays, limits: Limits, clock: Clock) -> str:
    """Says which capacity is short and by how much: one container, the sum, or the best packing there is."""
    largest = int(np.argmax(arrays.capacity))
    device = arrays.problem.devices[largest]
    for i in np.argsort(-arrays.load, kind="stable").tolist():
        short = arrays.load[i] - arrays.capacity[largest]
        if short > 0:
            return (
                f"{arrays.names[i]} needs {arrays.load[i]:,.0f} workload, but the largest capacity is "
                f"{device.capacity_workload:,.0f} ({device.name}): short by {short:,.0f}"
            )
    total, need = arrays.capacity.sum(), arrays.load.sum()
    if need > total:
        return f"all containers need {need:,.0f} workload, all devices have {total:,.0f}: short by {need - total:,.0f}"
    return _packing_shortage(arrays, limits)


def _packing_shortage(arrays: Arrays, limits: Limits) -> str:
    """The sum would do but the pieces do not fit: the packing with the least overload names the devices."""
    builder, place = programs.assignment(arrays, np.ones(arrays.linear.shape, dtype=np.bool_), overflow=True)
    solved = solve_program(builder.build(place), None, Limits(min(limits.seconds, 10.0), 1e-3))
    if solved.where is None:
        return f"at most {arrays.goal.max_moves} moves are allowed, and no placement keeps to that"
    used = np.bincount(solved.where, weights=arrays.load, minlength=len(arrays.capacity))
    over = used - arrays.capacity
    short = [f"{d.name} by {x:,.0f}" for d, x in zip(arrays.problem.devices, over, strict=True) if x > 0]
    moves = "" if arrays.goal.max_moves is None else f" with at most {arrays.goal.max_moves} moves"
    if not short:
        return f"no placement fits{moves}"
    return f"containers do not fit together{moves}: in the best packing the capacity is short on {', '.join(short)}"
