"""Many short steps of annealing in plain loops, which mypyc compiles: the search for a plan worth proving.

`anneal` looks at every device or partner at once with numpy; here a step looks at one, draws no arrays and takes a few
hundred nanoseconds, so that a run has millions of them. Its random numbers come from a generator of its own, so that
compiled and plain code, on any machine, find the same plan for the same seed.
"""

from math import log

from mypy_extensions import i64

from metromq.planning.arrays import Arrays, Ints
from metromq.planning.timing import Deadline

SHARES = (0.2, 0.02)  # first and last temperature, as a share of what the mean container pays for its pairs per hop
STEPS = 20  # per container and sweep
OFTEN = 64  # sweeps between two looks at the clock are so many steps at most, in thousands
MULTIPLIER: i64 = 48_271  # of Park and Miller's generator, whose numbers run from 1 to 2**31 - 2
MODULUS: i64 = 2_147_483_647
LARGEST = 2_147_483_647.0


def long_anneal(arrays: Arrays, start: list[int], sweeps: int, seed: int, time: Deadline) -> list[int]:
    """The cheapest placement on the way from hot to cold, with relocations and swaps; `start` if none is cheaper."""
    walk = Walk(arrays, start, seed)
    mean = 2.0 * float(arrays.pair_price.sum()) / max(arrays.count, 1)
    hot, cold = SHARES[0] * mean, SHARES[1] * mean
    count = STEPS * arrays.count
    between = max(1, OFTEN * 1000 // max(count, 1))
    for sweep in range(sweeps):
        if sweep % between == 0 and time.up():
            break
        walk.steps(count, hot * (cold / hot) ** (sweep / sweeps) if hot > 0 else 0.0)
    return walk.best


class Walk:
    """A placement under change, and the best so far."""

    def __init__(self, arrays: Arrays, start: list[int], seed: int) -> None:
        self.load: list[float] = arrays.load.tolist()
        self.linear: list[list[float]] = arrays.linear.tolist()
        self.hops: list[list[float]] = arrays.hops.tolist()
        self.others: list[list[int]] = [others.tolist() for _, others in arrays.neighbours]
        self.prices: list[list[float]] = [arrays.pair_price[edges].tolist() for edges, _ in arrays.neighbours]
        self.where = start.copy()
        self.best = start.copy()
        self.free: list[float] = arrays.capacity.tolist()
        for i, d in enumerate(start):
            self.free[d] -= self.load[i]
        self.change = self.gained = 0.0  # in price since the start: now, and at best
        self.tiny = 1e-9 * max(1.0, abs(float(arrays.linear.min(axis=1).sum())))
        self.state: i64 = 1 + seed % (MODULUS - 1)

    def steps(self, count: int, heat: float) -> None:
        """Each tries a container on another device or in another one's place; Metropolis decides."""
        containers: i64 = len(self.where)
        devices: i64 = len(self.free)
        state = self.state
        where, load, free = self.where, self.load, self.free
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
                change = self.moved(i, here, there)
            else:
                j = (state >> 1) % containers
                there = where[j]
                more = load[i] - load[j]
                if there == here or free[there] < more or free[here] < -more:
                    continue
                change = self.moved(i, here, there) + self.moved(j, there, here) + self.linked(i, j)
            if change > 0:
                state = state * MULTIPLIER % MODULUS
                if change >= -heat * log(float(state) / LARGEST):
                    continue
            where[i] = there
            free[here] += load[i]
            free[there] -= load[i]
            if j >= 0:
                where[j] = here
                free[here] -= load[j]
                free[there] += load[j]
            self.change += change
            if self.change < self.gained - self.tiny:
                self.gained = self.change
                self.best = where.copy()
        self.state = state

    def moved(self, i: i64, source: i64, target: i64) -> float:
        """What the price changes by if container i goes from one device to another and all others stay."""
        row = self.linear[i]
        change = row[target] - row[source]
        near, far = self.hops[source], self.hops[target]
        others, prices, where = self.others[i], self.prices[i], self.where
        k: i64 = 0
        count: i64 = len(others)
        while k < count:
            d = where[others[k]]
            change += prices[k] * (far[d] - near[d])
            k += 1
        return change

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
