"""Local search with incremental prices: relocations and swaps, never past a capacity or the limit of moves."""

import numpy as np

from metromq.planning.arrays import Arrays, Floats, Ints
from metromq.planning.timing import Deadline

OFTEN = 64  # steps between two looks at the clock
MANY_PASSES = 1_000  # no descent takes as many
TINY = 1e-9  # improvements smaller than this (relative to the price) are rounding, and could go round in circles


class Search:
    """A placement under change. `cost[i, d]` is always the price of container i on device d, all others as they are."""

    def __init__(self, arrays: Arrays, where: Ints, far: Floats | None = None) -> None:
        self.arrays = arrays
        self.far = far  # extra price per pair of devices, whatever the pair's traffic: how a worst path is forbidden
        self.where = where.copy()
        self.every = np.arange(len(where))
        self.free = arrays.capacity - np.bincount(where, weights=arrays.load, minlength=len(arrays.capacity))
        self.cost = arrays.linear.copy()
        for i, (edges, others) in enumerate(arrays.neighbours):
            if len(edges):
                self.cost[i] += arrays.hops[:, where[others]] @ arrays.pair_price[edges]
                if far is not None:
                    self.cost[i] += far[:, where[others]].sum(axis=1)
        self.linked = np.zeros(len(where))  # scratch: twice the pair price between one container and each other
        known = arrays.present >= 0
        self.moved = known & (where != arrays.present)
        self.spare = len(where) if arrays.goal.max_moves is None else arrays.goal.max_moves - int(self.moved.sum())
        self.tiny = TINY * max(1.0, abs(float(arrays.linear.min(axis=1).sum())))

    def move(self, i: int, target: int) -> None:
        """Puts container i on `target` and reprices its neighbours."""
        arrays, source = self.arrays, int(self.where[i])
        edges, others = arrays.neighbours[i]
        if len(edges):
            change = arrays.hops[target] - arrays.hops[source]
            self.cost[others] += arrays.pair_price[edges][:, None] * change[None, :]
            if self.far is not None:
                self.cost[others] += self.far[target] - self.far[source]
        self.free[source] += arrays.load[i]
        self.free[target] -= arrays.load[i]
        self.where[i] = target
        if arrays.present[i] >= 0:
            now = target != arrays.present[i]
            self.spare -= int(now) - int(self.moved[i])
            self.moved[i] = now

    def total(self) -> float:
        """The price of the placement as it is, without the worst-path term."""
        every, where = self.every, self.where
        return float((self.cost[every, where] + self.arrays.linear[every, where]).sum() / 2)

    def relocation_costs(self, i: int) -> Floats:
        """The price of container i on each device, infinite where it has no room or may not move."""
        here = self.where[i]
        row: Floats = np.where(self.free >= self.arrays.load[i], self.cost[i], np.inf)
        if self.spare <= 0 and not self.moved[i] and self.arrays.present[i] >= 0:
            row[:] = np.inf
        row[here] = self.cost[i, here]
        return row

    def best_relocation(self, i: int) -> tuple[float, int]:
        """What the cheapest device with room would save (negative is better), and that device."""
        row = self.relocation_costs(i)
        best = int(np.argmin(row))
        return float(row[best] - row[self.where[i]]), best

    def swap_gains(self, i: int, partners: Ints) -> Floats:
        """The change in price if container i changed places with each partner; infinite where that does not fit."""
        arrays, source = self.arrays, int(self.where[i])
        there, row = self.where[partners], self.cost[i]
        gain: Floats = row[there] - row[source] + self.cost[partners, source] - self.cost[partners, there]
        edges, others = arrays.neighbours[i]
        if len(edges):  # both ends of a pair move, so their distance stays: undo what each row thought it would save
            self.linked[others] = 2 * arrays.pair_price[edges]
            gain += self.linked[partners] * arrays.hops[source, there]
            if self.far is not None:
                gain += 2 * (self.linked[partners] > 0) * self.far[source, there]
            self.linked[others] = 0.0
        more = arrays.load[i] - arrays.load[partners]
        misfit = (self.free[there] < more) | (self.free[source] < -more) | (there == source)
        if arrays.goal.max_moves is not None:
            misfit |= self._moves_after(i, partners) > arrays.goal.max_moves
        gain[misfit] = np.inf
        return gain

    def best_swap(self, i: int) -> tuple[float, int]:
        """The change of the best swap of container i, and its partner."""
        gain = self.swap_gains(i, self.every)
        best = int(np.argmin(gain))
        return float(gain[best]), best

    def _moves_after(self, i: int, partners: Ints) -> Ints:
        """How many containers would have moved after swapping i with each partner."""
        present, where, moved = self.arrays.present, self.where, self.moved.astype(np.int64)
        own = ((present[i] >= 0) & (where[partners] != present[i])).astype(np.int64)
        other = ((present[partners] >= 0) & (present[partners] != where[i])).astype(np.int64)
        after: Ints = moved.sum() - moved[i] - moved[partners] + own + other
        return after

    def swap(self, i: int, j: int) -> None:
        a, b = int(self.where[i]), int(self.where[j])
        self.move(i, b)
        self.move(j, a)

    def descend(self, time: Deadline, passes: int = MANY_PASSES) -> bool:
        """Relocates and swaps until nothing gains or `passes` are done; False when the time was up before that.

        It stops between two moves, so the placement is always whole.
        """
        for _ in range(passes):
            gained = False
            for i in range(self.arrays.count):
                if i % OFTEN == 0 and time.up():
                    return False
                gain, target = self.best_relocation(i)
                if gain < -self.tiny:
                    self.move(i, target)
                    gained = True
                gain, other = self.best_swap(i)
                if gain < -self.tiny:
                    self.swap(i, other)
                    gained = True
            if not gained:
                break
        return True


def repaired(arrays: Arrays, where: Ints, time: Deadline) -> Ints | None:
    """Places what has no device (-1) and empties overloaded devices by small steps; None when that gets stuck."""
    where = where.copy()
    for i in np.flatnonzero(where < 0).tolist():
        placed = where >= 0
        free = arrays.capacity - np.bincount(where[placed], weights=arrays.load[placed], minlength=len(arrays.capacity))
        room = free >= arrays.load[i]
        cost = np.where(room, arrays.linear[i], np.inf) if room.any() else -free
        where[i] = int(np.argmin(cost))
    search = Search(arrays, where)
    for _ in range(4 * arrays.count):
        if time.up():
            return None
        worst = int(np.argmin(search.free))
        if search.free[worst] >= 0:
            return search.where
        if not _relieve(search, worst):
            return None
    return None


def _relieve(search: Search, device: int) -> bool:
    """Takes the step that lowers the total overload most: a container leaves `device`, or changes places."""
    arrays, where = search.arrays, search.where
    over = np.maximum(-search.free, 0.0)
    best, step = -1e-12, (-1, -1, -1)
    for i in np.flatnonzero(where == device).tolist():
        load = arrays.load[i]
        out = max(-(search.free[device] + load), 0.0)
        after = np.maximum(load - search.free, 0.0) + out - over - over[device]
        after[device] = np.inf
        d = int(np.argmin(after))
        if after[d] < best:
            best, step = float(after[d]), (i, d, -1)
        more = load - arrays.load
        there = np.maximum(more - search.free[where], 0.0) + np.maximum(-more - search.free[device], 0.0)
        change = np.where(where == device, np.inf, there - over[where] - over[device])
        j = int(np.argmin(change))
        if change[j] < best:
            best, step = float(change[j]), (i, -1, j)
    i, d, j = step
    if i < 0:
        return False
    if j >= 0:
        search.swap(i, j)
    else:
        search.move(i, d)
    return True
