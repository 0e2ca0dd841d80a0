"""Who is responsible at the start, who is at home, and who inherits: what coordinators ask and routings answer.

Which facts a routing needs, and who takes over when their owner is gone, is knowledge of that routing (for areas it is
geography). A coordinator only finds out who is there, and makes everybody agree.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Protocol, final

from metromq.federation.coordination.facts import Book, Fact
from metromq.federation.coordination.steps import candidate
from metromq.protocol.topics import matches


class Living(Protocol):
    """The members that are there, with the number of their clients; -1: nobody says so here."""

    def __contains__(self, name: object, /) -> bool: ...

    def __getitem__(self, name: str, /) -> int: ...

    def __iter__(self) -> Iterator[str]: ...


class Succession(ABC):
    """`kind` is the kind of fact that makes up the routing's topic table; empty: it has none.

    `fixed` are kinds whose keys are known from the start: facts with other keys are ignored. `is_orderly`: keys may
    change hands in steps in which everybody has a part. `heir_varies`: who inherits may change though nobody has
    come or gone and nothing was said.
    """

    kind: str = ""
    is_orderly: bool = True
    heir_varies: bool = True
    fixed: frozenset[str] = frozenset()

    @abstractmethod
    def first(self) -> tuple[Fact, ...]:
        """The facts that hold while nobody has said anything."""

    @abstractmethod
    def home(self, fact: Fact) -> str:
        """The broker that claims the fact back whenever it is there; empty: whoever has it keeps it."""

    def astray(self) -> tuple[Fact, ...]:
        """The first facts whose owner is not the broker that would claim them."""
        return tuple(fact for fact in self.first() if self.home(fact) not in ("", fact.owner))

    def anchor(self, fact: Fact) -> str:
        """The broker that knows everybody who wants the key's topics, whoever owns it; empty: the one at home."""
        return ""

    def hands_over(self, fact: Fact) -> bool:
        """Whether the owner gives the fact to the broker at home in good order while it lives: no claim is due."""
        return False

    def inherited(self, fact: Fact) -> str:
        """The value of the fact when somebody claims it."""
        return fact.value

    @abstractmethod
    def heir(self, fact: Fact, living: Living) -> str:
        """Who takes over, of the living with the number of their clients, when the owner is gone; empty: nobody."""

    @abstractmethod
    def filters(self, key: str) -> tuple[str, ...]:
        """What matches the topics of a key of the topic table."""


@final
class NoSuccession(Succession):
    """For routings in which nobody is responsible for anything."""

    def first(self) -> tuple[Fact, ...]:
        return ()

    def home(self, fact: Fact) -> str:
        return ""

    def heir(self, fact: Fact, living: Living) -> str:
        return ""

    def filters(self, key: str) -> tuple[str, ...]:
        return ()


@final
class TopicTable:
    """The facts of the book by which a routing finds the responsible broker."""

    def __init__(self, book: Book, succession: Succession) -> None:
        self.book = book
        self.succession = succession
        self.kind = succession.kind

    def succession_changed(self, succession: Succession) -> None:
        """The city has another description."""
        self.succession = succession
        self.kind = succession.kind

    def owner(self, key: str) -> str:
        """The responsible broker, or the empty string where nobody is."""
        return self.book.owner(self.kind, key)

    def home(self, key: str) -> str:
        """The broker at home, or, where there is none or it has left the city for good, the responsible one."""
        fact = self.book.get(self.kind, key)
        home = self.succession.home(fact)
        return home if self.book.is_member(home) else fact.owner

    def is_of(self, key: str, topic: str) -> bool:
        """Whether the topic belongs to a key, or did before the table changed."""
        return any(matches(text, topic) for text in self.succession.filters(key))

    def candidate(self, key: str) -> str:
        """The broker that is about to become responsible; empty: nobody is."""
        return candidate(self.book.get(self.kind, key))

    def anchor(self, key: str) -> str:
        return self.succession.anchor(self.book.get(self.kind, key))

    def epoch(self, key: str) -> int:
        return self.book.get(self.kind, key).epoch

    def entries(self) -> tuple[Fact, ...]:
        return self.book.of_kind(self.kind)

    def owned_by(self, broker: str) -> tuple[str, ...]:
        return self.book.owned_by(self.kind, broker)

    def digest(self) -> int:
        """Of the whole book: brokers whose digests are equal agree on everything."""
        return self.book.digest()
