"""A longer search for a plan, here or by helpers: several long annealings, of which the best counts."""

from concurrent.futures import Future

import numpy as np

from metromq.planning.anneal import anneal
from metromq.planning.arrays import Arrays, Ints, price
from metromq.planning.long_anneal import COMPILED, STEPS, long_anneal
from metromq.planning.model import Clock
from metromq.planning.timing import Deadline, Helpers, ready

SEED = 1  # of the first: the same problem gets the same plan
MORE_SWEEPS = 2_000  # of the annealing by numpy, where the long one has to be plain Python or may not move everything
LONG_STEPS, LONG_SWEEPS, LONG_RUNS = 20_000_000, 10_000, 6  # at most; single runs end up to 0.5 % above the best
PATIENT_S = 10.0  # with so much time, fewer runs that cool more slowly: they end nearer to the best
PATIENT, PATIENT_RUNS = 2.5, 4  # by how much, and how many; after one that also ends where others keep us waiting

Found = tuple[Ints, bool]  # a placement, and whether the run came to its end


def run_there(arrays: Arrays, start: Ints, sweeps: int, seed: int, clock: Clock, until: float) -> Found:
    """One long annealing in another process, which nobody can stop but the clock."""
    return long_anneal(arrays, start, sweeps, seed, Deadline.after(until - clock(), clock))


class LongRuns:
    """Begins at once if there are helpers, so that the planner may do something else before it asks for the `best`."""

    def __init__(self, arrays: Arrays, start: Ints, time: Deadline, helpers: Helpers | None) -> None:
        self.arrays, self.start, self.time = arrays, start, time
        self.long = COMPILED and arrays.goal.max_moves is None
        short = min(LONG_SWEEPS, LONG_STEPS // (STEPS * max(arrays.count, 1)) + 1)
        patient = time.left() >= PATIENT_S
        self.sweeps = [short, *[int(PATIENT * short)] * PATIENT_RUNS] if patient else [short] * LONG_RUNS
        self.there: list[Future[Found]] = []
        if helpers is not None and self.long:
            submit = helpers.executor.submit
            self.there = [
                submit(run_there, arrays, start, sweeps, SEED + run, time.clock, time.at)
                for run, sweeps in enumerate(self.sweeps)
            ]

    def best(self) -> Ints:
        """Plain Python would still be hot when its time is up, numpy is not."""
        if not self.long:
            return anneal(self.arrays, self.start, MORE_SWEEPS, np.random.default_rng(SEED), self.time)[0]
        best = self.start
        for run in range(len(self.sweeps)):
            found = self._here(run) if not self.there else self._there(self.there[run])
            if found is None:
                break
            where, finished = found
            if price(self.arrays, where).objective < price(self.arrays, best).objective:
                best = where
                self.time.keep(self.arrays, best)
            if not finished:
                break
        for work in self.there:
            work.cancel()
        return anneal(self.arrays, best, 0, np.random.default_rng(SEED), self.time)[0]  # downhill, as far as it goes

    def _here(self, run: int) -> Found:
        return long_anneal(self.arrays, self.start, self.sweeps[run], SEED + run, self.time)

    def _there(self, work: Future[Found]) -> Found | None:
        while not work.done():
            if self.time.up():
                return None
            ready([work])
        return work.result()
