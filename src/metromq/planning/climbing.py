"""Prices on their way up by subgradient, whatever they are the prices of; both bounds by sets climb like this."""

from dataclasses import dataclass

import numpy as np

from metromq.planning.arrays import Floats

FIRST_STEP, LEAST_STEP = 0.3, 0.01  # of Polyak's
MEMORY = 0.8  # of the direction, for earlier rounds
PATIENCE = 15  # rounds without gain before it goes back to the best prices


@dataclass(frozen=True, slots=True)
class Pace:
    """How long the steps are: for how far a way, and what is left of a step after a round."""

    hoped: float = 0.03  # of the known placement's price: how far below it the ascent aims
    least_way: float = 0.003  # of that price: taken for the way left where less is
    shorter: float = 0.996


USUAL = Pace()


class Climb:
    """Prices in one row, each between its limits. Who climbs says what they bound (`looked`)."""

    def __init__(self, first: Floats, low: Floats, high: Floats, target: float, pace: Pace = USUAL) -> None:
        self.low, self.high = low, high
        self.scale, self.hoped, self.pace = abs(target), target - pace.hoped * abs(target), pace
        self.now = self.kept = first
        self.best, self.step, self.stale = -np.inf, FIRST_STEP, 0
        self.way: Floats | None = None

    def looked(self, numbers: Floats) -> tuple[float, Floats]:
        """The bound at these prices, as far as is known, and the way up from here."""
        raise NotImplementedError

    def climb(self) -> None:
        """One step of the prices; the best so far are kept, and looked at again when nothing gets better."""
        value, way = self.looked(self.now)
        self.stale += 1
        if value > self.best:
            self.best, self.kept, self.stale = value, self.now, 0
        elif self.stale >= PATIENCE:
            self.now, self.stale = self.kept, 0
            self.best, way = self.looked(self.kept)
        self.step = max(LEAST_STEP, self.pace.shorter * self.step)
        self.way = way if self.way is None else MEMORY * self.way + (1 - MEMORY) * way
        stuck = ((self.now <= self.low) & (self.way < 0)) | ((self.now >= self.high) & (self.way > 0))
        uphill = np.where(stuck, 0.0, self.way)
        size = float((uphill**2).sum())
        if size > 0:
            left = max(self.hoped - self.best, self.pace.least_way * self.scale)
            self.now = np.clip(self.now + self.step * left / size * uphill, self.low, self.high)
