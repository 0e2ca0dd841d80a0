"""A first placement worth improving: greedy in both readings, or the present one, repaired and brought downhill."""

from metromq.planning.arrays import Arrays, Ints, price
from metromq.planning.baselines import greedy_places
from metromq.planning.search import MANY_PASSES, Search, repaired
from metromq.planning.timing import Deadline


def warm_start(arrays: Arrays, time: Deadline, passes: int = MANY_PASSES) -> tuple[Ints | None, bool]:
    """A placement that fits, and whether the time sufficed; None when none was found, which proves nothing."""
    first = [] if arrays.goal.max_moves is not None else [greedy_places(arrays, sees)[0] for sees in (True, False)]
    if (arrays.present >= 0).any():
        first.append(arrays.present)
    best: Ints | None = None
    finished = True
    for where in first:
        whole = repaired(arrays, where, time)
        if whole is None:
            finished &= not time.up()
            continue
        time.keep(arrays, whole)
        search = Search(arrays, whole)
        finished &= search.descend(time, passes)
        cost = price(arrays, search.where)
        if cost.fits and (best is None or cost.objective < price(arrays, best).objective):
            best = search.where
            time.keep(arrays, best)
    return best, finished
