"""How a key of the topic table changes hands in good order: the steps, and who waits for whom; no I/O.

A key is a topic filter that is delegated, or an area that gets another home. A change is one fact per step, and one
broker writes them (leading.py), so everybody sees the same steps in the same order, and a broker that restarts goes on
from the last one it knew. docs/delegation.md has the whole protocol.

prepare  everybody tells the new owner what it wants of the key; the old one sends it what is retained
drain1   publishers' brokers hold back what their clients publish, and wait until the old owner has the rest,
drain2   which waits until everybody has its copies: the central broker, or the new home, among them,
drain3   which waits until everybody has theirs
settled  the new owner is responsible, and what was held back goes to it
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, final

from metromq.errors import UsageError
from metromq.federation.coordination.facts import AREA, FILTER, Fact
from metromq.federation.coordination.steps import DRAINS, PREPARE, STEPS, candidate, phase_of
from metromq.federation.coordination.succession import TopicTable
from metromq.federation.effects import Drain, Effect, Release, Send, SendRetained
from metromq.federation.leading import AreaLead, FilterLead, Lead
from metromq.federation.links.frames import StepDone

LIMITS_US: Final = {PREPARE: 10_000_000, **dict.fromkeys(DRAINS, 2_000_000)}  # then the change is given up
HOLD_US: Final = 3_000_000  # so long a broker holds back, whatever becomes of the change
REPEAT_US: Final = 200_000  # reports may be lost with a link
CLOCKS_US: Final = 10_000_000  # values that were set during the change may be stamped so much earlier


@dataclass(slots=True)
class _Part:
    """What this broker does in a change."""

    epoch: int
    value: str
    phase: str
    owner: str
    to: str
    held_us: int  # since when it holds back; -1: it has given that up, or has not begun
    is_done: bool = False
    told_us: int = -REPEAT_US


@final
class Handover:
    """`digest` says what has been announced to a peer. Times are microseconds of a monotonic clock."""

    def __init__(self, name: str, central: str, table: TopicTable, digest: Callable[[str], int]) -> None:
        self._name = name
        self._table = table
        self._digest = digest
        self._lead = _lead(name, table, central)
        self._led: tuple[Fact, ...] = ()
        self._revision = -1  # of the book when it was last looked at
        self._parts: dict[str, _Part] = {}
        self._held: frozenset[str] = frozenset()
        self._changed = False
        self._heard: dict[str, tuple[int, set[str]]] = {}  # who has done its part of the step with this epoch
        self._begun: dict[str, tuple[int, int]] = {}  # where it is led: when the step with this epoch began
        self._pushed_us: dict[str, int] = {}  # when the retained values of a key were sent to its next owner

    # Holding back.

    @property
    def is_busy(self) -> bool:
        """Whether something changes hands."""
        return bool(self._parts)

    def is_idle(self) -> bool:
        """Whether neither `refresh` nor `next_facts` has anything to do: nothing changes hands, and no fact is new."""
        if self._parts or self._held or self._changed:
            return False
        return self._lead is None or (not self._led and self._revision == self._table.book.revision)

    @property
    def is_holding(self) -> bool:
        return bool(self._held)

    def holds(self, key: str | None) -> bool:
        return key in self._held

    def take_changed(self) -> bool:
        """Whether other keys are held than when this was last asked."""
        changed, self._changed = self._changed, False
        return changed

    # Our own part.

    def city_changed(self, central: str) -> None:
        """Other areas may be led from here now, or none at all."""
        self._lead = _lead(self._name, self._table, central)
        self._revision = min(self._revision, 0)

    def restored(self) -> None:
        """The book was read from a journal: changes that it speaks of go on."""
        self._revision = -1

    def refresh(self, alive: Collection[str], stamp_us: int, now_us: int) -> list[Effect]:
        """What must be done here now; call it when facts have changed and with every tick."""
        effects: list[Effect] = []
        if self._lead is None:
            self._parts.clear()
        elif self._revision != self._table.book.revision:
            is_first, self._revision = self._revision < 0, self._table.book.revision
            self._led = self._lead.led()
            for fact in self._table.entries():
                effects += self._enter(fact, stamp_us, now_us)
            effects += [Release()] if is_first else []
        for key, part in self._parts.items():
            if part.phase == PREPARE and not part.is_done:
                part.is_done = part.to != self._name or self._everybody(key, part.epoch, alive)
            effects += self._report(key, part, now_us)
        return effects + self._hold(now_us)

    def _enter(self, fact: Fact, stamp_us: int, now_us: int) -> list[Effect]:
        """A fact is another than before."""
        before = self._parts.get(fact.key)
        # Of two that write at once one counts: an epoch does not say everything.
        if before is not None and (before.epoch, before.owner, before.value) == fact.version:
            return []
        phase = phase_of(fact)
        if not phase or not fact.owner:
            self._parts.pop(fact.key, None)
            return self._push_last(fact, before, self._pushed_us.pop(fact.key, 0))
        is_draining = before is not None and before.phase in DRAINS and before.to == candidate(fact)
        held_us = before.held_us if before is not None and is_draining else now_us
        part = _Part(fact.epoch, fact.value, phase, fact.owner, candidate(fact), held_us if phase in DRAINS else -1)
        self._parts[fact.key] = part
        effects = self._push(fact.key, part, stamp_us) if fact.owner == self._name != part.to else []
        return [*effects, Drain(fact.key, fact.epoch)] if phase in DRAINS else effects

    def _push(self, key: str, part: _Part, stamp_us: int) -> list[Effect]:
        """The old owner sends what is retained: all at the start, and what is new when nothing new can come."""
        filters = self._table.succession.filters(key)
        if part.phase == PREPARE:
            self._pushed_us[key] = stamp_us
            return [SendRetained(part.to, filters)]
        if part.phase == DRAINS[-1]:
            before_us, self._pushed_us[key] = self._pushed_us.get(key, 0), stamp_us
            return [SendRetained(part.to, filters, max(0, before_us - CLOCKS_US))]
        return []

    def _push_last(self, fact: Fact, part: _Part | None, pushed_us: int) -> list[Effect]:
        """The key has changed hands: what clients set at QoS 0, which is not held back, came here until now."""
        if part is None or part.phase != DRAINS[-1] or part.owner != self._name or part.to != fact.owner:
            return []
        return [SendRetained(fact.owner, self._table.succession.filters(fact.key), max(0, pushed_us - CLOCKS_US))]

    def drained(self, key: str, epoch: int, now_us: int) -> list[Effect]:
        part = self._parts.get(key)
        if part is None or part.epoch != epoch or part.held_us < 0:
            return []
        part.is_done = True
        return self._report(key, part, now_us)

    def _report(self, key: str, part: _Part, now_us: int) -> list[Effect]:
        if not part.is_done or now_us - part.told_us < REPEAT_US:
            return []
        part.told_us = now_us
        self.told(self._name, key, part.epoch)
        leader = self._lead.leader(part.to) if self._lead is not None else part.to
        if part.phase in DRAINS:
            peers = {leader, part.owner, part.to}
        else:
            peers = {leader if part.to == self._name else part.to}
        return [Send(peer, StepDone(key, part.epoch, self._digest(peer))) for peer in sorted(peers - {self._name})]

    def _hold(self, now_us: int) -> list[Effect]:
        """Holds back what is draining, but never for long: what the change waits for may be gone."""
        for part in self._parts.values():
            if part.held_us >= 0 and now_us - part.held_us > HOLD_US:
                part.held_us, part.is_done = -1, False
        held = frozenset(key for key, part in self._parts.items() if part.held_us >= 0)
        before, self._held = self._held, held
        self._changed = self._changed or held != before
        return [Release()] if before - held else []

    def told(self, peer: str, key: str, epoch: int) -> None:
        """A broker has done its part of a step, perhaps before we heard of it."""
        known, brokers = self._heard.get(key, (-1, set()))
        if epoch > known:
            brokers = set()
            self._heard[key] = epoch, brokers
        if epoch >= known:
            brokers.add(peer)

    def _everybody(self, key: str, epoch: int, alive: Collection[str]) -> bool:
        known, brokers = self._heard.get(key, (-1, set()))
        return known == epoch and all(name in brokers or name == self._name for name in alive)

    # Where it is led.

    def begin(self, topic_filter: str, broker: str, alive: Collection[str]) -> tuple[Fact, ...]:
        """The fact that begins to delegate a filter; raises UsageError for what cannot be."""
        if not isinstance(self._lead, FilterLead):
            raise UsageError(f"{self._name} is not the central broker of a city with delegation; ask that one")
        return self._lead.begin(topic_filter, broker, alive)

    def next_facts(self, alive: Collection[str], now_us: int) -> tuple[Fact, ...]:
        """The steps that are due, where this broker leads."""
        if self._lead is None or not self._led:
            return ()
        found = [self._next_step(self._lead, fact, alive, now_us) for fact in self._led]
        return tuple(fact for fact in found if fact is not None)

    def _next_step(self, lead: Lead, fact: Fact, alive: Collection[str], now_us: int) -> Fact | None:
        phase, to = phase_of(fact), candidate(fact)
        due = lead.due(fact, alive, fact.key in self._begun)
        if due is not None or not phase or lead.leader(to) != self._name:
            return due
        epoch, begun_us = self._begun.get(fact.key, (-1, 0))
        if epoch != fact.epoch:
            begun_us = now_us
            self._begun[fact.key] = fact.epoch, now_us
        if self._is_complete(fact, phase, to, alive):
            place = STEPS.index(phase) + 1
            if place == len(STEPS):
                return lead.next(fact.key, to)
            return lead.next(fact.key, fact.owner, f"{STEPS[place]} {to}")
        # It may have fallen back to the one that it was on its way to.
        if to == fact.owner or to not in alive or now_us - begun_us > LIMITS_US[phase]:
            return lead.given_up(fact)
        return None

    def _is_complete(self, fact: Fact, phase: str, to: str, alive: Collection[str]) -> bool:
        if phase == PREPARE and to != self._name:
            known, brokers = self._heard.get(fact.key, (-1, set()))
            return known == fact.epoch and to in brokers
        part = self._parts.get(fact.key)
        own = phase == PREPARE or (part is not None and part.epoch == fact.epoch and part.is_done)
        return own and self._everybody(fact.key, fact.epoch, alive)


def _lead(name: str, table: TopicTable, central: str) -> Lead | None:
    """Of the city's routing, if in it anything changes hands."""
    if table.kind == FILTER:
        return FilterLead(name, table, central)
    return AreaLead(name, table) if table.kind == AREA and table.succession.is_orderly else None
