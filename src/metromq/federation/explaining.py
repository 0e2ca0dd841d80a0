"""Why a message or a subscription goes where it goes: one step at one broker, for people and for `metromq explain`."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from metromq.federation.interest import SHARE_PREFIX, plain_filter
from metromq.federation.node import Node
from metromq.federation.stages import CLIENT, FINAL, NAMES, OWNER
from metromq.protocol.topics.areas import area_of, areas_touched
from metromq.protocol.topics.names import validate_filter, validate_topic
from metromq.reading import read_data


@dataclass(frozen=True, slots=True)
class StepHop:
    """A copy for a peer; `served` is what the copy says about who has the message already."""

    peer: str
    stage: str
    why: str
    served: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
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
) -> Step:
    """Raises ProtocolViolation for what is neither a topic nor a filter."""
    if is_filter(topic):
        validate_filter(topic)
        return _subscription(node, topic, subscribers)
    validate_topic(topic)
    route = node.route(topic, stage, origin or node.name, 0, served)
    hops = tuple(StepHop(hop.peer, NAMES[hop.stage], _why(node, topic, hop.stage), hop.served) for hop in route.hops)
    reasons = node.router.explain(topic) if stage < FINAL else (f"{node.name} serves its own subscribers.",)
    return Step(node.name, topic, NAMES[stage], reasons, hops, node.interest.peers_for(topic), subscribers)


def _subscription(node: Node, topic_filter: str, subscribers: int) -> Step:
    beyond = node.router.announce_to(topic_filter)
    hops = tuple(
        StepHop(peer, "announce", _why_told(node, topic_filter, peer)) for peer in node.peers if peer in beyond
    )
    wanted = tuple(peer for peer in node.peers if node.interest.wants(peer, topic_filter))
    # The hops say which area is subscribed where; as sentences that would be up to one a broker.
    reasons = tuple(line for line in node.router.explain(topic_filter) if not line.startswith("area "))
    return Step(node.name, topic_filter, NAMES[CLIENT], reasons, hops, wanted, subscribers)


def _why(node: Node, topic: str, stage: int) -> str:
    if stage == FINAL:
        return "has subscribers" if node.interest.peers_for(topic) else "gets every message"
    area = area_of(topic, node.city.areas.l_b) if node.table.homes else None
    if area is None:
        return "distributes every message"
    if stage == OWNER:
        return f"is responsible for area {area}"
    return f"is at home in area {area}"


def _why_told(node: Node, topic_filter: str, peer: str) -> str:
    if not node.table.homes:
        return "must know every subscription" if peer != node.city.central else "is the broker in the middle"
    table = node.table
    touched = areas_touched(plain_filter(topic_filter), node.city.areas.l_b)
    areas = [area for area in touched if peer in (table.owner(area), table.home(area))]
    return f"area {', '.join(areas)}" if areas else "topics without an area may be published there"


def step_to_json(step: Step) -> dict[str, Any]:
    return dataclasses.asdict(step)


def step_from_json(raw: Mapping[str, Any]) -> Step:
    """What another version of a broker may say beyond this is left out."""
    return read_data(Step, raw, ignore_unknown=True)
