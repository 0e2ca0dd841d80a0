"""The steps from the present placement to a plan, in an order that overloads no device on the way.

A container that moves is on both devices for a moment, so its target must have room before it leaves its source. Stops
make room and starts take it; moves come between them. If no order of the moves will do, containers may step aside to a
third device for a while. What was tried in vain is told apart from what was shown to be impossible.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from metromq.planning.arrays import ROOM, compile_arrays
from metromq.planning.detours import Board, Step, is_small, shortest, wander
from metromq.planning.model import Placement, Problem
from metromq.planning.timing import Job

MOST_ORDERS = 20_000  # dead ends of the search for an order of the moves alone
MOST_LOOKS = 2_000_000  # moves that it looks at; a second or two

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


def route_between(
    problem: Problem, present: Placement | None, planned: Placement, job: Job | None = None
) -> Transition:
    """Stops come last where there is room for that, else first. `problem` knows the load of everything that runs.

    A host that sets `job.stopped` gets the best order so far.
    """
    job = job or Job()
    before = present or Placement({}, {})
    moves, starts, stops = _changes(before, planned)
    known = {("topic", t.name) for t in problem.topics} | {("service", s.name) for s in problem.services}
    early = [step for step in stops if (step.kind, step.name) not in known]  # of unknown load: the sooner the better
    late = [step for step in stops if (step.kind, step.name) in known]
    direct = _direct(_Rooms(problem, before), moves, job)
    if direct is not None:
        route = (*early, *direct, *starts, *late)
        if not _overloads(_Rooms(problem, before), route):
            return Transition(route)
    rooms = _Rooms(problem, before)
    for step in stops:
        rooms.take(step)
    if direct is None and late:  # there is more room now
        direct = _direct(rooms, moves, job)
    ordered, proven = (direct, False) if direct is not None else _aside(rooms, moves, before, planned, job)
    route = (*stops, *ordered, *starts)
    overloads = tuple(_overloads(_Rooms(problem, before), route))
    if not overloads:
        return Transition(route)
    return Transition(route, NONE_EXISTS if proven else NONE_FOUND, overloads)


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


def _direct(rooms: _Rooms, moves: list[PlanStep], job: Job) -> list[PlanStep] | None:
    """An order of the moves alone: depth first, never twice from the same set of moves still to do (a bit each)."""
    done: list[int] = []
    left = (1 << len(moves)) - 1
    dead: set[int] = set()
    tried = [0]  # at each depth, the next move to look at
    looks = 0
    while left:
        n = tried[-1]
        while n < len(moves):
            if left >> n & 1 and not rooms.overload(moves[n]) and not (dead and left ^ 1 << n in dead):
                break
            n += 1
        looks += n - tried[-1] + 1
        tried[-1] = n + 1
        if n < len(moves):
            done.append(n)
            left ^= 1 << n
            rooms.take(moves[n])
            tried.append(0)
            continue
        dead.add(left)
        tried.pop()
        if not done or len(dead) > MOST_ORDERS or looks > MOST_LOOKS or job.stopped:
            break
        left ^= 1 << done[-1]
        rooms.take(moves[done.pop()], back=True)
    ordered = [moves[n] for n in done]
    for step in reversed(ordered):
        rooms.take(step, back=True)
    return ordered if not left else None


def _aside(
    rooms: _Rooms, moves: list[PlanStep], before: Placement, planned: Placement, job: Job
) -> tuple[list[PlanStep], bool]:
    """With steps aside, or if that does not help, what does least harm; and whether it is proven that nothing helps.

    Containers without load fit anywhere at any time: they move first, and are in nobody's way.
    """
    parts = (("topic", before.topics, planned.topics), ("service", before.services, planned.services))
    stay = [(kind, name, old[name], new[name]) for kind, old, new in parts for name in new if name in old]
    heavy = [item for item in stay if rooms.load_of(*item[:2])]
    light = [step for step in moves if not rooms.load_of(step.kind, step.name)]
    names = list(rooms.capacity)
    number = {name: n for n, name in enumerate(names)}
    room = [*(rooms.capacity[name] - rooms.used[name] for name in names), 0.0]
    board = Board(
        [rooms.load_of(*item[:2]) for item in heavy],
        [number.get(item[2], -1) for item in heavy],
        [number[item[3]] for item in heavy],
        room,
    )

    def told(steps: list[Step]) -> list[PlanStep]:
        at = [item[2] for item in heavy]  # a device that is gone still has its name
        told = list(light)
        for i, _, target in steps:
            told.append(PlanStep("move", *heavy[i][:2], at[i], names[target]))
            at[i] = names[target]
        return told

    found, proven = wander(board, job), False
    if found is None or (is_small(board) and len(found) > len(moves) - len(light) + 1):
        shorter, proven = shortest(board, job)
        found = shorter or found
    if found is not None:
        return told(found), False
    return _least_harm(rooms, moves), proven


def _least_harm(rooms: _Rooms, moves: list[PlanStep]) -> list[PlanStep]:
    """When there is no better way: at every point the move that overloads least, the smallest for each target."""
    left: dict[str, list[PlanStep]] = {}
    for step in sorted(moves, key=lambda step: -rooms.load_of(step.kind, step.name)):
        left.setdefault(step.target, []).append(step)
    ordered = []
    while left:
        step = min((steps[-1] for steps in left.values()), key=rooms.overload)
        left[step.target].pop()
        if not left[step.target]:
            del left[step.target]
        rooms.take(step)
        ordered.append(step)
    return ordered
