"""A first placement worth improving: greedy in both readings, or the present one, repaired and brought downhill."""

from metromq.planning.arrays import Arrays, Ints, price
from metromq.planning.baselines import greedy_places
from metromq.planning.model import Clock
from metromq.planning.search import Search, repaired


def warm_start(arrays: Arrays, clock: Clock, deadline: float) -> Ints | None:
    """None when no placement that fits was found, which proves nothing."""
    if arrays.goal.max_moves is not None:
        first = [arrays.present]
    else:
        first = [greedy_places(arrays, sees_placed)[0] for sees_placed in (True, False)]
    best: Ints | None = None
    for where in first:
        whole = repaired(arrays, where)
        if whole is None:
            continue
        search = Search(arrays, whole)
        search.descend(clock, deadline)
        cost = price(arrays, search.where)
        if cost.fits and (best is None or cost.objective < price(arrays, best).objective):
            best = search.where
    return best
