"""Bounds from prices for sets: the prices climb, then every device's best set is bounded, here or by helpers.

All devices are bounded at the best prices, roughly first, and then more closely where that gives most for its time.
"""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np

from metromq.planning.arrays import Arrays, Ints
from metromq.planning.device_proof import Proof
from metromq.planning.device_sets import Box, Pays, Shape
from metromq.planning.model import Clock
from metromq.planning.sets import sides
from metromq.planning.timing import Deadline, Helpers, ready
from metromq.planning.two_sided import Ascent

ROUNDS = 1_600  # of prices; more of them gain little
CLIMB_PART = 0.3  # of the time left, at most, for the prices
OFTEN, LOOK_KICKS = 75, 100  # rounds between two longer looks for sets, and new starts in such a look
ROUGH, FINE = 5e-3, 6e-4  # of the price: what a search may miss on a device at first, then
CLOSER = 0.4  # which part of what was missed the next may miss
SLOW_S = 1.0  # where a search took longer than this, the next aims no further than that
TURN = 0.35  # of the time left, for one search
DEARER = 4.0  # by how much longer a search is taken to last than the last one, if that was cut short
ENOUGH = 2e-5  # of the price: what may be missed in the end
STEPS = 1_000_000_000  # of one search: only the clock ends it
KICKS = 400  # new starts of the local search before a proof
KNOWN = 8  # sets that a helper is told of


@dataclass(frozen=True, slots=True)
class Task:
    """One device at given prices, as plain data for another process."""

    shape: tuple[int, list[float], list[int], list[int], list[float], float]
    room: float
    prices: tuple[list[float], list[float], list[float]]
    pays: tuple[list[float], list[float]]
    known: list[list[int]]
    miss: float


@dataclass(frozen=True, slots=True)
class Proven:
    """The best set that is known and its worth, more than which none is worth, and how long that took."""

    best: list[int]
    worth: float
    most: float
    seconds: float


def proven(task: Task, time: Deadline) -> Proven:
    """Bounds the best set of one device."""
    begun = time.clock()
    box = Box(Shape(*task.shape), task.room, 1)
    box.price(*task.prices, Pays(*task.pays))
    box.pool = [[], *task.known]
    worth = box.search(KICKS)
    best = box.members()
    proof = Proof(box, worth + task.miss, STEPS, time)
    most = proof.run()
    return Proven(proof.best or best, max(worth, proof.value), most, time.clock() - begun)


def proven_there(task: Task, clock: Clock, until: float) -> Proven:
    """The same in another process, which nobody can stop but the clock."""
    return proven(task, Deadline.after(until - clock(), clock))


class Pass:
    """Bounds at one set of prices, better and better. It has many attributes, because a task has many parts."""

    def __init__(self, ascent: Ascent, time: Deadline, helpers: Helpers | None) -> None:
        self.ascent, self.time, self.helpers = ascent, time, helpers
        ascent.put_prices(ascent.kept)
        self.shape = ascent.shaped()
        self.own = ascent.own(ascent.kept).tolist()
        self.caps, self.pays = ascent.caps(ascent.kept), ascent.paid(ascent.kept)
        self.known = [box.top(KNOWN) for box in ascent.boxes]
        count = len(ascent.boxes)
        self.miss = np.full(count, ROUGH * ascent.scale)
        self.most, self.missed = np.full(count, np.inf), np.full(count, np.inf)
        self.seconds = np.full(count, 1e-3)
        self.busy: dict[Future[Proven], int] = {}

    def bound(self) -> float:
        prices = self.ascent.kept[: self.ascent.count]
        return self.ascent.apart + float(prices.sum()) - float(self.most.sum())

    def run(self, tell: Callable[[float], bool]) -> None:
        """Until little can have been missed, the time is up, or who is told has enough."""
        while not self.time.up():
            device = self._next()
            if device is None and not self.busy:
                return
            if device is not None and self.helpers is None:
                self._take(device, proven(self._task(device), self.time.share(TURN)))
            else:
                self._helped(device)
            if np.isfinite(self.most).all() and tell(self.bound()):
                return

    def _next(self) -> int | None:
        """Where nobody is at work: a device without a bound, or the one where most may be gained for the time."""
        hope = self.missed / self.seconds
        hope[self.missed <= ENOUGH * self.ascent.scale] = 0.0
        hope[list(self.busy.values())] = 0.0
        device = int(np.argmax(hope))
        return device if hope[device] > 0 else None

    def _helped(self, device: int | None) -> None:
        assert self.helpers is not None
        if device is not None and len(self.busy) < self.helpers.count:
            time = self.time.share(TURN)
            work = self.helpers.executor.submit(proven_there, self._task(device), time.clock, time.at)
            self.busy[work] = device
            return
        for work in ready(self.busy):
            self._take(self.busy.pop(work), work.result())

    def _task(self, device: int) -> Task:
        cap, cap3 = self.caps
        prices = self.own[device], cap[device], cap3[device]
        room = self.ascent.boxes[device].room
        return Task(self.shape, room, prices, self.pays, self.known[device], float(self.miss[device]))

    def _take(self, device: int, found: Proven) -> None:
        closer = found.most < self.most[device]
        self.most[device] = min(self.most[device], found.most)
        self.missed[device] = missed = max(float(self.most[device]) - found.worth, 0.0)
        self.seconds[device] = max(found.seconds, 1e-3) * (1.0 if closer else DEARER)
        if closer:
            fine = missed if found.seconds > SLOW_S else FINE * self.ascent.scale
            self.miss[device] = min(fine, CLOSER * missed)
        else:  # it aimed too high: half way between that and what is known
            self.miss[device] *= min(missed / max(self.miss[device], 1e-12), DEARER**2) ** 0.5
        if found.best not in self.known[device]:
            self.known[device].insert(0, found.best)
            self.ascent.boxes[device].keep(found.best, [])


class Bounding:
    """The bound by sets in which both ends pay: first `climb`, then `prove`."""

    def __init__(self, arrays: Arrays, start: Ints, cost: float, time: Deadline, helpers: Helpers | None) -> None:
        self.ascent = Ascent(arrays, sides(arrays), start, cost)
        self.time, self.helpers = time, helpers

    def climb(self) -> None:
        time = self.time.share(CLIMB_PART)
        for n in range(1, ROUNDS + 1):
            if time.up():
                return
            self.ascent.climb()
            if n % OFTEN == 0:
                self.ascent.look(LOOK_KICKS)

    def prove(self, target: float, tell: Callable[[float], None]) -> float:
        """The best bound that the time allows; stops when it is `target`."""
        best = -np.inf

        def told(bound: float) -> bool:
            nonlocal best
            if bound > best:
                best = bound
                tell(best)
            return best >= target

        Pass(self.ascent, self.time, self.helpers).run(told)
        return float(best)
