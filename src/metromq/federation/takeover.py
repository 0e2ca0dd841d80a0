"""What follows for messages when another broker becomes responsible: send again, hand over, fetch what is retained."""

from collections.abc import Collection
from typing import Final, final

from metromq.federation.city import City
from metromq.federation.coordination.facts import Change
from metromq.federation.coordination.steps import DRAINS, candidate, phase_of
from metromq.federation.coordination.succession import TopicTable
from metromq.federation.effects import Effect, HandOver, Reroute, Send, SendRetained
from metromq.federation.links.frames import RetainedRequest
from metromq.federation.silences import UNNOTICED_US

LATELY_US: Final = 60_000_000
NEVER_US: Final = 1 << 62


@final
class Takeover:
    """Remembers since when this broker has been responsible for keys that it took over, or is at home there.

    And when it last knew all that a peer wants: an owner that is not at home has told others of what came since then to
    nobody but those it knew of.
    """

    def __init__(self, name: str, city: City, table: TopicTable) -> None:
        self._name = name
        self._city = city
        self.changed_us = -NEVER_US  # when some key got another owner, as far as is known here
        self._table = table
        self._claimed_us: dict[str, int] = {}
        self._asked: dict[str, frozenset[str]] = {}  # the peers that were asked for a key's values when it was claimed
        self._in_step_us: dict[str, int] = {}
        self._start_us = 0
        self._settled_us: dict[str, int] = {}  # keys of its home that this broker got while it ran
        self._left_us: dict[str, int] = {}  # and those that it was at home in, perhaps not for the last time
        # Since when it was at home in keys by a description that another one has overruled: not all peers have heard of
        # that, so they will not ask it for what it distributed.
        self._overruled_us: dict[str, int] = {}
        # Keys that it stands in for, and that have got another home: what came before was told to the one before.
        self._rehomed: set[str] = set()

    def city_changed(self, city: City, now_us: int) -> None:
        homes, self._city = self._city.homes, city
        for key, home in city.homes.items():
            before = homes.get(key)
            if key in self._claimed_us and self._name not in (home, before) and before not in (home, None):
                self._rehomed.add(key)
            if home == self._name != before:
                # Until we own it, too, who was at home before distributes everything.
                self._settled_us[key] = now_us if self._table.owner(key) == self._name else NEVER_US
                self._overruled_us.pop(key, None)
            if before == self._name != home:
                self._left_us[key] = now_us
                settled_us = self._settled_us.pop(key, NEVER_US)
                if settled_us != NEVER_US and self._name not in city.former_homes.get(key, ()):
                    self._overruled_us[key] = settled_us

    def restarted(self, away_us: int, now_us: int) -> None:
        self._start_us = now_us - away_us - UNNOTICED_US
        self.changed_us = now_us
        # What the journal told is no news: where the city's file has another home, this one may have been it for long.
        self._settled_us = {key: NEVER_US for key in self._settled_us if self._table.owner(key) != self._name}

    def in_step(self, peer: str, now_us: int) -> None:
        """Just now we knew all that the peer wants."""
        self._in_step_us[peer] = now_us

    def owner_changed(self, change: Change, up: Collection[str], now_us: int) -> list[Effect]:
        if change.after.kind != self._table.kind:
            return []
        self.changed_us = now_us
        key, before, after = change.after.key, change.before.owner, change.after.owner
        effects: list[Effect] = []
        at_home = after == self._table.succession.home(change.after)
        # One that is only silent may have an open link: what it holds comes late, and is recognised.
        if before and before not in (after, self._name) and (before not in up or not at_home):
            effects.append(Reroute(key, before, after))
        if after == self._name and before != self._name:
            self._claimed_us[key] = now_us
            self._rehomed.discard(key)
            if self._settled_us.get(key) == NEVER_US:
                self._settled_us[key] = now_us
            if not _is_handed(change, up):
                self._asked[key] = frozenset(up)
                request = RetainedRequest(self._table.succession.filters(key))
                effects += [Send(peer, request) for peer in sorted(up)]
        if before == self._name and after != self._name:
            if key in self._left_us:  # until now it distributed what came, though it was not at home any more
                self._left_us[key] = now_us
            effects += self._lost(change, at_home, now_us)
        return effects

    def asks(self, peer: str, filters: tuple[str, ...], now_us: int) -> list[Effect]:
        """Who announces filters, and had no link then, may know values of a key that was taken over just now."""
        is_news = any(
            now_us - claimed_us < LATELY_US and peer not in self._asked.get(key, ())
            for key, claimed_us in self._claimed_us.items()
        )
        return [Send(peer, RetainedRequest(filters))] if is_news and filters else []

    def _lost(self, change: Change, at_home: bool, now_us: int) -> list[Effect]:
        key, anchor = change.after.key, self._table.anchor(change.after.key)
        claimed_us = self._claimed_us.pop(key, self._start_us if anchor else now_us)
        overruled_us = self._overruled_us.pop(key, NEVER_US)
        if overruled_us != NEVER_US:
            return [HandOver(key, change.after.owner, now_us - overruled_us)]
        is_told = key not in self._rehomed  # of all that came while we stood in for it
        self._rehomed.discard(key)
        if anchor == self._name or (at_home and not anchor and is_told):
            return []
        if not anchor:
            return [HandOver(key, change.after.owner, now_us - claimed_us)]
        effects: list[Effect] = [HandOver(key, anchor, now_us - max(claimed_us, self._sure_us()))]
        if not _is_in_order(change):
            effects.append(SendRetained(anchor, self._table.succession.filters(key)))
        return effects

    def _sure_us(self) -> int:
        """What came before then was told to everybody who wanted it."""
        others = [peer for peer in self._table.book.members if peer != self._name]
        return min((self._in_step_us.get(peer, self._start_us) for peer in others), default=self._start_us)

    def covers(self, key: str, age_us: int, now_us: int, was_handed: bool = False) -> bool:
        """Whether this broker was the one to distribute what came for the key so long ago."""
        came_us = now_us - age_us
        if self._table.home(key) == self._name:
            # Whoever knew of the new home earlier than it did itself has handed messages to it before.
            was_home = came_us <= self._left_us.get(key, came_us - 1)
            return was_handed or was_home or came_us >= self._settled_us.get(key, came_us)
        was_home = self._table.owner(key) == self._name or came_us <= self._left_us.get(key, came_us)
        if was_home and self._name in self._city.former_homes.get(key, ()):
            return True
        if self._table.anchor(key) == self._name:
            return True
        claimed_us = self._claimed_us.get(key)
        return claimed_us is not None and came_us >= claimed_us


def _is_handed(change: Change, up: Collection[str]) -> bool:
    """Whether it came in good order, so that what is retained has been sent: its last owner is there to say so."""
    return phase_of(change.before) == DRAINS[-1] and change.before.owner in up


def _is_in_order(change: Change) -> bool:
    """Whether it came to its end step by step: then the last owner has sent what is retained to the next one."""
    before, after = change.before, change.after
    is_next = after.epoch == before.epoch + 1 and after.owner == candidate(before)
    return is_next and phase_of(before) == DRAINS[-1]
