"""The list of placements: its terms add up to the price whatever the multipliers are, and nothing cheap is missing."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.lab.delegation.instances import PRINTED_MW_PER_MBPS, Family, draw
from metromq.planning.arrays import Arrays, compile_arrays, place_numbers, price
from metromq.planning.listing import Shares, beam, cheapest, shares
from metromq.planning.model import Limits, Problem
from metromq.planning.optimal import optimal
from tests.planning.problems import brute_force, clock, problems


def random_shares(arrays: Arrays, seed: int) -> Shares:
    """By multipliers that no relaxation would give."""
    rng = np.random.default_rng(seed)
    edges = np.flatnonzero(arrays.pair_price > 0)
    sides = rng.normal(0, 5, (2, len(edges), len(arrays.capacity)))
    mask = arrays.load[:, None] <= arrays.capacity[None, :]
    return shares(arrays, mask, edges, rng.normal(0, 0.1, len(arrays.capacity)), sides[0], sides[1])


@settings(max_examples=60, deadline=None)
@given(problems(5), st.integers(0, 99))
def test_the_terms_add_up_and_none_is_negative(problem: Problem, seed: int) -> None:
    arrays = compile_arrays(problem)
    if (arrays.load[:, None] > arrays.capacity[None, :]).all(axis=1).any():
        return
    costs = random_shares(arrays, seed)
    assert (costs.single >= 0).all()
    assert (costs.pairs >= 0).all()
    assert (costs.room >= 0).all()
    every = np.arange(arrays.count)
    for places in itertools.product(range(len(arrays.capacity)), repeat=arrays.count):
        where = np.array(places, dtype=np.int64)
        full = price(arrays, where)
        if full.fits:
            apart = where[arrays.edge_topic[costs.edges]], where[arrays.edge_service[costs.edges]]
            terms = costs.single[every, where].sum() + costs.pairs[np.arange(len(costs.edges)), *apart].sum()
            terms += costs.room @ (arrays.capacity - full.load)
            assert costs.base + terms == pytest.approx(full.objective, rel=1e-9, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(problems(5), st.integers(0, 99), st.sampled_from([0.5, 0.999, 1.001, 10.0]))
def test_nothing_cheaper_is_missing(problem: Problem, seed: int, reach: float) -> None:
    arrays = compile_arrays(problem)
    best = brute_force(arrays)
    if best is None:
        return
    costs = random_shares(arrays, seed)
    least = best.objective - costs.base
    excess = least * reach + (1e-6 if reach > 1 else -1e-6)
    found = cheapest(arrays, costs, excess, 1_000_000)
    assert found.complete
    if reach < 1:
        assert found.where is None
    else:
        assert found.where is not None
        assert price(arrays, found.where).objective == pytest.approx(best.objective, rel=1e-9, abs=1e-6)
        assert costs.base + found.excess == pytest.approx(best.objective, rel=1e-9, abs=1e-6)
    if arrays.count:
        assert not cheapest(arrays, costs, least * 10 + 1, 0).complete
    narrow = beam(arrays, costs, least * 10 + 1, 3)
    assert narrow is None or price(arrays, narrow).fits


def test_where_capacity_decides_the_optimum_is_proven() -> None:
    """At the printed price of the network the relaxation alone needs minutes for this one."""
    family = Family(services=10, workload_ratio=0.5, network_mw_per_mbps=PRINTED_MW_PER_MBPS)
    arrays = compile_arrays(draw(family, np.random.default_rng(0)))
    plan = optimal(arrays, Limits(3600.0), clock())
    assert plan.status == "optimal"
    assert plan.gap <= 1e-4
    assert price(arrays, place_numbers(arrays.problem, plan.placement)).fits
