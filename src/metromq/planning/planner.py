"""The planners by name, and the one that chooses for you."""

from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from metromq.errors import UsageError
from metromq.planning.arrays import Arrays, compile_arrays, make_plan, place_numbers
from metromq.planning.baselines import greedy, random
from metromq.planning.large import large
from metromq.planning.model import Clock, Goal, Limits, Placement, Plan, Problem, Watch, nobody
from metromq.planning.optimal import optimal, optimal_paper
from metromq.planning.programs import flow_columns, paper_columns
from metromq.planning.timing import Deadline, Helpers, Job

Method = Literal["auto", "optimal", "optimal-paper", "greedy", "greedy-by-kind", "random", "large"]
METHODS: tuple[Method, ...] = get_args(Method)
MOVE_LIMITED: tuple[Method, ...] = ("auto", "optimal", "optimal-paper", "large")  # those that keep to Goal.max_moves

AUTO_COLUMNS = 60_000  # beyond this many columns the exact planner's bound after a minute is worse than `large`'s
MOVE_SHARE = 0.1
MOST_COLUMNS = 4_000_000  # beyond this many the program alone takes gigabytes


def make_placement(
    problem: Problem,
    method: Method,
    clock: Clock,
    goal: Goal | None = None,
    limits: Limits | None = None,
    seed: int = 1,
    watch: Watch = nobody,
    job: Job | None = None,
    helpers: Helpers | None = None,
) -> Plan:
    """Plans by the named method. Without a plan `status` says whether that is proven, and `shortage` why.

    The time to put the problem into numbers counts. A host that sets `job.stopped` gets the best plan so far; one with
    `helpers` gets a closer bound in the same time.
    """
    limits = limits or Limits()
    started = clock()
    time = Deadline(clock, started + limits.seconds, job or Job())
    arrays = compile_arrays(problem, goal)
    return replace(_by_method(arrays, method, limits, seed, watch, time, helpers), seconds=clock() - started)


def _by_method(
    arrays: Arrays,
    method: Method,
    limits: Limits,
    seed: int,
    watch: Watch,
    time: Deadline,
    helpers: Helpers | None,
) -> Plan:
    clock = time.clock
    if method == "auto":
        method = "optimal" if flow_columns(arrays) <= AUTO_COLUMNS else "large"
    if method in ("greedy", "greedy-by-kind"):
        return greedy(arrays, clock, by_kind=method == "greedy-by-kind")
    if method == "random":
        return random(arrays, np.random.default_rng(seed), clock)
    if method == "large":
        return large(arrays, limits, seed, clock, watch, time)
    if method == "optimal":
        _check_size(method, flow_columns(arrays))
        return optimal(arrays, limits, clock, watch, time, helpers=helpers)
    if method == "optimal-paper":
        _check_size(method, paper_columns(arrays))
        return optimal_paper(arrays, limits, clock, time)
    raise UsageError(f"unknown method {method!r}; the methods are {', '.join(METHODS)}")


def _check_size(method: str, columns: int) -> None:
    if columns > MOST_COLUMNS:
        raise UsageError(
            f"{method} would need a program of {columns:,} columns, more than {MOST_COLUMNS:,}; "
            "use the method large, which plans any size within its time and gives a bound too"
        )


def move_price(problem: Problem, present: Placement, goal: Goal | None = None) -> float:
    """What a move must save to be worth it: a tenth of what the average container costs where it runs now.

    It grows with neither the city nor its traffic, so that a quiet city is not reshuffled for a thousandth.
    """
    arrays = compile_arrays(problem, replace(goal or Goal(), present=present, move=0.0))
    known = np.flatnonzero(arrays.present >= 0)
    if not len(known):
        return 0.0
    ends = arrays.present[arrays.edge_topic], arrays.present[arrays.edge_service]
    both = (ends[0] >= 0) & (ends[1] >= 0)
    pairs = float((arrays.pair_price * arrays.hops[ends])[both].sum())
    return MOVE_SHARE * (float(arrays.linear[known, arrays.present[known]].sum()) + pairs) / len(known)


def priced(problem: Problem, placement: Placement, goal: Goal | None = None) -> Plan | None:
    """A placement that somebody else chose, with its price; None when it leaves containers without a device."""
    arrays = compile_arrays(problem, goal)
    where = place_numbers(problem, placement)
    if (where < 0).any():
        return None
    plan = make_plan(arrays, where, float(arrays.linear.min(axis=1).sum()), "feasible", 0.0, "present")
    return plan


__all__ = ["METHODS", "MOVE_LIMITED", "Arrays", "Method", "make_placement", "move_price", "priced"]
