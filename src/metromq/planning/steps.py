"""The steps from the present placement to a plan, in an order that overloads no device on the way.

A container that moves is on both devices for a moment, so its target must have room before it leaves its source. Stops
make room and starts take it; moves come between them. If no order of the moves will do, containers may step aside to a
third device for a while. What was tried in vain is told apart from what was shown to be impossible.
"""

import heapq
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from metromq.planning.arrays import ROOM, compile_arrays
from metromq.planning.model import Placement, Problem

MOST_ORDERS = 20_000  # dead ends of the search for an order of the moves alone
MOST_STATES = 100_000  # placements that the search with steps aside looks at
MOST_CHOICES = 2_000  # containers times devices; beyond that only containers that must move may step aside

SAFE, NONE_EXISTS, NONE_FOUND = "safe", "none-exists", "none-found"


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One thing to do on the way to a plan: `start` a new container, `move` one, or `stop` one no longer planned."""

    action: str
    kind: str  # "topic" or "service"
    name: str
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Transition:
    """Steps in order. `order` is "safe", or no safe order was found, or there is none; then `overloads` says where."""

    steps: tuple[PlanStep, ...]
    order: str = SAFE
    overloads: tuple[str, ...] = ()


class _Rooms:
    """What every device carries while steps are taken."""

    def __init__(self, problem: Problem, before: Placement) -> None:
        self.capacity = {d.name: d.capacity_workload * (1 + ROOM) for d in problem.devices}
        keys = [("topic", t.name) for t in problem.topics] + [("service", s.name) for s in problem.services]
        self.load: dict[tuple[str, str], float] = dict(zip(keys, compile_arrays(problem).load.tolist(), strict=True))
        self.used = dict.fromkeys(self.capacity, 0.0)
        for kind, places in (("topic", before.topics), ("service", before.services)):
            for name, device in places.items():
                self.put(device, self.load_of(kind, name))

    def load_of(self, kind: str, name: str) -> float:
        """A container that the problem does not know any more has no known load, and counts nothing."""
        return self.load.get((kind, name), 0.0)

    def put(self, device: str, load: float) -> None:
        if device in self.used:  # a device that is gone carries nothing
            self.used[device] += load

    def fits(self, device: str, load: float) -> bool:
        return load == 0 or self.used[device] + load <= self.capacity[device]

    def take(self, step: PlanStep, back: bool = False) -> None:
        load = -self.load_of(step.kind, step.name) if back else self.load_of(step.kind, step.name)
        self.put(step.source, -load)
        self.put(step.target, load)

    def overload(self, step: PlanStep) -> float:
        """How much too much the step's target would carry; what is too much already is not the step's fault."""
        load = self.load_of(step.kind, step.name)
        if not step.target or not load:
            return 0.0
        return max(self.used[step.target] + load - self.capacity[step.target], 0.0)


def route_between(problem: Problem, present: Placement | None, planned: Placement) -> Transition:
    """Stops come last where there is room for that, else first. `problem` knows the load of everything that runs."""
    before = present or Placement({}, {})
    moves, starts, stops = _changes(before, planned)
    known = {("topic", t.name) for t in problem.topics} | {("service", s.name) for s in problem.services}
    early = [step for step in stops if (step.kind, step.name) not in known]  # of unknown load: the sooner the better
    late = [step for step in stops if (step.kind, step.name) in known]
    direct = _direct(_Rooms(problem, before), moves)
    if direct is not None:
        route = (*early, *direct, *starts, *late)
        if not _overloads(_Rooms(problem, before), route):
            return Transition(route)
    rooms = _Rooms(problem, before)
    for step in stops:
        rooms.take(step)
    ordered, order = _order(rooms, moves, before, planned)
    route = (*stops, *ordered, *starts)
    return Transition(route, order, tuple(_overloads(_Rooms(problem, before), route)))


def _overloads(rooms: _Rooms, route: Sequence[PlanStep]) -> list[str]:
    """What a walk along the route overloads."""
    found = []
    for number, step in enumerate(route, 1):
        over = rooms.overload(step)
        if over:
            text = f"step {number} puts {step.kind} {step.name} on {step.target}"
            found.append(f"{text}, {over:,.0f} workload more than it can carry")
        rooms.take(step)
    return found


def _changes(before: Placement, planned: Placement) -> tuple[list[PlanStep], list[PlanStep], list[PlanStep]]:
    """Brokers before services in each, because a service needs those of its topics; stopped the other way round."""
    parts = (("topic", before.topics, planned.topics), ("service", before.services, planned.services))
    moves: list[PlanStep] = []
    starts: list[PlanStep] = []
    stops: list[PlanStep] = []
    for kind, old, new in parts:
        for name, target in new.items():
            source = old.get(name, "")
            if not source:
                starts.append(PlanStep("start", kind, name, "", target))
            elif source != target:
                moves.append(PlanStep("move", kind, name, source, target))
        stops[:0] = [PlanStep("stop", kind, name, source, "") for name, source in old.items() if name not in new]
    return moves, starts, stops


def _order(rooms: _Rooms, moves: list[PlanStep], before: Placement, planned: Placement) -> tuple[list[PlanStep], str]:
    found = _direct(rooms, moves)
    if found is not None:
        return found, SAFE
    aside, exhausted = _with_detours(rooms, before, planned)
    if aside is not None:
        return aside, SAFE
    return _least_harm(rooms, moves), NONE_EXISTS if exhausted else NONE_FOUND


def _direct(rooms: _Rooms, moves: list[PlanStep]) -> list[PlanStep] | None:
    """An order of the moves alone: depth first, never twice from the same set of moves still to do."""
    done: list[int] = []
    left = set(range(len(moves)))
    dead: set[frozenset[int]] = set()
    tried = [iter(sorted(left))]
    while left:
        n = next((n for n in tried[-1] if not rooms.overload(moves[n]) and not (dead and left - {n} in dead)), -1)
        if n >= 0:
            done.append(n)
            left.discard(n)
            rooms.take(moves[n])
            tried.append(iter(sorted(left)))
            continue
        dead.add(frozenset(left))
        tried.pop()
        if not done or len(dead) > MOST_ORDERS:
            break
        left.add(done[-1])
        rooms.take(moves[done.pop()], back=True)
    ordered = [moves[n] for n in done]
    for step in ordered:
        rooms.take(step, back=True)
    return ordered if not left else None


def _with_detours(rooms: _Rooms, before: Placement, planned: Placement) -> tuple[list[PlanStep] | None, bool]:
    """The shortest route on which containers may step aside (A*), and whether all that can be reached was looked at."""
    keys = [
        (kind, name)
        for kind, old, new in (("topic", before.topics, planned.topics), ("service", before.services, planned.services))
        for name in new
        if name in old
    ]
    first = tuple({"topic": before.topics, "service": before.services}[kind][name] for kind, name in keys)
    last = tuple({"topic": planned.topics, "service": planned.services}[kind][name] for kind, name in keys)
    loads = [rooms.load_of(*key) for key in keys]
    devices = list(rooms.capacity)
    whole = len(keys) * len(devices) <= MOST_CHOICES
    movable = [i for i in range(len(keys)) if whole or first[i] != last[i]]
    number = itertools.count()
    away = sum(a != b for a, b in zip(first, last, strict=True))
    waiting = [(away, 0, next(number), first)]
    came: dict[tuple[str, ...], tuple[tuple[str, ...], int] | None] = {first: None}
    length = {first: 0}
    while waiting:
        _, so_far, _, places = heapq.heappop(waiting)
        if places == last:
            return _walk(came, keys, places), True
        if so_far > length[places]:
            continue
        used = dict(rooms.used)
        for i, (at, origin) in enumerate(zip(places, first, strict=True)):
            if at != origin:
                used[at] += loads[i]
                used[origin] = used.get(origin, 0.0) - loads[i]
        for i in movable:
            for target in devices:
                if target == places[i] or (loads[i] and used[target] + loads[i] > rooms.capacity[target]):
                    continue
                after = (*places[:i], target, *places[i + 1 :])
                if length.get(after, so_far + 2) > so_far + 1:
                    length[after], came[after] = so_far + 1, (places, i)
                    to_go = sum(a != b for a, b in zip(after, last, strict=True))
                    heapq.heappush(waiting, (so_far + 1 + to_go, so_far + 1, next(number), after))
        if len(length) > MOST_STATES:
            return None, False
    return None, whole


def _walk(
    came: Mapping[tuple[str, ...], tuple[tuple[str, ...], int] | None],
    keys: Sequence[tuple[str, str]],
    places: tuple[str, ...],
) -> list[PlanStep]:
    steps: list[PlanStep] = []
    link = came[places]
    while link is not None:
        earlier, i = link
        steps.append(PlanStep("move", *keys[i], earlier[i], places[i]))
        places, link = earlier, came[earlier]
    return steps[::-1]


def _least_harm(rooms: _Rooms, moves: list[PlanStep]) -> list[PlanStep]:
    """When there is no better way: at every point the move that overloads least."""
    left, ordered = list(moves), []
    while left:
        step = min(left, key=rooms.overload)
        left.remove(step)
        rooms.take(step)
        ordered.append(step)
    return ordered
