"""A lower bound that knows what fits onto a device together: column generation over sets of containers.

Every pair pays at least one hop unless both ends run on one device. So a placement costs at least what its devices'
sets cost, where a set saves the pairs inside it; the best fractional choice of sets, one per device and each container
once, is a bound. A relaxation by pairs cannot see that few pairs fit onto a device at once; sets can, and that is most
of the gap where hops are dear. `best_sets` finds the best set for a device, or says how much it may have missed: so
every round gives a valid bound (Lagrange's), whatever was left out.
"""

from collections.abc import Callable
from dataclasses import dataclass

import highspy
import numpy as np

from metromq.planning.arrays import Arrays, Bools, Floats, Ints
from metromq.planning.timing import Deadline

ROUNDS = 400
FIRST_REACH, SHORT, SHORTER = (
    0.05,
    0.8,
    0.6,
)  # of the mean price; then after a round that gave less than hoped, or nothing
LEAST_REACH = 1e-6  # of the target
MISSED = 0.3  # of what a round is short of the restricted program: if more is lost to short searches, they get longer
FIRST_WIDTH = 400  # states that a search for the best set follows at once
MOST_BYTES = 50 << 20  # that they may take, in the end
FOUND = 6  # sets per device and round
ROOMS = 8  # steps in which the room left on a device is told apart
THETAS = (0.25, 0.55, 0.1, 0.9, 0.0)  # prices of room, in units of all pairs' price by all load; the least bound counts
CLOSE = 2e-4  # of the price: a master this near to the bound has no more to give


def nothing_told(bound: float) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True)
class Sides:
    """Containers in two kinds: heads, whose subsets are searched, and fillers, which are packed around them."""

    heads: Ints  # container numbers, large ones first
    fillers: Ints
    value: Floats  # [head, filler] what the pair saves on one device


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
    least = float(arrays.hops[~np.eye(len(arrays.hops), dtype=np.bool_)].min(initial=np.inf))
    np.add.at(both, (arrays.edge_topic, arrays.edge_service), arrays.pair_price * (least if np.isfinite(least) else 0))
    both += both.T
    return Sides(heads, fillers, both[np.ix_(heads, fillers)])


def sets_bound(
    arrays: Arrays, start: Ints, target: float, time: Deadline, tell: Callable[[float], None] = nothing_told
) -> float:
    """The best bound by sets that the time allows; stops when it is `target`, and `start` gives the first prices.

    Prices follow the restricted program's within a reach around the best ones so far, which shrinks when that program
    was wrong about them: left to itself it swings too far.
    """
    split = sides(arrays)
    apart = float(split.value.sum()) + arrays.goal.latency * float(arrays.reach.min(axis=1).max(initial=0))
    master = _Master(arrays, split)
    for device in range(len(arrays.capacity)):
        master.add(device, (start == device)[None, :])
    centre = _first_prices(arrays, split, start)
    widest = MOST_BYTES // (8 * len(split.fillers) + len(split.heads) + 16)
    best, width, reach = -np.inf, FIRST_WIDTH, FIRST_REACH * float(np.abs(centre).mean())
    for _ in range(ROUNDS):
        top, prices = master.solved(centre, reach)
        near = top + apart - best <= CLOSE * abs(target) or reach < LEAST_REACH * abs(target)
        if time.up() or best >= target or near:
            break
        found = _round(master, prices, width, time)
        if found is None:
            break
        bound, missed = apart + found[0], found[1]
        hoped = top + apart - best
        if bound > best:
            reach *= 1.0 if bound - best > 0.5 * hoped else SHORT
            best, centre = bound, prices
            tell(best)
        else:
            reach *= SHORTER
        if missed > MISSED * (top + apart - bound):
            width = min(4 * width, widest)
    return float(best)


def _first_prices(arrays: Arrays, split: Sides, start: Ints) -> Floats:
    """What each container costs in a placement; what a pair saves on one device is halved between its ends."""
    prices: Floats = arrays.linear[np.arange(arrays.count), start]
    saved = split.value * (start[split.heads][:, None] == start[split.fillers][None, :]) / 2
    prices[split.heads] -= saved.sum(axis=1)
    prices[split.fillers] -= saved.sum(axis=0)
    return prices


def _round(master: "_Master", prices: Floats, width: int, time: Deadline) -> tuple[float, float] | None:
    """The bound at these prices, and how much of it is lost to searches that were cut short; None: time was up."""
    arrays = master.arrays
    bound, missed = float(prices.sum()), 0.0
    for device in range(len(arrays.capacity)):
        worth = prices - arrays.linear[:, device]
        found = best_sets(arrays, master.split, device, worth, master.best_worth(device, worth), width, time)
        if found is None:
            return None
        master.add(device, found.sets)
        bound -= found.most
        missed += found.most - found.worth
    return bound, missed


class _Master:
    """The restricted program over the sets known so far: each container once, each device at most one set."""

    def __init__(self, arrays: Arrays, split: Sides) -> None:
        self.arrays = arrays
        self.split = split
        self.known: list[Bools] = [np.zeros((0, arrays.count), dtype=np.bool_) for _ in arrays.capacity]
        self.pairs: list[Floats] = [np.zeros(0) for _ in arrays.capacity]
        self.highs = highspy.Highs()
        self.highs.setOptionValue("output_flag", False)
        self.highs.setOptionValue("threads", 1)
        nothing = np.zeros(0, dtype=np.int32), np.zeros(0)
        for _ in range(arrays.count):
            self.highs.addRow(1.0, 1.0, 0, *nothing)
        for _ in arrays.capacity:
            self.highs.addRow(-highspy.kHighsInf, 1.0, 0, *nothing)
        for i in range(arrays.count):  # two columns per container, which keep its price within the reach
            for sign in (1.0, -1.0):
                self.highs.addCol(0.0, 0.0, highspy.kHighsInf, 1, np.array([i], dtype=np.int32), np.array([sign]))

    def add(self, device: int, sets: Bools) -> None:
        """Takes up the sets that are new."""
        old = {row.tobytes() for row in self.known[device]}
        new = [row for row in sets if row.tobytes() not in old]
        for row in new:
            saved = float(row[self.split.heads] @ self.split.value @ row[self.split.fillers])
            self.pairs[device] = np.append(self.pairs[device], saved)
            price = float(self.arrays.linear[row, device].sum()) - saved
            rows = np.append(np.flatnonzero(row), self.arrays.count + device).astype(np.int32)
            self.highs.addCol(price, 0.0, highspy.kHighsInf, len(rows), rows, np.ones(len(rows)))
        if new:
            self.known[device] = np.vstack([self.known[device], *new])

    def solved(self, centre: Floats, reach: float) -> tuple[float, Floats]:
        """The program's value and the price of each container, no farther than `reach` from `centre`."""
        count = self.arrays.count
        costs = np.stack([centre + reach, reach - centre], axis=1).ravel()
        self.highs.changeColsCost(2 * count, np.arange(2 * count, dtype=np.int32), costs)
        self.highs.run()
        duals = np.asarray(self.highs.getSolution().row_dual)
        return float(self.highs.getInfo().objective_function_value), duals[:count]

    def best_worth(self, device: int, worth: Floats) -> float:
        """What the best known set of a device is worth at these prices; to leave it empty is worth nothing."""
        return max(0.0, float((self.known[device] @ worth + self.pairs[device]).max(initial=0.0)))


def best_sets(
    arrays: Arrays, split: Sides, device: int, worth: Floats, above: float, width: int, time: Deadline
) -> Found | None:
    """The sets worth most on a device: `worth` of each container, and the pairs inside; only those `above` matter.

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


class _SetSearch:
    """One device at one set of prices."""

    def __init__(self, arrays: Arrays, split: Sides, worth: Floats, room: float) -> None:
        self.split, self.room, self.count = split, room, arrays.count
        self.head_load, self.head_worth = arrays.load[split.heads], worth[split.heads]
        self.load, self.own = arrays.load[split.fillers], worth[split.fillers]
        unit = float(split.value.sum()) / max(float(arrays.load.sum()), 1e-9)
        self.thetas = [share * unit for share in THETAS]
        self.tables = [self._later(theta) for theta in self.thetas]

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

        That is the least over several prices of room, of what each filler and each later head could add at it.
        """
        most = np.full(len(states.load), np.inf)
        for theta, (later, heads) in zip(self.thetas, self.tables, strict=True):
            room = self.room - states.load
            step = np.clip((room * (ROOMS / max(self.room, 1e-12))).astype(np.int64), 0, ROOMS - 1)
            gain = later[level][step]
            gain += states.gain
            gain += self.own - theta * self.load
            np.maximum(gain, 0.0, out=gain)
            np.minimum(most, states.worth + theta * room + gain.sum(axis=1) + heads[level], out=most)
            keep = np.flatnonzero(most > above)
            if len(keep) < len(most):
                states, most = states.some(keep), most[keep]
        return states, most

    def _later(self, theta: float) -> tuple[Floats, Floats]:
        """[level, room, filler] the most that heads from a level on add to a filler within a room; and by themselves.

        A head that costs more than nothing spreads its cost over its pairs: a set has some of these, so never more.
        """
        heads = len(self.head_load)
        cost = np.maximum(theta * self.head_load - self.head_worth, 0.0)
        whole = self.split.value.sum(axis=1)
        share = np.maximum(1 - cost / np.maximum(whole, 1e-12), 0.0)
        net = (self.split.value * share[:, None]).T  # [filler, head]
        order = np.argsort(-net / np.maximum(self.head_load, 1e-12), axis=1, kind="stable")
        load, gain = self.head_load[order], np.take_along_axis(net, order, axis=1)
        rooms = self.room * np.arange(1, ROOMS + 1) / ROOMS
        later = np.zeros((heads + 1, ROOMS, len(self.load)))
        for level in range(heads):
            left = np.where(order >= level, load, 0.0)
            before = np.cumsum(left, axis=1) - left
            free = rooms[:, None, None] - self.load[:, None] - before
            free /= np.maximum(load, 1e-12)
            np.clip(free, 0.0, 1.0, out=free)
            later[level] = np.einsum("rfh,fh->rf", free, np.where(order >= level, gain, 0.0))
        alone = np.maximum(self.head_worth - theta * self.head_load, 0.0)
        return later, np.append(np.cumsum(alone[::-1])[::-1], 0.0)

    def filled_partly(self, states: _States) -> Floats:
        """The worth of states with fillers added by worth per load, the last one in part: never too little."""
        gain, load, _ = self._by_density(states)
        before = np.cumsum(load, axis=1) - load
        part = np.clip((self.room - states.load[:, None] - before) / np.maximum(load, 1e-12), 0.0, 1.0)
        worth: Floats = states.worth + (gain * part).sum(axis=1)
        return worth

    def filled(self, states: _States) -> tuple[Bools, Floats]:
        """States with whole fillers as far as they fit, as sets of containers, and their worth."""
        gain, load, order = self._by_density(states)
        free, worth = self.room - states.load, states.worth.copy()
        sets = np.zeros((len(free), self.count), dtype=np.bool_)
        sets[:, self.split.heads] = states.taken
        rows = np.arange(len(free))
        for n in range(gain.shape[1]):
            fits = (gain[:, n] > 0) & (load[:, n] <= free)
            free = free - np.where(fits, load[:, n], 0.0)
            worth = worth + np.where(fits, gain[:, n], 0.0)
            sets[rows, self.split.fillers[order[:, n]]] = fits
        return sets, worth

    def _by_density(self, states: _States) -> tuple[Floats, Floats, Ints]:
        gain = np.maximum(states.gain + self.own, 0.0)
        order = np.argsort(-gain / np.maximum(self.load, 1e-12), axis=1, kind="stable")
        gain = np.take_along_axis(gain, order, axis=1)
        return gain, np.where(gain > 0, self.load[order], 0.0), order
