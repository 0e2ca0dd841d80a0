"""A coordinator of another kind, with its facts on a server, fits behind the interface without a change in Node."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from metromq.errors import UsageError
from metromq.federation.city import City, grid_city
from metromq.federation.city import Coordination as Word
from metromq.federation.coordination import COORDINATORS, Coordinator
from metromq.federation.coordination.coordinator import AliveChanged, Event, Greet, Greeting
from metromq.federation.coordination.facts import BROKER, Fact
from metromq.federation.effects import Keep, Send
from metromq.federation.links.frames import Facts, Hello
from metromq.federation.node import Node
from tests.federation.network import joins


@dataclass
class Store:
    """As ZooKeeper: one truth, a write needs the version before it, and sessions end."""

    facts: dict[tuple[str, str], Fact] = field(default_factory=dict)
    sessions: set[str] = field(default_factory=set)

    def write(self, fact: Fact) -> None:
        before = self.facts.get((fact.kind, fact.key))
        if before is None or fact.epoch == before.epoch + 1:
            self.facts[fact.kind, fact.key] = fact


STORE = Store()


class StoreCoordinator(Coordinator):
    """Proposes to the store, believes what the store says, and greets peers only for the digest of interest."""

    _alive: tuple[str, ...] = ()

    def tick(self, now_us: int, clients: int) -> list[Event]:
        STORE.sessions.add(self.name)
        events = self.events_of(self.book.merge(tuple(STORE.facts.values())), ())
        alive = self.alive(now_us)
        if alive != self._alive:
            self._alive = alive
            events.append(AliveChanged(alive))
        for fact in self.book.facts():
            gone = fact.owner and fact.kind != BROKER and fact.owner not in alive
            home = self.succession.home(fact)
            if (gone and self.succession.heir(fact, dict.fromkeys(alive, 0)) == self.name) or (
                home == self.name != fact.owner
            ):
                STORE.write(self.book.next(fact.kind, fact.key, self.name))
        return [*events, *(Greet(peer, self._greeting()) for peer in self.book.members if peer != self.name)]

    def _greeting(self) -> Greeting:
        return Greeting(self.incarnation, 0, ())

    def met(self, peer: str, now_us: int) -> list[Event]:
        return [Greet(peer, self._greeting())]

    def greeted(self, peer: str, greeting: Greeting, now_us: int) -> list[Event]:
        return []

    def told(self, peer: str, facts: tuple[Fact, ...], now_us: int) -> list[Event]:
        return []

    def propose(self, facts: tuple[Fact, ...], now_us: int) -> list[Event]:
        for fact in facts:
            STORE.write(fact)
        return []

    def alive(self, now_us: int) -> tuple[str, ...]:
        return tuple(name for name in self.book.members if name in STORE.sessions)


@pytest.fixture
def city() -> Iterator[City]:
    STORE.facts.clear()
    STORE.sessions.clear()
    COORDINATORS["store"] = StoreCoordinator
    yield replace(grid_city(count=4), coordination=cast(Word, "store"))
    del COORDINATORS["store"]


def test_nodes_agree_through_the_store(city: City) -> None:
    nodes = {name: Node(city, name, 1, 0) for name in city.names}
    for name, node in nodes.items():
        STORE.sessions.add(name)
        for peer in node.peers:
            node.peer_up(peer, 0)
    STORE.sessions.discard("b10")
    gone = nodes.pop("b10")
    for _ in range(3):
        sent = [effect for node in nodes.values() for effect in node.tick(0)]
    (owner,) = {node.table.owner("1/0") for node in nodes.values()}
    assert owner in nodes
    assert {effect.frame.__class__ for effect in sent if isinstance(effect, Send)} <= {Hello}
    nodes["b10"] = gone
    for _ in range(3):
        effects = [effect for node in nodes.values() for effect in node.tick(0)]
    assert {node.table.owner("1/0") for node in nodes.values()} == {"b10"}
    assert len({node.table.digest() for node in nodes.values()}) == 1
    assert not [effect for effect in effects if isinstance(effect, Keep)], "nothing changes any more"


def test_members_join_through_the_store(city: City) -> None:
    nodes = {name: Node(city, name, 1, 0) for name in city.names}
    STORE.sessions |= set(nodes)
    assert joins(nodes["b00"], "late", 0) == [], "the store has not said so yet"
    for node in nodes.values():
        kept = [effect.frame for effect in node.tick(0) if isinstance(effect, Keep)]
        assert kept == [Facts((Fact(BROKER, "late", "late", 0),))]
        assert "late" in node.peers


def test_a_word_without_a_coordinator_is_told() -> None:
    city = replace(grid_city(count=4), coordination=cast(Word, "hearsay"))
    with pytest.raises(UsageError, match="coordination = hearsay cannot be run; choose embedded or zookeeper"):
        Node(city, "b00", 1, 0)
