"""Searches what the paper leaves open: every combination of a grid is judged by the six numbers that the paper prints.

The measure is the mean distance from those numbers in percentage points; below "< 5 %" there is none. The text also
says that the optimum's failures are low, which is a word and no number: it is shown beside, and a family is a
candidate if the optimum fails at most half as often as greedy. A family must be able to make its instances: where
fewer than one in three can be placed by all methods, what is left is no sample of it. Optima are the result of
annealing here, not proven.

Beside the grid stand NAMED families that make one figure better than the others: they are measured alike, but take no
part in the choice.
"""

import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from metromq.lab.delegation.families import as_text, family_of
from metromq.lab.delegation.instances import PRINTED_MW_PER_MBPS, Family, draw
from metromq.lab.delegation.placement import SOLVE_LIMIT_S, Outcome, random_prices, rng_of, saved
from metromq.lab.intervals import Sample, of_share
from metromq.lab.report import Points, Report, RunOptions
from metromq.planning import (
    Arrays,
    Deadline,
    Ints,
    Limits,
    anneal,
    compile_arrays,
    fits_at_all,
    greedy_places,
    price,
    random_places,
)

# Up to such traffic most instances fit into the printed capacities at utilisation 50 %; ten times as much does not.
TAU = (20.0, 50.0, 80.0, 100.0)
DSD = (15.0, 55.0)
DST = (160.0, 200.0)
PRICES = (1.0, 100.0, 300.0, 1000.0)  # times the printed one
SERVICES = (6, 10)  # in Fig. 21
Reading = tuple[bool, bool]  # greedy by kind, random shuffled
READINGS: tuple[Reading, ...] = tuple(itertools.product((False, True), (False, True)))
INSTANCES = 8  # for each saving; FAILURES times as many for failures
FAILURES = 8
SWEEPS = 30
MOST_DRAWS = 3  # for one instance that every method can place: a family of which most are left out is none
NAMED_DRAWS = 20  # the same for named families, which are shown also where few instances can be placed
LETTERS = "ABCDEFGH"  # for the best ones
# Which figure a family is for, and what it is.
NAMED: dict[str, str] = {
    "for Fig. 21": "tau=150,dsd=80,dst=200",
    "for Fig. 19": "tau=20,dsd=20,dst=300,price=100",
}

# What is printed: (name, published, whether less is as good).
PRINTED = (
    ("Fig. 19 optimum", 20.0, False),
    ("Fig. 19 greedy", 5.0, True),
    ("Fig. 21 random", 70.0, False),
    ("Fig. 21 greedy", 40.0, False),
    ("Fig. 22 optimum", 26.0, False),
    ("Fig. 22 greedy", 10.0, False),
)
LOW = "Fig. 21 optimum"


@dataclass(frozen=True, slots=True)
class Fit:
    """A family of instances with what it gives for each printed number, and for the optimum's failures."""

    family: Family
    found: dict[str, Sample]

    @property
    def distance(self) -> float:
        """The measure, in percentage points; endless where a number cannot be had."""
        if any(name not in self.found for name, _, _ in PRINTED):
            return math.inf
        far = [
            max(self.found[name].value - published, 0.0) if less else abs(self.found[name].value - published)
            for name, published, less in PRINTED
        ]
        return sum(far) / len(far)

    @property
    def candidate(self) -> bool:
        return self.found[LOW].value <= self.found["Fig. 21 greedy"].value / 2

    @property
    def name(self) -> str:
        family = self.family
        times = family.network_mw_per_mbps / PRINTED_MW_PER_MBPS
        order = "kind" if family.greedy_by_kind else "all"
        turn = "shuffled" if family.random_shuffled else "listed"
        traffic = f"{family.client_mbps:g}/{family.user_mbps:g}/{family.topic_mbps:g}"
        return f"{traffic} x{times:g} {order} {turn} s{family.services}"


def run_sweep(name: str, options: RunOptions) -> Report:
    """Every family of the grid, and the ones that fit best."""
    fits = sorted(search(options), key=lambda fit: fit.distance)
    candidates = [fit for fit in fits if fit.candidate]
    best = candidates[: len(LETTERS)]
    named = {label: measure(family_of(text), options) for label, text in NAMED.items()}
    shown = [*best, *(fit for fit, _ in named.values())]
    names = (*(printed[0] for printed in PRINTED), LOW)
    samples = {what: {float(n): fit.found[what] for n, fit in enumerate(shown) if what in fit.found} for what in names}
    series: dict[str, Points] = {what: [(x, s.value) for x, s in found.items()] for what, found in samples.items()}
    points: dict[str, Points] = {what: [(float(n), y) for n in range(len(shown))] for what, y, _ in PRINTED}
    notes = [
        f"{len(fits)} families: tau {_listed(TAU)}, dsd {_listed(DSD)}, dst {_listed(DST)} Mbps; {_listed(PRICES)} "
        "times the printed price; greedy over all or by kind; random in listed or shuffled order; "
        f"{_listed(SERVICES)} services in Fig. 21",
        "families of which fewer than one instance in three can be placed by all methods are left out",
        "the best of so many looks better than it is: the figures draw other instances",
        "measure: the mean distance from the six printed numbers in percentage points; names are tau/dsd/dst, price, "
        "greedy's order, random's order, services in Fig. 21",
        f"{len(candidates)} are candidates: the optimum fails at most half as often as greedy at WR 90 %",
        *(f"{letter}: {fit.name}, {fit.distance:.1f} points" for letter, fit in zip(LETTERS, best, strict=False)),
        *(_without_low(fit) for fit in fits[:1] if not fit.candidate),
        f"the families' measures: best {fits[0].distance:.1f}, median {fits[len(fits) // 2].distance:.1f}, worst "
        f"{fits[-1].distance:.1f} points",
        *(_beside(label, fit, drawn) for label, (fit, drawn) in named.items()),
    ]
    return Report(
        name,
        series,
        [],
        "family",
        "%",
        tuple(notes),
        samples=samples,
        published_points=points,
        categories=(*LETTERS[: len(best)], *named),
    )


def _listed(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _without_low(fit: Fit) -> str:
    return (
        f"nearest of all, but the optimum fails as often as {fit.found[LOW].value:.0f} %: {fit.name}, "
        f"{fit.distance:.1f} points"
    )


def _beside(label: str, fit: Fit, drawn: "dict[str, Placed]") -> str:
    """What became of a named family, with the rules that the grid's families are held to."""
    broken = [
        f"Fig. {figure}: only {len(placed.outcomes)} of {placed.draws} instances can be placed by all methods"
        for figure, placed in drawn.items()
        if placed.draws > MOST_DRAWS * len(placed.outcomes)
    ]
    if not fit.candidate:
        broken.append("the optimum fails more than half as often as greedy")
    distance = f"{fit.distance:.1f} points" if math.isfinite(fit.distance) else "not all numbers can be had"
    return f"{label} (--family {as_text(fit.family)}): {distance}; " + (
        "no candidate: " + ", ".join(broken) if broken else "it keeps the rules for candidates"
    )


def measure(family: Family, options: RunOptions) -> "tuple[Fit, dict[str, Placed]]":
    """One family by itself, with the instances that were drawn for the savings."""
    count = options.instances or INSTANCES
    reading = (family.greedy_by_kind, family.random_shuffled)
    found = dict(_failures(family, count, options)[reading])
    drawn: dict[str, Placed] = {}
    for figure, point in _points(family):
        drawn[figure] = _outcomes(point, count, options, figure, (reading,), NAMED_DRAWS)[reading]
        if drawn[figure].outcomes:
            found |= _named_savings(figure, drawn[figure].outcomes)
    return Fit(family, found), drawn


def search(options: RunOptions) -> Iterator[Fit]:
    """All families of the grid; those that differ in the readings alone share their instances."""
    count = options.instances or INSTANCES
    shapes = list(itertools.product(TAU, DSD, DST))
    for done, (tau, dsd, dst) in enumerate(shapes):
        shape = Family(client_mbps=tau, user_mbps=dsd, topic_mbps=dst)
        failures = {services: _failures(replace(shape, services=services), count, options) for services in SERVICES}
        for times in PRICES:
            priced = replace(shape, network_mw_per_mbps=times * PRINTED_MW_PER_MBPS)
            savings = _savings(priced, count, options)
            for reading, services in itertools.product(READINGS, SERVICES):
                family = replace(priced, services=services, greedy_by_kind=reading[0], random_shuffled=reading[1])
                if reading in savings:
                    yield Fit(family, savings[reading] | failures[services][reading])
        options.progress(done + 1, len(shapes))


Found = dict[Reading, dict[str, Sample]]


def _savings(family: Family, count: int, options: RunOptions) -> Found:
    """PCRR at utilisation 50 % and at WR 80 %, for readings in which enough instances can be placed by all methods."""
    found: Found = {reading: {} for reading in READINGS}
    for figure, point in _points(family):
        for reading, placed in _outcomes(point, count, options, figure).items():
            if len(placed.outcomes) < count:
                found.pop(reading, None)
            elif reading in found:
                found[reading] |= _named_savings(figure, placed.outcomes)
    return found


def _points(family: Family) -> tuple[tuple[str, Family], ...]:
    return ("19", replace(family, utilisation=0.5)), ("22", replace(family, workload_ratio=0.8))


def _named_savings(figure: str, outcomes: list[Outcome]) -> dict[str, Sample]:
    return {
        f"Fig. {figure} {'optimum' if method == 'optimal' else method}": sample
        for method, sample in saved(outcomes).items()
    }


@dataclass(slots=True)
class Placed:
    """Instances that all methods can place, and how many were drawn for them."""

    outcomes: list[Outcome] = field(default_factory=list)
    draws: int = 0


def _outcomes(
    family: Family,
    count: int,
    options: RunOptions,
    figure: str,
    readings: tuple[Reading, ...] = READINGS,
    most_draws: int | None = None,
) -> dict[Reading, Placed]:
    """The same instances in every reading: both orders of greedy, both of random, and one optimum."""
    found = {reading: Placed() for reading in readings}
    for attempt in range((most_draws or MOST_DRAWS) * count):
        open_ones = {reading: placed for reading, placed in found.items() if len(placed.outcomes) < count}
        if not open_ones:
            break
        for placed in open_ones.values():
            placed.draws += 1
        rng = rng_of(options, "sweep", figure, attempt)
        arrays = compile_arrays(draw(family, rng))
        greedy = {by_kind: greedy_places(arrays, by_kind=by_kind) for by_kind in (False, True)}
        blind = {shuffled: random_prices(arrays, rng, shuffled) for shuffled in (False, True)}
        starts = [where for where, stuck in greedy.values() if stuck < 0]
        wanting = [reading for reading in open_ones if greedy[reading[0]][1] < 0 and blind[reading[1]]]
        if not starts or not wanting:
            continue
        best = price(arrays, _annealed(arrays, starts[0]))
        for reading in wanting:
            outcome = Outcome(best, price(arrays, greedy[reading[0]][0]), blind[reading[1]], proven=False)
            found[reading].outcomes.append(outcome)
    return found


def _annealed(arrays: Arrays, start: Ints) -> Ints:
    return anneal(arrays, start, SWEEPS, np.random.default_rng(1), Deadline.after(1.0, lambda: 0.0))[0]


def _failures(family: Family, count: int, options: RunOptions) -> Found:
    full = replace(family, workload_ratio=0.9)
    lost = np.zeros(5, dtype=np.int64)
    for i in range(FAILURES * count):
        rng = rng_of(options, "sweep", "21", i)
        arrays = compile_arrays(draw(full, rng))
        lost += [
            not fits_at_all(arrays, Limits(SOLVE_LIMIT_S), time.perf_counter),
            *(greedy_places(arrays, by_kind=by_kind)[1] >= 0 for by_kind in (False, True)),
            *(random_places(arrays, rng, shuffled)[1] >= 0 for shuffled in (False, True)),
        ]
    best, *others = (of_share(number, FAILURES * count) for number in lost.tolist())
    return {
        reading: {LOW: best, "Fig. 21 greedy": others[reading[0]], "Fig. 21 random": others[2 + reading[1]]}
        for reading in READINGS
    }
