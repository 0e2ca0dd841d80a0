"""Delegation: a central broker distributes every message, but for topic filters that it has handed to other brokers.

All brokers tell the central one what they want, and a filter's owner what they want of it. The owner serves its own
clients, and if anybody else wants the message the central broker gets one copy and serves the others. So two sentences
hold through every change of owners: the central broker knows everybody, and a message that reaches a broker that is not
responsible any more goes to the central one. How a filter changes hands is in `federation.handover`.
"""

from typing import final

from metromq.federation.city import City
from metromq.federation.coordination.facts import FILTER, Fact
from metromq.federation.coordination.steps import candidate
from metromq.federation.coordination.succession import Living, Succession, TopicTable
from metromq.federation.interest import FilterIndex, plain_filter
from metromq.federation.routing.router import STAY, Audience, Onward, Router, Suggestion, stays_here
from metromq.federation.stages import CLIENT, FINAL, HANDOVER, OWNER
from metromq.protocol.topics import overlaps, wildness


class DelegationRouter(Router):
    def __init__(self, city: City, name: str, table: TopicTable) -> None:
        super().__init__(city, name, table)
        self._revision = -1
        self._index = FilterIndex()
        self._facts: tuple[Fact, ...] = ()

    def key(self, topic: str) -> str | None:
        """The narrowest filter that is delegated and matches."""
        self._refresh()
        return min(self._index.matching(topic), key=wildness, default=None) if self._facts else None

    def _refresh(self) -> None:
        book = self.table.book
        if self._revision == book.revision:
            return
        self._revision, self._index = book.revision, FilterIndex()
        self._facts = tuple(fact for fact in self.table.entries() if fact.owner)
        for fact in self._facts:
            self._index.put(fact.key, 1)

    def _owner(self, topic: str) -> str:
        key = self.key(topic)
        return self.city.central if key is None else self.table.owner(key)

    def announce_to(self, topic_filter: str) -> frozenset[str]:
        self._refresh()
        wanted = plain_filter(topic_filter)
        touched = [fact for fact in self._facts if overlaps(fact.key, wanted)]
        brokers = {fact.owner for fact in touched} | {candidate(fact) for fact in touched}
        return frozenset(brokers | {self.city.central}) - {self.name, ""}

    def decide(self, topic: str, stage: int, origin: str) -> Suggestion:
        if stays_here(topic) or stage >= FINAL:
            return STAY
        owner, central = self._owner(topic), self.city.central
        if self.name == central and (owner == central or stage > CLIENT):
            return Suggestion(Audience.INTERESTED)
        if self.name == owner:
            return Suggestion(Audience.INTERESTED, through=central)
        if stage == CLIENT:
            return Suggestion(Audience.NOBODY, (Onward(owner, OWNER, self._role(topic, owner)),))
        if stage >= HANDOVER:
            return STAY
        # The sender's table is older or newer than ours.
        return Suggestion(Audience.NOBODY, (Onward(central, HANDOVER, "knows everybody who wants it"),))

    def _role(self, topic: str, owner: str) -> str:
        key = self.key(topic)
        return "distributes what is not delegated" if key is None else f"is responsible for {key}"

    def explain(self, topic_or_filter: str, peer: str = "") -> tuple[str, ...]:
        central = self.city.central
        if peer:
            return (self._why_told(plain_filter(topic_or_filter), peer),)
        if "+" in topic_or_filter or "#" in topic_or_filter:
            touched = [fact for fact in self._delegated() if overlaps(fact.key, plain_filter(topic_or_filter))]
            told = [f"{fact.key} is delegated to {fact.owner}." for fact in touched]
            return (f"Every subscription is announced to {central}, the central broker.", *told)
        key = self.key(topic_or_filter)
        if key is None or self.table.owner(key) == central:
            return (f"{topic_or_filter} is not delegated: {central}, the central broker, distributes it.",)
        owner = self.table.owner(key)
        return (
            f"{topic_or_filter} belongs to {key}, which is delegated to {owner} (epoch {self.table.epoch(key)}).",
            f"{owner} serves its own clients; for all others {central} gets one copy and serves them.",
        )

    def _delegated(self) -> tuple[Fact, ...]:
        self._refresh()
        return self._facts

    def _why_told(self, topic_filter: str, peer: str) -> str:
        if peer == self.city.central:
            return "is the broker in the middle"
        keys = [fact.key for fact in self._delegated() if overlaps(fact.key, topic_filter) and fact.owner == peer]
        return f"is responsible for {', '.join(keys)}" if keys else "is about to become responsible"


@final
class FilterSuccession(Succession):
    """Whoever has a filter keeps it; when it is gone the filter falls back to the central broker."""

    kind = FILTER

    def __init__(self, city: City) -> None:
        self._central = city.central

    def first(self) -> tuple[Fact, ...]:
        return ()

    def home(self, fact: Fact) -> str:
        return ""

    def anchor(self, fact: Fact) -> str:
        return self._central

    def heir(self, fact: Fact, living: Living) -> str:
        return self._central if fact.kind == FILTER and self._central in living else ""

    def filters(self, key: str) -> tuple[str, ...]:
        return (key,)
