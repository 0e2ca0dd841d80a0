"""Who publishes and wants what, and where: the overlay paper's workload, drawn by seed.

The sites are coordinates of coffee shops in the US, a seeded sample of 3,300 of a public list of 10,843: the kind of
set that the paper took its broker locations from (its reference 30). Only the coordinates are used.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any, Literal

import numpy as np

Mode = Literal["uniform", "zipf"]
ZIPF_ALPHA = 1.2
SUBSCRIBERS = 10  # of each topic, at each broker whose clients want it


@dataclass(frozen=True, slots=True)
class Load:
    """One setting of an experiment. `many`: clients of other brokers publish a topic, too (Figs. 8 to 11)."""

    brokers: int = 300
    topics: int = 100
    local_rate: float = 0.8
    mode: Mode = "uniform"
    many: bool = False
    same: bool = True  # with `many` and uniform choice: they publish the topics that they subscribe to

    @property
    def local(self) -> int:
        return round(self.topics * self.local_rate)


@dataclass(frozen=True, slots=True)
class Workload:
    """`publishers` and `subscribers` have, for each topic, the brokers (by number) and how many clients there."""

    load: Load
    places: tuple[tuple[float, float], ...]
    publishers: Mapping[str, Mapping[int, int]]
    subscribers: Mapping[str, Mapping[int, int]]


@lru_cache(maxsize=1)
def sites() -> tuple[tuple[float, float], ...]:
    file = resources.files("metromq.lab.overlay").joinpath("broker-sites.csv")
    with file.open(encoding="utf-8") as lines:
        return tuple((float(row["latitude"]), float(row["longitude"])) for row in csv.DictReader(lines))


def draw(load: Load, seed: int) -> Workload:
    dice = np.random.default_rng([seed, load.brokers, load.topics, round(load.local_rate * 1000), load.many])
    every = sites()
    places = tuple(every[number] for number in dice.choice(len(every), load.brokers, replace=False))
    names = [f"{broker}/{number}" for broker in range(load.brokers) for number in range(load.local)]
    publishers: dict[str, dict[int, int]] = {}
    subscribers: dict[str, dict[int, int]] = {}
    for place, name in enumerate(names):
        home = place // load.local
        publishers[name], subscribers[name] = {home: 1}, {home: SUBSCRIBERS}
    ranks = dice.permutation(len(names))
    for broker in range(load.brokers):
        wanted = _remote(load, broker, load.mode, ranks, dice)
        for place in wanted:
            _add(subscribers[names[place]], broker, SUBSCRIBERS)
        if load.many:
            is_same = load.same and load.mode == "uniform"
            for place in wanted if is_same else _remote(load, broker, "uniform", ranks, dice):
                _add(publishers[names[place]], broker, 1)
    return Workload(load, places, publishers, subscribers)


def _remote(load: Load, broker: int, mode: Mode, ranks: np.ndarray, dice: np.random.Generator) -> list[int]:
    """Topics of other brokers, as many as this one has fewer of its own."""
    count, total = load.topics - load.local, load.brokers * load.local
    found: list[int] = []
    while len(found) < count:
        drawn = dice.integers(total, size=count) if mode == "uniform" else ranks[_zipf(total, count, dice)]
        found += [int(place) for place in drawn if int(place) // load.local != broker]
    return found[:count]


def _zipf(total: int, count: int, dice: np.random.Generator) -> np.ndarray:
    return np.searchsorted(_cumulated(total), dice.random(count))


@lru_cache(maxsize=8)
def _cumulated(total: int) -> Any:
    weights = np.arange(1, total + 1, dtype=float) ** -ZIPF_ALPHA
    return np.cumsum(weights) / weights.sum()


def _add(place: dict[int, int], broker: int, count: int) -> None:
    place[broker] = place.get(broker, 0) + count
