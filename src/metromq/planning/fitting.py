"""Whether anything fits at all: a placement within the capacities, or a proof that there is none, or neither.

Prices play no part here. What a program cannot tell within its tolerance is left open: "none was found" and "there is
none" are different answers.
"""

from dataclasses import dataclass

import numpy as np

from metromq.planning import programs
from metromq.planning.arrays import Arrays, Ints, plain_shortage, price
from metromq.planning.model import Limits
from metromq.planning.search import repaired
from metromq.planning.solver import solve_program
from metromq.planning.timing import Deadline

SHUFFLES = 20  # orders in which containers are packed before a program is asked
SEED = 1
MOST_COLUMNS = 60_000  # beyond this the program's own preparations outlast any patience
CERTAIN = 1e-5  # overload, as a share of the largest container, that is no rounding of the solver


@dataclass(frozen=True, slots=True)
class Packing:
    """A placement that fits; without one, `impossible` says whether none exists, and `reason` why."""

    where: Ints | None
    impossible: bool = False
    reason: str = ""


def pack(arrays: Arrays, time: Deadline) -> Packing:
    """Adding up, then packing in several orders with repair, then a program while there is time."""
    reason = plain_shortage(arrays)
    if reason:
        return Packing(None, True, reason)
    where = _shuffled(arrays, time)
    if where is not None:
        return Packing(where)
    if arrays.count * len(arrays.capacity) <= MOST_COLUMNS and not time.up():
        return _by_program(arrays, time)
    return Packing(None, False, "packing in several orders with repair found no placement that fits")


def _shuffled(arrays: Arrays, time: Deadline) -> Ints | None:
    """Large containers first, where least room is left after them; each time in a slightly different order."""
    if arrays.goal.max_moves is not None:
        return None  # these orders know nothing of moves; the program does
    rng = np.random.default_rng(SEED)
    for n in range(SHUFFLES):
        if time.up():
            return None
        weight = arrays.load * np.exp(rng.normal(0.0, 0.05 * n, arrays.count))
        where = np.full(arrays.count, -1, dtype=np.int64)
        free = arrays.capacity.copy()
        for i in np.argsort(-weight, kind="stable").tolist():
            left = np.where(free >= arrays.load[i], free - arrays.load[i], np.inf)
            best = int(np.argmin(left))
            if np.isfinite(left[best]):
                where[i] = best
                free[best] -= arrays.load[i]
        whole = repaired(arrays, where, time) if (where < 0).any() else where
        if whole is not None and price(arrays, whole).fits:
            return whole
    return None


def _by_program(arrays: Arrays, time: Deadline) -> Packing:
    """The packing with the least overload."""
    builder, place = programs.assignment(arrays, np.ones(arrays.linear.shape, dtype=np.bool_), overflow=True)
    solved = solve_program(builder.build(place), None, Limits(max(time.left(), 0.01), 1e-3), time=time)
    moves = "" if arrays.goal.max_moves is None else f" with at most {arrays.goal.max_moves} moves"
    if solved.impossible:
        return Packing(None, True, f"no placement keeps to at most {arrays.goal.max_moves} moves")
    if solved.where is not None and price(arrays, solved.where).fits:
        return Packing(solved.where)
    if solved.where is None or not solved.bound > CERTAIN * float(arrays.load.max()):
        return Packing(None, False, f"no placement that fits was found{moves}, nor shown to be impossible")
    used = np.bincount(solved.where, weights=arrays.load, minlength=len(arrays.capacity))
    over = used - arrays.capacity
    short = [f"{d.name} by {x:,.0f}" for d, x in zip(arrays.problem.devices, over, strict=True) if x > 0]
    best = "best packing" if solved.proven else "best packing found"
    text = f"containers do not fit together{moves}: in the {best} the capacity is short on {', '.join(short)}"
    return Packing(None, True, text)
