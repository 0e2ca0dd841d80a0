"""The interface of routers: which brokers a message must visit, and which must know of a subscription.

A router knows the city, its own name and the topic table, which is a view of the book of facts. It does not know who
calls it: a live broker, the simulator or a test. It suggests; the node that asks it joins the suggestion with what
peers have announced.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum

from metromq.federation.city import City
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
    """Whom to serve, and who else takes the message further."""

    audience: Audience
    onward: tuple[Onward, ...] = ()


STAY = Suggestion(Audience.NOBODY)


class Router(ABC):
    """Four methods, and `explain`. A router names neighbours only, wherever it names peers."""

    def __init__(self, city: City, name: str, table: TopicTable) -> None:
        self.city = city
        self.name = name
        self.table = table
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
