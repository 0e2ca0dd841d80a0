"""Why a message or a subscription goes where it goes: one step at one broker, for people and for `metromq explain`."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from metromq.federation.coordination import ZooKeeperCoordinator
from metromq.federation.distribution import Arrival, distribute
from metromq.federation.interest import SHARE_PREFIX
from metromq.federation.node import Node
from metromq.federation.stages import CLIENT, FINAL, HOP_LIMIT, NAMES
from metromq.protocol.topics import validate_filter, validate_topic
from metromq.reading import read_data


@dataclass(frozen=True, slots=True)
class StepHop:
    """A copy for a peer; `served` is what the copy says about who has the message already."""

    peer: str
    stage: str
    why: str
    served: tuple[str, ...] = ()
    via: str = ""  # the broker that it goes through, because the peer cannot be reached directly
    waits: str = ""  # why it waits for the peer; empty: it does not
    targets: tuple[str, ...] = ()  # of a relay: the brokers that it brings the message to; none: whoever wants it
    opens: bool = False  # there is no link to the peer now, and one is opened for it


class Ways(Protocol):
    """What a running broker knows of the ways to its peers."""

    def via(self, peer: str) -> str: ...

    def problem(self, peer: str) -> str: ...

    def rests(self, peer: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class TraceStep:
    """What one broker does with a message that reaches it at a stage, or with a client's subscription."""

    broker: str
    topic: str
    stage: str
    reasons: tuple[str, ...]
    hops: tuple[StepHop, ...]
    interested: tuple[str, ...]  # peers that have announced that they want it
    subscribers: int  # at this broker; -1: not known, because nobody asked a running one


def is_filter(text: str) -> bool:
    return "+" in text or "#" in text or text.startswith(SHARE_PREFIX)


def explain_step(
    node: Node,
    topic: str,
    stage: int = CLIENT,
    origin: str = "",
    served: tuple[str, ...] = (),
    subscribers: int = -1,
    limit: int = HOP_LIMIT,
    targets: tuple[str, ...] = (),
) -> TraceStep:
    """Raises ProtocolViolation for what is neither a topic nor a filter."""
    if is_filter(topic):
        validate_filter(topic)
        return _subscription(node, topic, subscribers)
    validate_topic(topic)
    interested = node.exchange.interest.peers_for(topic)
    if stage >= FINAL:
        reasons: tuple[str, ...] = (f"{node.name} serves its own subscribers.",)
        return TraceStep(node.name, topic, NAMES[stage], reasons, (), interested, subscribers)
    arrival = Arrival(topic, stage, origin or node.name, 0, served, limit=limit, targets=targets)
    route, _ = distribute(node.routes, arrival)  # not its `route`, which counts
    suggestion = node.router.decide(topic, stage, arrival.origin)
    whys = {suggestion.through: "serves everybody else who wants it"} if suggestion.through else {}
    whys |= {item.peer: item.why for item in suggestion.onward}
    carried = tuple(name for hop in route.hops for name in (hop.targets or (hop.peer,)))
    whys |= {
        item.peer: item.why for item in node.router.ways.carriers(topic, carried, (node.name, arrival.origin, *served))
    }
    usual = "has subscribers" if interested or targets else "gets every message"
    hops = tuple(
        StepHop(
            hop.peer,
            NAMES[hop.stage],
            (_summary(node, hop.peer, topic) or usual) if hop.stage == FINAL else whys.get(hop.peer, ""),
            hop.served,
            targets=hop.targets,
        )
        for hop in route.hops
    )
    reasons = node.router.explain(topic) + _who_decides(node, subscribers)
    if route.dropped:
        reasons += (f"{node.name} drops the copies for {', '.join(route.dropped)}: {_why_dropped(limit)}.",)
    return TraceStep(node.name, topic, NAMES[stage], reasons, hops, interested, subscribers)


def _summary(node: Node, peer: str, topic: str) -> str:
    """What to say of a peer of which nothing else is known than a filter that may be a summary."""
    interest = node.exchange.interest
    found = [text for text in interest.matching(topic) if interest.wants(peer, text)]
    is_wide = all(text.endswith("/#") and "+" not in text for text in found)
    return f"wants {found[0]}, or much of it" if found and is_wide and node.city.summarise_above else ""


def _who_decides(node: Node, subscribers: int) -> tuple[str, ...]:
    coordinator = node.coordinator
    if subscribers < 0:
        return ()
    if isinstance(coordinator, ZooKeeperCoordinator) and not coordinator.is_connected:
        return (f"{node.name} does not reach the ZooKeeper ensemble: what is new is agreed on when it does.",)
    if node.city.routing != "overlay" or not node.city.overlay.workers:
        return ()
    if coordinator.worker:
        return (f"The coordination worker {coordinator.worker} decides for {node.name}.",)
    return (f"No coordination worker decides for {node.name} now: what is new goes straight until one does.",)


def _why_dropped(limit: int) -> str:
    if limit < 1:
        return f"the message has crossed {HOP_LIMIT} links, and may cross no more"
    return "they would take the message back to an earlier stage"


def _subscription(node: Node, topic_filter: str, subscribers: int) -> TraceStep:
    beyond = node.router.announce_to(topic_filter)
    hops = tuple(
        StepHop(peer, "announce", " ".join(node.router.explain(topic_filter, peer)))
        for peer in node.peers
        if peer in beyond
    )
    wanted = tuple(peer for peer in node.peers if node.exchange.interest.covers(peer, topic_filter))
    reasons = node.router.explain(topic_filter) + _who_decides(node, subscribers)
    summary = node.exchange.announcer.summary_over(topic_filter)
    if summary:
        reasons += (f"{node.name} announces {summary} in its place, because its clients want much below that.",)
    return TraceStep(node.name, topic_filter, NAMES[CLIENT], reasons, hops, wanted, subscribers)


def with_ways(step: TraceStep, ways: Ways) -> TraceStep:
    """The step with the ways that copies take now."""

    def on_its_way(hop: StepHop) -> StepHop:
        via = ways.via(hop.peer)
        return dataclasses.replace(
            hop, via=via, waits="" if via else ways.problem(hop.peer), opens=ways.rests(hop.peer)
        )

    return dataclasses.replace(step, hops=tuple(on_its_way(hop) for hop in step.hops))


def step_to_json(step: TraceStep) -> dict[str, Any]:
    return dataclasses.asdict(step)


def step_from_json(raw: Mapping[str, Any]) -> TraceStep:
    """What another version of a broker may say beyond this is left out."""
    return read_data(TraceStep, raw, ignore_unknown=True)
