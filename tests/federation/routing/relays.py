"""Routers that the product does not have, to show that the interface carries them: lines, clusters, and nonsense."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import cast

from metromq.federation.city import City
from metromq.federation.city import Routing as Word
from metromq.federation.coordination.facts import CLUSTER, Fact
from metromq.federation.coordination.succession import Living, NoSuccession, Succession, TopicTable
from metromq.federation.routing import ROUTINGS, Audience, Onward, Router, RoutingChoice, Suggestion
from metromq.federation.routing.router import STAY, stays_here
from metromq.federation.stages import FINAL, HANDOVER, OWNER, RELAY


class LineRouter(Router):
    """Every broker has links to the one before and the one behind it, and passes on what comes from the other side."""

    def neighbours(self) -> frozenset[str]:
        return frozenset((*self._side(-1), *self._side(1)))

    def _side(self, step: int) -> tuple[str, ...]:
        members = self.table.book.members
        place = members.index(self.name) + step
        return (members[place],) if 0 <= place < len(members) else ()

    def announce_to(self, topic_filter: str) -> frozenset[str]:
        return frozenset()

    def decide(self, topic: str, stage: int, origin: str) -> Suggestion:
        if stays_here(topic) or stage >= FINAL:
            return STAY
        members = self.table.book.members
        here, start = members.index(self.name), members.index(origin)
        peers = (*(self._side(-1) if here <= start else ()), *(self._side(1) if here >= start else ()))
        return Suggestion(Audience.NOBODY, tuple(Onward(peer, RELAY, "is next in the line") for peer in peers))

    def explain(self, topic_or_filter: str, peer: str = "") -> tuple[str, ...]:
        return ("Messages go along the line.",)


class ClusterRouter(Router):
    """Members know their leader only; leaders stand in a line and serve those of their members that want a message."""

    def leader(self, cluster: str) -> str:
        return self.table.owner(cluster)

    @property
    def cluster(self) -> str:
        return self.city.cluster_of(self.name)

    def _beside(self, origin: str) -> list[str]:
        """The leaders before and behind ours, away from where the message comes from."""
        line = sorted(fact.key for fact in self.table.entries())
        here, start = line.index(self.cluster), line.index(self.city.cluster_of(origin))
        places = [here - 1] * (here <= start) + [here + 1] * (here >= start)
        return [self.leader(line[place]) for place in places if 0 <= place < len(line)]

    def key(self, topic: str) -> str | None:
        return None

    def neighbours(self) -> frozenset[str]:
        if self.leader(self.cluster) != self.name:
            return frozenset((self.leader(self.cluster),))
        own = {name for name in self.others if self.city.cluster_of(name) == self.cluster}
        return frozenset((*own, *self._beside(self.name)))

    def announce_to(self, topic_filter: str) -> frozenset[str]:
        return frozenset((self.leader(self.cluster),)) - {self.name}

    def decide(self, topic: str, stage: int, origin: str) -> Suggestion:
        if stays_here(topic) or stage >= FINAL:
            return STAY
        if self.leader(self.cluster) != self.name:
            return Suggestion(Audience.NOBODY, (Onward(self.leader(self.cluster), RELAY, "leads the cluster"),))
        beside = self._beside(origin)
        return Suggestion(Audience.INTERESTED, tuple(Onward(peer, RELAY, "leads a cluster") for peer in beside))

    def explain(self, topic_or_filter: str, peer: str = "") -> tuple[str, ...]:
        return (f"{self.leader(self.cluster)} leads cluster {self.cluster}.",)


class LeaderSuccession(Succession):
    """The first member of a cluster leads it; when it is gone, the first that is there."""

    kind = CLUSTER
    fixed = frozenset((CLUSTER,))

    def __init__(self, city: City) -> None:
        self._city = city

    def first(self) -> tuple[Fact, ...]:
        clusters = sorted({self._city.cluster_of(name) for name in self._city.names})
        return tuple(Fact(CLUSTER, cluster, min(self._members(cluster)), 0) for cluster in clusters)

    def _members(self, cluster: str) -> list[str]:
        return [name for name in self._city.names if self._city.cluster_of(name) == cluster]

    def home(self, fact: Fact) -> str:
        return ""

    def heir(self, fact: Fact, living: Living) -> str:
        return min((name for name in self._members(fact.key) if name in living), default="")

    def filters(self, key: str) -> tuple[str, ...]:
        return ("#",)


class MadRouter(Router):
    """Sends anything anywhere, back and to itself, and differently each time."""

    random = Random(0)

    def announce_to(self, topic_filter: str) -> frozenset[str]:
        return self.others

    def decide(self, topic: str, stage: int, origin: str) -> Suggestion:
        chosen = self.random.sample(sorted(self.table.book.members), self.random.randint(0, 3))
        onward = tuple(Onward(peer, self.random.choice((OWNER, RELAY, RELAY, HANDOVER, FINAL))) for peer in chosen)
        return Suggestion(self.random.choice(list(Audience)), onward)

    def explain(self, topic_or_filter: str, peer: str = "") -> tuple[str, ...]:
        return ("Who knows?",)


class RingRouter(LineRouter):
    """A line that bites its own tail, and forgets who has been served: only the limit ends the journey."""

    def neighbours(self) -> frozenset[str]:
        return frozenset(self._next())

    def _next(self) -> tuple[str, ...]:
        members = self.table.book.members
        return (members[(members.index(self.name) + 1) % len(members)],)

    def decide(self, topic: str, stage: int, origin: str) -> Suggestion:
        return Suggestion(Audience.NOBODY, tuple(Onward(peer, RELAY, "is next in the ring") for peer in self._next()))


def none(city: City) -> Succession:
    return NoSuccession()


CHOICES = {
    "line": RoutingChoice(LineRouter, none),
    "clusters": RoutingChoice(ClusterRouter, LeaderSuccession),
    "mad": RoutingChoice(MadRouter, none),
    "ring": RoutingChoice(RingRouter, none),
}


@contextmanager
def routed(city: City, word: str) -> Iterator[City]:
    """The city with one of these routings, which is known as long as this lasts."""
    ROUTINGS[word] = CHOICES[word]
    try:
        yield replace(city, routing=cast(Word, word))
    finally:
        del ROUTINGS[word]


__all__ = ["MadRouter", "TopicTable", "routed"]
