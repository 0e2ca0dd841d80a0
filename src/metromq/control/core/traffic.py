"""What was counted per topic and broker, which filters stand for which topics, and what crosses between brokers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from metromq.planning import TopicStatistics
from metromq.protocol.topics import matches, overlaps


@dataclass(frozen=True, slots=True)
class Counts:
    """What clients of one broker did with one topic: rates per second, and how many they were."""

    publications: float = 0.0
    published_bytes: float = 0.0
    publishers: int = 0
    subscribers: int = 0
    deliveries: float = 0.0
    delivered_bytes: float = 0.0

    @property
    def mbps(self) -> float:
        return (self.published_bytes + self.delivered_bytes) * 8e-6


Rows = Mapping[str, Mapping[str, Counts]]  # topic -> broker -> counts


@dataclass(frozen=True, slots=True)
class Statistics:
    """`source` says where they are from, for people."""

    rows: Rows = field(default_factory=dict)
    seconds: float = 0.0
    source: str = "nothing was counted yet"

    def of_filter(self, topic_filter: str) -> Rows:
        return {topic: found for topic, found in self.rows.items() if matches(topic_filter, topic)}


def published_mbps(rows: Rows) -> float:
    """What a subscriber to all of it gets."""
    return sum(counts.published_bytes for found in rows.values() for counts in found.values()) * 8e-6


def client_mbps(rows: Rows) -> dict[str, float]:
    """By broker: what its clients publish and get."""
    found: dict[str, float] = {}
    for by_broker in rows.values():
        for broker, counts in by_broker.items():
            if counts.mbps > 0:
                found[broker] = found.get(broker, 0.0) + counts.mbps
    return found


def seen_by(found: Mapping[str, Counts], inside: frozenset[str]) -> TopicStatistics:
    """Who publishes and subscribes one topic at our devices and elsewhere."""
    near = [counts for broker, counts in found.items() if broker in inside]
    far = [counts for broker, counts in found.items() if broker not in inside]
    return TopicStatistics(
        sum(counts.publishers for counts in near),
        sum(counts.publishers for counts in far),
        sum(counts.subscribers for counts in near),
        sum(counts.subscribers for counts in far),
    )


def units_of(topics: Iterable[str], fixed: Iterable[str], taken: Iterable[str], levels: int) -> dict[str, list[str]]:
    """Filters that the manager may delegate, and the topics of each.

    `fixed` are filters that somebody wants as they are (of services). `taken` are those that people decided on: what
    touches them is left alone. All other topics go together by their first levels.
    """
    own = list(dict.fromkeys(fixed))
    others = list(taken)
    units: dict[str, list[str]] = {one: [] for one in own if not any(overlaps(one, other) for other in others)}
    for topic in topics:
        if topic.startswith("$"):
            continue
        unit = next((one for one in own if matches(one, topic)), None) or _group(topic, levels)
        if unit in units:
            units[unit].append(topic)
        elif unit not in own and not any(overlaps(unit, other) for other in (*own, *others)):
            units[unit] = [topic]
    return units


def _group(topic: str, levels: int) -> str:
    words = topic.split("/")
    return "/".join([*words[:levels], "#"]) if len(words) > levels else topic


def messages_between(rows: Rows, owner: str, central: str) -> float:
    """Messages per second that cross from broker to broker if `owner` has these topics; empty: the central broker.

    A publisher's broker serves its own clients and sends the owner one copy. The owner serves its own clients, and
    sends the central broker one copy if anybody else wants it; the central broker sends one to each other broker
    that does.
    """
    owner = owner or central
    return sum(_of_topic(found, owner, central) for found in rows.values())


def _of_topic(found: Mapping[str, Counts], owner: str, central: str) -> float:
    wanting = {broker for broker, counts in found.items() if counts.subscribers}
    crossing = 0.0
    for origin, counts in found.items():
        if not counts.publications:
            continue
        left = wanting - {origin, owner}
        copies = len(left) + (origin != owner)
        if owner != central and left:
            copies += central not in left  # the copy for the central broker is its own, or on the way to the others
        crossing += counts.publications * copies
    return crossing
