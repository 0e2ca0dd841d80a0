"""Few links: between which brokers messages go when each may send to only so many others, and ways along them; pure.

All brokers make the same graph of the same members: a tree that is as flat as the cap allows, cut from the map so that
its branches are regions, and then the shortest links that are left while both ends have room. A way has as few links as
possible, and of those ways it is the shortest in kilometres. No two ways are equally short, so that the rest of a way
is the way from there on, wherever on it a broker asks.
"""

import hashlib
import heapq
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Final

LEAST_LINKS: Final = 4  # fewer would make ways of a large city longer than a message may go
MOST_HOPS: Final = 12  # on a way; a target that is further away gets its message straight
Places = tuple[tuple[str, float, float], ...]  # names, latitudes and longitudes
Distance = Callable[[str, str], float]


@lru_cache(maxsize=8)
def links_between(places: Places, most: int, distance: Distance) -> Mapping[str, tuple[str, ...]]:
    """The peers of each broker, `most` at the most; everybody can reach everybody."""
    found: dict[str, list[str]] = {name: [] for name, _, _ in places}
    for one, other in _branches(list(places), "", most):
        found[one].append(other)
        found[other].append(one)
    near = sorted(
        (distance(one[0], other[0]), one[0], other[0]) for place, one in enumerate(places) for other in places[:place]
    )
    for _, one, other in near:
        if len(found[one]) < most and len(found[other]) < most and other not in found[one]:
            found[one].append(other)
            found[other].append(one)
    return {name: tuple(peers) for name, peers in found.items()}


def _branches(places: list[tuple[str, float, float]], above: str, most: int) -> Iterator[tuple[str, str]]:
    """The one in the middle of a region has a link to the one above it, and to those in the middle of its parts."""
    if not places:
        return
    north = sum(place[1] for place in places) / len(places)
    east = sum(place[2] for place in places) / len(places)
    middle = min(places, key=lambda place: ((place[1] - north) ** 2 + (place[2] - east) ** 2, place[0]))
    if above:
        yield above, middle[0]
    rest = [place for place in places if place is not middle]
    for part in _parts(rest, most - (1 if above else 0)):
        yield from _branches(part, middle[0], most)


def _parts(places: list[tuple[str, float, float]], count: int) -> list[list[tuple[str, float, float]]]:
    """So many regions with as many brokers each: cut across the longer side, again and again."""
    if count < 2 or len(places) < 2:
        return [places]
    north, east = [place[1] for place in places], [place[2] for place in places]
    is_tall = max(north) - min(north) > max(east) - min(east)
    line = sorted(places, key=lambda place: (place[1] if is_tall else place[2], place[0]))
    first = count // 2
    cut = len(line) * first // count
    return [*_parts(line[:cut], first), *_parts(line[cut:], count - first)]


def next_on_ways(
    start: str, links: Mapping[str, tuple[str, ...]], living: AbstractSet[str], distance: Distance
) -> dict[str, str]:
    """For every living broker within MOST_HOPS, the first one on the way to it."""
    found: dict[str, str] = {}
    best: dict[str, tuple[int, float]] = {start: (0, 0.0)}
    waiting: list[tuple[int, float, str, str]] = [(0, 0.0, start, "")]
    while waiting:
        hops, far, name, first = heapq.heappop(waiting)
        if best[name] < (hops, far):
            continue
        if name != start:
            found[name] = first
        for peer in links.get(name, ()) if hops < MOST_HOPS else ():
            further = hops + 1, far + distance(name, peer) + _unlike(name, peer)
            if peer in living and further < best.get(peer, (MOST_HOPS + 1, 0.0)):
                best[peer] = further
                heapq.heappush(waiting, (*further, peer, first or peer))
    return found


@lru_cache(maxsize=65_536)
def _unlike(one: str, other: str) -> float:
    """A few centimetres, so that no two ways are equally long."""
    text = f"{min(one, other)}\0{max(one, other)}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=4).digest(), "big") / (1 << 32) * 1e-4
