"""The bound by sets against its slow twins: all sets of a device, and all placements of small problems."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.lab.delegation.instances import Family, draw
from metromq.planning import long_runs, proving, set_prices, sets
from metromq.planning.arrays import Arrays, Floats, compile_arrays, price
from metromq.planning.bounds import lower_bound
from metromq.planning.model import Limits, Problem
from metromq.planning.optimal import optimal
from metromq.planning.set_prices import sets_bound
from metromq.planning.sets import Sides, Worth, best_sets, by_density, packed_at_most, sides
from metromq.planning.starts import warm_start
from metromq.planning.timing import Deadline
from tests.planning.problems import brute_force, clock, problems, ticking

CLOSE = 1e-6


def worth_of(split: Sides, worth: Worth, chosen: tuple[int, ...]) -> float:
    """By the definition: own worth, pairs inside, and for each filler outside what its pairs pay, up to the prices."""
    total = float(worth.own[list(chosen)].sum())
    for f, filler in enumerate(split.fillers):
        pairs = sum(float(split.value[h, f]) for h, head in enumerate(split.heads) if head in chosen)
        if filler in chosen:
            total += pairs
        else:
            total -= sum(min(part * pairs, price) for part, price in zip(split.further, worth.far[:, f], strict=True))
    return total


@settings(max_examples=60, deadline=None)
@given(problems(7), st.integers(0, 1000), st.sampled_from([1, 3, 1000]))
def test_no_set_is_worth_more_than_is_said(problem: Problem, seed: int, width: int) -> None:
    """Prices around what pairs save, where sets are neither empty nor whole; a narrow search says what it missed."""
    arrays = compile_arrays(problem)
    split, rng = sides(arrays), np.random.default_rng(seed)
    scale = float(arrays.pair_price.sum()) / max(arrays.count, 1) + 1.0
    own = rng.normal(-0.3, 1.0, arrays.count) * scale
    worth = Worth(own, rng.uniform(0, scale, (len(split.further), len(split.fillers))))
    subsets = (c for n in range(arrays.count + 1) for c in itertools.combinations(range(arrays.count), n))
    fitting = [c for c in subsets if arrays.load[list(c)].sum() <= arrays.capacity[0]]
    best = max(worth_of(split, worth, c) for c in fitting)
    found = best_sets(arrays, split, 0, worth, 0.0, width, Deadline.after(60.0, clock()))
    assert found is not None
    assert found.most >= best - CLOSE * scale
    assert found.worth <= best + CLOSE * scale
    for row in found.sets:
        assert arrays.load[row].sum() <= arrays.capacity[0]


def test_no_packing_gains_more_than_is_said() -> None:
    """Against all packings, with fillers without load, without gain, and rooms that hold none or all."""
    rng = np.random.default_rng(1)
    for _ in range(400):
        count, room = int(rng.integers(1, 8)), float(rng.integers(0, 15))
        gain, load = rng.normal(2, 3, count), rng.integers(0, 6, count).astype(np.float64)
        subsets = [list(c) for n in range(count + 1) for c in itertools.combinations(range(count), n)]
        best = max(gain[c].sum() for c in subsets if load[c].sum() <= room)
        _, gains, loads = by_density(gain[None, :], load)
        assert packed_at_most(gains, loads, np.array([room]))[0] >= best - CLOSE


@settings(max_examples=25, deadline=None)
@given(problems(6), st.sampled_from([2, 1000]))
def test_no_placement_is_cheaper_than_the_bound(problem: Problem, width: int) -> None:
    arrays = compile_arrays(problem)
    best, time = brute_force(arrays), Deadline.after(60.0, clock())
    start, _ = warm_start(arrays, time)
    if best is None or start is None:
        return
    with short_ascents() as patch:
        patch.setattr(set_prices, "FIRST_WIDTH", width)
        found = sets_bound(arrays, start, price(arrays, start).objective, time)
    assert found <= best.objective * (1 + CLOSE) + CLOSE


@contextmanager
def short_ascents() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("ROUNDS", 80), ("NARROW", 10), ("WIDE", 40)):
            patch.setattr(set_prices, name, value)
        yield patch


def on_a_line(devices: int, seed: int) -> Arrays:
    """Devices in a row, where hops are dear and most pairs do not fit onto one device."""
    problem = draw(Family(devices, 3, 2, utilisation=0.8, workload_ratio=0.7), np.random.default_rng(seed))
    hops = tuple(tuple(abs(a - b) for b in range(devices)) for a in range(devices))
    return compile_arrays(replace(problem, hops=hops))


def bound_by_optimum(arrays: Arrays, best: float) -> float:
    time = Deadline.after(60.0, clock())
    start, _ = warm_start(arrays, time)
    assert start is not None
    with short_ascents():
        return sets_bound(arrays, start, 2 * best, time) / best


def test_hops_beyond_the_first_are_never_paid_too_dearly(monkeypatch: pytest.MonkeyPatch) -> None:
    """On lines of two to four devices, against all placements; and what pays more hops than there are, is noticed."""
    drawn = [on_a_line(devices, seed) for devices, seed in itertools.product((2, 3, 4), range(3))]
    priced = [(arrays, best.objective) for arrays in drawn if (best := brute_force(arrays)) is not None]
    assert {len(sides(arrays).further) for arrays, _ in priced} == {0, 1, 2}
    assert all(bound_by_optimum(arrays, best) <= 1 + CLOSE for arrays, best in priced)
    honest = Sides.beyond

    def greedy(self: Sides, gain: Floats, far: Floats) -> Floats:
        return 3 * honest(self, gain, far)

    monkeypatch.setattr(Sides, "beyond", greedy)
    assert any(bound_by_optimum(arrays, best) > 1 + CLOSE for arrays, best in priced)


def test_a_search_that_tells_too_little_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check above has teeth: where sets are said to be worth less than they are, the bound passes the optimum."""
    arrays = compile_arrays(draw(Family(3, 4, 3, workload_ratio=0.5), np.random.default_rng(1)))
    best = brute_force(arrays)
    assert best is not None
    assert bound_by_optimum(arrays, best.objective) <= 1 + CLOSE
    honest = sets.best_sets

    def modest(*given: Any) -> sets.Found:
        found = honest(*given)
        assert found is not None
        return replace(found, most=found.most - 0.1 * best.objective)

    monkeypatch.setattr(set_prices, "best_sets", modest)
    assert bound_by_optimum(arrays, best.objective) > 1 + CLOSE


def test_where_hops_are_dear_sets_see_more_than_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound by pairs is blind to how few pairs fit onto a device; the planner takes the better of the two."""
    family = Family(8, 12, 8, utilisation=0.6, workload_ratio=0.6)
    arrays = compile_arrays(draw(family, np.random.default_rng(1)))
    time = Deadline.after(60.0, clock())
    start, _ = warm_start(arrays, time)
    assert start is not None
    cost = price(arrays, start).objective
    pairs = lower_bound(arrays, cost, 200, time).value
    with short_ascents():
        assert sets_bound(arrays, start, cost, time) > pairs + 0.1 * cost
    exact = import_module("metromq.planning.optimal")  # the package has a function of that name
    monkeypatch.setattr(exact, "SETS_FROM", 1)
    monkeypatch.setattr(long_runs, "MORE_SWEEPS", 1)
    monkeypatch.setattr(long_runs, "LONG_SWEEPS", 1)
    monkeypatch.setattr(proving, "ROUNDS", 100)
    monkeypatch.setattr(proving, "KICKS", 10)
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
