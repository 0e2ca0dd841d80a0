"""A lower bound that knows what fits onto a device together, and that the rest must run somewhere: prices for sets.

Every pair pays at least one hop unless both ends run on one device. So a placement costs at least what its devices'
sets cost, where a set saves the pairs inside it. A pair pays a second hop too, unless its filler runs near its head's
device: there a device pays for each filler that it has partners of and does not hold, but no more than a price, and
who places that filler nearby gets the price back. With prices for containers (each runs once) and for nearness, every
device chooses its best set by itself, and no placement costs less than what that leaves (Lagrange's bound).

The prices climb by subgradient, over sets that a local search finds. Then `best_sets` says for each device how much
more any set could be worth: so every bound is valid, whatever was left out.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from metromq.planning.arrays import Arrays, Bools, Floats, Ints
from metromq.planning.climbing import Climb
from metromq.planning.sets import Sides, Worth, best_sets, filled, sides
from metromq.planning.timing import Deadline

ROUNDS = 6_000
NARROW = 75  # rounds of ascent between two looks for sets that the local search does not find
WIDE = 600  # rounds after which every fourth of these looks goes on until little can have been missed
CLOSE = 2e-4  # of the price: if the bound gained less since the last such look, it has no more to give
ROUGH = (0.3, 0.7, 1.1, 1.6)  # prices of room for the local search, in the units of sets.THETAS
POOL = 150  # sets remembered per device
FIRST_WIDTH, WIDER = 400, 4  # states that a search for the best set follows at once
MOST_BYTES = 50 << 20  # that they may take, in the end
ENOUGH = 2e-5  # of the price: what a search may have missed on a device


def nothing_told(bound: float) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Of each container, and of nearness: at most so much is paid for a filler [level, device, filler]."""

    container: Floats
    far: Floats

    def row(self) -> Floats:
        return np.concatenate([self.container, self.far.ravel()])


def sets_bound(
    arrays: Arrays, start: Ints, target: float, time: Deadline, tell: Callable[[float], None] = nothing_told
) -> float:
    """The best bound by sets that the time allows; stops when it is `target`, and `start` gives the first prices."""
    ascent = _Ascent(arrays, sides(arrays), start, target)
    best = last = -np.inf
    for rounds in range(1, ROUNDS + 1):
        if time.up() or best >= target:
            break
        ascent.climb()
        if rounds % NARROW:
            continue
        wide = rounds >= WIDE and rounds % (4 * NARROW) == 0
        for bound in ascent.proven(time, wide):
            if bound > best:
                best = bound
                tell(best)
        if wide:
            if best - last <= CLOSE * abs(target):
                break
            last = best
    return float(best)


class _Ascent(Climb):
    """Prices on their way up, and the sets known so far."""

    def __init__(self, arrays: Arrays, split: Sides, start: Ints, target: float) -> None:
        self.arrays, self.split = arrays, split
        self.apart = float(split.value.sum()) + arrays.goal.latency * float(arrays.reach.min(axis=1).max(initial=0))
        self.pools = [_Pool(arrays, split, device) for device in range(len(arrays.capacity))]
        for pool in self.pools:
            pool.add(np.stack([np.zeros(arrays.count, dtype=np.bool_), start == pool.device]))
        first = _first_prices(arrays, split, start)
        low = np.concatenate([np.full(arrays.count, -np.inf), np.zeros(first.far.size)])
        super().__init__(first.row(), low, np.full(low.shape, np.inf), target)

    def prices(self, numbers: Floats) -> Prices:
        shape = len(self.split.further), len(self.pools), len(self.split.fillers)
        return Prices(numbers[: self.arrays.count], numbers[self.arrays.count :].reshape(shape))

    def worths(self, prices: Prices) -> list[Worth]:
        own = prices.container[None, :] - self.arrays.linear.T
        for near, far in zip(self.split.near, prices.far, strict=True):
            own[:, self.split.fillers] += near.T @ far
        return [Worth(row, prices.far[:, device]) for device, row in enumerate(own)]

    def looked(self, numbers: Floats) -> tuple[float, Floats]:
        """The bound if there were no other sets than those known and next to them; and the way up from here."""
        prices = self.prices(numbers)
        worths = self.worths(prices)
        self.explore(worths)
        value, far = self.apart + float(prices.container.sum()), np.zeros_like(prices.far)
        chosen = np.zeros((len(self.pools), self.arrays.count))
        for pool, worth in zip(self.pools, worths, strict=True):
            values = pool.values(worth)
            best = int(np.argmax(values))
            value -= float(values[best])
            chosen[pool.device] = pool.sets[best]
            paid = self.split.further[:, None] * pool.gain[best] > worth.far
            far[:, pool.device] = paid & ~pool.sets[best][self.split.fillers]
        inside = chosen[:, self.split.fillers]
        far -= np.array([near @ inside for near in self.split.near]).reshape(far.shape)
        return value, Prices(1.0 - chosen.sum(axis=0), far).row()

    def explore(self, worths: list[Worth]) -> None:
        """Sets next to the best known one of each device: one head less, one more, or one instead of another."""
        taken, device = [], []
        for pool, worth in zip(self.pools, worths, strict=True):
            best = pool.sets[int(np.argmax(pool.values(worth)))][self.split.heads]
            less = np.repeat(best[None, :], 1 + int(best.sum()), axis=0)
            less[np.arange(1, len(less)), np.flatnonzero(best)] = False
            taken.append(less)
            device += [pool.device] * len(less)
        rows = np.array(device)
        heads = self._one_more(np.vstack(taken), rows, worths)
        gain = heads @ self.split.value
        own = np.stack([worths[d].own for d in rows])[:, self.split.fillers]
        outside = self._beyond(gain, worths, rows)
        free = self.arrays.capacity[rows] - heads @ self.arrays.load[self.split.heads]
        inside, _ = filled(gain + own + outside, self.arrays.load[self.split.fillers], free)
        sets = np.zeros((len(rows), self.arrays.count), dtype=np.bool_)
        sets[:, self.split.heads], sets[:, self.split.fillers] = heads, inside
        for pool, worth in zip(self.pools, worths, strict=True):
            pool.improve(sets[rows == pool.device], worth)

    def _one_more(self, taken: Bools, device: Ints, worths: list[Worth]) -> Bools:
        """For each set of heads the most promising one with at most one more head, by the least over prices of room."""
        split, load = self.split, self.arrays.load
        more = np.vstack([np.zeros((1, len(split.fillers))), split.value])
        own = np.stack([worth.own for worth in worths])
        gain = (taken @ split.value)[:, None, :] + more[None, :, :]
        worth = (taken * own[device][:, split.heads]).sum(axis=1)[:, None] + _with_none(own[device][:, split.heads])
        room = self.arrays.capacity[device] - taken @ load[split.heads]
        free = room[:, None] - np.append(0.0, load[split.heads])[None, :]
        outside = -self._beyond(gain, worths, device)
        gain += own[device][:, None, split.fillers]
        most = np.full(free.shape, np.inf)
        unit = float(split.value.sum()) / max(float(load.sum()), 1e-9)
        for theta in (share * unit for share in ROUGH):
            at = np.maximum(gain - theta * load[split.fillers], outside).sum(axis=2)
            np.minimum(most, worth + theta * free + at, out=most)
        most[(free < 0) | (_with_none(taken.astype(np.float64)) > 0)] = -np.inf
        best = np.argmax(most, axis=1)
        heads = taken.copy()
        some = np.flatnonzero(best > 0)
        heads[some, best[some] - 1] = True
        return heads

    def _beyond(self, gain: Floats, worths: list[Worth], device: Ints) -> Floats:
        far = np.stack([worth.far for worth in worths], axis=1)[:, device]
        return self.split.beyond(gain, far if gain.ndim == far.ndim - 1 else far[:, :, None, :])

    def proven(self, time: Deadline, wide: bool) -> Iterator[float]:
        """Bounds at the best prices, better and better: where most may have been missed, the search gets wider."""
        prices = self.prices(self.kept)
        worths = self.worths(prices)
        split, count = self.split, len(self.pools)
        widest = MOST_BYTES // (8 * len(split.fillers) + len(split.heads) + 16)
        most, width = np.full(count, np.inf), np.full(count, FIRST_WIDTH)
        missed = np.full(count, np.inf)
        while missed.max(initial=0.0) > 0:
            device = int(np.argmax(missed))
            pool, worth = self.pools[device], worths[device]
            above = float(pool.values(worth).max())
            found = best_sets(self.arrays, split, device, worth, above, int(width[device]), time)
            if found is None:
                return
            pool.add(found.sets)
            most[device] = min(most[device], found.most)
            missed[device] = most[device] - found.worth
            width[device] *= WIDER
            if not wide or width[device] > widest or missed[device] <= ENOUGH * self.scale:
                missed[device] = 0.0
            if np.isfinite(most).all():
                yield self.apart + float(prices.container.sum() - most.sum())


class _Pool:
    """The sets known of one device."""

    def __init__(self, arrays: Arrays, split: Sides, device: int) -> None:
        self.split, self.device = split, device
        self.sets: Bools = np.zeros((0, arrays.count), dtype=np.bool_)
        self.gain: Floats = np.zeros((0, len(split.fillers)))
        self.known: set[bytes] = set()

    def add(self, sets: Bools) -> None:
        """Takes up the sets that are new."""
        new = [row for row in sets if row.tobytes() not in self.known]
        if new:
            self.known.update(row.tobytes() for row in new)
            self._keep(np.vstack([self.sets, *new]))

    def improve(self, sets: Bools, worth: Worth) -> None:
        """Takes up sets, and leaves the least worthy ones if it has too many; the first is the empty one and stays."""
        self.add(sets)
        if len(self.sets) > POOL:
            order = np.argsort(-self.values(worth)[1:], kind="stable")[: POOL // 2]
            self._keep(self.sets[np.append(0, np.sort(order) + 1)])
            self.known = {row.tobytes() for row in self.sets}

    def _keep(self, sets: Bools) -> None:
        self.sets = sets
        self.gain = sets[:, self.split.heads] @ self.split.value

    def values(self, worth: Worth) -> Floats:
        """What each set is worth at these prices."""
        inside = self.sets[:, self.split.fillers]
        pairs = np.where(inside, self.gain, -self.split.beyond(self.gain, worth.far[:, None, :]))
        values: Floats = self.sets @ worth.own + pairs.sum(axis=1)
        return values


def _with_none(rows: Floats) -> Floats:
    """A first column for no head at all."""
    return np.hstack([np.zeros((len(rows), 1)), rows])


def _first_prices(arrays: Arrays, split: Sides, start: Ints) -> Prices:
    """What each container costs in a placement; what a pair saves on one device is halved between its ends."""
    prices: Floats = arrays.linear[np.arange(arrays.count), start]
    saved = split.value * (start[split.heads][:, None] == start[split.fillers][None, :]) / 2
    prices[split.heads] -= saved.sum(axis=1)
    prices[split.fillers] -= saved.sum(axis=0)
    return Prices(prices, np.zeros((len(split.further), len(arrays.capacity), len(split.fillers))))
