"""Who keeps company with whom in a city that is too large for everybody to greet everybody; no I/O.

All members stand on two circles, each in an order of its own that hashing gives them. A broker's companions are those
that stand next to it, two on each side of each circle. So everybody has eight, whatever the size of the city; two that
stand next to each other share some, and can compare what they hear; and what companions tell their companions reaches
thousands of brokers in a few steps.

Who is lost is passed over: as many more as were lost on the way are taken in behind them. So a broker that is cut off
with a few others finds out, doubling its steps, that all the rest is out of reach. Those that were passed over stay
companions too, as many as are near, so that somebody dials them when they are back.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Final

from metromq.federation.coordination.sharing import Shared

CIRCLES: Final = 2
BESIDE: Final = 2  # living companions on each side of a circle
MOST_LOST: Final = 4  # lost ones on each side of a circle that are dialled again and again


Circle = tuple[tuple[str, ...], Mapping[str, int]]


def _circles_of(names: tuple[str, ...]) -> tuple[Circle, ...]:
    return tuple(_circle(names, number) for number in range(CIRCLES))


_CIRCLES: Final = Shared(_circles_of)


def _circle(names: tuple[str, ...], number: int) -> Circle:
    """The order of a circle, and everybody's place in it."""

    def place(name: str) -> bytes:
        return hashlib.blake2b(f"{number}\0{name}".encode(), digest_size=8).digest()

    order = tuple(sorted(names, key=place))
    return order, {name: place for place, name in enumerate(order)}


def companions_of(name: str, names: tuple[str, ...], is_lost: Callable[[str], bool]) -> frozenset[str]:
    """Of all members `names`, those that keep company with `name`."""
    found: set[str] = set()
    for order, places in _CIRCLES.of(names):
        if name in places:
            for step in (1, -1):
                found |= _side(order, places[name], step, is_lost)
    return frozenset(found - {name})


def _side(order: tuple[str, ...], place: int, step: int, is_lost: Callable[[str], bool]) -> set[str]:
    found: set[str] = set()
    living = lost = 0
    for distance in range(1, len(order)):
        other = order[(place + step * distance) % len(order)]
        if is_lost(other):
            lost += 1
            if lost <= MOST_LOST:
                found.add(other)
            continue
        found.add(other)
        living += 1
        if living >= BESIDE + lost:
            break
    return found
