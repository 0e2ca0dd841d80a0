"""Every planner against all placements of small problems: price, feasibility, bound, moves."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.lab.delegation.instances import Family, draw
from metromq.planning import programs
from metromq.planning.arrays import Arrays, compile_arrays, place_names, place_numbers, price
from metromq.planning.baselines import greedy, random
from metromq.planning.bounds import lower_bound
from metromq.planning.large import large
from metromq.planning.model import Goal, Limits, Plan, Problem
from metromq.planning.optimal import fits_at_all, optimal, optimal_paper
from metromq.planning.problem_files import read_problem
from metromq.planning.solver import solve_program
from metromq.planning.timing import Deadline
from tests.planning.problems import brute_force, clock, document, problems, ticking

EXACT = Limits(60.0, 1e-9)
CLOSE = 1e-6


def check(arrays: Arrays, plan: Plan) -> None:
    """The plan is whole, fits, and costs what it says."""
    cost = price(arrays, place_numbers(arrays.problem, plan.placement))
    assert cost.fits
    assert cost.power_mw == pytest.approx(plan.power_mw)
    assert cost.network_mbps == pytest.approx(plan.network_mbps)
    assert plan.bound_mw <= plan.objective + CLOSE
    assert plan.gap >= 0
    for device in arrays.problem.devices:
        assert plan.load[device.name] <= device.capacity_workload * (1 + 1e-8)


@settings(max_examples=120, deadline=None)
@given(problems())
def test_both_programs_agree_with_brute_force(problem: Problem) -> None:
    arrays = compile_arrays(problem)
    best = brute_force(arrays)
    for solve in (optimal, optimal_paper):
        plan = solve(arrays, EXACT, clock())
        assert plan.feasible == (best is not None), plan.shortage
        if best is not None:
            check(arrays, plan)
            assert plan.status == "optimal"
            assert plan.objective == pytest.approx(best.objective, rel=CLOSE, abs=CLOSE)
        else:
            assert "short" in plan.shortage
    assert fits_at_all(arrays, EXACT, clock()) == (best is not None)


@settings(max_examples=60, deadline=None)
@given(
    problems(5), st.sampled_from([(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (1.0, 0.0, 3.0), (0.0, 0.0, 1.0), (1.0, 0.5, 2.0)])
)
def test_every_formulation_minimises_every_weight(problem: Problem, weights: tuple[float, float, float]) -> None:
    power, traffic, latency = weights
    arrays = compile_arrays(problem, Goal(power=power, traffic=traffic, latency=latency))
    best = brute_force(arrays)
    allowed = arrays.load[:, None] <= arrays.capacity[None, :]
    if best is None or not allowed.any(axis=1).all():
        return
    for form in (programs.tight, programs.flow, programs.paper):
        solved = solve_program(form(arrays, allowed), None, EXACT)
        assert solved.where is not None
        assert price(arrays, solved.where).objective == pytest.approx(best.objective, rel=CLOSE, abs=CLOSE)
        assert solved.bound == pytest.approx(best.objective, rel=1e-5, abs=1e-5)
    assert optimal(arrays, EXACT, clock()).objective == pytest.approx(best.objective, rel=CLOSE, abs=CLOSE)


@settings(max_examples=100, deadline=None)
@given(problems(), st.integers(0, 1000))
def test_no_other_method_beats_the_optimum_or_breaks_a_capacity(problem: Problem, seed: int) -> None:
    arrays = compile_arrays(problem)
    best = brute_force(arrays)
    plans = [
        greedy(arrays, clock()),
        random(arrays, np.random.default_rng(seed), clock()),
        large(arrays, Limits(2.0), seed, ticking()),
    ]
    for plan in plans:
        if plan.feasible:
            check(arrays, plan)
            assert best is not None
            assert plan.objective >= best.objective - CLOSE
            assert plan.bound_mw <= best.objective + CLOSE
        else:
            assert plan.shortage


@settings(max_examples=100, deadline=None)
@given(problems(), st.sampled_from([0.0, 0.5]))
def test_the_bound_is_one_and_the_best_placements_stay_allowed(problem: Problem, slack: float) -> None:
    arrays = compile_arrays(problem)
    best = brute_force(arrays)
    if best is None:
        return
    bound = lower_bound(arrays, best.objective * (1 + slack), 60, Deadline.after(1.0, clock()))
    assert bound.value <= best.objective * (1 + 1e-9) + CLOSE
    plan = optimal(arrays, EXACT, clock())
    where = place_numbers(problem, plan.placement)
    assert bound.allowed[np.arange(arrays.count), where].all()


@settings(max_examples=60, deadline=None)
@given(problems(5), st.integers(0, 3), st.sampled_from([0.0, 2.0]), st.integers(0, 1000))
def test_a_limit_of_moves_is_kept_and_used_well(problem: Problem, most: int, cost: float, seed: int) -> None:
    free = compile_arrays(problem)
    before = random(free, np.random.default_rng(seed), clock())
    if not before.feasible:
        return
    arrays = compile_arrays(problem, Goal(move=cost, present=before.placement, max_moves=most))
    best = brute_force(arrays)
    assert best is not None
    for plan in (optimal(arrays, EXACT, clock()), optimal_paper(arrays, EXACT, clock())):
        assert plan.moves <= most
        assert plan.objective == pytest.approx(best.objective, rel=CLOSE, abs=CLOSE)
    searched = large(arrays, Limits(2.0), seed, ticking())
    assert searched.moves <= most
    assert (
        best.objective - CLOSE
        <= searched.objective
        <= price(arrays, place_numbers(problem, before.placement)).objective + CLOSE
    )


def test_hops_that_are_no_paths_are_priced_as_given() -> None:
    raw = document()
    del raw["links"]
    raw["hops"] = {"mast": {"kiosk": 1, "depot": 7}, "kiosk": {"depot": 1}}
    arrays = compile_arrays(read_problem(raw))
    best = brute_force(arrays)
    assert best is not None
    assert optimal(arrays, EXACT, clock()).objective == pytest.approx(best.objective)


def test_greedy_ignores_pairs_and_takes_the_largest_first() -> None:
    problem = read_problem(document())
    plan = greedy(compile_arrays(problem), clock())
    # map: 20 x 6 + 5 x 8 = 160 workload, air: 10 x (8 + 4) = 120, noise: 10 x (3 + 2) = 50; all dearer elsewhere.
    assert plan.placement.services == {"map": "kiosk"}
    assert plan.placement.topics == {"air": "kiosk", "noise": "mast"}


def test_time_that_is_up_still_gives_a_plan_with_a_gap() -> None:
    rng = np.random.default_rng(1)
    arrays = compile_arrays(draw(Family(devices=10, topics=20, services=15, workload_ratio=0.7), rng))
    plan = optimal(arrays, Limits(0.5), ticking(0.001))
    check(arrays, plan)
    assert plan.status == "time-limit"
    assert 0 < plan.gap < 1


@pytest.mark.parametrize(
    ("capacities", "text"),
    [
        ((100, 90, 80), "service map needs 160 workload, but the largest capacity is 100 (mast): short by 60"),
        ((160, 80, 80), "all containers need 330 workload, all devices have 320: short by 10"),
        ((160, 119, 119), "short on"),
    ],
)
def test_an_infeasible_problem_names_the_shortage(capacities: tuple[int, int, int], text: str) -> None:
    problem = read_problem(document())
    devices = tuple(replace(d, capacity_workload=c) for d, c in zip(problem.devices, capacities, strict=True))
    arrays = compile_arrays(replace(problem, devices=devices))
    for solve in (optimal, optimal_paper):
        plan = solve(arrays, EXACT, clock())
        assert plan.status == "infeasible"
        assert text in plan.shortage


def test_names_and_numbers_go_both_ways() -> None:
    problem = read_problem(document())
    where = np.array([2, 0, 1])
    assert (place_numbers(problem, place_names(problem, where)) == where).all()
