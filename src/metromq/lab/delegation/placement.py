"""Random instances of the delegation paper under its three methods: optimal, greedy and random placement.

Every point draws its instances anew from the seed, the figure and the point, so figures do not depend on each other.
A solve may take SOLVE_LIMIT_S; what it has not proven by then is counted in the notes. The random method's price is
the mean of RANDOM_DRAWS placements of the same instance: a single draw would only add noise to the same mean.
"""

import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from metromq.lab.delegation.instances import Family, draw
from metromq.lab.intervals import Sample, of_mean
from metromq.lab.report import RunOptions
from metromq.planning import (
    Arrays,
    Limits,
    Price,
    compile_arrays,
    fits_at_all,
    greedy_places,
    optimal,
    place_numbers,
    price,
    random_places,
)

SOLVE_LIMIT_S = 5.0
SOLVE_GAP = 1e-3
RANDOM_DRAWS = 10
MOST_DRAWS = 20  # for one instance that every method can place
METHODS = ("optimal", "greedy", "random")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One instance under all three methods; `proven` is False after the time limit."""

    optimal: Price
    greedy: Price
    random: tuple[Price, ...]
    proven: bool


Measure = Callable[[Price], float]


def place(family: Family, rng: np.random.Generator) -> Outcome | None:
    """Draws an instance and places it by all methods; None when one of them cannot, as the paper leaves those out."""
    arrays = compile_arrays(draw(family, rng))
    where, stuck = greedy_places(arrays, by_kind=family.greedy_by_kind)
    blind = random_prices(arrays, rng, family.random_shuffled)
    if stuck >= 0 or not blind:
        return None
    plan = optimal(arrays, Limits(SOLVE_LIMIT_S, SOLVE_GAP), time.perf_counter)
    best = price(arrays, place_numbers(arrays.problem, plan.placement))
    return Outcome(best, price(arrays, where), blind, plan.status == "optimal")


def random_prices(arrays: Arrays, rng: np.random.Generator, shuffled: bool) -> tuple[Price, ...]:
    """Of those random placements that found room for everything."""
    draws = [random_places(arrays, rng, shuffled) for _ in range(RANDOM_DRAWS)]
    return tuple(price(arrays, found) for found, last in draws if last < 0)


def outcomes_of(family: Family, count: int, options: RunOptions, *words: object) -> tuple[list[Outcome], int]:
    """`count` instances that every method can place, and how many others were drawn on the way."""
    found: list[Outcome] = []
    for attempt in range(MOST_DRAWS * count):
        outcome = place(family, rng_of(options, *words, attempt))
        if outcome is not None:
            found.append(outcome)
        if len(found) == count:
            return found, attempt + 1 - count
    return found, MOST_DRAWS * count - len(found)


def compared(outcomes: Sequence[Outcome], measure: Measure) -> dict[str, Sample]:
    """Each method over the instances."""
    return {
        "optimal": of_mean([measure(o.optimal) for o in outcomes]),
        "greedy": of_mean([measure(o.greedy) for o in outcomes]),
        "random": of_mean([float(np.mean([measure(p) for p in o.random])) for o in outcomes]),
    }


def saved(outcomes: Sequence[Outcome]) -> dict[str, Sample]:
    """The power consumption reduction ratio against random (PCRR), in percent."""
    base = [float(np.mean([p.power_mw for p in o.random])) for o in outcomes]
    return {
        "optimal": of_mean([100 * (1 - o.optimal.power_mw / b) for o, b in zip(outcomes, base, strict=True)]),
        "greedy": of_mean([100 * (1 - o.greedy.power_mw / b) for o, b in zip(outcomes, base, strict=True)]),
    }


def apart(outcomes: Sequence[Outcome], measure: Measure) -> Sample:
    """By how much greedy exceeds the optimum, instance by instance."""
    return of_mean([measure(o.greedy) - measure(o.optimal) for o in outcomes])


def failed(family: Family, arrays: Arrays, rng: np.random.Generator) -> dict[str, bool]:
    """Which methods cannot place the instance; random tries once."""
    fits = fits_at_all(arrays, Limits(SOLVE_LIMIT_S), time.perf_counter)
    return {
        "optimal": not fits,
        "greedy": greedy_places(arrays, by_kind=family.greedy_by_kind)[1] >= 0,
        "random": random_places(arrays, rng, family.random_shuffled)[1] >= 0,
    }


def rng_of(options: RunOptions, *words: object) -> np.random.Generator:
    """A generator of its own for every point and instance."""
    return np.random.default_rng([options.seed, zlib.crc32(repr(words).encode())])
