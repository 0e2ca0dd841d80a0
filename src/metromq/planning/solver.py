"""HiGHS behind two functions: load a program, and leave the whole search to it; always on one thread."""

from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np

from metromq.planning.arrays import Floats, Ints
from metromq.planning.model import Limits, Watch, nobody
from metromq.planning.programs import Program
from metromq.planning.timing import Deadline


@dataclass(frozen=True, slots=True)
class Solved:
    """What HiGHS said: the places it found or None, its proven bound, and whether it proved there is nothing better."""

    where: Ints | None
    bound: float
    proven: bool
    impossible: bool


def solve_program(
    program: Program, start: Ints | None, limits: Limits, watch: Watch = nobody, time: Deadline | None = None
) -> Solved:
    """Leaves the whole search to HiGHS; it stops at its limit of seconds, or sooner if `time` is up on its clock."""
    highs = loaded(program, limits)
    if watch is not nobody or time is not None:

        def look(event: Any) -> None:
            watch("proving", _finite(event.data_out.mip_primal_bound), _finite(event.data_out.mip_dual_bound))
            if time is not None and time.up():
                event.interrupt()

        highs.cbMipInterrupt.subscribe(look)
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


def loaded(program: Program, limits: Limits) -> highspy.Highs:
    """A solver that holds the program and obeys the limits."""
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
    if program.integer.any():
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


def _places(program: Program, values: Floats) -> Ints:
    shown = np.where(program.place >= 0, values[np.maximum(program.place, 0)], -1.0)
    best: Ints = np.argmax(shown, axis=1).astype(np.int64)
    return best
