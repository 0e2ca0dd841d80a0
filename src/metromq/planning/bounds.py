"""A lower bound without a solver: capacities are priced, pairs pass messages, and every iterate is a valid bound.

Topics and services form a bipartite graph, so sequential message passing (TRW-S) becomes two vector passes: topics push
all they know into their pairs, then services do. The bound of the two passes never falls while prices of capacity stand still;
those follow a subgradient. At its best this is the bound of the tight program's relaxation.
"""

from collections.abc import Callable

import numpy as np

from metromq.planning.arrays import Arrays, Floats, Ints
from metromq.planning.model import Clock

CHUNK = 4_000_000  # numbers that one block of a pass may hold
SMALLEST_STEP = 1e-4


def lower_bound(
    arrays: Arrays,
    target: float,
    rounds: int,
    clock: Clock,
    deadline: float,
    tell: Callable[[float], None] | None = None,
) -> float:
    """The best bound of at most `rounds` rounds; `target` is the price of a known placement, which sets the step."""
    relaxed = _Relaxed(arrays)
    worst = arrays.goal.latency * float(arrays.reach.min(axis=1, initial=0).max(initial=0)) if arrays.count else 0.0
    best, kept, step, stale = -np.inf, relaxed.price.copy(), 1.0, 0
    for _ in range(rounds):
        bound = relaxed.round() + worst
        if bound > best + 1e-7 * abs(best):
            best, kept, stale = bound, relaxed.price.copy(), 0
            if tell is not None:
                tell(best)
        else:
            stale += 1
            if stale >= 5:  # the price overshoots: go back to the best one with half the step
                relaxed.price, step, stale = kept.copy(), step / 2, 0
        if step < SMALLEST_STEP or best >= target * (1 - 1e-6) or clock() >= deadline:
            break
        relaxed.raise_prices(step * max(target - bound, 1e-3 * abs(target)))
    return max(best, float(arrays.linear.min(axis=1).sum()) + worst) if arrays.count else 0.0


class _Relaxed:
    """Messages per pair and the price of capacity per device."""

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays
        self.price = np.zeros(len(arrays.capacity))
        pairs, width = len(arrays.edge_topic), len(arrays.capacity)
        self.from_topic = np.zeros((pairs, width))
        self.from_service = np.zeros((pairs, width))
        degree = np.bincount(np.concatenate([arrays.edge_topic, arrays.edge_service]), minlength=arrays.count)
        self.degree = degree
        self.by_topic = _order(arrays.edge_topic)
        self.by_service = _order(arrays.edge_service)
        self.chosen = np.zeros(arrays.count, dtype=np.int64)

    def round(self) -> float:
        """Topics, then services; the bound that holds in between."""
        arrays = self.arrays
        base = arrays.linear + arrays.load[:, None] * self.price[None, :]
        topics = len(arrays.problem.topics)
        self.from_topic, known = self._pass(base, self.from_service, arrays.edge_topic, self.by_topic)
        self.chosen[:topics] = np.argmin(known[:topics], axis=1) if topics else 0
        alone = self.degree[:topics] == 0
        total = float(known[:topics][alone].min(axis=1).sum()) if alone.any() else 0.0
        self.from_service, known = self._pass(base, self.from_topic, arrays.edge_service, self.by_service)
        if arrays.count > topics:
            self.chosen[topics:] = np.argmin(known[topics:], axis=1)
            total += float(known[topics:].min(axis=1).sum())
        return total - float(self.price @ arrays.capacity)

    def _pass(self, base: Floats, said: Floats, ends: Ints, order: tuple[Ints, Ints, Ints]) -> tuple[Floats, Floats]:
        """What each end of a pair knows after hearing the other, and what it says back: its knowledge in equal parts."""
        heard = self._carried(-said)
        known = base.copy()
        sorted_pairs, starts, owners = order
        if len(ends):
            known[owners] += np.add.reduceat(heard[sorted_pairs], starts, axis=0)
            heard -= known[ends] / self.degree[ends][:, None]
        return heard, known

    def _carried(self, said: Floats) -> Floats:
        """min over d of said(d) + price x hops(d, d'), for every pair."""
        arrays = self.arrays
        width = len(arrays.capacity)
        out = np.empty_like(said)
        size = max(1, CHUNK // (width * width))
        for low in range(0, len(said), size):
            part = slice(low, low + size)
            far = arrays.pair_price[part, None, None] * arrays.hops[None, :, :]
            out[part] = (far + said[part, None, :]).min(axis=2)
        return out

    def raise_prices(self, distance: float) -> None:
        """A Polyak step: full devices get dearer, empty ones cheaper."""
        arrays = self.arrays
        used = np.bincount(self.chosen, weights=arrays.load, minlength=len(arrays.capacity))
        slope = used - arrays.capacity
        slope[(slope < 0) & (self.price <= 0)] = 0.0
        size = float(slope @ slope)
        if size > 0:
            self.price = np.maximum(0.0, self.price + distance / size * slope)


def _order(ends: Ints) -> tuple[Ints, Ints, Ints]:
    """Pairs sorted by one end, where each run starts, and whose it is: for sums by end in one pass."""
    order = np.argsort(ends, kind="stable")
    owners, starts = np.unique(ends[order], return_index=True)
    return order, starts, owners
