"""A city whose routing changes while it runs: two routings side by side, in steps that every broker follows.

First subscriptions are announced as both routings need it, then messages go as the new one says, then announcements of
the old one end. Each step begins when all brokers follow the one before. So whoever distributes a message, by either
routing, knows everybody that wants it; and a copy that reaches a broker whose routing has no use for it is distributed
anew from there (`distribution.py`).
"""

from typing import final

from metromq.federation.coordination.succession import TopicTable
from metromq.federation.routing.router import Router, Suggestion


@final
class ChangingRouter(Router):
    """Messages go as `main` says; `beside` is the routing that was, or will be."""

    def __init__(self, main: Router, beside: Router) -> None:
        super().__init__(main.city, main.name, main.table)
        self._main = main
        self._beside = beside
        self.sends_unasked = main.sends_unasked or beside.sends_unasked

    @property
    def has_neighbours(self) -> bool:
        return self._main.has_neighbours or self._beside.has_neighbours

    def key(self, topic: str) -> str | None:
        return self._main.key(topic)

    def neighbours(self) -> frozenset[str]:
        return self._main.neighbours() | self._beside.neighbours()

    def announce_to(self, topic_filter: str) -> frozenset[str]:
        return self._main.announce_to(topic_filter) | self._beside.announce_to(topic_filter)

    def decide(self, topic: str, stage: int, origin: str) -> Suggestion:
        return self._main.decide(topic, stage, origin)

    def explain(self, topic_or_filter: str, peer: str = "") -> tuple[str, ...]:
        if peer:
            told = peer in self._main.announce_to(topic_or_filter)
            return (self._main if told else self._beside).explain(topic_or_filter, peer)
        changes = f"The routing changes: {self.city.beside} runs beside {self.city.routing}."
        return (changes, *self._main.explain(topic_or_filter))


def must_retain(router: Router, table: TopicTable) -> tuple[str, ...]:
    """The filters of which a newcomer anywhere trusts that this broker knows every retained value."""
    city, name = router.city, router.name
    if city.routing == "flood-publications" or name == city.central:
        return ("#",)
    if not table.kind:
        return ()
    return tuple(text for key in table.owned_by(name) for text in table.succession.filters(key))
