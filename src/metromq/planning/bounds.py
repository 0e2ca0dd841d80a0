"""A lower bound without a solver: capacities are priced, pairs pass messages, and every iterate is a valid bound.

Topics and services form a bipartite graph, so sequential message passing (TRW-S) becomes two vector passes: topics push
all they know into their pairs, then services do. The bound never falls while the prices of capacity stand still; those
follow a subgradient. At its best this is the bound of the tight program's relaxation.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from metromq.planning.arrays import Arrays, Bools, Floats, Ints
from metromq.planning.programs import links_carry_hops
from metromq.planning.timing import Deadline

CHUNK = 1_000_000  # numbers that one block of a pass may hold; after each block the clock is looked at
FIRST_STEP = 0.2
FIRST_ALONE_STEP = 0.5
ALONE_ROUNDS = 1_000
ALONE_SHARE = 0.1  # of the time there is
SMALLEST_STEP = 1e-3
PATIENCE = 10  # rounds without gain before the step is halved
MEMORY = 0.8  # how much of the usage that prices follow is that of earlier rounds: it keeps them from swinging


@dataclass(frozen=True, slots=True)
class Bound:
    """No placement costs less than `value`; one that costs less than the target uses only `allowed` devices."""

    value: float
    allowed: Bools  # [container, device]


def lower_bound(
    arrays: Arrays,
    target: float,
    rounds: int,
    time: Deadline,
    tell: Callable[[float], None] | None = None,
) -> Bound:
    """The best of at most `rounds` rounds; `target` is the price of a known placement, which sets the step.

    A round that the deadline meets is given up in the middle: the bound of the rounds before holds.
    """
    allowed = arrays.load[:, None] <= arrays.capacity[None, :]
    if not arrays.count:
        return Bound(0.0, allowed)
    worst = arrays.goal.latency * float(arrays.reach.min(axis=1).max())
    relaxed = _Relaxed(arrays, allowed, target - worst + 1e-6 * abs(target))
    best = worst + _prices_alone(relaxed, target - worst, time.share(ALONE_SHARE))
    kept, step, stale = relaxed.price.copy(), FIRST_STEP, 0
    for _ in range(rounds):
        value = relaxed.round(time)
        if value is None:
            break
        bound = value + worst
        stale += 1
        if bound > best:
            stale = 0 if bound > best + 1e-5 * abs(best) else stale
            best, kept = bound, relaxed.price.copy()
            if tell is not None:
                tell(best)
        if stale >= PATIENCE:  # the prices overshoot: back to the best ones, with half the step
            relaxed.price, step, stale = kept.copy(), step / 2, 0
        if step < SMALLEST_STEP or best >= target * (1 - 1e-6):
            break
        relaxed.raise_prices(step * max(target - bound, 1e-3 * abs(target)))
    return Bound(min(max(best, float(arrays.linear.min(axis=1).sum()) + worst), target), relaxed.allowed)


def _prices_alone(relaxed: "_Relaxed", target: float, time: Deadline) -> float:
    """The bound by prices of capacity without messages: cheap rounds, so that messages start from good prices."""
    best, kept, step, stale = -np.inf, relaxed.price.copy(), FIRST_ALONE_STEP, 0
    for _ in range(ALONE_ROUNDS):
        bound = relaxed.round_alone()
        stale += 1
        if bound > best:
            best, kept, stale = bound, relaxed.price.copy(), 0
        if stale >= 2 * PATIENCE:
            relaxed.price, step, stale = kept.copy(), step / 2, 0
        if step < SMALLEST_STEP or time.up():
            break
        relaxed.raise_prices(step * max(target - bound, 1e-3 * abs(target)))
    relaxed.price, relaxed.used = kept, np.zeros(0)
    return best


class _Relaxed:
    """Messages per pair and the price of capacity per device."""

    def __init__(self, arrays: Arrays, allowed: Bools, target: float) -> None:
        self.arrays = arrays
        self.allowed = allowed
        self.target = target
        self.price = np.zeros(len(arrays.capacity))
        pairs, width = len(arrays.edge_topic), len(arrays.capacity)
        self.from_topic = np.zeros((pairs, width))
        self.from_service = np.zeros((pairs, width))
        degree = np.bincount(np.concatenate([arrays.edge_topic, arrays.edge_service]), minlength=arrays.count)
        self.degree = degree
        self.by_topic = _order(arrays.edge_topic)
        self.by_service = _order(arrays.edge_service)
        self.chosen = np.zeros(arrays.count, dtype=np.int64)
        self.used: Floats = np.zeros(0)
        self.pushed = np.zeros_like(arrays.linear)  # of what services know by themselves, in their pairs already
        self.next_to = _neighbour_columns(arrays) if links_carry_hops(arrays) else None

    def round(self, time: Deadline) -> float | None:
        """Topics, then services; the better of the bounds that hold after each. None when the time was up."""
        arrays = self.arrays
        topics = len(arrays.problem.topics)
        whole = arrays.linear + arrays.load[:, None] * self.price[None, :]
        base = np.where(self.allowed, whole, np.inf)
        known = self._pass(base, self.from_service, self.from_topic, arrays.edge_topic, self.by_topic, time)
        if known is None:
            return None
        # Services pushed what they knew at the old prices: what the new ones add to it is still theirs.
        known[topics:] = np.where(self.allowed, whole - self.pushed, np.inf)[topics:]
        first = self._settle(known, np.arange(arrays.count) < topics)
        known = self._pass(base, self.from_topic, self.from_service, arrays.edge_service, self.by_service, time)
        if known is None:
            return None
        known[:topics] = np.where(self.degree[:topics, None] == 0, base[:topics], 0.0)  # topics pushed everything
        self.pushed = np.where(self.degree[:, None] == 0, 0.0, whole)
        return max(first, self._settle(known, np.arange(arrays.count) >= topics))

    def round_alone(self) -> float:
        """The bound if pairs cost nothing: each container where it and its share of capacity are cheapest."""
        arrays = self.arrays
        table = arrays.linear + arrays.load[:, None] * self.price[None, :]
        self.chosen = np.argmin(table, axis=1)
        return float(table.min(axis=1).sum() - self.price @ arrays.capacity)

    def _settle(self, known: Floats, side: Bools) -> float:
        """The bound when one side holds all knowledge of its pairs; devices that would lift it past the target go."""
        least = known.min(axis=1)
        own = side | (self.degree == 0)
        self.chosen[own] = np.argmin(known[own], axis=1)
        bound = float(least.sum() - self.price @ self.arrays.capacity)
        self.allowed[own] &= known[own] - least[own, None] + bound <= self.target
        return bound

    def _pass(
        self, base: Floats, said: Floats, answers: Floats, ends: Ints, order: tuple[Ints, Ints, Ints], time: Deadline
    ) -> Floats | None:
        """What each end of a pair knows after hearing the other; it says that back in equal parts, in `answers`."""
        known = base.copy()
        pairs, starts, owners = order
        for first, last in _blocks(starts, len(ends), max(1, CHUNK // len(self.price))):
            if time.up():
                return None
            low, high = starts[first], starts[last] if last < len(starts) else len(ends)
            some, whose = pairs[low:high], owners[first:last]
            heard = self._carried(-said[some], some)
            known[whose] += np.add.reduceat(heard, starts[first:last] - low, axis=0)
            told = ends[some]
            heard -= known[told] / self.degree[told][:, None]
            answers[some] = heard
        return None if time.up() else known

    def _carried(self, said: Floats, pairs: Ints) -> Floats:
        """min over d of said(d) + price x hops(d, d'), for these pairs: over links, step by step, if hops are paths."""
        arrays = self.arrays
        if self.next_to is None:
            return self._carried_apart(said, pairs)
        out = said.copy()
        step = arrays.pair_price[pairs][:, None]
        for _ in range(int(arrays.hops.max(initial=0))):
            nearest = out[:, self.next_to[0]]
            for column in self.next_to[1:]:
                np.minimum(nearest, out[:, column], out=nearest)
            np.minimum(out, nearest + step, out=out)
        return out

    def _carried_apart(self, said: Floats, pairs: Ints) -> Floats:
        arrays = self.arrays
        width = len(arrays.capacity)
        out = np.empty_like(said)
        size = max(1, CHUNK // (width * width))
        for low in range(0, len(said), size):
            part = slice(low, low + size)
            far = arrays.pair_price[pairs[part]][:, None, None] * arrays.hops[None, :, :]
            out[part] = (far + said[part, None, :]).min(axis=2)
        return out

    def raise_prices(self, distance: float) -> None:
        """A Polyak step: full devices get dearer, empty ones cheaper."""
        arrays = self.arrays
        used = np.bincount(self.chosen, weights=arrays.load, minlength=len(arrays.capacity)).astype(np.float64)
        self.used = used if not len(self.used) else MEMORY * self.used + (1 - MEMORY) * used
        slope = self.used - arrays.capacity
        slope[(slope < 0) & (self.price <= 0)] = 0.0
        size = float(slope @ slope)
        if size > 0:
            self.price = np.maximum(0.0, self.price + distance / size * slope)


def _neighbour_columns(arrays: Arrays) -> list[Ints]:
    """For every device its n-th neighbour, and itself where it has fewer: gathers instead of one pass per device."""
    lists = [np.flatnonzero(row == 1).tolist() or [d] for d, row in enumerate(arrays.hops)]
    most = max(map(len, lists))
    return [np.array([row[min(n, len(row) - 1)] for row in lists], dtype=np.int64) for n in range(most)]


def _blocks(starts: Ints, pairs: int, size: int) -> Iterator[tuple[int, int]]:
    """Runs of whole owners with about `size` pairs each."""
    first = 0
    while first < len(starts):
        last = int(np.searchsorted(starts, starts[first] + size, side="right"))
        last = max(first + 1, last - 1 if last < len(starts) or pairs - starts[first] > size else last)
        yield first, last
        first = last


def _order(ends: Ints) -> tuple[Ints, Ints, Ints]:
    """Pairs sorted by one end, where each run starts, and whose it is: for sums by end in one pass."""
    order = np.argsort(ends, kind="stable")
    owners, starts = np.unique(ends[order], return_index=True)
    return order, starts, owners
