"""The bound in which both ends pay, against slow twins: all sets of a device, all placements of small problems."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.lab.delegation.instances import Family, draw
from metromq.planning import proving
from metromq.planning.arrays import Arrays, Floats, compile_arrays, price
from metromq.planning.device_bound import IN, MAYBE, OUT, SetBound
from metromq.planning.device_proof import Proof
from metromq.planning.device_sets import Box, Pays, Shape, floats
from metromq.planning.model import Problem
from metromq.planning.proving import Bounding
from metromq.planning.sets import sides
from metromq.planning.starts import warm_start
from metromq.planning.timing import Deadline, Helpers
from metromq.planning.two_sided import Ascent
from tests.planning.problems import brute_force, clock, problems, ticking

CLOSE = 1e-6


def nothing_told(bound: float) -> None:
    """Nobody listens."""


def ascent_of(arrays: Arrays) -> Ascent:
    return Ascent(arrays, sides(arrays), np.zeros(arrays.count, dtype=np.int64), 1.0)


class Drawn:
    """A device with random prices around what pairs save, where sets are neither empty nor whole."""

    def __init__(self, arrays: Arrays, seed: int) -> None:
        self.ascent = ascent_of(arrays)
        rng = np.random.default_rng(seed)
        count = self.ascent.count
        self.scale = float(self.ascent.weight.sum()) / max(count, 1) + 1.0
        self.own = rng.normal(-0.3, 1.0, count) * self.scale
        self.cap, self.cap3 = rng.uniform(0, self.scale, (2, count)) * (rng.random((2, count)) < 0.7)
        self.cap3[self.ascent.fillers :] = 0.0
        self.share = rng.uniform(0, 1, len(self.ascent.second)) * self.ascent.second
        numbers = np.concatenate([np.zeros(count * (1 + 2 * self.ascent.devices)), self.share])
        self.room = float(arrays.capacity[0])
        self.box = Box(Shape(*self.ascent.shaped()), self.room, seed)
        self.box.price(self.own.tolist(), self.cap.tolist(), self.cap3.tolist(), Pays(*self.ascent.paid(numbers)))

    def worth(self, chosen: tuple[int, ...]) -> float:
        """By the definition: own worth, pairs inside, and what is paid for either end outside, up to its price."""
        ascent, total = self.ascent, float(self.own[list(chosen)].sum())
        paid, third = np.zeros(ascent.count), np.zeros(ascent.count)
        for e, (t, s) in enumerate(zip(ascent.filler, ascent.head, strict=True)):
            if t in chosen and s in chosen:
                total += float(ascent.weight[e])
            elif s in chosen:
                paid[t] += self.share[e]
                third[t] += ascent.third * ascent.weight[e]
            elif t in chosen:
                paid[s] += ascent.second[e] - self.share[e]
        return total - float(np.minimum(paid, self.cap).sum() + np.minimum(third, self.cap3).sum())

    def best(self) -> float:
        count, load = self.ascent.count, self.ascent.load
        subsets = (c for n in range(count + 1) for c in itertools.combinations(range(count), n))
        return max(self.worth(c) for c in subsets if load[list(c)].sum() <= self.room)


@settings(max_examples=80, deadline=None)
@given(problems(7), st.integers(0, 1000), st.sampled_from([0.0, 0.2]), st.sampled_from([3, 10_000]))
def test_no_set_is_worth_more_than_is_proven(problem: Problem, seed: int, miss: float, steps: int) -> None:
    """A whole search with nothing to miss finds the best set; one that is cut short says what it may have missed."""
    drawn = Drawn(compile_arrays(problem), seed)
    best, tiny = drawn.best(), CLOSE * drawn.scale
    drawn.box.put([])
    proof = Proof(drawn.box, drawn.box.value + miss * drawn.scale, steps, Deadline.after(60.0, clock()))
    most = proof.run()
    assert most >= best - tiny
    if steps > 3 and not miss:
        assert most <= best + tiny
        assert abs(proof.value - best) <= tiny
    drawn.box.put(proof.best)
    assert proof.value <= best + tiny
    assert abs(drawn.box.value - proof.value) <= tiny
    assert drawn.box.used <= drawn.room * (1 + CLOSE)


@settings(max_examples=60, deadline=None)
@given(problems(7), st.integers(0, 1000))
def test_the_local_search_prices_its_sets_right(problem: Problem, seed: int) -> None:
    drawn = Drawn(compile_arrays(problem), seed)
    worth = drawn.box.search(20)
    assert abs(worth - drawn.worth(tuple(drawn.box.members()))) <= CLOSE * drawn.scale
    assert worth <= drawn.best() + CLOSE * drawn.scale
    assert drawn.box.used <= drawn.room * (1 + CLOSE)


@settings(max_examples=60, deadline=None)
@given(problems(7), st.integers(0, 1000))
def test_a_change_is_worth_what_it_changes(problem: Problem, seed: int) -> None:
    """For every container and every set; and who only asks for more than that is told no other figure."""
    drawn = Drawn(compile_arrays(problem), seed)
    box, count, tiny = drawn.box, drawn.ascent.count, CLOSE * drawn.scale
    for size in range(count + 1):
        for chosen in itertools.combinations(range(count), size):
            box.put(list(chosen))
            before = drawn.worth(chosen)
            for i in range(count):
                after = drawn.worth(tuple(sorted({*chosen} ^ {i})))
                assert abs(box.change(i) - (after - before)) <= tiny
                if i not in chosen:
                    assert abs(box.added(i, after - before - tiny) - (after - before)) <= tiny
                    assert box.added(i, after - before + tiny) <= after - before + tiny


@pytest.mark.parametrize("seed", range(150))
def test_no_set_beats_the_bound_at_any_stage(seed: int) -> None:
    """Whatever heads are in, out or may come, however much room there is and whatever it costs."""
    rng = np.random.default_rng(seed)
    drawn = Drawn(compile_arrays(draw(Family(3, 3, 5, utilisation=0.8, workload_ratio=0.7), rng)), seed)
    ascent, box, load = drawn.ascent, drawn.box, drawn.ascent.load
    count, fillers = ascent.count, ascent.fillers
    box.room = drawn.room = rng.uniform(0.2, 0.8) * float(load.sum())
    bound = SetBound(box)
    roles = rng.choice([int(role) for role in (OUT, MAYBE, MAYBE, MAYBE, IN)], count - fillers)
    inside = [fillers + int(h) for h in np.flatnonzero(roles == IN)]
    room = drawn.room - float(load[inside].sum())
    for h, role in enumerate(roles):
        bound.role[h] = int(role)
    box.put(inside)
    base = float(drawn.own[inside].sum()) - bound.gained(box.saved, box.paid)
    flow = floats([0.0] * len(ascent.weight))
    costs = np.concatenate([[0.0], np.geomspace(0.02, 3.0, 20)]) * drawn.scale / float(load.mean())
    open_ends = [i for i in range(count) if i < fillers or roles[i - fillers] == MAYBE]
    sets = (tuple(inside) + c for n in range(len(open_ends) + 1) for c in itertools.combinations(open_ends, n))
    best = max((drawn.worth(c) for c in sets if load[list(c)].sum() <= drawn.room), default=-np.inf)
    if room >= 0:
        assert min(bound.bounded(base, room, float(cost), flow) for cost in costs) >= best - CLOSE * drawn.scale


def bound_of(arrays: Arrays, target: float, helpers: Helpers | None = None) -> float:
    time = Deadline.after(60.0, clock())
    start, _ = warm_start(arrays, time)
    assert start is not None
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("ROUNDS", 60), ("OFTEN", 20), ("KICKS", 5), ("LOOK_KICKS", 5)):
            patch.setattr(proving, name, value)
        bounding = Bounding(arrays, start, price(arrays, start).objective, time, helpers)
        bounding.climb()
        return bounding.prove(target, nothing_told)


@settings(max_examples=25, deadline=None)
@given(problems(6))
def test_no_placement_is_cheaper_than_the_bound(problem: Problem) -> None:
    arrays = compile_arrays(problem)
    best = brute_force(arrays)
    if best is None or warm_start(arrays, Deadline.after(60.0, clock()))[0] is None:
        return
    assert bound_of(arrays, 2 * abs(best.objective) + 1) <= best.objective * (1 + CLOSE) + CLOSE


def on_a_line(devices: int, seed: int) -> Arrays:
    """Devices in a row, where hops are dear and most pairs do not fit onto one device."""
    problem = draw(Family(devices, 3, 2, utilisation=0.8, workload_ratio=0.7), np.random.default_rng(seed))
    hops = tuple(tuple(abs(a - b) for b in range(devices)) for a in range(devices))
    return compile_arrays(replace(problem, hops=hops))


def lines() -> list[tuple[Arrays, float]]:
    drawn = [on_a_line(devices, seed) for devices, seed in itertools.product((2, 3, 4), range(3))]
    return [(arrays, best.objective) for arrays in drawn if (best := brute_force(arrays)) is not None]


def test_second_hops_are_only_paid_where_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """On lines of two to four devices, against all placements; if nobody gets the price of nearness back, it shows."""
    assert all(bound_of(arrays, 2 * best) <= best * (1 + CLOSE) for arrays, best in lines())

    def without_refund(self: Ascent, numbers: Floats) -> Floats:
        own: Floats = numbers[None, : self.count] - self.linear.T
        return own

    monkeypatch.setattr(Ascent, "own", without_refund)
    assert any(bound_of(arrays, 2 * best) > best * (1 + CLOSE) for arrays, best in lines())


def test_a_proof_that_tells_too_little_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays, best = lines()[-1]
    honest = proving.proven

    def modest(*given: Any) -> proving.Proven:
        found = honest(*given)
        return replace(found, most=found.most - 0.3 * best)

    monkeypatch.setattr(proving, "proven", modest)
    assert bound_of(arrays, 2 * best) > best * (1 + CLOSE)


def test_helpers_find_the_same_bound() -> None:
    arrays, best = lines()[-1]
    alone = bound_of(arrays, 2 * best)
    with ThreadPoolExecutor(2) as executor:
        assert abs(bound_of(arrays, 2 * best, Helpers(executor, 2)) - alone) <= 1e-3 * best


def test_the_bound_ends_in_time() -> None:
    arrays = compile_arrays(draw(Family(8, 12, 8, utilisation=0.6, workload_ratio=0.6), np.random.default_rng(1)))
    start, _ = warm_start(arrays, Deadline.after(60.0, clock()))
    assert start is not None
    cost = price(arrays, start).objective
    for seconds in (0.03, 0.5):
        bounding = Bounding(arrays, start, cost, Deadline.after(seconds, ticking()), None)
        bounding.climb()
        assert bounding.prove(cost, nothing_told) < cost
