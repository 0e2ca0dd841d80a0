"""The interface of coordinators: members join and leave, come and go, and facts change.

A node tells its coordinator what happens, and carries out the events that come back, in their order. How brokers come
to agree is the coordinator's own business: by gossip (embedded.py), or through a server, whose shim calls methods of
its own coordinator and gives the events to `Node.coordinated`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from mypy_extensions import mypyc_attr

from metromq.federation.city import City
from metromq.federation.coordination.contacts import EVERYBODY, Contacts
from metromq.federation.coordination.facts import AREA, BROKER, CITY, Book, Change, Fact
from metromq.federation.coordination.following import Following
from metromq.federation.coordination.rumours import Rumour
from metromq.federation.coordination.succession import Succession


@dataclass(slots=True)  # not frozen, which would double its cost: a greeting has one for every broker
class Beat:
    """A sign of life, passed on from broker to broker: newer when (incarnation, count) is greater."""

    broker: str
    incarnation: int  # grows with every start of the broker
    count: int  # grows with every greeting of this incarnation
    clients: int
    age_ms: int  # how long ago it was heard from the broker itself
    gone: bool = False  # the sender takes the broker for gone


class Greeting(NamedTuple):
    """What a coordinator says to a peer's coordinator now and then, and as soon as a link is up."""

    incarnation: int
    digest: int  # of the sender's book
    beats: tuple[Beat, ...]
    lost: int = 0  # digest of whom the sender takes for lost, where not everybody greets everybody
    asks: bool = False  # the sender watches the receiver, and wants to be greeted too
    following: int = 0  # digest of who follows the city's description, in a large city; since version 8


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
class CityChanged:
    """The city has another description from now on; `before` and `after` are the facts that hold them."""

    city: City
    succession: Succession
    before: Fact
    after: Fact


class Greet(NamedTuple):
    peer: str
    greeting: Greeting


@dataclass(frozen=True, slots=True)
class Tell:
    peer: str
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Spread:
    """Rumours for a peer's coordinator; `whole`: all that are lost, because the two differ about that."""

    peer: str
    rumours: tuple[Rumour, ...]
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Count:
    """For a peer's coordinator: who follows the description of this mark, see following.py."""

    peer: str
    mark: int
    bits: int


@dataclass(frozen=True, slots=True)
class Returned:
    """A member that no link is kept to was lost or has started anew: what it was told before may be lost, too."""

    name: str


Event = MemberJoined | MemberLeft | AliveChanged | FactsChanged | CityChanged | Greet | Tell | Spread | Count | Returned
ReadsCity = Callable[[Fact], tuple[City, Succession]]  # raises PeerViolation for a description that makes no sense


@mypyc_attr(allow_interpreted_subclasses=True)
class Coordinator(ABC):
    """Keeps the book of one broker. Times are microseconds of a monotonic clock."""

    def __init__(self, city: City, name: str, incarnation: int, succession: Succession, now_us: int) -> None:
        self.city = city
        self.name = name
        self.incarnation = incarnation
        self.succession = succession
        # Areas that the city's routing does not have are nobody's business.
        self.book = Book(city.names, succession.first(), succession.fixed | {AREA})
        self.reads_city: ReadsCity | None = None  # None: descriptions are passed on, and not followed
        self.writes_city: Callable[[], str] = str  # the city as it is now, as the value of a fact would say it
        self.worker = ""  # the coordination worker that decides for this broker; empty: none does at the moment
        self.workers: tuple[str, ...] = ()  # all of them that are there, the one that leads them first
        self.following = Following()  # used in large cities
        self._followed = self.book.get(CITY, CITY)
        self._text_before = ""  # the description before
        self._news: list[Event] = []  # of an adopted description: told before all else,
        self._gone: list[MemberLeft] = []  # and after it

    @abstractmethod
    def tick(self, now_us: int, clients: int) -> list[Event]:
        """Called at least five times per hello interval, or when `next_us` says; `clients` are connected here."""

    def next_us(self, now_us: int) -> int:
        """When the next tick must come if nothing happens before; it may come sooner. Now: at the usual pace."""
        return now_us

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

    def is_alive(self, name: str, now_us: int) -> bool:
        return name in self.alive(now_us)

    def contacts(self) -> Contacts:
        """Whom this broker keeps links to."""
        return EVERYBODY

    def companions_of(self, name: str) -> frozenset[str] | None:
        """The members that keep links to `name` in any case; None: all do."""
        return None

    def heard_of(self, peer: str, rumours: tuple[Rumour, ...], whole: bool, now_us: int) -> list[Event]:
        """The peer's coordinator has passed on what is said of others."""
        return []

    def counted(self, peer: str, mark: int, bits: int) -> None:  # noqa: B027
        """The peer's coordinator has said who follows the city's description."""

    def says_by_fact(self) -> bool:
        """Whether this broker says by a fact which description it follows."""
        return True

    def patch_of(self, facts: tuple[Fact, ...]) -> tuple[Fact, ...]:
        """The same facts, shorter, for who follows the description before; empty: there is no shorter way."""
        return ()

    def overslept(self, now_us: int, pause_us: int) -> None:  # noqa: B027
        """This broker itself stood still and heard nobody; the silence of that time says nothing about the others."""

    def surely_us(self) -> int:
        """So long after a sign of life of this broker nobody takes it for lost; 0: its greetings do not decide that."""
        return 0

    def restore(self, facts: tuple[Fact, ...], now_us: int) -> list[Event]:
        """What the journal of an earlier life knew."""
        adopted = self.adopt(facts, now_us)
        return self.events_of((*adopted, *self.book.merge(facts)), ())

    def join(self, name: str, address: str, now_us: int) -> list[Event]:
        return self.propose((self.book.next(BROKER, name, name, address),), now_us)

    def leave(self, name: str, now_us: int) -> list[Event]:
        return self.propose((self.book.next(BROKER, name, ""),), now_us)

    def adopt(self, facts: tuple[Fact, ...], now_us: int) -> tuple[Change, ...]:
        """Takes a newer description of the city over before the other facts, which may only make sense with it."""
        fact = max((fact for fact in facts if fact.kind == CITY), key=lambda one: one.version, default=None)
        if fact is None or fact.version <= self._followed.version or self.reads_city is None:
            return ()
        self._text_before = self._followed.value or self.writes_city()
        self.city, self.succession = self.reads_city(fact)
        changes = self.book.merge((fact,))
        before, self._followed = self._followed, fact
        members = self.book.members
        were_members = frozenset(members)
        self.book.found(self.city.names, self.succession.first())
        self._news.append(CityChanged(self.city, self.succession, before, fact))
        self._news += [MemberJoined(name, "") for name in self.book.members if name not in were_members]
        self._gone += [MemberLeft(name) for name in members if not self.book.is_member(name)]
        self.city_changed(now_us)
        return changes

    @property
    def is_changed(self) -> bool:
        """Whether the city has another description than its file."""
        return self._followed.epoch > 0

    def leaving(self) -> list[str]:
        """Members that an adopted description leaves out, and that should still hear of it."""
        return [event.name for event in self._gone]

    def city_changed(self, now_us: int) -> None:  # noqa: B027
        """`city`, `succession` and the book's members are other ones now."""

    def events_of(self, changes: tuple[Change, ...], tell: tuple[str, ...]) -> list[Event]:
        """A newcomer joins before facts speak of it, and is forgotten after it has been told."""
        if not changes:
            return []
        self.adopt(tuple(change.after for change in changes), 0)  # unless it has been adopted before
        news, gone = self._news, self._gone
        self._news, self._gone = [], []
        said = [change for change in changes if change.after.kind == BROKER]
        joined = [MemberJoined(change.after.key, change.after.value) for change in said if change.after.owner]
        left = [MemberLeft(change.after.key) for change in said if not change.after.owner]
        return [*news, *joined, FactsChanged(changes, tell), *left, *gone]
