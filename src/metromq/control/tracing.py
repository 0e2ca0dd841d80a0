"""Traces a message or a subscription through a city: asks the running brokers, or works it out from the file."""

import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from metromq.control.city_status import NoAnswer, get_json
from metromq.control.data_directory import lives, read_place
from metromq.errors import ConfigError
from metromq.federation import City, Node, StepHop, TraceStep, explain_step, is_filter, stages, step_from_json

Names = tuple[str, ...]
Ask = Callable[[str, str, int, str, Names, Names], Awaitable[TraceStep | None]]


@dataclass(frozen=True, slots=True)
class Leg:
    """One broker's part; `sender` is who sent the copy, empty for the broker where the client is."""

    broker: str
    sender: str
    stage: str
    why: str
    step: TraceStep | None  # None: the broker did not answer
    via: str = ""  # the broker between the sender and this one
    waits: str = ""  # why the copy waits at the sender
    opens: bool = False  # the sender has no link to this one now, and opens one


@dataclass(frozen=True, slots=True)
class Trace:
    topic: str
    start: str
    live: bool  # asked of running brokers
    legs: tuple[Leg, ...]


async def trace(topic: str, start: str, live: bool, ask: Ask) -> Trace:
    """Follows every copy until it is final; each broker is asked once for each stage, so this ends."""
    legs: list[Leg] = []
    waiting = deque([("", StepHop(start, stages.NAMES[stages.CLIENT], "the client is connected here"))])
    seen: set[tuple[str, int]] = set()
    while waiting:
        sender, hop = waiting.popleft()
        broker, stage = hop.peer, stages.NAMES.index(hop.stage)
        if (broker, stage) in seen:
            continue
        seen.add((broker, stage))
        step = await ask(broker, topic, stage, start, hop.served, hop.targets)
        legs.append(Leg(broker, sender, hop.stage, hop.why, step, hop.via, hop.waits, hop.opens))
        if step is not None and not is_filter(topic):
            waiting += [(broker, onward) for onward in step.hops]
    return Trace(topic, start, live, tuple(legs))


def is_running(city: City, data: Path, name: str) -> bool:
    place = read_place(data / name)
    return place is not None and lives(place.pid)


def live_ask(city: City, data: Path) -> Ask:
    async def ask(broker: str, topic: str, stage: int, origin: str, served: Names, targets: Names) -> TraceStep | None:
        place = read_place(data / broker)
        if place is None:
            return None
        query = {"topic": topic, "stage": stages.NAMES[stage], "origin": origin, "served": ",".join(served)}
        if targets:
            query["targets"] = ",".join(targets)
        try:
            return step_from_json(await get_json(place.http, "/explain", query))
        except (NoAnswer, ConfigError):  # nobody there, or a version that answers in another way
            return None

    return ask


def planned_ask(city: City) -> Ask:
    """As the brokers would decide with nobody connected."""
    nodes: dict[str, Node] = {}

    async def ask(broker: str, topic: str, stage: int, origin: str, served: Names, targets: Names) -> TraceStep | None:
        if broker not in nodes:
            nodes[broker] = Node(city, broker, time.time_ns() // 1000, 0)
        return explain_step(nodes[broker], topic, min(stage, stages.FINAL), origin, served, targets=targets)

    return ask
