"""Membership and facts among the brokers themselves, by gossip, without any extra server.

Every broker greets the members of its cluster at every hello interval and all others more rarely. A greeting carries
the latest sign of life of every broker, so a broker counts as alive while anybody within reach hears it, directly or
not. Changed facts are passed on to everybody within reach; greetings carry a digest of the book, and a difference makes
peers exchange their books.

Takeover: when the owner of a fact is gone, the heir that the succession names claims it with the next epoch. Return: a
broker that hears that someone else owns what it is at home in claims it back, again with the next epoch. Two sides of a
split may each have an owner; when they meet, the greater (epoch, owner) wins everywhere, and the home broker, if it
lives, claims last.
"""

from dataclasses import dataclass
from typing import final

from metromq.errors import ProtocolViolation
from metromq.federation.city import City
from metromq.federation.coordination.coordinator import (
    AliveChanged,
    Beat,
    Coordinator,
    Event,
    Greet,
    Greeting,
    Tell,
)
from metromq.federation.coordination.facts import BROKER, Change, Fact
from metromq.federation.coordination.succession import Succession


@dataclass(slots=True)
class _Member:
    incarnation: int
    count: int
    clients: int
    heard_us: int
    greeted_us: int = -(1 << 60)


@final
class EmbeddedCoordinator(Coordinator):
    def __init__(self, city: City, name: str, incarnation: int, succession: Succession, now_us: int) -> None:
        super().__init__(city, name, incarnation, succession, now_us)
        self._count = 0
        self._clients = 0
        self._interval_us = city.membership.hello_interval_ms * 1000
        self._members: dict[str, _Member] = {}
        self._near: set[str] = set()
        self._alive = self.book.members
        self._reclaimed = -1  # the revision of the book in which nothing was left to claim back
        self._count_members(now_us)

    # What happens.

    def tick(self, now_us: int, clients: int) -> list[Event]:
        self._clients = clients
        events: list[Event] = []
        due = self._due(now_us)
        if due:
            greeting = self._greeting(now_us)
            events += [Greet(peer, greeting) for peer in due]
        events += self._changed(self._claims(now_us), "", now_us)
        events += self._living(now_us)
        return events

    def met(self, peer: str, now_us: int) -> list[Event]:
        return [Greet(peer, self._greeting(now_us))]

    def greeted(self, peer: str, greeting: Greeting, now_us: int) -> list[Event]:
        for beat in greeting.beats:
            member = self._members.get(beat.broker)
            if member is None or (beat.incarnation, beat.count) <= (member.incarnation, member.count):
                continue
            member.incarnation, member.count, member.clients = beat.incarnation, beat.count, beat.clients
            member.heard_us = max(member.heard_us, now_us - beat.age_ms * 1000)
        return [Tell(peer, self.book.facts())] if greeting.digest != self.book.digest() else []

    def told(self, peer: str, facts: tuple[Fact, ...], now_us: int) -> list[Event]:
        """Takes over newer facts, and claims the own home back at once when they give it to someone else."""
        joining = {fact.key for fact in facts if fact.kind == BROKER}
        for fact in facts:
            if fact.owner and fact.owner not in joining and not self.book.knows_broker(fact.owner):
                raise ProtocolViolation(f"{peer} sent facts of {fact.owner}, a broker that is not in the city's file")
        changes = self.book.merge(facts)
        for change in changes:
            member = self._members.get(change.after.owner)
            if member is not None:  # a fresh claim is a sign of life
                member.heard_us = max(member.heard_us, now_us - self._interval_us)
        return self._changed((*changes, *self._reclaim()), peer, now_us)

    def propose(self, facts: tuple[Fact, ...], now_us: int) -> list[Event]:
        return self._changed(self.book.merge(facts), "", now_us)

    def restore(self, facts: tuple[Fact, ...], now_us: int) -> list[Event]:
        events = super().restore(facts, now_us)
        self._count_members(now_us)
        return events

    def overslept(self, now_us: int, pause_us: int) -> None:
        for member in self._members.values():
            member.heard_us = min(now_us, member.heard_us + pause_us)

    # Who is there.

    def alive(self, now_us: int) -> tuple[str, ...]:
        return tuple(name for name in self.book.members if self.is_alive(name, now_us))

    def is_alive(self, broker: str, now_us: int) -> bool:
        if broker == self.name:
            return True
        member = self._members.get(broker)
        if member is None:
            return False
        patience = self._interval_us * self.city.membership.missed_hellos
        if broker not in self._near:
            patience *= self.city.membership.far_factor
        return now_us - member.heard_us < patience

    def _living(self, now_us: int) -> list[Event]:
        alive = self.alive(now_us)
        if alive == self._alive:
            return []
        self._alive = alive
        return [AliveChanged(alive)]

    def _count_members(self, now_us: int) -> None:
        # Everybody counts as just heard at the start: a broker that starts first must not claim the whole city.
        others = [other for other in self.book.members if other != self.name]
        self._members = {other: self._members.get(other) or _Member(0, 0, 0, now_us) for other in others}
        cluster = self.city.cluster_of(self.name)
        self._near = {other for other in others if cluster and self.city.cluster_of(other) == cluster}

    def _due(self, now_us: int) -> list[str]:
        """The members to greet now."""
        found: list[str] = []
        for other, member in self._members.items():
            every = self._interval_us if other in self._near else self._interval_us * self.city.membership.far_factor
            if now_us - member.greeted_us >= every:
                member.greeted_us = now_us
                found.append(other)
        if found:
            self._count += 1
        return found

    def _greeting(self, now_us: int) -> Greeting:
        own = Beat(self.name, self.incarnation, self._count, self._clients, 0)
        others = (
            Beat(other, member.incarnation, member.count, member.clients, (now_us - member.heard_us) // 1000)
            for other, member in self._members.items()
            if member.incarnation
        )
        return Greeting(self.incarnation, self.book.digest(), (own, *others))

    # Who is responsible.

    def _changed(self, changes: tuple[Change, ...], source: str, now_us: int) -> list[Event]:
        if not changes:
            return []
        # The source knows its own facts, but not the claims that they made us do.
        claimed = any(change.after.owner == self.name for change in changes)
        told = {*self._members, *(change.after.key for change in changes if change.after.kind == BROKER)} - {self.name}
        events = self.events_of(changes, tuple(sorted(peer for peer in told if peer != source or claimed)))
        if any(change.after.kind == BROKER for change in changes):
            self._count_members(now_us)
            events += self._living(now_us)
        return events

    def _claims(self, now_us: int) -> tuple[Change, ...]:
        """What this broker must take over now."""
        if self.name not in self.book.members:
            return ()
        found = list(self._reclaim())
        living = {name: self._load(name) for name in self.alive(now_us)}
        if self.book.owners() <= living.keys():
            return tuple(found)
        for fact in self.book.facts():
            if not fact.owner or fact.owner in living or fact.kind == BROKER:
                continue
            if self.succession.heir(fact, living) == self.name:
                found += self._claim(fact)
        return tuple(found)

    def _reclaim(self) -> list[Change]:
        if self._reclaimed == self.book.revision or self.name not in self.book.members:
            return []
        found: list[Change] = []
        for fact in self.book.facts():
            if fact.owner != self.name and self.succession.home(fact) == self.name:
                found += self._claim(fact)
        self._reclaimed = self.book.revision
        return found

    def _claim(self, fact: Fact) -> tuple[Change, ...]:
        return self.book.merge((self.book.next(fact.kind, fact.key, self.name, fact.value),))

    def _load(self, broker: str) -> int:
        return self._clients if broker == self.name else self._members[broker].clients
