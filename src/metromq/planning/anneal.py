"""Heat-bath annealing over the incremental prices: the heuristic behind warm starts and the large-scale method.

Each step draws a container's device from all devices at once, or its partner for a swap from all containers, with
Gumbel noise: the arg-min of price minus temperature times noise is a draw by Boltzmann weight, in one vector pass.
"""

import numpy as np

from metromq.planning.arrays import Arrays, Floats, Ints, price
from metromq.planning.search import MANY_PASSES, OFTEN, Search
from metromq.planning.timing import Deadline

SCHEDULE = (0.5, 0.05)  # first and last temperature as a share of what the mean container loses on a mean device
SWAP_SHARE = 0.5  # of the steps; relocations alone freeze when devices are full
PARTNERS = 128  # drawn for a swap; more take longer than they gain
NOISE = 1 << 14  # numbers drawn once per sweep and read at random places: to draw them singly would take most time


def anneal(
    arrays: Arrays,
    start: Ints,
    sweeps: int,
    rng: np.random.Generator,
    time: Deadline,
    far: Floats | None = None,
    schedule: tuple[float, float] = SCHEDULE,
    passes: int = MANY_PASSES,
) -> tuple[Ints, bool]:
    """`sweeps` passes from hot to cold, then descent; never worse than `start`. False: the time was up before that.

    The temperature follows the count of sweeps and never the clock: the same seed gives the same placement on a slow
    machine and on a fast one, unless the slow one runs out of time.
    """
    hot, cold = schedule
    search = Search(arrays, start, far)
    finished = search.descend(time, passes)
    best, best_cost = search.where.copy(), search.total()
    scale = float((search.cost.mean(axis=1) - search.cost.min(axis=1)).mean())
    for sweep in range(sweeps):
        finished = finished and _sweep(search, scale * hot * (cold / hot) ** (sweep / sweeps), rng, time)
        total = search.total()
        if total < best_cost:
            best, best_cost = search.where.copy(), total
            if far is None:
                time.keep(arrays, best)
        if not finished:
            break
    finished = finished and search.descend(time, passes)
    if search.total() < best_cost and price(arrays, search.where).fits:
        return search.where, finished
    if not finished:
        return best, False
    polished = Search(arrays, best, far)
    finished = polished.descend(time, passes)
    return polished.where, finished


def _sweep(search: Search, heat: float, rng: np.random.Generator, time: Deadline) -> bool:
    """One pass over all containers in random order, each tried as a relocation or as a swap; False: time was up."""
    count, width = search.arrays.count, len(search.arrays.capacity)
    swaps = (rng.random(count) < SWAP_SHARE).tolist()
    longest = max(min(count, PARTNERS), width)
    noise = heat * rng.gumbel(size=max(NOISE, 4 * longest))
    shifts = rng.integers(len(noise) - longest, size=count).tolist()
    partners = search.every if count <= PARTNERS else rng.integers(count, size=NOISE)
    for n, i in enumerate(rng.permutation(count).tolist()):
        if n % OFTEN == 0 and time.up():
            return False
        shift = shifts[n]
        if swaps[i]:
            some = partners if count <= PARTNERS else partners[shift : shift + PARTNERS]
            gains = search.swap_gains(i, some) - noise[shift : shift + len(some)]
            best = int(np.argmin(gains))
            if gains[best] < -noise[shift - 1]:  # staying is one more choice, with its own noise
                search.swap(i, int(some[best]))
        else:
            row = search.relocation_costs(i) - noise[shift : shift + width]
            target = int(np.argmin(row))
            if target != search.where[i]:
                search.move(i, target)
    return True
