"""The bound by sets against its slow twins: all sets of a device, and all placements of small problems."""

import itertools
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.lab.delegation.instances import Family, draw
from metromq.planning import sets
from metromq.planning.arrays import Arrays, Floats, compile_arrays, price
from metromq.planning.bounds import lower_bound
from metromq.planning.model import Limits, Problem
from metromq.planning.optimal import optimal
from metromq.planning.sets import best_sets, sets_bound, sides
from metromq.planning.starts import warm_start
from metromq.planning.timing import Deadline
from tests.planning.problems import brute_force, clock, problems, ticking

CLOSE = 1e-6


def worth_of(arrays: Arrays, worth: Floats, chosen: tuple[int, ...]) -> float:
    inside = np.isin(np.arange(arrays.count), chosen)
    pairs = inside[arrays.edge_topic] & inside[arrays.edge_service]
    return float(worth[inside].sum() + arrays.pair_price[pairs].sum())


@settings(max_examples=60, deadline=None)
@given(problems(7), st.integers(0, 1000), st.sampled_from([1, 3, 1000]))
def test_no_set_is_worth_more_than_is_said(problem: Problem, seed: int, width: int) -> None:
    """Prices around what pairs save, where sets are neither empty nor whole; a narrow search says what it missed."""
    arrays = compile_arrays(problem)
    scale = float(arrays.pair_price.sum()) / max(arrays.count, 1) + 1.0
    worth = np.random.default_rng(seed).normal(-0.3, 1.0, arrays.count) * scale
    subsets = (c for n in range(arrays.count + 1) for c in itertools.combinations(range(arrays.count), n))
    fitting = [c for c in subsets if arrays.load[list(c)].sum() <= arrays.capacity[0]]
    best = max(worth_of(arrays, worth, c) for c in fitting)
    found = best_sets(arrays, sides(arrays), 0, worth, 0.0, width, Deadline.after(60.0, clock()))
    assert found is not None
    assert found.most >= best - CLOSE * scale
    assert found.worth <= best + CLOSE * scale
    for row in found.sets:
        assert arrays.load[row].sum() <= arrays.capacity[0]


@settings(max_examples=25, deadline=None)
@given(problems(6), st.sampled_from([2, 1000]))
def test_no_placement_is_cheaper_than_the_bound(problem: Problem, width: int) -> None:
    arrays = compile_arrays(problem)
    best, time = brute_force(arrays), Deadline.after(60.0, clock())
    start, _ = warm_start(arrays, time)
    if best is None or start is None:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sets, "FIRST_WIDTH", width)
        found = sets_bound(arrays, start, price(arrays, start).objective, time)
    assert found <= best.objective * (1 + CLOSE) + CLOSE


def test_a_search_that_tells_too_little_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check above has teeth: where sets are said to be worth less than they are, the bound passes the optimum."""
    arrays = compile_arrays(draw(Family(3, 4, 3, workload_ratio=0.5), np.random.default_rng(1)))
    time = Deadline.after(60.0, clock())
    best, (start, _) = brute_force(arrays), warm_start(arrays, time)
    assert best is not None
    assert start is not None
    assert sets_bound(arrays, start, best.objective * 2, time) <= best.objective * (1 + CLOSE)
    honest = sets.best_sets

    def modest(*given: Any) -> sets.Found:
        found = honest(*given)
        assert found is not None
        return replace(found, most=0.0)

    monkeypatch.setattr(sets, "best_sets", modest)
    assert sets_bound(arrays, start, best.objective * 2, time) > best.objective * (1 + CLOSE)


def test_where_hops_are_dear_sets_see_more_than_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound by pairs is blind to how few pairs fit onto a device; the planner takes the better of the two."""
    family = Family(8, 12, 8, utilisation=0.6, workload_ratio=0.6)
    arrays = compile_arrays(draw(family, np.random.default_rng(1)))
    time = Deadline.after(60.0, clock())
    start, _ = warm_start(arrays, time)
    assert start is not None
    cost = price(arrays, start).objective
    pairs = lower_bound(arrays, cost, 200, time).value
    assert sets_bound(arrays, start, cost, time) > pairs + 0.1 * cost
    exact = import_module("metromq.planning.optimal")  # the package has a function of that name
    monkeypatch.setattr(exact, "SETS_FROM", 1)
    monkeypatch.setattr(exact, "MORE_SWEEPS", 1)
    told: list[float] = []
    plan = optimal(arrays, Limits(60.0, 0.15), clock(), lambda what, _, bound: told.append(bound or 0.0))
    assert plan.status == "optimal"
    assert plan.gap <= 0.15
    assert max(told) > pairs


def test_the_bound_by_sets_ends_in_time() -> None:
    """It looks at the clock for every container it decides on, and what was found before holds."""
    arrays = compile_arrays(draw(Family(8, 12, 8, utilisation=0.6, workload_ratio=0.6), np.random.default_rng(1)))
    start, _ = warm_start(arrays, Deadline.after(60.0, clock()))
    assert start is not None
    cost = price(arrays, start).objective
    assert sets_bound(arrays, start, cost, Deadline.after(0.03, ticking())) == -np.inf
    assert -np.inf < sets_bound(arrays, start, cost, Deadline.after(5.0, ticking())) < cost
