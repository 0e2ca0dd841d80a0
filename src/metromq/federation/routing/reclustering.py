"""Better clusters than the order of arrival gave: what a topic's ways cost, and a search for cheaper ones; pure.

A topic is a matter of its own: the brokers that publish it and how much, those that want it, and how far apart they
are. Changes are tried one at a time: a subscriber gets the topic from another publisher, a cluster gets another leader,
a publisher joins another cluster near enough. One is kept if neither the copies between brokers nor the kilometres that
messages travel grow, and one of them falls. So a proposal is never worse than what was.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

MOST_ROUNDS: Final = 20
MOST_PUBLISHERS: Final = 40  # of a topic with more, only the busiest ones are tried as servers and leaders
Distance = Callable[[str, str], float]


@dataclass(frozen=True, slots=True)
class Usage:
    """One topic: who publishes it how often, and who wants it."""

    rates: Mapping[str, float]
    wanting: frozenset[str]


@dataclass(frozen=True, slots=True)
class ClusterWays:
    """Clusters, leaders and choices of one topic, as in `TopicOverlay`."""

    clusters: Mapping[str, str] = field(default_factory=dict)  # publisher -> founder
    leaders: Mapping[str, str] = field(default_factory=dict)  # founder -> leader
    feeds: Mapping[str, str] = field(default_factory=dict)  # subscriber -> publisher

    def members(self, founder: str) -> list[str]:
        return [name for name, own in self.clusters.items() if own == founder]


@dataclass(frozen=True, slots=True)
class Cost:
    """Of all that was published: copies between brokers, and kilometres on the way to those that want it."""

    copies: float
    km: float
    deliveries: float

    def beats(self, other: "Cost") -> bool:
        is_as_good = self.copies <= other.copies + 1e-9 and self.km <= other.km + 1e-9
        return is_as_good and (self.copies < other.copies - 1e-9 or self.km < other.km - 1e-9)


def way(ways: ClusterWays, origin: str, target: str) -> Iterator[str]:
    """The brokers that a message passes behind its origin, the target last: as `OverlayWays` leads it."""
    server = ways.feeds.get(target, target)
    theirs = ways.clusters.get(server)
    at = origin
    if theirs is not None and server != origin:
        own = ways.clusters.get(origin)
        steps = [ways.leaders.get(own or "", origin), ways.leaders.get(theirs, "")] if own != theirs else []
        for step in (*steps, server):
            if step and step not in (at, target, origin):
                at = step
                yield step
    yield target


def cost(usage: Usage, ways: ClusterWays, distance: Distance) -> Cost:
    copies = km = deliveries = 0.0
    for origin, rate in usage.rates.items():
        links: set[tuple[str, str]] = set()
        for target in usage.wanting:
            if target == origin:
                continue
            at = origin
            for step in way(ways, origin, target):
                links.add((at, step))
                km += rate * distance(at, step)
                at = step
            deliveries += rate
        copies += rate * len({to for _, to in links})
    return Cost(copies, km, deliveries)


def improved(
    usage: Usage, start: ClusterWays, distance: Distance, max_distance_km: float
) -> tuple[ClusterWays, Cost, Cost]:
    """Ways that cost no more than those at the start, and both costs."""
    best, before = start, cost(usage, start, distance)
    now = before
    for _ in range(MOST_ROUNDS):
        is_better = False
        for tried in _changes(usage, best, distance, max_distance_km):
            found = cost(usage, tried, distance)
            if found.beats(now):
                best, now, is_better = tried, found, True
                break
        if not is_better:
            break
    return best, before, now


def _changes(usage: Usage, ways: ClusterWays, distance: Distance, max_distance_km: float) -> Iterator[ClusterWays]:
    busiest = sorted(ways.clusters, key=lambda name: (-usage.rates.get(name, 0.0), name))[:MOST_PUBLISHERS]
    for subscriber, server in sorted(ways.feeds.items()):
        for other in busiest:
            if other not in (server, subscriber):
                yield replace(ways, feeds={**ways.feeds, subscriber: other})
    for founder, leader in sorted(ways.leaders.items()):
        for other in ways.members(founder):
            if other != leader and other in busiest:
                yield replace(ways, leaders={**ways.leaders, founder: other})
    founders = sorted(set(ways.clusters.values()))
    for publisher in busiest:
        for founder in founders:
            if founder != ways.clusters[publisher] and ways.leaders.get(ways.clusters[publisher]) != publisher:
                members = ways.members(founder)
                if sum(distance(publisher, one) for one in members) <= max_distance_km * len(members):
                    yield replace(ways, clusters={**ways.clusters, publisher: founder})
