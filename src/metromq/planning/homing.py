"""Containers that gain nothing by moving stay where they are: a plan without needless moves, at the same price."""

import numpy as np

from metromq.planning.arrays import Arrays, Ints, price
from metromq.planning.search import Search
from metromq.planning.timing import Deadline

TIE = 1e-9  # of the price: less is rounding, and no reason to move


def stay_home(arrays: Arrays, where: Ints, time: Deadline) -> Ints:
    """Takes containers back to their present device, alone or by changing places, while that costs nothing."""
    known = arrays.present >= 0
    if not (known & (where != arrays.present)).any():
        return where
    search = Search(arrays, where)
    slack = TIE * max(abs(price(arrays, where).objective), 1e-9)
    gained = True
    while gained:
        gained = False
        for i in np.flatnonzero(known & (search.where != arrays.present)).tolist():
            if time.up():
                return search.where
            gained |= search.where[i] != arrays.present[i] and _back(search, i, slack)
    return search.where


def _back(search: Search, i: int, slack: float) -> bool:
    """One container goes home, or changes places with one that is there and not at home; unless that costs more."""
    arrays, home, here = search.arrays, int(search.arrays.present[i]), int(search.where[i])
    worst = price(arrays, search.where).worst_hops if arrays.goal.latency else 0
    if search.relocation_costs(i)[home] - search.cost[i, here] <= slack:
        search.move(i, home)
        if not arrays.goal.latency or price(arrays, search.where).worst_hops <= worst:
            return True
        search.move(i, here)
    guests = np.flatnonzero((search.where == home) & (arrays.present != home))
    gains = search.swap_gains(i, guests)
    for j, gain in zip(guests.tolist(), gains.tolist(), strict=True):
        if gain > slack:
            continue
        search.swap(i, j)
        if not arrays.goal.latency or price(arrays, search.where).worst_hops <= worst:
            return True
        search.swap(i, j)
    return False
