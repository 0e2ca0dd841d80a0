"""Clusters of the brokers that publish a topic: where a new one joins, and from whom a subscriber gets the topic; pure.

Algorithms 1 and 2 and Equations 1 to 4 of "Efficient Edge-Cloud Publish/Subscribe Broker Overlay Networks" (Pham et
al., 2019). What the paper leaves open is chosen here: equal scores go to the nearer cluster or broker, then to the
first by name; brokers at one place count as a metre apart, so that the nearest stays the nearest.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, Protocol

MAX_DISTANCE_KM: Final = 10.0  # MAX_DISTANCE of the paper
BETA: Final = 0.5  # the weight of a broker's load against what it has in common with the subscriber; the paper has none
SAME_PLACE_KM: Final = 0.001


@dataclass(frozen=True, slots=True)
class Cluster:
    """Brokers that publish one topic near each other. It is named after its founder, whoever leads it now."""

    founder: str
    leader: str
    members: tuple[str, ...]


class Ground(Protocol):
    """What the algorithms know of brokers."""

    def distance_km(self, one: str, other: str) -> float: ...

    def wanted_by(self, broker: str) -> AbstractSet[str]:
        """The filters that the broker's clients have subscribed to: subs(b) of the paper."""


def wanted_in(cluster: Cluster, ground: Ground) -> AbstractSet[str]:
    """subs(C): what any member wants."""
    return frozenset().union(*(ground.wanted_by(member) for member in cluster.members))


def average_distance_km(broker: str, cluster: Cluster, ground: Ground) -> float:
    """Equation 2."""
    return sum(ground.distance_km(broker, member) for member in cluster.members) / len(cluster.members)


def publish_utility(distance_km: float, own: AbstractSet[str], theirs: AbstractSet[str]) -> float:
    """Equation 3: near, and wanting the same."""
    every = len(own | theirs)
    return len(own & theirs) / every / max(distance_km, SAME_PLACE_KM) if every else 0.0


def subscribe_utility(
    own: AbstractSet[str], theirs: AbstractSet[str], clusters: AbstractSet[str], beta: float = BETA
) -> float:
    """Equation 4: what the two have in common, less the other's share of its cluster's load."""
    common = len(own & theirs) / len(own) if own else 0.0
    load = len(theirs) / len(clusters) if clusters else 0.0
    return common - beta * load


@dataclass(frozen=True, slots=True)
class Choice:
    """What an algorithm found, and why: the scores are for people."""

    cluster: Cluster
    broker: str  # whom to subscribe at; for a publisher, the leader
    distance_km: float
    utility: float


def find_publish_cluster(
    broker: str, clusters: Iterable[Cluster], ground: Ground, max_distance_km: float = MAX_DISTANCE_KM
) -> Choice | None:
    """Algorithm 1: the cluster that a new publisher joins; None: it founds one and leads it."""
    own = ground.wanted_by(broker)
    best: Choice | None = None
    for cluster in clusters:
        far = average_distance_km(broker, cluster, ground)
        if far > max_distance_km:
            continue
        found = Choice(cluster, cluster.leader, far, publish_utility(far, own, wanted_in(cluster, ground)))
        best = found if best is None or _rank(found) < _rank(best) else best
    return best


def _rank(choice: Choice) -> tuple[float, float, str]:
    return -choice.utility, choice.distance_km, choice.cluster.founder


def find_publish_broker(broker: str, clusters: Iterable[Cluster], ground: Ground, beta: float = BETA) -> Choice | None:
    """Algorithm 2: the publisher from which a subscriber gets the topic; None: nobody publishes it yet, it waits."""
    places = [(average_distance_km(broker, cluster, ground), cluster.founder, cluster) for cluster in clusters]
    if not places:
        return None
    far, _, cluster = min(places, key=lambda place: place[:2])
    own, every = ground.wanted_by(broker), wanted_in(cluster, ground)
    scores = {member: subscribe_utility(own, ground.wanted_by(member), every, beta) for member in cluster.members}
    best = min(cluster.members, key=lambda member: (-scores[member], ground.distance_km(broker, member), member))
    return Choice(cluster, best, far, scores[best])
