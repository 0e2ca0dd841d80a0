"""Membership and facts among the brokers themselves, by gossip, without any extra server.

Every broker greets those that watch it at every hello interval and all others more rarely. A greeting carries the
latest sign of life of every broker, so a broker counts as alive while anybody within reach hears it, directly or not
(watch.py). Changed facts are passed on to everybody within reach; greetings carry a digest of the book, a difference
makes peers exchange their books.

Takeover: when the owner of a fact is gone, the heir that the succession names claims it with the next epoch. Return: a
broker that hears that someone else owns what it is at home in claims it back, again with the next epoch. Two sides of a
split may each have an owner; when they meet, the greater (epoch, owner) wins everywhere, and the home broker, if it
lives, claims last.
"""

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
from metromq.federation.coordination.watch import Watch


@final
class EmbeddedCoordinator(Coordinator):
    def __init__(self, city: City, name: str, incarnation: int, succession: Succession, now_us: int) -> None:
        super().__init__(city, name, incarnation, succession, now_us)
        self._count = 0
        self._clients = 0
        self.watch = Watch(city, name)
        self._alive = self.book.members
        self._reclaimed = -1  # the revision of the book in which nothing was left to claim back
        self._count_members(now_us)

    # What happens.

    def tick(self, now_us: int, clients: int) -> list[Event]:
        self._clients = clients
        events: list[Event] = []
        due = sorted({*self.watch.judge(now_us), *self.watch.due(now_us)})
        if due:
            self._count += 1
            self.watch.greeted(due, now_us)
            greeting = self._greeting(now_us)
            events += [Greet(peer, greeting) for peer in due]
        events += self._changed(self._claims(now_us), "", now_us)
        events += self._living(now_us)
        return events

    def met(self, peer: str, now_us: int) -> list[Event]:
        return [Greet(peer, self._greeting(now_us))]

    def greeted(self, peer: str, greeting: Greeting, now_us: int) -> list[Event]:
        self.watch.heard(peer, greeting.beats, now_us)
        return [Tell(peer, self.book.facts())] if greeting.digest != self.book.digest() else []

    def told(self, peer: str, facts: tuple[Fact, ...], now_us: int) -> list[Event]:
        """Takes over newer facts, and claims the own home back at once when they give it to someone else."""
        joining = {fact.key for fact in facts if fact.kind == BROKER}
        for fact in facts:
            if fact.owner and fact.owner not in joining and not self.book.knows_broker(fact.owner):
                raise ProtocolViolation(f"{peer} sent facts of {fact.owner}, a broker that is not in the city's file")
        changes = self.book.merge(facts)
        for change in changes:
            self.watch.vouched(change.after.owner, now_us)
        return self._changed((*changes, *self._reclaim()), peer, now_us)

    def propose(self, facts: tuple[Fact, ...], now_us: int) -> list[Event]:
        return self._changed(self.book.merge(facts), "", now_us)

    def restore(self, facts: tuple[Fact, ...], now_us: int) -> list[Event]:
        events = super().restore(facts, now_us)
        self._count_members(now_us)
        return events

    def overslept(self, now_us: int, pause_us: int) -> None:
        self.watch.overslept(now_us, pause_us)

    # Who is there.

    def alive(self, now_us: int) -> tuple[str, ...]:
        return tuple(name for name in self.book.members if self.watch.is_alive(name))

    def _living(self, now_us: int) -> list[Event]:
        alive = self.alive(now_us)
        if alive == self._alive:
            return []
        self._alive = alive
        return [AliveChanged(alive)]

    def _count_members(self, now_us: int) -> None:
        self.watch.count_members(self.book.members, now_us)

    def _greeting(self, now_us: int) -> Greeting:
        own = Beat(self.name, self.incarnation, self._count, self._clients, 0)
        return Greeting(self.incarnation, self.book.digest(), (own, *self.watch.beats(now_us)))

    # Who is responsible.

    def _changed(self, changes: tuple[Change, ...], source: str, now_us: int) -> list[Event]:
        if not changes:
            return []
        # The source knows its own facts, but not the claims that they made us do.
        claimed = any(change.after.owner == self.name for change in changes)
        told = {*self.watch.others(), *(change.after.key for change in changes if change.after.kind == BROKER)} - {
            self.name
        }
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
        return self._clients if broker == self.name else self.watch.clients(broker)
