"""The annealing in plain loops: its running price against that from scratch, and compiled code against the source."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import metromq.planning
from metromq.lab.delegation.instances import Family, draw
from metromq.planning import long_anneal, long_runs
from metromq.planning.arrays import Arrays, Ints, compile_arrays, price
from metromq.planning.long_runs import LongRuns
from metromq.planning.model import Problem
from metromq.planning.starts import warm_start
from metromq.planning.timing import Deadline, Helpers
from tests.planning.problems import brute_force, clock, problems, ticking

CLOSE = 1e-6


def source() -> ModuleType:
    """The module as plain Python, whatever was compiled: its slow twin, in which bugs can be planted."""
    path = Path(metromq.planning.__file__).with_name("long_anneal.py")
    spec = spec_from_file_location("plain_long_anneal", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def drawn(seed: int) -> tuple[Arrays, Ints]:
    arrays = compile_arrays(draw(Family(10, 30, 20, workload_ratio=0.6), np.random.default_rng(seed)))
    start, _ = warm_start(arrays, Deadline.after(60.0, clock()))
    assert start is not None
    return arrays, start


def misjudged(module: Any, arrays: Arrays, start: Ints) -> float:
    """How far the running price is from the price from scratch, after some hot steps."""
    walk = module.Walk(arrays, start, 3)
    walk.steps(2_000, float(arrays.pair_price.mean()))
    now = price(arrays, np.array(walk.where))
    assert now.fits
    assert walk.where != start.tolist()
    return float(abs(now.objective - price(arrays, start).objective - walk.change) / now.objective)


@settings(max_examples=40, deadline=None)
@given(problems(6), st.integers(0, 1000))
def test_what_it_finds_fits_and_is_as_cheap_as_it_can_be(problem: Problem, seed: int) -> None:
    arrays, time = compile_arrays(problem), Deadline.after(60.0, clock())
    start, _ = warm_start(arrays, time)
    best = brute_force(arrays)
    if start is None or best is None:
        return
    found, finished = long_anneal.long_anneal(arrays, start, 20, seed, time)
    cost = price(arrays, found)
    assert finished
    assert cost.fits
    assert best.objective * (1 - CLOSE) <= cost.objective <= price(arrays, start).objective * (1 + CLOSE)


def test_its_running_price_is_the_price_from_scratch() -> None:
    """And a swap that forgets that both ends of a pair move is noticed."""
    assert max(misjudged(long_anneal, *drawn(seed)) for seed in range(3)) < 1e-9
    planted = source()

    def forgets(walk: object, i: int, j: int) -> float:
        return 0.0

    planted.Walk.linked = forgets
    assert max(misjudged(planted, *drawn(seed)) for seed in range(3)) > 1e-6


def test_it_finds_more_than_a_descent_and_the_same_each_time_compiled_or_not() -> None:
    arrays, start = drawn(1)
    time = Deadline.after(60.0, clock())
    runs = [module.long_anneal(arrays, start, 60, 5, time) for module in (long_anneal, long_anneal, source())]
    assert price(arrays, runs[0][0]).objective < price(arrays, start).objective
    assert all((found == runs[0][0]).all() and finished for found, finished in runs)


@pytest.mark.parametrize(("seconds", "sweeps"), [(9.0, [101, 101, 101]), (60.0, [101, 252, 252, 252, 252])])
def test_the_planner_takes_the_best_of_several_runs_unless_moves_are_limited(
    seconds: float, sweeps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short runs, compiled or not, slower ones with more time; with a limit of moves, annealing that knows it."""
    for name, value in (("COMPILED", True), ("LONG_STEPS", 100_000), ("MORE_SWEEPS", 2), ("LONG_RUNS", 3)):
        monkeypatch.setattr(long_runs, name, value)
    arrays, start = drawn(1)
    time = Deadline.after(seconds, clock())
    best = price(arrays, LongRuns(arrays, start, time, None).best()).objective
    with ThreadPoolExecutor(2) as executor:
        helped = LongRuns(arrays, start, time, Helpers(executor, 2)).best()
    assert price(arrays, helped).objective == best
    single = [
        long_anneal.long_anneal(arrays, start, count, long_runs.SEED + run, time)[0] for run, count in enumerate(sweeps)
    ]
    assert best <= min(price(arrays, found).objective for found in single) < price(arrays, start).objective
    kept = replace(arrays, present=start, goal=replace(arrays.goal, max_moves=2))
    assert price(kept, LongRuns(kept, start, time, None).best()).fits


@pytest.mark.parametrize("seconds", [0.0, 0.05])
def test_it_ends_in_time(seconds: float) -> None:
    arrays, start = drawn(2)
    found, finished = long_anneal.long_anneal(arrays, start, 10_000, 1, Deadline.after(seconds, ticking()))
    assert not finished
    assert price(arrays, found).objective <= price(arrays, start).objective
