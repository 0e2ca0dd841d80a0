"""Better clusters than the order of arrival gave: what a topic's ways cost, and a search for cheaper ones; pure.

A topic is a matter of its own: the brokers that publish it and how much, those that want it, and how far apart they
are. Changes are tried one at a time: a subscriber gets the topic from another publisher, a cluster gets another leader,
a publisher joins another cluster near enough. One is kept if neither the copies between brokers nor the kilometres that
messages travel grow, and one of them falls. So a proposal is never worse than what was.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Final

MOST_LEADERS: Final = 3  # that are tried for a cluster in a round
MOST_ROUNDS: Final = 2
MOST_WAYS: Final = 100_000  # that are counted for a topic, so that no topic takes more than about a second
MOST_PUBLISHERS: Final = 12  # of a topic with more, only the busiest ones are tried as servers and leaders
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
    """The sum over `way` of all origins and targets, without a generator for each: that would take most of the time."""
    copies = km = deliveries = 0.0
    ends = [(target, *_end(ways, target)) for target in usage.wanting]
    for origin, rate in usage.rates.items():
        own = ways.clusters.get(origin)
        first = ways.leaders.get(own or "", origin)
        reached: set[str] = set()
        far = 0.0
        for target, server, theirs, leader in ends:
            if target == origin:
                continue
            at = origin
            if theirs is not None and server != origin:
                if own != theirs:
                    if first and first != origin and first != target:
                        reached.add(first)
                        far += distance(at, first)
                        at = first
                    if leader and leader != at and leader != target and leader != origin:
                        reached.add(leader)
                        far += distance(at, leader)
                        at = leader
                if server != at and server != target:
                    reached.add(server)
                    far += distance(at, server)
                    at = server
            reached.add(target)
            far += distance(at, target)
            deliveries += rate
        km += rate * far
        copies += rate * len(reached)
    return Cost(copies, km, deliveries)


def _end(ways: ClusterWays, target: str) -> tuple[str, str | None, str]:
    """Of all ways to a target: the broker that serves it, its cluster, and who leads that."""
    server = ways.feeds.get(target, target)
    theirs = ways.clusters.get(server)
    return server, theirs, ways.leaders.get(theirs or "", "")


def improved(
    usage: Usage, start: ClusterWays, distance: Distance, max_distance_km: float
) -> tuple[ClusterWays, Cost, Cost]:
    """Ways that cost no more than those at the start, and both costs."""
    best, before = start, cost(usage, start, distance)
    now = before
    tries = max(10, MOST_WAYS // max(1, len(usage.rates) * len(usage.wanting)))
    for _ in range(MOST_ROUNDS):
        rounds_start = now
        best, now = _fed_better(usage, best, now, distance)
        for change in _changes(usage, best, distance, max_distance_km):
            if tries <= 0:
                break
            tries -= 1
            tried = change(best)
            found = cost(usage, tried, distance)
            if found.beats(now):
                best, now = tried, found
        if now == rounds_start or tries <= 0:
            break
    return best, before, now


def _fed_better(usage: Usage, ways: ClusterWays, now: Cost, distance: Distance) -> tuple[ClusterWays, Cost]:
    """Other choices of subscribers; of each only its own ways are counted anew."""
    busiest = _busiest(usage, ways)
    if len(busiest) < 2 or not ways.feeds:
        return ways, now
    feeds = dict(ways.feeds)
    tried = replace(ways, feeds=feeds)
    needed: dict[str, Counter[str]] = {  # by origin: how many targets need a copy at each broker
        origin: Counter(step for target in usage.wanting - {origin} for step in way(ways, origin, target))
        for origin in usage.rates
    }
    copies, km = now.copies, now.km
    for subscriber in sorted(feeds):
        olds = _ways_to(tried, usage, subscriber, distance)
        for other in busiest:
            before = feeds[subscriber]
            if other in (before, subscriber):
                continue
            more_copies = more_km = 0.0
            feeds[subscriber] = other
            news = _ways_to(tried, usage, subscriber, distance)
            for (origin, rate), (old, old_km), (new, new_km) in zip(usage.rates.items(), olds, news, strict=True):
                if old != new:
                    count = needed[origin]
                    more_copies -= rate * sum(1 for step in old if step not in new and count[step] == 1)
                    more_copies += rate * sum(1 for step in new if step not in old and not count[step])
                    more_km += rate * (new_km - old_km)
            if Cost(copies + more_copies, km + more_km, 0.0).beats(Cost(copies, km, 0.0)):
                copies, km = copies + more_copies, km + more_km
                for origin, (old, _), (new, _) in zip(usage.rates, olds, news, strict=True):
                    needed[origin].subtract(old)
                    needed[origin].update(new)
                olds = news
            else:
                feeds[subscriber] = before
    found = replace(ways, feeds=dict(feeds))
    after = cost(usage, found, distance)
    return (found, after) if after.beats(now) else (ways, now)


def _ways_to(ways: ClusterWays, usage: Usage, target: str, distance: Distance) -> list[tuple[list[str], float]]:
    """From each origin: the brokers on the way, and its length."""
    found = [list(way(ways, origin, target)) for origin in usage.rates]
    return [(steps, _length(origin, steps, distance)) for origin, steps in zip(usage.rates, found, strict=True)]


def _length(origin: str, steps: list[str], distance: Distance) -> float:
    return sum(distance(one, other) for one, other in pairwise((origin, *steps)))


def _busiest(usage: Usage, ways: ClusterWays) -> list[str]:
    return sorted(ways.clusters, key=lambda name: (-usage.rates.get(name, 0.0), name))[:MOST_PUBLISHERS]


def _changes(
    usage: Usage, ways: ClusterWays, distance: Distance, max_distance_km: float
) -> Iterator[Callable[[ClusterWays], ClusterWays]]:
    """Leaders that want the topic themselves first: a copy for them is not one too many."""
    founders = sorted(set(ways.clusters.values()))
    for founder in founders:
        members = [name for name in ways.members(founder) if name != ways.leaders.get(founder)]
        members.sort(key=lambda name: (name not in usage.wanting, -usage.rates.get(name, 0.0), name))
        for leader in members[:MOST_LEADERS]:
            yield partial(_led, founder, leader)
    for publisher in _busiest(usage, ways):
        if ways.leaders.get(ways.clusters[publisher]) == publisher:
            continue  # it would leave its cluster without a leader
        for founder in founders:
            members = ways.members(founder)
            is_near = sum(distance(publisher, one) for one in members) <= max_distance_km * len(members)
            if founder != ways.clusters[publisher] and is_near:
                yield partial(_moved, publisher, founder)


def _led(founder: str, leader: str, ways: ClusterWays) -> ClusterWays:
    if ways.clusters.get(leader) != founder:
        return ways  # it has just moved
    return replace(ways, leaders={**ways.leaders, founder: leader})


def _moved(publisher: str, founder: str, ways: ClusterWays) -> ClusterWays:
    if ways.leaders.get(ways.clusters[publisher]) == publisher:
        return ways  # it leads since a moment ago
    return replace(ways, clusters={**ways.clusters, publisher: founder})
