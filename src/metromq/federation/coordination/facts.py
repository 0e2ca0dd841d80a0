"""Facts: what a city agrees on, each with a key, an owner and an epoch; and the book in which a broker keeps them.

Every broker has its own copy of the book. Facts merge by one rule, the greater (epoch, owner, value) wins, which is
commutative, associative and idempotent: whatever way and in whatever order facts travel, brokers that have heard the
same ones have the same book. One book serves every router; kinds keep their facts apart.
"""

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, final

from metromq.federation.coordination.sharing import Shared

AREA: Final = "area"  # area -> the broker responsible for it
FILTER: Final = "filter"  # topic filter -> the broker that it is delegated to
CLUSTER: Final = "cluster"  # cluster -> the broker that leads it
PUBLISHER: Final = "publisher"  # broker/topic -> the broker, which publishes the topic; its cluster's founder
SUBSCRIBER: Final = "subscriber"  # broker/topic -> the broker, which wants the topic; the broker that it gets it from
REQUEST: Final = "request"  # what a broker asks a coordination worker (routing/workers.py); never in a broker's book
WANTED: Final = "wanted"  # broker/filter -> the broker, whose clients want it; only workers need to know
CITY: Final = "city"  # "city" -> the broker at which the city was changed last, with its description
PATCH: Final = (
    "patch"  # "city" -> as CITY, with the difference to the description before; empty: the owner asks for CITY
)
FOLLOWS: Final = "follows"  # broker -> itself; its epoch is that of the city's description by which it works
BROKER: Final = "broker"  # broker -> itself, with its address; without an owner: it has left the city for good

ABOUT_BROKERS: Final = (CITY, FOLLOWS, BROKER)  # kinds that nobody inherits
DIGEST_MASK: Final = (1 << 56) - 1


@dataclass(frozen=True, slots=True)
class Fact:
    """`owner` is always a broker, or empty: the fact has been withdrawn, and its epoch keeps it so."""

    kind: str
    key: str
    owner: str
    epoch: int  # -1: nothing is known
    value: str = ""

    @property
    def version(self) -> tuple[int, str, str]:
        return self.epoch, self.owner, self.value


@dataclass(frozen=True, slots=True)
class Change:
    """A fact that replaced another; the one before may be nothing."""

    before: Fact
    after: Fact


@final
class _First:
    """The facts that hold while nobody has said anything: the same for all brokers of a city, and never written to."""

    def __init__(self, facts: tuple[Fact, ...]) -> None:
        self.kinds: dict[str, dict[str, Fact]] = {}
        self.by_owner: dict[str, list[Fact]] = {}  # those that somebody inherits
        for fact in facts:
            self.kinds.setdefault(fact.kind, {})[fact.key] = fact
            if fact.owner and fact.kind not in ABOUT_BROKERS:
                self.by_owner.setdefault(fact.owner, []).append(fact)
        self.digest = sum(weight(fact) for fact in facts) & DIGEST_MASK
        self._before: _First | None = None  # whose difference to these is known
        self._differing: list[Fact] = []

    def differing(self, before: "_First") -> list[Fact]:
        """Facts that were the first ones before another description, and are others now."""
        if self._before is not before:
            self._before = before
            pairs = (
                (fact, self.kinds.get(kind, {}).get(key))
                for kind in before.kinds
                for key, fact in before.kinds[kind].items()
            )
            self._differing = [fact for fact, now in pairs if now is not None and fact != now]
        return self._differing


@final
class Book:
    """`founders` are the members in the city's file. `fixed` are kinds that have no keys but their first ones.

    It keeps what was said beside the first facts: most of these hold for ever, and a large city has thousands.
    """

    def __init__(self, founders: tuple[str, ...], first: Iterable[Fact] = (), fixed: Collection[str] = ()) -> None:
        self._founders = founders
        self._founder_set = _as_set(founders)
        self._fixed = frozenset(fixed)
        self._first = _FIRST.of(tuple(first))
        self._said: dict[str, dict[str, Fact]] = {}  # what has replaced the first facts, or joined them
        self._digest = self._first.digest
        self.revision = 0  # grows with every change
        self.members = founders  # brokers of the city, the founders first
        self._member_set = self._founder_set
        self._strangers = self._first_owners_gone()

    def _find(self, kind: str, key: str) -> Fact | None:
        said = self._said.get(kind)
        fact = said.get(key) if said is not None else None
        if fact is not None:
            return fact
        first = self._first.kinds.get(kind)
        return first.get(key) if first is not None else None

    def get(self, kind: str, key: str) -> Fact:
        """The fact, or one of epoch -1 without an owner."""
        return self._find(kind, key) or Fact(kind, key, "", -1)

    def owner(self, kind: str, key: str) -> str:
        fact = self._find(kind, key)
        return fact.owner if fact is not None else ""

    def of_kind(self, kind: str) -> tuple[Fact, ...]:
        first, said = self._first.kinds.get(kind, {}), self._said.get(kind, {})
        if not first:
            return tuple(said.values())
        stayed = [said.get(key, fact) for key, fact in first.items()] if said else list(first.values())
        return (*stayed, *[fact for key, fact in said.items() if key not in first])

    def facts(self) -> tuple[Fact, ...]:
        kinds = dict.fromkeys((*self._first.kinds, *self._said))
        return tuple([fact for kind in kinds for fact in self.of_kind(kind)])

    def said(self) -> list[Fact]:
        """Those that are not as at the start."""
        return [fact for facts in self._said.values() for fact in facts.values()]

    def owned_by(self, kind: str, broker: str) -> tuple[str, ...]:
        return tuple([fact.key for fact in self.of_kind(kind) if fact.owner == broker])

    def orphans(self, lost: Collection[str]) -> list[Fact]:
        """Facts whose owner is one of these, or has left the city; nobody inherits what is said about brokers."""
        by_owner = self._first.by_owner
        found = [fact for broker in lost for fact in by_owner.get(broker, ())]
        found += [fact for broker in self._strangers if broker not in lost for fact in by_owner[broker]]
        found = [fact for fact in found if self._find(fact.kind, fact.key) is fact]
        for kind, facts in self._said.items():
            if kind not in ABOUT_BROKERS:
                found += [fact for fact in facts.values() if fact.owner and self._is_gone(fact.owner, lost)]
        return found

    def _is_gone(self, owner: str, lost: Collection[str]) -> bool:
        return owner in lost or owner not in self._member_set

    def _first_owners_gone(self) -> list[str]:
        return [owner for owner in self._first.by_owner if owner not in self._member_set]

    def knows_broker(self, name: str) -> bool:
        """Whether it is, or was once, a member."""
        return name in self._founder_set or self._find(BROKER, name) is not None

    def is_member(self, name: str) -> bool:
        return name in self._member_set

    def next(self, kind: str, key: str, owner: str, value: str = "") -> Fact:
        """The fact that replaces what is known now; it counts when it has been merged."""
        return Fact(kind, key, owner, self.get(kind, key).epoch + 1, value)

    def merge(self, facts: Iterable[Fact]) -> tuple[Change, ...]:
        """Takes over what is newer; keys that a fixed kind does not have are ignored."""
        changes: list[Change] = []
        for fact in facts:
            before = self.get(fact.kind, fact.key)
            if fact.version <= before.version or (before.epoch < 0 and fact.kind in self._fixed):
                continue
            self._said.setdefault(fact.kind, {})[fact.key] = fact
            changes.append(Change(before, fact))
        if changes:
            self.revision += 1
            self._digest += sum(weight(change.after) - weight(change.before) for change in changes)
            self._digest &= DIGEST_MASK
            if any(change.after.kind == BROKER for change in changes):
                self._count_members()
        return tuple(changes)

    def found(self, founders: tuple[str, ...], first: Iterable[Fact]) -> None:
        """The city has another description: other founders, and other keys of fixed kinds. What is known stays."""
        self._founders, self._founder_set = founders, _as_set(founders)
        before, self._first = self._first, _FIRST.of(tuple(first))
        known, self._said = self._said, {}
        stayed = [fact for facts in known.values() for fact in facts.values()]
        stayed += [fact for fact in self._first.differing(before) if fact.key not in known.get(fact.kind, {})]
        for kind, facts in before.kinds.items():
            if kind not in self._fixed and kind not in self._first.kinds:
                stayed += [fact for fact in facts.values() if fact.key not in known.get(kind, {})]
        for fact in stayed:
            now = self._first.kinds.get(fact.kind, {}).get(fact.key)
            is_closed = fact.kind in self._fixed or fact.kind in self._first.kinds
            if fact != now and (now is not None or not is_closed):
                self._said.setdefault(fact.kind, {})[fact.key] = fact
        self.revision += 1
        self._digest = self._first.digest
        for fact in self.said():
            now = self._first.kinds.get(fact.kind, {}).get(fact.key)
            self._digest += weight(fact) - (weight(now) if now is not None else 0)
        self._digest &= DIGEST_MASK
        self._count_members()

    def _count_members(self) -> None:
        said = {fact.key: fact for fact in self.of_kind(BROKER)}
        stayed = [name for name in self._founders if name not in said or said[name].owner]
        joined = [name for name, fact in said.items() if fact.owner and name not in self._founder_set]
        self.members = _shared((*stayed, *sorted(joined)))
        self._member_set = _as_set(self.members)
        self._strangers = self._first_owners_gone()

    def digest(self) -> int:
        """Equal books have equal digests."""
        return self._digest


_FIRST: Final = Shared(_First)


@lru_cache(maxsize=64)
def _shared(names: tuple[str, ...]) -> tuple[str, ...]:
    """One list of members for all brokers of a process that have equal ones."""
    return names


@lru_cache(maxsize=64)
def _as_set(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(names)


@lru_cache(maxsize=65_536)
def weight(fact: Fact) -> int:
    """The digest of a book is the sum of these, so it follows changes without being counted anew."""
    if fact.epoch < 0:
        return 0  # nothing is known
    text = repr((fact.kind, fact.key, *fact.version)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "big")
