"""Membership and facts on a ZooKeeper ensemble; no I/O: a shim outside talks to the servers, and tells what they say.

A broker is there while its session lasts. A fact is a znode, written only by who knows the version before it, so the
ensemble keeps the merge rule of the book: the greater (epoch, owner, value) wins. A proposal counts when the ensemble
has said it back. Takeover and return are those of the embedded coordinator: the succession says who claims.

While the ensemble is away nothing is judged: whoever was there counts as there, known routes are used, and what is to
be agreed on waits. When it is back, everybody is given time to renew the session before anybody counts as gone.
"""

from collections.abc import Mapping
from typing import Final, final

from metromq.federation.city import City
from metromq.federation.coordination.coordinator import AliveChanged, Coordinator, Event, Greet, Greeting
from metromq.federation.coordination.facts import ABOUT_BROKERS, BROKER, CITY, Fact
from metromq.federation.coordination.succession import Succession

GRACE_US: Final = 3_000_000  # beyond a session's timeout: to connect, and to be seen


@final
class ZooKeeperCoordinator(Coordinator):
    """The shim calls `connected`, `lost`, `members`, `facts_said`, `assigned` and `written`, and takes `writes`."""

    def __init__(self, city: City, name: str, incarnation: int, succession: Succession, now_us: int) -> None:
        super().__init__(city, name, incarnation, succession, now_us)
        self._sessions: dict[str, int] = {}  # members with a session, and the number of their clients
        self._alive = self.book.members
        self._judges_from_us = now_us + self._grace_us()
        self._is_connected = False
        self._clients = 0
        self._waiting: dict[tuple[str, str], Fact] = {}  # proposals that the ensemble has not taken yet
        self._under_way: set[tuple[str, str]] = set()
        self._greeted_us = -(1 << 60)

    def _grace_us(self) -> int:
        return self.city.zookeeper.session_timeout_ms * 1000 + GRACE_US

    @property
    def is_connected(self) -> bool:
        return self._is_connected

    @property
    def waits(self) -> bool:
        """Whether something is proposed, or asked, that the ensemble has not settled yet."""
        return bool(self._waiting)

    @property
    def clients(self) -> int:
        """Connected here; the shim tells the others now and then."""
        return self._clients

    # What the node tells.

    def tick(self, now_us: int, clients: int) -> list[Event]:
        self._clients = clients
        events: list[Event] = []
        every_us = self.city.membership.hello_interval_ms * self.city.membership.far_factor * 1000
        if now_us - self._greeted_us >= every_us:  # peers compare interest and clocks by greetings
            self._greeted_us = now_us
            events += [Greet(peer, self._greeting()) for peer in self.book.members if peer != self.name]
        if self._is_connected:
            events += self._living(now_us)
            self._claim(now_us)
        return events

    def met(self, peer: str, now_us: int) -> list[Event]:
        return [Greet(peer, self._greeting())]

    def greeted(self, peer: str, greeting: Greeting, now_us: int) -> list[Event]:
        return []

    def told(self, peer: str, facts: tuple[Fact, ...], now_us: int) -> list[Event]:
        return []  # only the ensemble is believed

    def propose(self, facts: tuple[Fact, ...], now_us: int) -> list[Event]:
        for fact in facts:
            self._waiting[fact.kind, fact.key] = fact
            self._under_way.discard((fact.kind, fact.key))
        return []

    def alive(self, now_us: int) -> tuple[str, ...]:
        if not self._is_connected or now_us < self._judges_from_us:
            there = {*self._alive, *self._sessions, self.name}
        else:
            there = {*self._sessions, self.name}
        return tuple(name for name in self.book.members if name in there)

    # What the ensemble says.

    def connected(self, now_us: int) -> list[Event]:
        self._is_connected = True
        self._judges_from_us = now_us + self._grace_us()
        self._under_way.clear()
        return []

    def lost(self, now_us: int) -> list[Event]:
        self._is_connected = False
        return []

    def members(self, sessions: Mapping[str, int], now_us: int) -> list[Event]:
        """Everybody that has a session, with the number of its clients."""
        self._sessions = dict(sessions)
        return self._living(now_us)

    def facts_said(self, facts: tuple[Fact, ...], now_us: int) -> list[Event]:
        """Facts as the ensemble has them."""
        known = tuple(fact for fact in facts if not fact.owner or self._knows(fact, facts))
        changes = (*self.adopt(facts, now_us), *self.book.merge(known))
        for change in changes:
            place = (change.after.kind, change.after.key)
            waiting = self._waiting.get(place)
            if waiting is not None and waiting.version <= change.after.version:
                self._settled(place)
        return self.events_of(changes, ())

    def _knows(self, fact: Fact, facts: tuple[Fact, ...]) -> bool:
        joining = fact.kind in (BROKER, CITY) or any(one.kind == BROKER and one.key == fact.owner for one in facts)
        return joining or self.book.knows_broker(fact.owner)

    def assigned(self, worker: str, workers: tuple[str, ...]) -> list[Event]:
        """A worker whose session has ended decides nothing, whatever its znode says."""
        self.worker, self.workers = worker if worker in workers else "", workers
        return []

    def writes(self) -> tuple[Fact, ...]:
        """What the shim is to write now, each once until it is told how that went."""
        if not self._is_connected:
            return ()
        found = tuple(fact for place, fact in self._waiting.items() if place not in self._under_way)
        self._under_way.update((fact.kind, fact.key) for fact in found)
        return found

    def written(self, facts: tuple[Fact, ...], now_us: int) -> list[Event]:
        """The ensemble has taken these, or has newer ones, which it says back either way."""
        for fact in facts:
            if self._waiting.get((fact.kind, fact.key)) == fact:
                self._settled((fact.kind, fact.key))
        return []

    def failed(self, facts: tuple[Fact, ...]) -> None:
        """Nobody knows whether they were taken: they are written again."""
        self._under_way.difference_update((fact.kind, fact.key) for fact in facts)

    def _settled(self, place: tuple[str, str]) -> None:
        self._waiting.pop(place, None)
        self._under_way.discard(place)

    # Inside.

    def _greeting(self) -> Greeting:
        return Greeting(self.incarnation, 0, ())

    def _living(self, now_us: int) -> list[Event]:
        alive = self.alive(now_us)
        if alive == self._alive:
            return []
        self._alive = alive
        return [AliveChanged(alive)]

    def _claim(self, now_us: int) -> None:
        """What this broker must take over, or is at home in."""
        if not self.book.is_member(self.name):
            return
        living = {name: self._sessions.get(name, 0) for name in self.alive(now_us)}
        for fact in self.book.facts():
            if fact.kind in ABOUT_BROKERS or fact.owner == self.name or (fact.kind, fact.key) in self._waiting:
                continue
            is_orphan = bool(fact.owner) and fact.owner not in living
            is_handed = not is_orphan and self.succession.hands_over(fact)
            is_home = self.succession.home(fact) == self.name and not is_handed
            if is_home or (is_orphan and self.succession.heir(fact, living) == self.name):
                value = self.succession.inherited(fact)
                self.propose((self.book.next(fact.kind, fact.key, self.name, value),), now_us)
