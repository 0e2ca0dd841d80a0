"""The three schemes that the overlay paper compares, each by a router, and the way of every message through brokers.

The overlay is the product's own: its router, its algorithms, its facts and its distribution of copies. The others are
routers for the same interface. PSCloud has all brokers in the cloud and sends straight; PubSubCoord-alike has brokers
at the edge, each with a cloud broker that bridges its topics to the cloud brokers of others.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from metromq.federation import Arrival, BrokerSpec, City, LinkSecurity, OverlaySettings, distribute, stages
from metromq.federation.coordination import Book, Fact, NoSuccession, TopicTable
from metromq.federation.routing import (
    Carry,
    FloodSubscriptionsRouter,
    OverlayRouter,
    OverlaySuccession,
    Router,
    Ways,
)
from metromq.lab.overlay.workload import Workload

Scheme = Literal["overlay", "pubsubcoord", "pscloud"]
SCHEMES: tuple[Scheme, ...] = ("overlay", "pubsubcoord", "pscloud")
EDGES_PER_CLOUD = 10


@dataclass(frozen=True, slots=True)
class Way:
    """A message at a broker: how many clients get it there, and where it goes next."""

    broker: int
    clients: int
    onward: tuple["Way", ...] = ()

    def forwards(self) -> int:
        return sum(1 + way.forwards() for way in self.onward)


class BridgeWays(Ways):
    """PubSubCoord-alike: from an edge broker to its cloud broker, to that of the receiver, to the receiver."""

    leads = True

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def carriers(self, topic: str, peers: tuple[str, ...], passed: Collection[str]) -> tuple[Carry, ...]:
        found: dict[str, list[str]] = {}
        for peer in peers:
            bridge = cloud_of(peer) if self._name.startswith("cloud") else cloud_of(self._name)
            if bridge not in (self._name, peer):
                found.setdefault(bridge, []).append(peer)
        return tuple(Carry(bridge, tuple(targets)) for bridge, targets in found.items())


def cloud_of(edge: str) -> str:
    return f"cloud{int(edge[1:]) // EDGES_PER_CLOUD}"


class _Nobody:
    """No shared subscriptions, and nobody but those that a message is for."""

    def __init__(self) -> None:
        self.wanting: tuple[str, ...] = ()

    def peers_for(self, topic: str) -> tuple[str, ...]:
        return self.wanting

    def shares_for(self, topic: str) -> list[str]:
        return []


class _Host:
    """What the product's distribution asks of a broker."""

    def __init__(self, router: Router, peers: tuple[str, ...]) -> None:
        self.name = router.name
        self.router = router
        self.peers = peers
        self.up = set(peers)
        self.interest = self.announcer = _Nobody()


class Routing:
    """All brokers of a scheme, with the same knowledge."""

    def __init__(self, scheme: Scheme, work: Workload, overlay: OverlaySettings | None = None) -> None:
        self.scheme = scheme
        self.work = work
        edges = [
            BrokerSpec(f"b{number}", latitude=place[0], longitude=place[1]) for number, place in enumerate(work.places)
        ]
        clouds = sorted({cloud_of(edge.name) for edge in edges}, key=lambda name: int(name[5:]))
        more = [BrokerSpec(name, latitude=0.0, longitude=0.0) for name in clouds] if scheme == "pubsubcoord" else []
        self.city = City(
            tuple(edges + more),
            routing="overlay",
            overlay=overlay or OverlaySettings(max_topics=10_000_000),
            links=LinkSecurity(secret="a secret for the lab"),
        )
        self.numbers = {name: number for number, name in enumerate(self.city.names)}
        self.map = OverlaySuccession(self.city)
        self.book = Book(self.city.names)
        names = self.city.names
        self._hosts = {
            name: _Host(self._router(name), tuple(other for other in names if other != name)) for name in names
        }

    def _router(self, name: str) -> Router:
        if self.scheme == "overlay":
            return OverlayRouter(self.city, name, TopicTable(self.book, self.map))
        router = FloodSubscriptionsRouter(self.city, name, TopicTable(self.book, NoSuccession()))
        if self.scheme == "pubsubcoord":
            router.ways = BridgeWays(name)
        return router

    def join(self, dice: np.random.Generator, publishers_first: bool = True) -> None:
        """Brokers come in any order, say what their clients do, and the city agrees on what follows."""
        if self.scheme != "overlay":
            return
        wanted = _by_broker(self.work.subscribers)
        sets = {f"b{number}": frozenset(topics) for number, topics in wanted.items()}
        for host in self._hosts.values():
            host.router.ways.wanted_by = lambda broker: sets.get(broker, frozenset())
        order = [int(number) for number in dice.permutation(len(self.work.places))]
        published = _by_broker(self.work.publishers)
        for is_publishing in (True, False) if publishers_first else (False, True):
            for number in order:
                self._say(f"b{number}", (published if is_publishing else wanted).get(number, []), is_publishing)
        for number in order:  # who waited for a publisher is answered
            self._say(f"b{number}", wanted.get(number, []), False)

    def _say(self, name: str, topics: list[str], is_publishing: bool) -> None:
        router = self._hosts[name].router
        for topic in topics:
            if not is_publishing:
                router.ways.wanted(topic, True)
            elif router.ways.expects(topic):
                router.ways.published(topic)
        router.ways.learnt(self.book.merge(router.ways.proposals()))

    def adopt(self, facts: tuple[Fact, ...]) -> None:
        """What another city has agreed on; all routers have one map of it."""
        changes = self.book.merge(facts)
        for host in self._hosts.values():
            host.router.ways.learnt(changes)

    def way(self, topic: str, origin: int) -> Way:
        """Of a message that a client of the broker publishes."""
        clients = self.work.subscribers[topic]
        targets = tuple(f"b{number}" for number in clients if number != origin)
        return self._way(topic, f"b{origin}", f"b{origin}", stages.CLIENT, targets, (), clients)

    def _way(
        self,
        topic: str,
        origin: str,
        at: str,
        stage: int,
        targets: tuple[str, ...],
        served: tuple[str, ...],
        clients: Mapping[int, int],
    ) -> Way:
        own = clients.get(self.numbers[at], 0)
        if not targets:
            return Way(self.numbers[at], own)
        host = self._hosts[at]
        host.interest.wanting = targets if stage == stages.CLIENT else ()
        named = targets if stage == stages.RELAY else ()
        route, _ = distribute(host, Arrival(topic, stage, origin, 0, served, targets=named))  # type: ignore[arg-type]
        onward = tuple(
            self._way(
                topic,
                origin,
                hop.peer,
                stages.RELAY,
                tuple(t for t in hop.targets if t != hop.peer),
                hop.served,
                clients,
            )
            for hop in route.hops
        )
        # A relay that nobody asked to serve its own clients serves none.
        is_named = stage == stages.CLIENT or clients.get(self.numbers[at], 0)
        return Way(self.numbers[at], own if is_named else 0, onward)


def _by_broker(by_topic: Mapping[str, Mapping[int, int]]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for topic, brokers in by_topic.items():
        for number in brokers:
            found.setdefault(number, []).append(topic)
    return found
