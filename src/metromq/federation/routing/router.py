"""The interface of routers: which brokers a message must visit, and which must know of a subscription.

A router knows the city, its own name and the topic table, which is a view of the book of facts. It does not know who
calls it: a live broker, the simulator or a test. It suggests; the node that asks it joins the suggestion with what
peers have announced.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from typing import Final

from metromq.federation.city import City
from metromq.federation.coordination.facts import Change, Fact
from metromq.federation.coordination.succession import TopicTable


class Audience(Enum):
    """Whom this broker serves with final copies."""

    NOBODY = "nobody"
    INTERESTED = "interested"
    EVERYONE = "everyone"


@dataclass(frozen=True, slots=True)
class Onward:
    """A peer that takes the message further, the stage at which it gets it, and why, for people."""

    peer: str
    stage: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Whom to serve, and who else takes the message further.

    With `through`, interested peers are not served from here: if there are any, that one gets a copy and serves them.
    """

    audience: Audience
    onward: tuple[Onward, ...] = ()
    through: str = ""


STAY = Suggestion(Audience.NOBODY)


@dataclass(frozen=True, slots=True)
class Carry:
    """A relay, the interested brokers that it brings copies to (itself, if it is one of them), and why, for people."""

    peer: str
    targets: tuple[str, ...]
    why: str = ""


EVERYTHING: Final = ("#",)
WantedBy = Callable[[str], AbstractSet[str]]


def nothing_wanted(broker: str) -> AbstractSet[str]:
    return frozenset()


class Ways:
    """The ways of messages between brokers: straight, with nothing to agree on, unless a routing says more.

    A routing with ways of its own leads messages along relays, and makes the city agree on facts about what clients
    publish and want: it is told what happens, and the node takes its proposals to the coordinator.
    """

    leads = False  # whether there are relays: if not, messages do not even ask

    def __init__(self) -> None:
        self.wanted_by: WantedBy = nothing_wanted  # the filters that a broker's clients want, as far as is known here

    def carriers(self, topic: str, peers: tuple[str, ...], passed: Collection[str]) -> tuple[Carry, ...]:
        """The relays that bring a message to some of the interested peers; the others get it straight from here.

        `passed` are brokers that need no copy: it has been there, or someone else sends it.
        """
        return ()

    def expects(self, topic: str) -> bool:
        """Whether the router wants to hear when a client of this broker publishes the topic."""
        return False

    def published(self, topic: str) -> bool:
        """A client of this broker publishes a topic that the router expects; whether it may go other ways now."""
        return False

    def listens(self, now_us: int) -> tuple[str, ...]:
        """Time passes: filters of the topics that the router expects again."""
        return ()

    def wanted(self, topic_filter: str, is_wanted: bool) -> None:
        """Clients of this broker want the filter, or do not any more."""

    def learnt(self, changes: tuple[Change, ...]) -> tuple[str, ...]:
        """The book has changed: filters of the topics whose routes may differ now."""
        return EVERYTHING

    def living(self, alive: tuple[str, ...]) -> tuple[str, ...]:
        """Others are there than before. The relays that are gone: what waits for them is sent around them."""
        return ()

    def proposals(self) -> tuple[Fact, ...]:
        """What this broker wants the city to agree on, of what has happened since it was asked last."""
        return ()


class Router(ABC):
    """Four methods, and `explain`. A router names neighbours only, wherever it names peers.

    `ways` are those that its messages take: straight, unless the routing has ways of its own.
    """

    def __init__(self, city: City, name: str, table: TopicTable) -> None:
        self.city = city
        self.name = name
        self.table = table
        self.ways = Ways()
        self._members: tuple[str, ...] = ()
        self._others: frozenset[str] = frozenset()

    @property
    def others(self) -> frozenset[str]:
        """All members but this broker."""
        members = self.table.book.members
        if members is not self._members:
            self._members, self._others = members, frozenset(members) - {self.name}
        return self._others

    def key(self, topic: str) -> str | None:
        """The key of the topic table that the topic belongs to; None: nobody is responsible for it."""
        return None

    sends_unasked = False  # messages go to brokers that have announced nothing

    @property
    def has_neighbours(self) -> bool:
        """Whether this routing says itself between which brokers there are links."""
        return type(self).neighbours is not Router.neighbours

    def neighbours(self) -> frozenset[str]:
        """The peers that this broker keeps links to; a message goes to no others from here."""
        return self.others

    @abstractmethod
    def announce_to(self, topic_filter: str) -> frozenset[str]:
        """The peers that must know that a client of this broker wants the filter."""

    @abstractmethod
    def decide(self, topic: str, stage: int, origin: str) -> Suggestion:
        """What to do with a message, published at `origin`, that has reached this broker at a stage before FINAL."""

    @abstractmethod
    def explain(self, topic_or_filter: str, peer: str = "") -> tuple[str, ...]:
        """Why: one sentence per line, for people. With a peer: what makes it one that must know of the filter."""


def stays_here(topic: str) -> bool:
    """Topics of the server itself, `$SYS` and the like, never leave their broker."""
    return topic.startswith("$")
