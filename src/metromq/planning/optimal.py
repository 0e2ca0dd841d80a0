"""The exact planner: HiGHS on one thread, warm-started, with a time limit that still returns a plan and its gap."""

from dataclasses import dataclass

import highspy
import numpy as np

from metromq.planning import programs
from metromq.planning.anneal import anneal
from metromq.planning.arrays import Arrays, Ints, make_plan, no_plan, price
from metromq.planning.baselines import simple_bound
from metromq.planning.bounds import lower_bound
from metromq.planning.model import Clock, Limits, Plan, Watch, nobody
from metromq.planning.programs import Formulation, Program
from metromq.planning.starts import warm_start

BOUND_ROUNDS = 150  # enough to rule devices out; the program itself finds the rest of the bound
SWEEPS = 60  # of annealing before the program: a good start closes most of the tree
SEED = 1  # of that annealing: the same problem gets the same plan


@dataclass(frozen=True, slots=True)
class Solved:
    """What HiGHS said: the places it found or None, its proven bound, and whether it proved there is nothing better."""

    where: Ints | None
    bound: float
    proven: bool
    impossible: bool


def optimal(arrays: Arrays, limits: Limits, clock: Clock, watch: Watch = nobody) -> Plan:
    """The tight program, warm-started from greedy and local search."""
    started = clock()
    start = warm_start(arrays, clock, started + limits.seconds / 10)
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
    if warm_start(arrays, clock, clock()) is not None:
        return True
    builder, place = programs.assignment(arrays, np.ones(arrays.linear.shape, dtype=np.bool_), overflow=True)
    solved = solve_program(builder.build(place), None, limits)
    return solved.where is not None and price(arrays, solved.where).fits


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
    solved = solve_program(form(arrays, allowed), start, Limits(left, limits.gap), watch)
    seconds = clock() - started
    if solved.impossible and start is None:
        return no_plan(arrays, shortage(arrays, limits, clock), seconds, method)
    found = [where for where in (solved.where, start) if where is not None and price(arrays, where).fits]
    if not found:
        text = f"no placement was found in {limits.seconds:g} s, nor proven impossible; give more time"
        return no_plan(arrays, text, seconds, method)
    where = min(found, key=lambda where: price(arrays, where).objective)
    return make_plan(
        arrays, where, max(solved.bound, floor), "optimal" if solved.proven else "time-limit", seconds, method
    )


def solve_program(program: Program, start: Ints | None, limits: Limits, watch: Watch = nobody) -> Solved:
    """Runs HiGHS on one thread."""
    highs = _loaded(program, limits)
    if watch is not nobody:
        highs.cbMipInterrupt.subscribe(
            lambda event: watch(
                "proving", _finite(event.data_out.mip_primal_bound), _finite(event.data_out.mip_dual_bound)
            )
        )
    if start is not None:
        _give_start(highs, program, start)
    highs.run()
    status = highs.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return Solved(None, np.inf, True, True)
    info = highs.getInfo()
    where = None
    if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        where = _places(program, np.asarray(highs.getSolution().col_value))
    bound = info.mip_dual_bound
    return Solved(where, bound, status == highspy.HighsModelStatus.kOptimal, False)


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _loaded(program: Program, limits: Limits) -> highspy.Highs:
    highs = highspy.Highs()
    for option, value in (
        ("output_flag", False),
        ("threads", 1),
        ("time_limit", float(limits.seconds)),
        ("mip_rel_gap", float(limits.gap)),
        ("mip_abs_gap", 1e-9),
    ):
        highs.setOptionValue(option, value)
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(program.cost), len(program.row_lower)
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = program.cost, np.zeros(len(program.cost)), program.upper
    lp.row_lower_, lp.row_upper_ = program.row_lower, program.row_upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = program.starts
    lp.a_matrix_.index_ = program.columns
    lp.a_matrix_.value_ = program.values
    kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
    lp.integrality_ = [kinds[int(whole)] for whole in program.integer]
    highs.passModel(lp)
    return highs


def _give_start(highs: highspy.Highs, program: Program, start: Ints) -> None:
    """Hands over x alone: HiGHS completes psi or the flows, for which x leaves no choice that matters."""
    columns = program.place[program.place >= 0]
    values = np.zeros(len(program.cost))
    chosen = program.place[np.arange(len(start)), start]
    if (chosen < 0).any():
        return
    values[chosen] = 1.0
    highs.setSolution(len(columns), columns.astype(np.int32), values[columns])


def _places(program: Program, values: np.typing.NDArray[np.float64]) -> Ints:
    shown = np.where(program.place >= 0, values[np.maximum(program.place, 0)], -1.0)
    best: Ints = np.argmax(shown, axis=1).astype(np.int64)
    return best


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
