"""What follows for messages when another broker becomes responsible: send again, hand over, fetch what is retained."""

from collections.abc import Collection
from typing import final

from metromq.federation.coordination.facts import Change
from metromq.federation.coordination.succession import TopicTable
from metromq.federation.effects import Effect, HandOver, Reroute, Send
from metromq.federation.links.frames import RetainedRequest


@final
class Takeover:
    """Remembers since when this broker has been responsible for keys that it took over."""

    def __init__(self, name: str, table: TopicTable) -> None:
        self._name = name
        self._table = table
        self._claimed_us: dict[str, int] = {}

    def owner_changed(self, change: Change, up: Collection[str], now_us: int) -> list[Effect]:
        if change.after.kind != self._table.kind:
            return []
        key, before, after = change.after.key, change.before.owner, change.after.owner
        effects: list[Effect] = []
        at_home = after == self._table.succession.home(change.after)
        # One that is only silent may have an open link: what it holds comes late, and is recognised.
        if before and before not in (after, self._name) and (before not in up or not at_home):
            effects.append(Reroute(key, before, after))
        if after == self._name and before != self._name:
            self._claimed_us[key] = now_us
            request = RetainedRequest(self._table.succession.filters(key))
            effects += [Send(peer, request) for peer in sorted(up)]
        if before == self._name and after != self._name:
            claimed_us = self._claimed_us.pop(key, now_us)
            if not at_home:
                effects.append(HandOver(key, after, now_us - claimed_us))
        return effects

    def covers(self, key: str, age_us: int, now_us: int) -> bool:
        """Whether this broker was the one to distribute what came for the key so long ago."""
        if self._table.home(key) == self._name:
            return True
        claimed_us = self._claimed_us.get(key)
        return claimed_us is not None and now_us - age_us >= claimed_us
