"""How a topic filter changes hands in good order: the steps, who waits for whom, and when it is given up; no I/O.

A change is one fact per step, and only the central broker writes facts of filters, so everybody sees the same steps in
the same order, and a broker that restarts goes on from the last one it knew. docs/delegation.md has the whole protocol.

prepare  everybody tells the new owner what it wants of the filter; the old one sends it what is retained
drain1   publishers' brokers hold back what their clients publish, and wait until the old owner has the rest,
drain2   which waits until the central broker has its copies,
drain3   which waits until everybody has theirs
settled  the new owner is responsible, and what was held back goes to it
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, final

from metromq.errors import UsageError
from metromq.federation.coordination.facts import FILTER, Fact
from metromq.federation.coordination.succession import TopicTable
from metromq.federation.effects import Drain, Effect, Release, Send, SendRetained
from metromq.federation.links.frames import StepDone
from metromq.federation.routing.delegation import candidate, wildness
from metromq.protocol.topics import covers, overlaps, validate_filter

PREPARE: Final = "prepare"
DRAINS: Final = ("drain1", "drain2", "drain3")
STEPS: Final = (PREPARE, *DRAINS)
LIMITS_US: Final = {PREPARE: 10_000_000, **dict.fromkeys(DRAINS, 2_000_000)}  # then the change is given up
HOLD_US: Final = 3_000_000  # so long a broker holds back, whatever becomes of the change
REPEAT_US: Final = 200_000  # reports may be lost with a link
CLOCKS_US: Final = 10_000_000  # values that were set during the change may be stamped so much earlier


def phase_of(fact: Fact) -> str:
    """The step of a change; empty: the filter is where it should be."""
    return fact.value.partition(" ")[0]


@dataclass(slots=True)
class _Part:
    """What this broker does in a change."""

    epoch: int
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
        self._central = central
        self._table = table
        self._digest = digest
        self.is_used = table.kind == FILTER
        self._revision = -1  # of the book when it was last looked at
        self._parts: dict[str, _Part] = {}
        self._held: frozenset[str] = frozenset()
        self._changed = False
        self._heard: dict[str, tuple[int, set[str]]] = {}  # who has done its part of the step with this epoch
        self._begun: dict[str, tuple[int, int]] = {}  # at the central broker: when the step with this epoch began
        self._pushed_us: dict[str, int] = {}  # when the retained values of a filter were sent to its next owner

    @property
    def _is_used(self) -> bool:
        return self._table.kind == FILTER

    # Holding back.

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
        self._central = central

    def restored(self) -> None:
        """The book was read from a journal: changes that it speaks of go on."""
        self._revision = -1

    def refresh(self, alive: Collection[str], stamp_us: int, now_us: int) -> list[Effect]:
        """What must be done here now; call it when facts have changed and with every tick."""
        if not self.is_used:
            return []
        effects: list[Effect] = []
        if self._revision != self._table.book.revision:
            is_first, self._revision = self._revision < 0, self._table.book.revision
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
        if before is not None and before.epoch == fact.epoch:
            return []
        phase = phase_of(fact)
        if not phase or not fact.owner:
            self._parts.pop(fact.key, None)
            self._pushed_us.pop(fact.key, None)
            return []
        is_draining = before is not None and before.phase in DRAINS and before.to == candidate(fact)
        held_us = before.held_us if before is not None and is_draining else now_us
        part = _Part(fact.epoch, phase, fact.owner, candidate(fact), held_us if phase in DRAINS else -1)
        self._parts[fact.key] = part
        effects = self._push(fact.key, part, stamp_us) if fact.owner == self._name != part.to else []
        return [*effects, Drain(fact.key, fact.epoch)] if phase in DRAINS else effects

    def _push(self, key: str, part: _Part, stamp_us: int) -> list[Effect]:
        """The old owner sends what is retained: all at the start, and what is new when nothing new can come."""
        if part.phase == PREPARE:
            self._pushed_us[key] = stamp_us
            return [SendRetained(part.to, (key,))]
        if part.phase == DRAINS[-1]:
            return [SendRetained(part.to, (key,), max(0, self._pushed_us.get(key, 0) - CLOCKS_US))]
        return []

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
        if part.phase in DRAINS:
            peers = {self._central, part.owner, part.to}
        else:
            peers = {self._central if part.to == self._name else part.to}
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

    # The central broker leads.

    def begin(self, topic_filter: str, broker: str, alive: Collection[str], stamp_us: int) -> tuple[Fact, ...]:
        """The fact that begins a change; without a broker the filter goes back to where it came from."""
        if self._name != self._central or not self.is_used:
            raise UsageError(f"{self._name} is not the central broker of a city with delegation; ask that one")
        self._check(topic_filter)
        fact = self._table.book.get(FILTER, topic_filter)
        above = self._owner_above(topic_filter)
        owner, to = fact.owner or above, broker or above
        if phase_of(fact):
            raise UsageError(f"{topic_filter} is on its way to {candidate(fact)}; wait until it is there")
        if to not in alive:
            raise UsageError(f"{to} is not running, or no broker of this city; it cannot take {topic_filter}")
        return (self._next(topic_filter, owner, f"{PREPARE} {to}"),) if to != owner else ()

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

    def _next(self, key: str, owner: str, value: str = "") -> Fact:
        return self._table.book.next(FILTER, key, owner, value)

    def next_facts(self, alive: Collection[str], now_us: int) -> tuple[Fact, ...]:
        """The steps that are due, at the central broker."""
        if self._name != self._central or not self.is_used:
            return ()
        found = [self._next_step(fact, alive, now_us) for fact in self._table.entries() if fact.owner]
        return tuple(fact for fact in found if fact is not None)

    def _next_step(self, fact: Fact, alive: Collection[str], now_us: int) -> Fact | None:
        phase, to = phase_of(fact), candidate(fact)
        if not phase:
            is_needless = fact.owner == self._owner_above(fact.key) and not self._is_moving_above(fact.key)
            return self._next(fact.key, "") if is_needless else None
        epoch, begun_us = self._begun.get(fact.key, (-1, 0))
        if epoch != fact.epoch:
            begun_us = now_us
            self._begun[fact.key] = fact.epoch, now_us
        if self._is_complete(fact, phase, to, alive):
            place = STEPS.index(phase) + 1
            if place == len(STEPS):
                return self._next(fact.key, to)
            return self._next(fact.key, fact.owner, f"{STEPS[place]} {to}")
        # It may have fallen back to the one that it was on its way to.
        if to == fact.owner or to not in alive or now_us - begun_us > LIMITS_US[phase]:
            return self._next(fact.key, fact.owner)
        return None

    def _is_complete(self, fact: Fact, phase: str, to: str, alive: Collection[str]) -> bool:
        if phase == PREPARE and to != self._name:
            known, brokers = self._heard.get(fact.key, (-1, set()))
            return known == fact.epoch and to in brokers
        part = self._parts.get(fact.key)
        own = phase == PREPARE or (part is not None and part.epoch == fact.epoch and part.is_done)
        return own and self._everybody(fact.key, fact.epoch, alive)

    def _is_moving_above(self, key: str) -> bool:
        """While a wider filter changes hands, a narrower one keeps its own entry."""
        return any(fact.value and covers(fact.key, key) for fact in self._table.entries() if fact.key != key)
