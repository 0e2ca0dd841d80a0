"""Routes on which containers step aside to other devices for a while, because no order of the plain moves will do.

`wander` is quick and finds a route in most cases; `shortest` looks at everything and can prove that there is none. Both
count what they look at and end at a limit, so that a city of any size gets an answer in seconds and little memory.
"""

import heapq
import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from metromq.planning.timing import Job

MOST_TRIES = 200  # walks of `wander`
ENOUGH_ROUTES = 20  # of which the shortest is taken
MOST_LOOKS = 10_000_000  # containers or devices that `wander` looks at in all its walks; a second or two
MOST_DETOURS = 10  # steps of a walk for every container that has to move
MOST_TRIMS = 3_000_000  # steps that the shortening of routes walks along
MOST_STATES = 100_000  # placements that `shortest` looks at
MOST_CELLS = 20_000_000  # placements times containers that it keeps; a byte or two each
MOST_EDGES = 3_000_000  # moves between those placements
MOST_CHOICES = 2_000  # containers times devices; beyond that only containers that must move may step aside
SEED = 1
HOMELESS_FIRST = 0.8  # how often one that is not home yet steps aside rather than any

Step = tuple[int, int, int]  # container, from, to


@dataclass(frozen=True, slots=True)
class Board:
    """Containers by number, where they are and should be. A device that is gone has the number -1, and any room."""

    loads: Sequence[float]
    first: Sequence[int]
    last: Sequence[int]
    room: Sequence[float]  # free on each device at first, and one more for those that are gone

    @property
    def devices(self) -> int:
        return len(self.room) - 1


class _Walk:
    """One walk from the first placement: home whatever fits, else something steps aside, by chance."""

    def __init__(self, board: Board, seed: int) -> None:
        self.board = board
        self.rng = np.random.default_rng((SEED, seed))
        self.where = list(board.first)
        self.room = list(board.room)
        self.waiting: dict[int, list[int]] = defaultdict(list)  # by the device where they should be, small ones first
        self.abroad = [i for i, (a, b) in enumerate(zip(board.first, board.last, strict=True)) if a != b]
        for i in sorted(self.abroad, key=board.loads.__getitem__):
            self.waiting[board.last[i]].append(i)
        self.route: list[Step] = []
        self.looks = 0

    def move(self, i: int, target: int) -> None:
        load, source = self.board.loads[i], self.where[i]
        self.room[source] += load
        self.room[target] -= load
        self.where[i] = target
        self.route.append((i, source, target))

    def go_home(self, freed: list[int]) -> None:
        """The largest first, and again wherever that leaves room."""
        loads = self.board.loads
        while freed:
            target = freed.pop()
            here = self.waiting[target]
            self.looks += len(here) + 1
            for i in reversed(here[:]):
                if loads[i] <= self.room[target]:
                    freed.append(self.where[i])
                    self.move(i, target)
                    here.remove(i)

    def step_aside(self) -> int | None:
        """The device that got room by it, or None where nothing can move at all."""
        board, room, rng = self.board, self.room, self.rng
        most = max(room[:-1], default=0.0)
        homeless = [i for here in self.waiting.values() for i in here if 0 < board.loads[i] <= most]
        self.looks += len(homeless) + 2 * board.devices
        if not homeless or rng.random() >= HOMELESS_FIRST:
            homeless += [i for i in range(len(self.where)) if 0 < board.loads[i] <= most]
            self.looks += len(self.where)
        while homeless:
            n = int(rng.integers(len(homeless)))
            i = homeless[n]
            source, load = self.where[i], board.loads[i]
            self.looks += board.devices
            targets = [d for d in range(board.devices) if d != source and load <= room[d]]
            if targets:
                target = targets[int(rng.integers(len(targets)))]
                if source == board.last[i]:
                    self.wait(i)
                self.move(i, target)
                return source
            homeless[n] = homeless[-1]
            homeless.pop()
        return None

    def wait(self, i: int) -> None:
        here = self.waiting[self.board.last[i]]
        here.append(i)
        here.sort(key=self.board.loads.__getitem__)

    def finish(self, most_steps: int, most_looks: int, job: Job) -> bool:
        """Whether everything got home."""
        freed = list(self.waiting)
        while True:
            self.go_home(freed)
            if not any(self.waiting.values()):
                return True
            if len(self.route) > most_steps or self.looks > most_looks or job.stopped:
                return False
            source = self.step_aside()
            if source is None:
                return False
            freed.append(source)


def wander(board: Board, job: Job) -> list[Step] | None:
    """The shortest of the first few routes found by walks; None says nothing about whether there is one."""
    routes: list[list[Step]] = []
    looks = len(board.loads)
    away = _away(board.first, board.last)
    for seed in range(MOST_TRIES):
        walk = _Walk(board, seed)
        if walk.finish(MOST_DETOURS * away + 1000, MOST_LOOKS - looks, job):
            routes.append(walk.route)
        looks += walk.looks + len(board.loads)
        if looks > MOST_LOOKS or len(routes) >= ENOUGH_ROUTES or job.stopped:
            break
    trims = MOST_TRIMS
    for n, route in enumerate(sorted(routes, key=len)):
        routes[n], walked = trimmed(board, route, trims, job)
        trims -= walked
    return min(routes, key=len, default=None)


def trimmed(board: Board, route: list[Step], most: int, job: Job) -> tuple[list[Step], int]:
    """Without steps aside that are not needed: two moves of a container become one, early or late. And the effort."""
    walked, changed = 0, True
    while changed:
        changed = False
        p = 0
        while p < len(route):
            if walked > most or job.stopped:
                return route, walked
            i, source, _ = route[p]
            q = next((q for q in range(p + 1, len(route)) if route[q][0] == i), len(route))
            walked += q - p
            p += 1
            if q == len(route):
                continue
            target = route[q][2]
            between = route[p:q]
            whole = [(i, source, target)] if source != target else []
            for shorter in ([*between, *whole], [*whole, *between]):
                walked += len(route)
                candidate = [*route[: p - 1], *shorter, *route[q + 1 :]]
                if is_safe(board, candidate):
                    route, changed = candidate, True
                    p -= 1
                    break
    return route, walked


def is_safe(board: Board, route: list[Step]) -> bool:
    room = list(board.room)
    for i, source, target in route:
        load = board.loads[i]
        if load and load > room[target]:
            return False
        room[target] -= load
        room[source] += load
    return True


def shortest(board: Board, job: Job) -> tuple[list[Step] | None, bool]:
    """The shortest route (A*), and whether all that can be reached was looked at. A placement is a text: small keys."""
    loads, count = board.loads, len(board.loads)
    whole = is_small(board)
    most_states = min(MOST_STATES, MOST_CELLS // max(count, 1))
    movable = [i for i in range(count) if whole or board.first[i] != board.last[i]]
    movable.sort(key=loads.__getitem__)
    first, last = _text(board.first), _text(board.last)
    number = itertools.count()
    waiting = [(_away(first, last), 0, next(number), first)]
    came: dict[str, tuple[str, int] | None] = {first: None}
    length = {first: 0}
    edges = 0
    while waiting:
        expected, so_far, _, places = heapq.heappop(waiting)
        if places == last:
            return _walked(came, places), True
        if so_far > length[places]:
            continue
        room = list(board.room)
        for load, at, origin in zip(loads, places, first, strict=True):
            if at != origin:
                room[ord(at) - 1] -= load
                room[ord(origin) - 1] += load
        edges += count // 8  # what a placement costs even if nothing can move
        for target in range(board.devices):
            mark = chr(target + 1)
            for i in movable:
                if loads[i] > room[target]:
                    break
                if places[i] == mark:
                    continue
                edges += 1
                after = f"{places[:i]}{mark}{places[i + 1 :]}"
                if length.get(after, so_far + 2) > so_far + 1:
                    length[after], came[after] = so_far + 1, (places, i)
                    to_go = expected - so_far - (places[i] != last[i]) + (mark != last[i])
                    heapq.heappush(waiting, (so_far + 1 + to_go, so_far + 1, next(number), after))
            if len(length) > most_states or edges > MOST_EDGES or job.stopped:
                return None, False
    return None, whole


def is_small(board: Board) -> bool:
    """Whether `shortest` lets every container step aside, so that it can prove something."""
    return len(board.loads) * board.devices <= MOST_CHOICES


def _away(first: Sequence[int] | str, last: Sequence[int] | str) -> int:
    return sum(a != b for a, b in zip(first, last, strict=True))


def _text(places: Sequence[int]) -> str:
    return "".join(chr(place + 1) for place in places)


def _walked(came: dict[str, tuple[str, int] | None], places: str) -> list[Step]:
    steps: list[Step] = []
    link = came[places]
    while link is not None:
        earlier, i = link
        steps.append((i, ord(earlier[i]) - 1, ord(places[i]) - 1))
        places, link = earlier, came[earlier]
    return steps[::-1]
