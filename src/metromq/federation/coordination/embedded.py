"""Membership and takeover among the brokers themselves, without any extra server.

Every broker greets the members of its cluster at every hello interval and all others more rarely. A hello carries the
latest sign of life of every broker, so a broker counts as alive while anybody within reach hears it, directly or not.

Takeover: when the owner of an area is gone, the nearest (or least loaded) living member of the home's cluster claims
the area with the next epoch; when the whole cluster is gone, the nearest living broker does. Return: a broker that
hears that someone else owns its home area claims it back, again with the next epoch. Two sides of a split may each have
an owner; when they meet, the greater (epoch, owner) wins everywhere, and the home broker, if it lives, claims last.
"""

from dataclasses import dataclass
from typing import final

from metromq.federation.city import City
from metromq.federation.coordination.core import Change, TopicTable
from metromq.federation.links.frames import Beat, Hello, TableEntry


@dataclass(slots=True)
class _Member:
    incarnation: int
    count: int
    clients: int
    heard_us: int
    greeted_us: int = -(1 << 60)


@final
class EmbeddedCoordinator:
    """Driven by ticks and hellos; tells what changed and leaves the sending to its host."""

    def __init__(self, city: City, name: str, incarnation: int, table: TopicTable, now_us: int) -> None:
        self._city = city
        self._name = name
        self._table = table
        self._incarnation = incarnation
        self._count = 0
        self._clients = 0
        cluster = city.cluster_of(name)
        self._near = {other for other in city.names if cluster and city.cluster_of(other) == cluster}
        self._interval_us = city.membership.hello_interval_ms * 1000
        # Everybody counts as just heard at the start: a broker that starts first must not claim the whole city.
        self._members = {other: _Member(0, 0, 0, now_us) for other in city.names if other != name}

    def set_clients(self, clients: int) -> None:
        self._clients = clients

    def due(self, now_us: int) -> list[str]:
        """The members to greet now; the host sends each of them a hello."""
        found: list[str] = []
        for other, member in self._members.items():
            every = self._interval_us if other in self._near else self._interval_us * self._city.membership.far_factor
            if now_us - member.greeted_us >= every:
                member.greeted_us = now_us
                found.append(other)
        if found:
            self._count += 1
        return found

    def beats(self, now_us: int) -> tuple[Beat, ...]:
        own = Beat(self._name, self._incarnation, self._count, self._clients, 0)
        others = (
            Beat(other, member.incarnation, member.count, member.clients, (now_us - member.heard_us) // 1000)
            for other, member in self._members.items()
            if member.incarnation
        )
        return (own, *others)

    def heard(self, hello: Hello, now_us: int) -> None:
        for beat in hello.beats:
            member = self._members.get(beat.broker)
            if member is None or (beat.incarnation, beat.count) <= (member.incarnation, member.count):
                continue
            member.incarnation, member.count, member.clients = beat.incarnation, beat.count, beat.clients
            member.heard_us = max(member.heard_us, now_us - beat.age_ms * 1000)

    def overslept(self, now_us: int, pause_us: int) -> None:
        """This broker itself stood still and heard nobody; the silence of that time says nothing about the others."""
        for member in self._members.values():
            member.heard_us = min(now_us, member.heard_us + pause_us)

    def is_alive(self, broker: str, now_us: int) -> bool:
        if broker == self._name:
            return True
        member = self._members.get(broker)
        if member is None:
            return False
        patience = self._interval_us * self._city.membership.missed_hellos
        if broker not in self._near:
            patience *= self._city.membership.far_factor
        return now_us - member.heard_us < patience

    def alive(self, now_us: int) -> tuple[str, ...]:
        return tuple(name for name in self._city.names if self.is_alive(name, now_us))

    def merge(self, entries: tuple[TableEntry, ...], now_us: int) -> tuple[Change, ...]:
        """Takes over newer entries, and claims the own home back at once when they give it to someone else."""
        changes = list(self._table.merge(entries))
        for change in changes:
            member = self._members.get(change.after.owner)
            if member is not None:  # a fresh claim is a sign of life
                member.heard_us = max(member.heard_us, now_us - self._interval_us)
        return (*changes, *self._reclaim())

    def claims(self, now_us: int) -> tuple[Change, ...]:
        """The areas that this broker must take over now."""
        living = set(self.alive(now_us))
        found = list(self._reclaim())
        for entry in self._table.entries():
            if entry.owner not in living and self._heir(entry.area, living) == self._name:
                found.append(self._table.claim(entry.area, self._name))
        return tuple(found)

    def _reclaim(self) -> list[Change]:
        return [
            self._table.claim(entry.area, self._name)
            for entry in self._table.entries()
            if entry.owner != self._name and self._table.home(entry.area) == self._name
        ]

    def _heir(self, area: str, living: set[str]) -> str:
        home = self._table.home(area)
        if home in living:
            return home
        cluster = self._city.cluster_of(home)
        members = [name for name in living if self._city.cluster_of(name) == cluster] or sorted(living)
        if self._city.membership.takeover == "least-loaded":
            return min(members, key=lambda name: (self._load(name), name))
        return min(members, key=lambda name: (self._city.distance_km(home, name), name))

    def _load(self, broker: str) -> int:
        return self._clients if broker == self._name else self._members[broker].clients
