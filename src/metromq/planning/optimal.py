"""The exact planner: branch and bound over HiGHS, warm-started; a time limit still returns a plan and its gap."""

import numpy as np

from metromq.planning import programs
from metromq.planning.anneal import anneal
from metromq.planning.arrays import Arrays, Bools, Ints, make_plan, no_plan, price
from metromq.planning.baselines import greedy_places, simple_bound
from metromq.planning.branch import Outcome, Tree
from metromq.planning.model import Clock, Limits, Plan
from metromq.planning.search import repaired
from metromq.planning.solver import solve_program

WARM_SWEEPS = 200  # of annealing before the exact search: an optimal start halves the tree, more sweeps find no better


def optimal(arrays: Arrays, limits: Limits, clock: Clock) -> Plan:
    """The tight program, warm-started from greedy, local search and a short annealing."""
    started = clock()
    refusal = _refused(arrays, limits)
    if refusal:
        return no_plan(arrays, refusal, clock() - started, "optimal")
    start = warm_start(arrays, limits, clock, started + limits.seconds / 4)
    form = programs.flow if programs.links_carry_hops(arrays) else programs.tight
    tree = Tree(arrays, form(arrays, _allowed(arrays)), start, limits)
    found = tree.run(clock, started + limits.seconds, simple_bound(arrays))
    return _answer(arrays, found, limits, clock, started, "optimal")


def optimal_paper(arrays: Arrays, limits: Limits, clock: Clock) -> Plan:
    """The paper's own program, left to HiGHS alone and cold, as the point of comparison."""
    started = clock()
    refusal = _refused(arrays, limits)
    if refusal:
        return no_plan(arrays, refusal, clock() - started, "optimal-paper")
    program = programs.paper(arrays, _allowed(arrays))
    solved = solve_program(program, None, Limits(max(limits.seconds - (clock() - started), 0.01), limits.gap))
    where = solved.where if solved.where is not None and price(arrays, solved.where).fits else None
    bound = max(solved.bound, simple_bound(arrays))
    found = Outcome(where, bound, solved.proven or solved.impossible, 0)
    return _answer(arrays, found, limits, clock, started, "optimal-paper")


def _allowed(arrays: Arrays) -> Bools:
    fits: Bools = arrays.load[:, None] <= arrays.capacity[None, :]
    return fits


def _refused(arrays: Arrays, limits: Limits) -> str:
    """What no search could mend: a container larger than every device, or all devices together too small."""
    if arrays.count and (not _allowed(arrays).any(axis=1).all() or arrays.load.sum() > arrays.capacity.sum()):
        return shortage(arrays, limits)
    return ""


def _answer(arrays: Arrays, found: Outcome, limits: Limits, clock: Clock, started: float, method: str) -> Plan:
    if found.where is not None:
        status = "optimal" if found.finished else "time-limit"
        return make_plan(arrays, found.where, found.bound, status, clock() - started, method)
    if found.finished:
        return no_plan(arrays, shortage(arrays, limits), clock() - started, method)
    text = f"no placement was found in {limits.seconds:g} s, nor proven impossible; give more time"
    return no_plan(arrays, text, clock() - started, method)


def warm_start(arrays: Arrays, limits: Limits, clock: Clock, deadline: float, sweeps: int = WARM_SWEEPS) -> Ints | None:
    """Greedy, or the present placement when moves are limited, repaired if need be, then annealed."""
    first = arrays.present if arrays.goal.max_moves is not None else greedy_places(arrays)[0]
    whole = repaired(arrays, first)
    if whole is None:
        return None
    where = anneal(arrays, whole, sweeps, np.random.default_rng(limits.seed), clock, deadline)
    return where if price(arrays, where).fits else None


def shortage(arrays: Arrays, limits: Limits) -> str:
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
