"""Steps to a plan: the walker here counts loads by hand, and no device may carry too much at any moment."""

import itertools
import resource
import time
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.lab.delegation.instances import Family, draw
from metromq.planning import detours
from metromq.planning import steps as module
from metromq.planning.arrays import compile_arrays, place_names
from metromq.planning.baselines import greedy, random
from metromq.planning.large import large
from metromq.planning.model import Device, Goal, Limits, Placement, Problem, Service, Topic
from metromq.planning.optimal import optimal
from metromq.planning.planner import move_price
from metromq.planning.steps import PlanStep, Transition, route_between
from metromq.planning.timing import Job
from tests.planning.problems import clock, problems


def boxes(capacities: Sequence[float], loads: Sequence[float]) -> Problem:
    """Services whose load is their user traffic at the first device."""
    names = [f"d{n}" for n in range(len(capacities))]
    hops = tuple(tuple(int(a != b) for b in names) for a in names)
    services = tuple(Service(f"s{n}", 1.0, 1.0, {}, {"d0": load}) for n, load in enumerate(loads))
    return Problem(
        10.0, 0.0, tuple(Device(n, c, 0.2) for n, c in zip(names, capacities, strict=True)), hops, (), services
    )


def at(*devices: int) -> Placement:
    return Placement({}, {f"s{n}": f"d{device}" for n, device in enumerate(devices)})


def worst_excess(problem: Problem, present: Placement, route: Transition) -> float:
    """Walks the steps: a moving container counts on both devices. What was too full at first may stay so."""
    loads = dict(
        zip(
            [("topic", t.name) for t in problem.topics] + [("service", s.name) for s in problem.services],
            compile_arrays(problem).load.tolist(),
            strict=True,
        )
    )
    capacity = {device.name: device.capacity_workload for device in problem.devices}
    where = {("topic", n): d for n, d in present.topics.items()} | {
        ("service", n): d for n, d in present.services.items()
    }
    excess = 0.0
    for step in route.steps:
        key = (step.kind, step.name)
        assert where.get(key, "") == step.source
        if step.target:
            there = sum(loads[k] for k, device in where.items() if device == step.target)
            if loads[key]:
                excess = max(excess, there + loads[key] - capacity[step.target] * (1 + 1e-8))
            where[key] = step.target
        else:
            del where[key]
    return excess


def arrives(present: Placement, planned: Placement, route: Transition) -> bool:
    where = {("topic", n): d for n, d in present.topics.items()} | {
        ("service", n): d for n, d in present.services.items()
    }
    for step in route.steps:
        where[step.kind, step.name] = step.target
    wanted = {("topic", n): d for n, d in planned.topics.items()} | {
        ("service", n): d for n, d in planned.services.items()
    }
    return {key: device for key, device in where.items() if device} == wanted


def reachable(problem: Problem, first: tuple[int, ...], last: tuple[int, ...]) -> bool:
    """Whether any route at all leads there, by looking at every placement that single moves can reach."""
    loads = compile_arrays(problem).load.tolist()
    caps = [device.capacity_workload for device in problem.devices]
    seen, waiting = {first}, [first]
    while waiting:
        here = waiting.pop()
        for n, d in itertools.product(range(len(loads)), range(len(caps))):
            full = sum(load for load, at in zip(loads, here, strict=True) if at == d)
            after = (*here[:n], d, *here[n + 1 :])
            if d != here[n] and after not in seen and (not loads[n] or full + loads[n] <= caps[d] * (1 + 1e-9)):
                seen.add(after)
                waiting.append(after)
    return last in seen


def test_the_chain_goes_from_its_open_end() -> None:
    problem = boxes((10, 10, 10), (8, 8))
    route = route_between(problem, at(0, 1), at(1, 2))
    assert [step.name for step in route.steps] == ["s1", "s0"]
    assert route.order == "safe"


def test_an_order_that_blocks_itself_is_taken_back() -> None:
    """s0 fits on d1 at once, but then s1 cannot come, for which s2 on d1 has to leave to where s1 is."""
    problem = boxes((10, 13, 10), (4, 6, 6))
    route = route_between(problem, at(0, 2, 1), at(1, 1, 2))
    assert route.order == "safe"
    assert worst_excess(problem, at(0, 2, 1), route) <= 0


def test_a_circle_steps_aside_and_a_locked_one_says_so() -> None:
    problem = boxes((10, 10, 8), (8, 8))
    route = route_between(problem, at(0, 1), at(1, 0))
    assert route.order == "safe"
    assert len(route.steps) == 3
    assert worst_excess(problem, at(0, 1), route) <= 0
    locked = boxes((10, 10, 7), (8, 8))
    route = route_between(locked, at(0, 1), at(1, 0))
    assert route.order == "none-exists"
    assert route.overloads == ("step 1 puts service s0 on d1, 6 workload more than it can carry",)


def test_too_much_to_look_at_is_not_a_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detours, "MOST_STATES", 1)
    assert route_between(boxes((10, 10, 7, 7), (8, 8, 1)), at(0, 1, 2), at(1, 0, 2)).order == "none-found"


def test_stops_make_room_if_they_have_to() -> None:
    problem = boxes((10, 10), (8, 8))
    present, planned = at(0, 1), Placement({}, {"s0": "d1"})
    route = route_between(problem, present, planned)
    assert [step.action for step in route.steps] == ["stop", "move"]
    roomy = boxes((10, 20), (8, 8))
    assert [step.action for step in route_between(roomy, present, planned).steps] == ["move", "stop"]


def test_brokers_start_before_services_and_stop_after_them() -> None:
    problem = Problem(
        10.0,
        0.0,
        (Device("d0", 1000, 0.2),),
        ((0,),),
        (Topic("t", {"d0": 1.0}), Topic("old", {"d0": 1.0})),
        (Service("s", 1, 1, {"t": 1.0}), Service("gone", 1, 1, {"old": 1.0})),
    )
    route = route_between(problem, Placement({"old": "d0"}, {"gone": "d0"}), Placement({"t": "d0"}, {"s": "d0"}))
    assert [(step.action, step.name) for step in route.steps] == [
        ("start", "t"),
        ("start", "s"),
        ("stop", "gone"),
        ("stop", "old"),
    ]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from([4.0, 6.0, 9.0, 12.0]), min_size=2, max_size=3),
    st.lists(st.sampled_from([0.0, 2.0, 3.0, 5.0]), min_size=1, max_size=4),
    st.data(),
)
def test_a_route_is_safe_whenever_one_exists(caps: list[float], loads: list[float], data: st.DataObject) -> None:
    problem = boxes(caps, loads)

    def fitting() -> Iterator[tuple[int, ...]]:
        for where in itertools.product(range(len(caps)), repeat=len(loads)):
            used = [sum(x for x, d in zip(loads, where, strict=True) if d == n) for n in range(len(caps))]
            if all(x <= cap for x, cap in zip(used, caps, strict=True)):
                yield where

    choices = list(fitting())
    if not choices:
        return
    first, last = data.draw(st.sampled_from(choices)), data.draw(st.sampled_from(choices))
    route = route_between(problem, at(*first), at(*last))
    assert arrives(at(*first), at(*last), route)
    assert route.order == ("safe" if reachable(problem, first, last) else "none-exists")
    assert (worst_excess(problem, at(*first), route) <= 1e-9) == (route.order == "safe") == (not route.overloads)


def test_plans_are_reached_without_overload() -> None:
    """From random placements to optima at 85 % load, where the plain order overloads a device in many."""
    plain = safe = 0
    for seed in range(37):
        rng = np.random.default_rng(seed)
        arrays = compile_arrays(draw(Family(4, 4, 4, workload_ratio=0.85), rng))
        before = random(arrays, rng, clock())
        plan = optimal(arrays, Limits(5.0, 0.01), clock())
        if not before.feasible or not plan.feasible:
            continue
        route = route_between(arrays.problem, before.placement, plan.placement)
        assert arrives(before.placement, plan.placement, route)
        safe += 1
        assert (worst_excess(arrays.problem, before.placement, route) <= 1e-6) == (route.order == "safe")
        moves = module._changes(before.placement, plan.placement)[0]
        plain += worst_excess(arrays.problem, before.placement, Transition(tuple(moves))) > 1e-6
    assert safe > 5
    assert plain > 0  # the observer does find overloads where they are


@settings(max_examples=50, deadline=None)
@given(problems(), st.integers(0, 99))
def test_new_and_old_containers_come_and_go(problem: Problem, seed: int) -> None:
    arrays = compile_arrays(problem)
    rng = np.random.default_rng(seed)
    before, after = random(arrays, rng, clock()), random(arrays, rng, clock())
    if not before.feasible or not after.feasible:
        return
    some = Placement(
        {n: d for n, d in before.placement.topics.items() if rng.random() < 0.7},
        {n: d for n, d in before.placement.services.items() if rng.random() < 0.7},
    )
    planned = Placement(
        {n: d for n, d in after.placement.topics.items() if rng.random() < 0.7},
        {n: d for n, d in after.placement.services.items() if rng.random() < 0.7},
    )
    route = route_between(problem, some, planned)
    assert arrives(some, planned, route)
    assert (worst_excess(problem, some, route) <= 1e-6) == (route.order == "safe")


def test_steps_are_data() -> None:
    assert PlanStep("move", "topic", "t", "a", "b") == PlanStep("move", "topic", "t", "a", "b")
    problem = boxes((10,), (1,))
    assert place_names(problem, np.array([0])) == at(0)
    assert route_between(problem, at(0), at(0)) == Transition(())


@pytest.mark.parametrize(
    ("family", "seed"),
    [
        (Family(20, 60, 40, workload_ratio=0.80), 1),
        (Family(20, 60, 40, workload_ratio=0.85), 3),
        (Family(20, 60, 40, workload_ratio=0.90), 1),
        (Family(10, 30, 20, workload_ratio=0.85), 3),
    ],
    ids=["20-0.80", "20-0.85", "20-0.90", "10-0.85"],
)
def test_tight_cities_are_reached_with_few_steps_aside(family: Family, seed: int) -> None:
    """Too many placements to look at all, and no order of the moves alone that was found in 20,000 dead ends."""
    rng = np.random.default_rng(seed)
    problem = draw(family, rng)
    arrays = compile_arrays(problem)
    before = random(arrays, rng, clock())
    if not before.feasible:
        before = greedy(arrays, clock())
    goal = Goal(present=before.placement, move=move_price(problem, before.placement))
    plan = large(compile_arrays(problem, goal), Limits(3.0), 1, time.perf_counter)
    route = route_between(problem, before.placement, plan.placement)
    assert (route.order, route.overloads) == ("safe", ())
    assert arrives(before.placement, plan.placement, route)
    assert worst_excess(problem, before.placement, route) <= 1e-6
    assert plan.moves <= len(route.steps) <= 1.3 * plan.moves
    assert route == route_between(problem, before.placement, plan.placement)


def crowd(devices: int, each: int, seed: int) -> tuple[Problem, Placement, Placement]:
    """Two services want each other's device, and none else has room for them; many small ones have to move as well."""
    rng = np.random.default_rng(seed)
    small = (devices - 2) * each
    problem = boxes([10.0, 10.0, *[10.0] * (devices - 2)], [8.0, 8.0, *rng.uniform(0.5, 1.5, small) * 8 / each])
    first = [2 + n % (devices - 2) for n in range(small)]
    last = rng.permutation(first).tolist()
    loads = compile_arrays(problem).load
    for where in (first, last):
        used = np.bincount(where, weights=loads[2:], minlength=devices)
        while used.max() > 10.0:  # from the fullest to the emptiest, until everything fits
            d = int(used.argmax())
            n = next(n for n in range(small) if where[n] == d)
            where[n] = 2 + int(used[2:].argmin())
            used = np.bincount(where, weights=loads[2:], minlength=devices)
    return problem, at(0, 1, *first), at(1, 0, *last)


def test_a_large_city_without_a_way_is_answered_soon() -> None:
    problem, before, planned = crowd(200, 10, 1)
    started, held = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    route = route_between(problem, before, planned)
    took, grown = time.process_time() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held
    assert route.order == "none-found"
    assert arrives(before, planned, route)
    assert 1 <= len(route.overloads) <= 20
    assert took < 20  # two seconds where nobody else works
    assert grown < 150_000  # kB


def test_a_search_that_is_stopped_gives_what_it_has() -> None:
    problem, before, planned = crowd(200, 10, 1)
    started = time.process_time()
    route = route_between(problem, before, planned, Job(stopped=True))
    assert time.process_time() - started < 5  # a fraction of a second where nobody else works
    assert arrives(before, planned, route)
    assert route.order == "none-found"
    assert 1 <= len(route.overloads) <= 20
    locked = route_between(boxes((10, 10, 7), (8, 8)), at(0, 1), at(1, 0), Job(stopped=True))
    assert locked.order == "none-found"  # what was not looked at is not proven
