"""Who leads the changes of a kind of facts: what begins one, and what becomes of one that is given up; no I/O.

Filters are delegated by the central broker, and stay where they are if that does not work. An area goes to the broker
that the city's description has made at home there: that one leads, and claims the area if good order is not to be had.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import final

from metromq.errors import UsageError
from metromq.federation.coordination.facts import FILTER, Fact
from metromq.federation.coordination.steps import PREPARE, candidate, phase_of
from metromq.federation.coordination.succession import TopicTable
from metromq.protocol.topics import covers, overlaps, validate_filter, wildness


class Lead(ABC):
    """What `Handover` must know of the facts that change hands."""

    def __init__(self, name: str, table: TopicTable) -> None:
        self._name = name
        self._table = table

    @abstractmethod
    def leader(self, to: str) -> str:
        """Who writes the steps by which `to` gets something."""

    @abstractmethod
    def led(self) -> tuple[Fact, ...]:
        """The facts that this broker may have to write steps of."""

    @abstractmethod
    def due(self, fact: Fact, alive: Collection[str], is_known: bool) -> Fact | None:
        """What replaces a fact whatever its step is; `is_known`: this broker has led its change so far."""

    @abstractmethod
    def given_up(self, fact: Fact) -> Fact:
        """What replaces a fact whose change does not come to its end in good order."""

    def next(self, key: str, owner: str, value: str = "") -> Fact:
        return self._table.book.next(self._table.kind, key, owner, value)


@final
class FilterLead(Lead):
    def __init__(self, name: str, table: TopicTable, central: str) -> None:
        super().__init__(name, table)
        self._central = central

    def leader(self, to: str) -> str:
        return self._central

    def led(self) -> tuple[Fact, ...]:
        return tuple(fact for fact in self._table.entries() if fact.owner) if self._name == self._central else ()

    def due(self, fact: Fact, alive: Collection[str], is_known: bool) -> Fact | None:
        if phase_of(fact):
            return None
        is_needless = fact.owner == self._owner_above(fact.key) and not self._is_moving_above(fact.key)
        return self.next(fact.key, "") if is_needless else None

    def given_up(self, fact: Fact) -> Fact:
        return self.next(fact.key, fact.owner)

    def begin(self, topic_filter: str, broker: str, alive: Collection[str]) -> tuple[Fact, ...]:
        """The fact that begins a change; without a broker the filter goes back to where it came from."""
        if self._name != self._central:
            raise UsageError(f"{self._name} is not the central broker of a city with delegation; ask that one")
        self._check(topic_filter)
        fact = self._table.book.get(FILTER, topic_filter)
        above = self._owner_above(topic_filter)
        owner, to = fact.owner or above, broker or above
        if phase_of(fact):
            raise UsageError(f"{topic_filter} is on its way to {candidate(fact)}; wait until it is there")
        if to not in alive:
            raise UsageError(f"{to} is not running, or no broker of this city; it cannot take {topic_filter}")
        return (self.next(topic_filter, owner, f"{PREPARE} {to}"),) if to != owner else ()

    def _check(self, topic_filter: str) -> None:
        validate_filter(topic_filter)
        if topic_filter.startswith("$"):
            raise UsageError(f"{topic_filter}: topics that begin with $ stay at their broker")
        for fact in self._table.entries():
            other = fact.key
            is_within = covers(other, topic_filter) or covers(topic_filter, other)
            if fact.owner and overlaps(other, topic_filter) and not is_within:
                raise UsageError(
                    f"{topic_filter} and {other}, which {fact.owner} has, share topics, and neither lies within the "
                    f"other; return {other} first, or choose another filter"
                )

    def _owner_above(self, topic_filter: str) -> str:
        """Who is responsible where the filter itself is not delegated."""
        wider = [
            fact
            for fact in self._table.entries()
            if fact.owner and fact.key != topic_filter and covers(fact.key, topic_filter)
        ]
        return min(wider, key=lambda fact: wildness(fact.key)).owner if wider else self._central

    def _is_moving_above(self, key: str) -> bool:
        """While a wider filter changes hands, a narrower one keeps its own entry."""
        return any(fact.value and covers(fact.key, key) for fact in self._table.entries() if fact.key != key)


@final
class AreaLead(Lead):
    def leader(self, to: str) -> str:
        return to  # and not who is at home: a description may be on its way to the broker that asks

    def led(self) -> tuple[Fact, ...]:
        return tuple(fact for fact in self._table.entries() if self._concerns(fact))

    def _concerns(self, fact: Fact) -> bool:
        if fact.value and candidate(fact) == self._name:
            return True
        is_open = fact.owner != self._name or bool(fact.value)
        return is_open and self._is_home(fact)

    def _is_home(self, fact: Fact) -> bool:
        return self._table.succession.home(fact) == self._name

    def due(self, fact: Fact, alive: Collection[str], is_known: bool) -> Fact | None:
        """Who has begun a change ends it, also when somebody else is at home by now: no two write at once."""
        to = candidate(fact)
        if to == self._name and not self._is_home(fact):
            return self.next(fact.key, fact.owner)
        if to != self._name and to in alive:
            return None
        if fact.owner == self._name:
            return self.next(fact.key, self._name)
        if not self._table.succession.hands_over(fact) or fact.owner not in alive:
            return None  # it is claimed, as by every broker that returns
        is_begun = to == self._name and (is_known or phase_of(fact) == PREPARE)
        return None if is_begun else self.next(fact.key, fact.owner, f"{PREPARE} {self._name}")

    def given_up(self, fact: Fact) -> Fact:
        return self.next(fact.key, self._name)
