"""How long a planner may work: a deadline, and a host who may stop it earlier and then wants what it has so far."""

import math
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass
from typing import TypeVar

from metromq.planning.arrays import Arrays, Ints, price
from metromq.planning.model import Clock

Result = TypeVar("Result")
TICK_S = 0.1  # between two looks at the clock while helpers work


@dataclass(slots=True)
class Job:
    """What a planner and its host share while it works; either may run in a thread of its own."""

    stopped: bool = False  # set by the host
    found: tuple[Arrays, Ints] | None = None  # the cheapest placement so far that fits
    bound: float = -math.inf  # no placement costs less

    def keep(self, arrays: Arrays, where: Ints, bound: float = -math.inf) -> None:
        """Called by the planner: a placement that fits, better than the ones before."""
        self.bound = max(self.bound, bound)
        self.found = arrays, where.copy()

    def raise_bound(self, bound: float) -> None:
        self.bound = max(self.bound, bound)


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on a clock, or as soon as the host wants to stop."""

    clock: Clock
    at: float
    job: Job

    @classmethod
    def after(cls, seconds: float, clock: Clock, job: Job | None = None) -> "Deadline":
        return cls(clock, clock() + seconds, job or Job())

    def up(self) -> bool:
        return self.job.stopped or self.clock() >= self.at

    def left(self) -> float:
        return 0.0 if self.job.stopped else max(self.at - self.clock(), 0.0)

    def within(self, seconds: float) -> "Deadline":
        """So many seconds from now, or this one if it is sooner."""
        return Deadline(self.clock, min(self.at, self.clock() + seconds), self.job)

    def earlier(self, seconds: float) -> "Deadline":
        """With so many seconds in reserve."""
        return Deadline(self.clock, self.at - seconds, self.job)

    def share(self, part: float) -> "Deadline":
        """A part of the time that is left."""
        return self.within(part * self.left())

    def keep(self, arrays: Arrays, where: Ints) -> None:
        """Tells the host of a placement; one that does not fit is not told."""
        best = self.job.found
        cost = price(arrays, where)
        if cost.fits and (best is None or cost.objective < price(*best).objective):
            self.job.keep(arrays, where)


@dataclass(frozen=True, slots=True)
class Helpers:
    """Other processes that may work for the planner, and how many at once; a host that has them hands them in."""

    executor: Executor
    count: int


def ready(work: Iterable[Future[Result]]) -> list[Future[Result]]:
    """What helpers have done within a moment; none of it may be, so that the planner can look at the clock."""
    return list(wait(work, TICK_S, FIRST_COMPLETED)[0])
