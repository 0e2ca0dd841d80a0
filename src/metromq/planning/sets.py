"""What runs best on one device: the search behind the bound by prices (`set_prices.py`).

A set of containers saves the first hop of the pairs inside it. It pays for fillers that it has partners of but does not
hold: they may run farther than one hop away. `best_sets` finds the set worth most for a device, or says how much it may
have missed.
"""

from dataclasses import dataclass

import numpy as np

from metromq.planning.arrays import Arrays, Bools, Floats, Ints
from metromq.planning.timing import Deadline

LEVELS = 2  # hops beyond the first that are paid for
FOUND = 6  # sets per device and search
ROOMS = 8  # steps in which the room left on a device is told apart
# Prices of room, in units of all pairs' price by all load: the likely one is that at which a set could be worth least,
# and then the least bound at prices around it counts.
THETAS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 0.95, 1.1, 1.3, 1.5, 1.8, 2.2, 3.0)
AROUND = (1.0, 0.8, 0.6, 0.35, 1.2)


@dataclass(frozen=True, slots=True)
class Sides:
    """Containers in two kinds: heads, whose subsets are searched, and fillers, which are packed around them.

    A pair of a head on device d and a filler elsewhere pays its value for the first hop, and for each level that part
    of it again, `further`, unless the filler is on a device `near` d.
    """

    heads: Ints  # container numbers, large ones first
    fillers: Ints
    value: Floats  # [head, filler] what the pair saves on one device
    further: Floats  # [level]
    near: Bools  # [level, device, device]

    def beyond(self, gain: Floats, far: Floats) -> Floats:
        """What a set pays for each filler that it does not hold: the hops beyond the first, up to the price `far`."""
        paid = np.zeros_like(gain)
        for part, price in zip(self.further, far, strict=True):
            if price.any():  # third hops are seldom worth a price
                paid += np.minimum(gain if part == 1 else part * gain, price)
        return paid


@dataclass(frozen=True, slots=True)
class Worth:
    """What containers are worth on a device, and at most how much it pays for a filler that it does not hold."""

    own: Floats  # [container]
    far: Floats  # [level, filler]


@dataclass(frozen=True, slots=True)
class Found:
    """Sets as rows of containers, what the best of them is worth, and more than which none can be worth."""

    sets: Bools
    worth: float
    most: float


def sides(arrays: Arrays) -> Sides:
    """The kind of which fewer fit onto a device are the heads."""
    topics = np.arange(arrays.count) < len(arrays.problem.topics)
    mean = [float(arrays.load[kind].mean()) if kind.any() else 0.0 for kind in (topics, ~topics)]
    head = topics if mean[0] > mean[1] else ~topics
    heads = np.flatnonzero(head)
    heads = heads[np.argsort(-arrays.load[heads], kind="stable")]
    fillers = np.flatnonzero(~head)
    both = np.zeros((arrays.count, arrays.count))
    hops = np.minimum(arrays.hops, arrays.hops.T)
    other = ~np.eye(len(hops), dtype=np.bool_)
    steps = np.unique(hops[other])
    least = float(steps[0]) if len(steps) else 0.0
    np.add.at(both, (arrays.edge_topic, arrays.edge_service), arrays.pair_price * least)
    both += both.T
    levels = min(LEVELS, len(steps) - 1) if least > 0 else 0
    near = np.array([other & (hops <= steps[n]) for n in range(levels)], dtype=np.bool_)
    further = np.diff(steps)[:levels] / max(least, 1e-12)
    return Sides(heads, fillers, both[np.ix_(heads, fillers)], further, near.reshape(levels, *hops.shape))


def best_sets(
    arrays: Arrays, split: Sides, device: int, worth: Worth, above: float, width: int, time: Deadline
) -> Found | None:
    """The sets worth most on a device, with the pairs inside them; only those `above` matter.

    Heads are decided one after the other for many sets at once. A state whose best outcome is not above what is known
    is dropped; beyond `width` states the least promising go, and what they might have been worth is told. None: the
    time was up.
    """
    room = float(arrays.capacity[device])
    search = _SetSearch(arrays, split, worth, room)
    states = search.first()
    lost = above
    for level in range(len(split.heads)):
        if time.up():
            return None
        states, hope = search.hopeful(search.decided(states, level), level + 1, above)
        if len(hope) > width:
            order = np.argsort(-hope, kind="stable")
            lost = max(lost, float(hope[order[width]]))
            states = states.some(order[:width])
    if not len(states.load):
        return Found(np.zeros((0, arrays.count), dtype=np.bool_), above, lost)
    top = search.filled_partly(states)
    best = np.argsort(-top, kind="stable")[:FOUND]
    sets, values = search.filled(states.some(best))
    return Found(sets, max(above, float(values.max())), max(lost, float(top.max())))


@dataclass(frozen=True, slots=True)
class _States:
    """Sets of heads: what they are worth, their load, what they add to each filler, and which they are."""

    worth: Floats
    load: Floats
    gain: Floats  # [state, filler]
    taken: Bools  # [state, head]

    def some(self, rows: Ints) -> "_States":
        return _States(self.worth[rows], self.load[rows], self.gain[rows], self.taken[rows])


@dataclass(frozen=True, slots=True)
class _Table:
    """At one price of room: [level, room, filler] what heads from a level on add to a filler, and by themselves."""

    theta: float
    later: Floats
    alone: Floats  # [level]


class _SetSearch:
    """One device at one set of prices."""

    def __init__(self, arrays: Arrays, split: Sides, worth: Worth, room: float) -> None:
        self.split, self.room, self.count, self.far = split, room, arrays.count, worth.far
        self.head_load, self.head_worth = arrays.load[split.heads], worth.own[split.heads]
        self.load, self.own = arrays.load[split.fillers], worth.own[split.fillers]
        unit = float(split.value.sum()) / max(float(arrays.load.sum()), 1e-9)
        likely = min((share * unit for share in THETAS), key=self._hope)
        self.tables = [self._later(share * likely) for share in AROUND]

    def _hope(self, theta: float) -> float:
        """The most that any set could be worth, if room has this price."""
        order, gain, heads = self._priced(theta)
        load = self.head_load[order]
        part = np.clip(
            (self.room - self.load[:, None] - np.cumsum(load, axis=1) + load) / np.maximum(load, 1e-12), 0, 1
        )
        fillers = np.maximum(self.own - theta * self.load + (gain * part).sum(axis=1), 0.0)
        return float(theta * self.room + fillers.sum() + heads.sum())

    def _priced(self, theta: float) -> tuple[Ints, Floats, Floats]:
        """Heads for each filler in the order of what they add to it per load; that; and what heads add by themselves.

        A head that costs more than nothing spreads its cost over its pairs: a set has some of these, so never more.
        Only as many heads are told as some filler has: most pairs have no traffic.
        """
        alone = self.head_worth - theta * self.head_load
        whole = np.maximum(self.split.value.sum(axis=1), 1e-12)
        share = np.clip(1 + alone / whole, 0.0, 1.0)
        net = (self.split.value * share[:, None]).T  # [filler, head]
        order = np.argsort(-net / np.maximum(self.head_load, 1e-12), axis=1, kind="stable")
        order = order[:, : int((net > 0).sum(axis=1).max(initial=0))]
        return order, np.take_along_axis(net, order, axis=1), np.maximum(alone, 0.0)

    def first(self) -> _States:
        nothing = np.zeros((1, len(self.split.heads)), dtype=np.bool_)
        return _States(np.zeros(1), np.zeros(1), np.zeros((1, len(self.load))), nothing)

    def decided(self, states: _States, level: int) -> _States:
        """Every state without and with the next head, where there is room for it."""
        fits = np.flatnonzero(states.load + self.head_load[level] <= self.room)
        more = states.some(fits)
        more.taken[:, level] = True
        return _States(
            np.concatenate([states.worth, more.worth + self.head_worth[level]]),
            np.concatenate([states.load, more.load + self.head_load[level]]),
            np.concatenate([states.gain, more.gain + self.split.value[level]]),
            np.concatenate([states.taken, more.taken]),
        )

    def hopeful(self, states: _States, level: int, above: float) -> tuple[_States, Floats]:
        """The states that may become worth more than `above`, and the most that each may become.

        That is the least over several prices of room, of what each filler and each later head could add at it; what
        is paid for fillers outside does not get less with later heads.
        """
        most = np.full(len(states.load), np.inf)
        outside = -self.split.beyond(states.gain, self.far)
        for table in self.tables:
            room = self.room - states.load
            step = np.clip((room * (ROOMS / max(self.room, 1e-12))).astype(np.int64), 0, ROOMS - 1)
            gain = table.later[level][step]
            gain += states.gain
            gain += self.own - table.theta * self.load
            np.maximum(gain, outside, out=gain)
            np.minimum(most, states.worth + table.theta * room + gain.sum(axis=1) + table.alone[level], out=most)
            keep = np.flatnonzero(most > above)
            if len(keep) < len(most):
                states, most, outside = states.some(keep), most[keep], outside[keep]
        return states, most

    def _later(self, theta: float) -> "_Table":
        """The most that later heads could add at a price of room."""
        heads = len(self.head_load)
        order, gain, alone = self._priced(theta)
        load = self.head_load[order]
        rooms = self.room * np.arange(1, ROOMS + 1) / ROOMS
        later = np.zeros((heads + 1, ROOMS, len(self.load)))
        for level in range(heads):
            left = np.where(order >= level, load, 0.0)
            before = np.cumsum(left, axis=1) - left
            free = rooms[:, None, None] - self.load[:, None] - before
            free /= np.maximum(load, 1e-12)
            np.clip(free, 0.0, 1.0, out=free)
            later[level] = np.einsum("rfh,fh->rf", free, np.where(order >= level, gain, 0.0))
        return _Table(theta, later, np.append(np.cumsum(alone[::-1])[::-1], 0.0))

    def filled_partly(self, states: _States) -> Floats:
        """The most that states with fillers are worth: never too little, and seldom much more than they can be."""
        outside = self.split.beyond(states.gain, self.far)
        _, gain, load = by_density(states.gain + self.own + outside, self.load)
        worth: Floats = states.worth - outside.sum(axis=1) + packed_at_most(gain, load, self.room - states.load)
        return worth

    def filled(self, states: _States) -> tuple[Bools, Floats]:
        """States with whole fillers as far as they fit, as sets of containers, and their worth."""
        outside = self.split.beyond(states.gain, self.far)
        inside, worth = filled(states.gain + self.own + outside, self.load, self.room - states.load)
        sets = np.zeros((len(worth), self.count), dtype=np.bool_)
        sets[:, self.split.heads] = states.taken
        sets[:, self.split.fillers] = inside
        return sets, states.worth - outside.sum(axis=1) + worth


def by_density(gain: Floats, load: Floats) -> tuple[Ints, Floats, Floats]:
    """Fillers by gain per load for each row, their gains and their loads; those that lose something count nothing."""
    gain = np.maximum(gain, 0.0)
    order = np.argsort(-gain / np.maximum(load, 1e-12), axis=1, kind="stable")
    gain = np.take_along_axis(gain, order, axis=1)
    return order, gain, np.where(gain > 0, load[order], 0.0)


def packed_at_most(gain: Floats, load: Floats, room: Floats) -> Floats:
    """A bound on what whole fillers gain in a room, rows sorted by density (Martello and Toth).

    Those before the first that does not fit go in. Then either that one stays out, and the next fills the room in part,
    or it goes in, and the one before makes room in part.
    """
    rows, nothing = np.arange(len(room)), np.zeros((len(room), 1))
    gain, load = np.hstack([nothing, gain, nothing, nothing]), np.hstack([nothing, load, nothing, nothing])
    used, worth = np.cumsum(load, axis=1), np.cumsum(gain, axis=1)
    split = np.minimum((used <= room[:, None]).sum(axis=1), gain.shape[1] - 2)
    density = gain / np.maximum(load, 1e-12)
    left, full = room - used[rows, split - 1], worth[rows, split - 1]
    without = full + np.maximum(left, 0.0) * density[rows, split + 1]
    lacking = np.maximum(load[rows, split] - left, 0.0)
    within = np.where(
        (split > 1) | (lacking <= 0), full + gain[rows, split] - lacking * density[rows, split - 1], -np.inf
    )
    most: Floats = np.maximum(without, within)
    return most


def filled(gain: Floats, load: Floats, free: Floats) -> tuple[Bools, Floats]:
    """Which fillers go in, row by row, as long as there is room for them, and what they gain."""
    order, gain, load = by_density(gain, load)
    worth = np.zeros(len(free))
    inside = np.zeros(gain.shape, dtype=np.bool_)
    rows = np.arange(len(free))
    for n in range(gain.shape[1]):
        fits = (gain[:, n] > 0) & (load[:, n] <= free)
        free = free - np.where(fits, load[:, n], 0.0)
        worth = worth + np.where(fits, gain[:, n], 0.0)
        inside[rows, order[:, n]] = fits
    return inside, worth
