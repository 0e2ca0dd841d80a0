"""The facts of an overlay by topic: its clusters, their leaders, and who gets it from whom; and their keys."""

from collections.abc import Callable, Iterator
from typing import final

from metromq.federation.city import City
from metromq.federation.coordination.facts import CLUSTER, PUBLISHER, SUBSCRIBER, Book, Fact
from metromq.federation.routing.reclustering import ClusterWays
from metromq.federation.status import ClusterStatus

KINDS = (PUBLISHER, CLUSTER, SUBSCRIBER)
# What a broker asks a worker: clients here publish a topic, or (with NO_MORE) do not any more; want a filter, or do not
# any more; who is to serve a topic?
PUBLISHES, WANTS, GETS = "publishes", "wants", "gets"
NO_MORE = "no more"


def key_of(broker: str, topic: str) -> str:
    """Names of brokers have no slash, so the first one ends the name."""
    return f"{broker}/{topic}"


def split_key(key: str) -> tuple[str, str]:
    broker, _, topic = key.partition("/")
    return broker, topic


@final
class TopicOverlay:
    """The clusters of one topic, and who gets it from whom."""

    def __init__(self) -> None:
        self.clusters: dict[str, str] = {}  # publisher -> the founder of its cluster
        self.leaders: dict[str, str] = {}  # founder -> the leader
        self.feeds: dict[str, str] = {}  # subscriber -> the publisher that it gets the topic from

    def is_empty(self) -> bool:
        return not (self.clusters or self.leaders or self.feeds)

    def members(self, founder: str) -> tuple[str, ...]:
        return tuple(name for name, own in self.clusters.items() if own == founder)


@final
class OverlayMap:
    """The facts of the book by topic."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicOverlay] = {}

    def note(self, fact: Fact) -> str:
        """Takes a fact over; its topic."""
        broker, topic = split_key(fact.key)
        overlay = self.topics.get(topic)
        if overlay is None:
            overlay = self.topics[topic] = TopicOverlay()
        if fact.kind == CLUSTER:
            _put(overlay.leaders, broker, fact.owner)
        else:
            place = overlay.clusters if fact.kind == PUBLISHER else overlay.feeds
            _put(place, broker, fact.value if fact.owner else "")
        if overlay.is_empty():
            del self.topics[topic]
        return topic


def distance_km(city: City, one: str, other: str) -> float:
    """A broker that joined later has no place on the map, and counts as near."""
    return city.distance_km(one, other) if one in city.by_name and other in city.by_name else 0.0


def nearest_member(city: City, overlay: TopicOverlay | None, founder: str, may: Callable[[str], bool]) -> str:
    """The member of a cluster that is next to its founder, of those that may lead it; empty: there is none."""
    members = overlay.members(founder) if overlay is not None else ()
    heirs = [name for name in members if may(name)]
    return min(heirs, key=lambda name: (distance_km(city, founder, name), name), default="")


def clusters_led(book: Book, leader: str) -> tuple[ClusterStatus, ...]:
    """For status; in a city with another routing there are none."""
    led = [split_key(key) for key in book.owned_by(CLUSTER, leader)]
    members: dict[tuple[str, str], list[str]] = {(founder, topic): [] for founder, topic in led}
    for fact in book.of_kind(PUBLISHER) if led else ():
        broker, topic = split_key(fact.key)
        if fact.owner and (fact.value, topic) in members:
            members[fact.value, topic].append(broker)
    return tuple(ClusterStatus(topic, founder, tuple(names)) for (founder, topic), names in members.items())


def _put(place: dict[str, str], key: str, value: str) -> None:
    if value:
        place[key] = value
    else:
        place.pop(key, None)


def changes_to(book: Book, topic: str, wanted: ClusterWays) -> Iterator[Fact]:
    """Facts that make a topic's clusters what is wanted, as far as brokers still publish and want it."""
    publishes = {
        broker: fact.value
        for broker in wanted.clusters
        if (fact := book.get(PUBLISHER, key_of(broker, topic))).owner == broker
    }
    for broker, now in publishes.items():
        if wanted.clusters[broker] != now:
            yield book.next(PUBLISHER, key_of(broker, topic), broker, wanted.clusters[broker])
    for founder in sorted({wanted.clusters[broker] for broker in publishes}):
        leader = wanted.leaders.get(founder, founder)
        if leader in publishes and book.owner(CLUSTER, key_of(founder, topic)) != leader:
            yield book.next(CLUSTER, key_of(founder, topic), leader)
    for broker, server in wanted.feeds.items():
        known = book.get(SUBSCRIBER, key_of(broker, topic))
        if known.owner == broker and known.value != server and server in publishes:
            yield book.next(SUBSCRIBER, key_of(broker, topic), broker, server)
    for broker in publishes:  # one that wanted the topic before it published it has kept its choice
        if broker not in wanted.feeds and book.owner(SUBSCRIBER, key_of(broker, topic)):
            yield book.next(SUBSCRIBER, key_of(broker, topic), "")
