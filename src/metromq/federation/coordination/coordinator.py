"""The interface of coordinators: members join and leave, come and go, and facts change.

A node tells its coordinator what happens, and carries out the events that come back, in their order. How brokers come
to agree is the coordinator's own business: by gossip (embedded.py), or through a server, whose shim calls methods of
its own coordinator and gives the events to `Node.coordinated`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from metromq.federation.city import City
from metromq.federation.coordination.facts import BROKER, Book, Change, Fact
from metromq.federation.coordination.succession import Succession


@dataclass(frozen=True, slots=True)
class Beat:
    """A sign of life, passed on from broker to broker: newer when (incarnation, count) is greater."""

    broker: str
    incarnation: int  # grows with every start of the broker
    count: int  # grows with every greeting of this incarnation
    clients: int
    age_ms: int  # how long ago it was heard from the broker itself
    gone: bool = False  # the sender takes the broker for gone


@dataclass(frozen=True, slots=True)
class Greeting:
    """What a coordinator says to a peer's coordinator now and then, and as soon as a link is up."""

    incarnation: int
    digest: int  # of the sender's book
    beats: tuple[Beat, ...]


@dataclass(frozen=True, slots=True)
class MemberJoined:
    """A broker belongs to the city from now on; it need not be there yet."""

    name: str
    address: str  # empty: as the city's file says


@dataclass(frozen=True, slots=True)
class MemberLeft:
    """A broker has left for good: forget it."""

    name: str


@dataclass(frozen=True, slots=True)
class AliveChanged:
    """The members that are there now."""

    alive: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FactsChanged:
    """`tell` are the members that may not know yet; the node sends them the new facts, if it can."""

    changes: tuple[Change, ...]
    tell: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Greet:
    peer: str
    greeting: Greeting


@dataclass(frozen=True, slots=True)
class Tell:
    peer: str
    facts: tuple[Fact, ...]


Event = MemberJoined | MemberLeft | AliveChanged | FactsChanged | Greet | Tell


class Coordinator(ABC):
    """Keeps the book of one broker. Times are microseconds of a monotonic clock."""

    def __init__(self, city: City, name: str, incarnation: int, succession: Succession, now_us: int) -> None:
        self.city = city
        self.name = name
        self.incarnation = incarnation
        self.succession = succession
        self.book = Book(city.names, succession.first(), succession.fixed)

    @abstractmethod
    def tick(self, now_us: int, clients: int) -> list[Event]:
        """Called at least five times per hello interval; `clients` are connected here."""

    @abstractmethod
    def met(self, peer: str, now_us: int) -> list[Event]:
        """A link to the peer is up."""

    @abstractmethod
    def greeted(self, peer: str, greeting: Greeting, now_us: int) -> list[Event]:
        """The peer's coordinator has sent a greeting."""

    @abstractmethod
    def told(self, peer: str, facts: tuple[Fact, ...], now_us: int) -> list[Event]:
        """The peer's coordinator has sent facts; raises PeerViolation for some that are not in order."""

    @abstractmethod
    def propose(self, facts: tuple[Fact, ...], now_us: int) -> list[Event]:
        """Someone here wants the city to agree on facts. They count when they come back as FactsChanged."""

    @abstractmethod
    def alive(self, now_us: int) -> tuple[str, ...]:
        """The members that are there, this broker among them."""

    def overslept(self, now_us: int, pause_us: int) -> None:  # noqa: B027
        """This broker itself stood still and heard nobody; the silence of that time says nothing about the others."""

    def restore(self, facts: tuple[Fact, ...], now_us: int) -> list[Event]:
        """What the journal of an earlier life knew."""
        return self.events_of(self.book.merge(facts), ())

    def join(self, name: str, address: str, now_us: int) -> list[Event]:
        return self.propose((self.book.next(BROKER, name, name, address),), now_us)

    def leave(self, name: str, now_us: int) -> list[Event]:
        return self.propose((self.book.next(BROKER, name, ""),), now_us)

    def events_of(self, changes: tuple[Change, ...], tell: tuple[str, ...]) -> list[Event]:
        """A newcomer joins before facts speak of it, and is forgotten after it has been told."""
        if not changes:
            return []
        said = [change for change in changes if change.after.kind == BROKER]
        joined = [MemberJoined(change.after.key, change.after.value) for change in said if change.after.owner]
        left = [MemberLeft(change.after.key) for change in said if not change.after.owner]
        return [*joined, FactsChanged(changes, tell), *left]
