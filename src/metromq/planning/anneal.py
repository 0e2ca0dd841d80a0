"""Heat-bath annealing over the incremental prices: the heuristic behind warm starts and the large-scale method.

Each step draws a container's device from all devices at once, or its partner for a swap from all containers, with
Gumbel noise: the arg-min of price minus temperature times noise is a draw by Boltzmann weight, in one vector pass.
"""

import numpy as np

from metromq.planning.arrays import Arrays, Floats, Ints, price
from metromq.planning.model import Clock
from metromq.planning.search import Search

SCHEDULE = (0.5, 0.05)  # first and last temperature as a share of what the mean container loses on a mean device
SWAP_SHARE = 0.5  # of the steps; relocations alone freeze when devices are full
PARTNERS = 128  # drawn for a swap; more take longer than they gain
NOISE = (
    1 << 14
)  # numbers drawn once per sweep and read at random places: drawing them singly would take most of the time


def anneal(
    arrays: Arrays,
    start: Ints,
    sweeps: int,
    rng: np.random.Generator,
    clock: Clock,
    deadline: float,
    far: Floats | None = None,
    schedule: tuple[float, float] = SCHEDULE,
) -> Ints:
    """At most `sweeps` passes from hot to cold, fewer when time is short, then descent; never worse than `start`."""
    hot, cold = schedule
    search = Search(arrays, start, far)
    search.descend(clock, deadline)
    best, best_cost = search.where.copy(), search.total()
    scale = float((search.cost.mean(axis=1) - search.cost.min(axis=1)).mean())
    began = clock()
    done = 0.0
    for sweep in range(sweeps):
        now = clock()
        if now >= deadline:
            break
        done = max(sweep / sweeps, (now - began) / (deadline - began))
        _sweep(search, scale * hot * (cold / hot) ** done, rng, clock, deadline)
        total = search.total()
        if total < best_cost:
            best, best_cost = search.where.copy(), total
    search.descend(clock, deadline)
    if search.total() < best_cost and price(arrays, search.where).fits:
        return search.where
    polished = Search(arrays, best, far)
    polished.descend(clock, deadline)
    return polished.where


def _sweep(search: Search, heat: float, rng: np.random.Generator, clock: Clock, deadline: float) -> None:
    """One pass over all containers in random order, each tried as a relocation or as a swap."""
    count, width = search.arrays.count, len(search.arrays.capacity)
    swaps = (rng.random(count) < SWAP_SHARE).tolist()
    longest = max(min(count, PARTNERS), width)
    noise = heat * rng.gumbel(size=max(NOISE, 4 * longest))
    shifts = rng.integers(len(noise) - longest, size=count).tolist()
    partners = search.every if count <= PARTNERS else rng.integers(count, size=NOISE)
    for n, i in enumerate(rng.permutation(count).tolist()):
        if n % 64 == 0 and clock() >= deadline:
            return
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
