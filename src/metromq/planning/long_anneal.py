"""Many short steps of annealing in plain loops, which mypyc compiles: the search for a plan worth proving.

`anneal` looks at every device or partner at once with numpy; here a step looks at one, draws no arrays and takes a few
hundred nanoseconds, so that a run has millions of them. Its random numbers come from a generator of its own, so that
compiled and plain code, on any machine, find the same plan for the same seed.
"""

from math import log
from typing import Final

import numpy as np
from mypy_extensions import i64

from metromq.planning.arrays import Arrays, Ints
from metromq.planning.search import Search
from metromq.planning.timing import Deadline

SHARES = (1.1, 0.11)  # first and last temperature, by what the mean pair pays for a hop
STEPS = 20  # per container and sweep
OFTEN = 50_000  # steps between two looks at the clock
MULTIPLIER: Final[i64] = 48_271  # of Park and Miller's generator, whose numbers run from 1 to 2**31 - 2
MODULUS: Final[i64] = 2_147_483_647
LARGEST: Final = 2_147_483_647.0
COMPILED = not __file__.endswith(".py")
LONGEST: Final = 22.0  # log of that: whatever is drawn, no change dearer than so many times the heat is taken


def long_anneal(arrays: Arrays, start: Ints, sweeps: int, seed: int, time: Deadline) -> tuple[Ints, bool]:
    """The cheapest placement from hot to cold, or `start` if none is cheaper. False: the time was up before that.

    Relocations and swaps past no capacity; a limit of moves it does not know. The temperature follows the count of
    sweeps and never the clock.
    """
    walk = Walk(arrays, start, seed)
    mean = float(arrays.pair_price.sum()) / max(len(arrays.pair_price), 1)
    hot, cold = SHARES[0] * mean, SHARES[1] * mean
    count = STEPS * arrays.count
    between = max(1, OFTEN // max(count, 1))
    finished = True
    for sweep in range(sweeps):
        if sweep % between == 0 and time.up():
            finished = False
            break
        walk.steps(count, hot * (cold / hot) ** (sweep / sweeps) if hot > 0 else 0.0)
    return np.array(walk.best, dtype=np.int64), finished


class Walk:
    """A placement under change, and the best so far. `cost[i][d]` prices container i on device d, others as they are.

    Few steps are taken of those that are tried, so that it pays to keep all prices.
    """

    def __init__(self, arrays: Arrays, start: Ints, seed: int) -> None:
        search = Search(arrays, start)
        self.load: list[float] = arrays.load.tolist()
        self.free: list[float] = search.free.tolist()
        self.cost: list[list[float]] = search.cost.tolist()
        self.hops: list[list[float]] = arrays.hops.tolist()
        self.others: list[list[int]] = [others.tolist() for _, others in arrays.neighbours]
        self.prices: list[list[float]] = [arrays.pair_price[edges].tolist() for edges, _ in arrays.neighbours]
        self.where: list[int] = start.tolist()
        self.best: list[int] = start.tolist()
        self.change = self.gained = 0.0  # in price since the start: now, and at best
        self.tiny = search.tiny
        self.state: i64 = 1 + seed % (MODULUS - 1)

    def steps(self, count: int, heat: float) -> None:
        """Each tries a container on another device or in another one's place; Metropolis decides."""
        containers: i64 = len(self.where)
        devices: i64 = len(self.free)
        state = self.state
        where, load, free, cost = self.where, self.load, self.free, self.cost
        for _ in range(count):
            state = state * MULTIPLIER % MODULUS
            i = state % containers
            here: i64 = where[i]
            state = state * MULTIPLIER % MODULUS
            j: i64 = -1
            if state & 1:
                there = (state >> 1) % devices
                if there == here or free[there] < load[i]:
                    continue
                change = cost[i][there] - cost[i][here]
            else:
                j = (state >> 1) % containers
                there = where[j]
                more = load[i] - load[j]
                if there == here or free[there] < more or free[here] < -more:
                    continue
                change = cost[i][there] - cost[i][here] + cost[j][here] - cost[j][there]
                if change < heat * LONGEST:
                    change += self.linked(i, j)
            if change > 0:
                state = state * MULTIPLIER % MODULUS
                if change >= -heat * log(float(state) / LARGEST):
                    continue
            self.move(i, there)
            if j >= 0:
                self.move(j, here)
            self.change += change
            if self.change < self.gained - self.tiny:
                self.gained = self.change
                self.best = where.copy()
        self.state = state

    def move(self, i: i64, target: i64) -> None:
        """Puts container i on `target` and reprices its partners."""
        source: i64 = self.where[i]
        self.free[source] += self.load[i]
        self.free[target] -= self.load[i]
        self.where[i] = target
        near, far = self.hops[source], self.hops[target]
        others, prices = self.others[i], self.prices[i]
        devices: i64 = len(self.free)
        k: i64 = 0
        count: i64 = len(others)
        while k < count:
            row, price = self.cost[others[k]], prices[k]
            d: i64 = 0
            while d < devices:
                row[d] += price * (far[d] - near[d])
                d += 1
            k += 1

    def linked(self, i: i64, j: i64) -> float:
        """What a swap of two ends of a pair does not save: they stay as far apart as they were."""
        others = self.others[i]
        k: i64 = 0
        count: i64 = len(others)
        while k < count:
            if others[k] == j:
                return 2.0 * self.prices[i][k] * self.hops[self.where[i]][self.where[j]]
            k += 1
        return 0.0
