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

AREA: Final = "area"  # area -> the broker responsible for it
FILTER: Final = "filter"  # topic filter -> the broker that it is delegated to
CLUSTER: Final = "cluster"  # cluster -> the broker that leads it
PUBLISHER: Final = "publisher"  # broker/topic -> the broker, which publishes the topic; its cluster's founder
SUBSCRIBER: Final = "subscriber"  # broker/topic -> the broker, which wants the topic; the broker that it gets it from
REQUEST: Final = "request"  # what a broker asks a coordination worker (routing/workers.py); never in a broker's book
WANTED: Final = "wanted"  # broker/filter -> the broker, whose clients want it; only workers need to know
CITY: Final = "city"  # "city" -> the broker at which the city was changed last, with its description
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
class Book:
    """`founders` are the members in the city's file. `fixed` are kinds that have no keys but their first ones."""

    def __init__(self, founders: tuple[str, ...], first: Iterable[Fact] = (), fixed: Collection[str] = ()) -> None:
        self._founders = founders
        self._fixed = frozenset(fixed)
        shared, self._digest = _shared(tuple(first))
        self._kinds: dict[str, dict[str, Fact]] = dict(shared)
        self._own_kinds: set[str] = set()  # the others are shared between the brokers of one process
        self.revision = 0  # grows with every change
        self.members = founders  # brokers of the city, the founders first
        self._member_set = _as_set(founders)
        self._owners: frozenset[str] | None = None

    def get(self, kind: str, key: str) -> Fact:
        """The fact, or one of epoch -1 without an owner."""
        return self._kinds.get(kind, {}).get(key) or Fact(kind, key, "", -1)

    def owner(self, kind: str, key: str) -> str:
        fact = self._kinds.get(kind, {}).get(key)
        return fact.owner if fact is not None else ""

    def of_kind(self, kind: str) -> tuple[Fact, ...]:
        return tuple(self._kinds.get(kind, {}).values())

    def facts(self) -> tuple[Fact, ...]:
        return tuple(fact for facts in self._kinds.values() for fact in facts.values())

    def owned_by(self, kind: str, broker: str) -> tuple[str, ...]:
        return tuple(key for key, fact in self._kinds.get(kind, {}).items() if fact.owner == broker)

    def owners(self) -> frozenset[str]:
        """Everybody that owns anything."""
        if self._owners is None:
            self._owners = frozenset(
                fact.owner for fact in self.facts() if fact.owner and fact.kind not in ABOUT_BROKERS
            )
        return self._owners

    def knows_broker(self, name: str) -> bool:
        """Whether it is, or was once, a member."""
        return name in self._founders or name in self._kinds.get(BROKER, {})

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
            self._own(fact.kind)[fact.key] = fact
            changes.append(Change(before, fact))
        if changes:
            self.revision += 1
            self._owners = None
            self._digest += sum(_weight(change.after) - _weight(change.before) for change in changes)
            self._digest &= DIGEST_MASK
            if any(change.after.kind == BROKER for change in changes):
                self._count_members()
        return tuple(changes)

    def _own(self, kind: str) -> dict[str, Fact]:
        if kind not in self._own_kinds:
            self._own_kinds.add(kind)
            self._kinds[kind] = dict(self._kinds.get(kind, {}))
        return self._kinds[kind]

    def found(self, founders: tuple[str, ...], first: Iterable[Fact]) -> None:
        """The city has another description: other founders, and other keys of fixed kinds."""
        self._founders = founders
        fresh: dict[str, dict[str, Fact]] = {kind: {} for kind in self._fixed}
        for fact in first:
            known = self._kinds.get(fact.kind, {}).get(fact.key)
            fresh.setdefault(fact.kind, {})[fact.key] = known or fact
        self._kinds.update(fresh)
        self._own_kinds |= fresh.keys()
        self.revision += 1
        self._digest, self._owners = sum(map(_weight, self.facts())) & DIGEST_MASK, None
        self._count_members()

    def _count_members(self) -> None:
        said = self._kinds.get(BROKER, {})
        stayed = [name for name in self._founders if name not in said or said[name].owner]
        joined = [name for name, fact in said.items() if fact.owner and name not in self._founders]
        self.members = (*stayed, *sorted(joined))
        self._member_set = _as_set(self.members)

    def digest(self) -> int:
        """Equal books have equal digests."""
        return self._digest


@lru_cache(maxsize=4)
def _shared(facts: tuple[Fact, ...]) -> tuple[dict[str, dict[str, Fact]], int]:
    """The first facts of a city by kind and key, and their digest: once for all brokers in a process."""
    kinds: dict[str, dict[str, Fact]] = {}
    for fact in facts:
        kinds.setdefault(fact.kind, {})[fact.key] = fact
    return kinds, sum(_weight(fact) for fact in facts) & DIGEST_MASK


@lru_cache(maxsize=64)
def _as_set(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(names)


@lru_cache(maxsize=65_536)
def _weight(fact: Fact) -> int:
    """The digest of a book is the sum of these, so it follows changes without being counted anew."""
    if fact.epoch < 0:
        return 0  # nothing is known
    text = repr((fact.kind, fact.key, *fact.version)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "big")
