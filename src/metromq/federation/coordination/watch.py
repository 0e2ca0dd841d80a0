"""Who is there: signs of life of every broker, and when their absence means that it is gone; no I/O.

A broker is watched closely by its neighbours: the members of its cluster, and those that stand next to it in the list
of all brokers. They miss it after a few hello intervals, tell each other at once, and judge together: it is gone when
another watcher has heard nothing either. Everybody else takes their word. So a lost broker is missed by the whole city
as soon as by its cluster.

Under load greetings come late, and a takeover would add load. So whoever is late itself does not judge, a broker whose
greetings come slowly is given more time, and one that was taken for gone and lived on is given twice the time.
"""

from dataclasses import dataclass
from typing import Final, final

from metromq.federation.city import City
from metromq.federation.coordination.coordinator import Beat

BESIDE: Final = 2  # brokers on each side in the list of all that watch a broker, whatever its cluster
MOST_DOUBT: Final = 8  # how many times longer a broker is waited for that was wrongly taken for gone
MOST_SLOWNESS: Final = 4  # the same for one whose greetings come late
DIALLED_US: Final = 3_000_000  # so long peers may pause before they dial a broker again that was away
FORGIVEN_US: Final = 60_000_000  # after so long without a mistake the doubt is halved


@dataclass(slots=True)
class _Member:
    incarnation: int
    count: int
    clients: int
    heard_us: int
    greeted_us: int = -(1 << 60)  # when we greeted it
    spoke_us: int = -(1 << 60)  # when it greeted us
    suspected_us: int = -1  # since when its silence is too long; -1: it is not
    gone: bool = False
    pace_us: int = 0  # the time between its signs of life of late
    doubt: int = 1
    doubted_us: int = 0


@final
class Watch:
    """What one broker knows of the others' lives. Times are microseconds of a monotonic clock."""

    def __init__(self, city: City, name: str) -> None:
        self._city = city
        self._name = name
        self._interval_us = city.membership.hello_interval_ms * 1000
        self._members: dict[str, _Member] = {}
        self._watchers: dict[str, frozenset[str]] = {}
        self._ticked_us = -1
        self._late_us = 0  # how late our own ticks have been of late

    def count_members(self, names: tuple[str, ...], now_us: int) -> None:
        # At the start everybody has time to find us: a broker that has just started must not claim the whole city.
        found_us = now_us + DIALLED_US
        self._members = {
            other: self._members.get(other) or _Member(0, 0, 0, found_us) for other in names if other != self._name
        }
        before = self._watchers.get(self._name, frozenset())
        self._watchers = {name: self._watchers_of(name, sorted(names)) for name in names}
        for other in self._watchers.get(self._name, frozenset()) - before:
            self._members[other].heard_us = max(self._members[other].heard_us, now_us)  # it greeted us rarely so far

    def _watchers_of(self, name: str, names: list[str]) -> frozenset[str]:
        cluster, place = self._city.cluster_of(name), names.index(name)
        near = {names[(place + step) % len(names)] for step in range(-BESIDE, BESIDE + 1)}
        near |= {other for other in names if cluster and self._city.cluster_of(other) == cluster}
        return frozenset(near - {name})

    # What is heard.

    def heard(self, peer: str, beats: tuple[Beat, ...], now_us: int) -> None:
        """The signs of life in a peer's greeting, and which brokers it takes for gone."""
        speaker = self._members.get(peer)
        if speaker is not None:
            speaker.spoke_us = now_us
        for beat in beats:
            member = self._members.get(beat.broker)
            if member is None:
                continue
            news = (beat.incarnation, beat.count) > (member.incarnation, member.count)
            if news and not beat.gone:
                self._lives(member, beat, now_us)
            elif beat.gone and (beat.incarnation, beat.count) == (member.incarnation, member.count):
                member.gone = member.gone or self._believes(peer, beat.broker)

    def _lives(self, member: _Member, beat: Beat, now_us: int) -> None:
        heard_us = now_us - beat.age_ms * 1000
        if member.incarnation:
            heard_us = max(member.heard_us, heard_us)
        is_same = beat.incarnation == member.incarnation
        if member.gone and is_same:
            self._was_wrong(member, now_us)
        elif is_same:
            member.pace_us = max(heard_us - member.heard_us, member.pace_us * 7 // 8)
        else:
            member.doubt, member.pace_us = 1, 0
        member.incarnation, member.count, member.clients = beat.incarnation, beat.count, beat.clients
        member.heard_us, member.suspected_us, member.gone = heard_us, -1, False

    def _was_wrong(self, member: _Member, now_us: int) -> None:
        member.doubt = min(member.doubt * 2, MOST_DOUBT)
        member.doubted_us = now_us

    def _believes(self, peer: str, broker: str) -> bool:
        """Whoever watches a broker itself takes nobody's word for its end."""
        return peer in self._watchers[broker] and self._name not in self._watchers[broker]

    def vouched(self, broker: str, now_us: int) -> None:
        """It has done something that only the living do."""
        member = self._members.get(broker)
        if member is not None:
            if member.gone:
                self._was_wrong(member, now_us)
            member.heard_us = max(member.heard_us, now_us - self._interval_us)
            member.suspected_us, member.gone = -1, False

    def overslept(self, now_us: int, pause_us: int) -> None:
        for member in self._members.values():
            member.heard_us = min(now_us, member.heard_us + pause_us)
            member.suspected_us = -1

    # What follows.

    def judge(self, now_us: int) -> tuple[str, ...]:
        """Looks whose silence has become too long; the peers that must be told at once what we think."""
        gap_us = now_us - self._ticked_us if self._ticked_us >= 0 else 0
        self._ticked_us = now_us
        self._late_us = max(gap_us - self._interval_us, self._late_us * 49 // 50)
        if gap_us > self._interval_us:
            return ()  # what came meanwhile has not been read yet
        told: set[str] = set()
        for name, member in self._members.items():
            if member.gone or now_us - member.heard_us < self._patience_us(name, member, now_us):
                continue
            if member.suspected_us < 0:
                member.suspected_us = now_us
                told |= self._watchers[name]
            if self._is_confirmed(name, member, now_us):
                member.gone = True
                told |= self._members.keys()
        return tuple(sorted(name for name in told if name in self._members and not self._members[name].gone))

    def _patience_us(self, name: str, member: _Member, now_us: int) -> int:
        if member.doubt > 1 and now_us - member.doubted_us > FORGIVEN_US:
            member.doubt, member.doubted_us = member.doubt // 2, now_us
        every_us = self._every_us(name)
        is_slow = member.pace_us * 2 > every_us * 3  # hellos wait for ticks, so a little more is usual
        pace_us = min(member.pace_us, every_us * MOST_SLOWNESS) if is_slow else every_us
        return pace_us * self._city.membership.missed_hellos * member.doubt + self._late_us

    def _every_us(self, name: str) -> int:
        far = 1 if name in self._watchers.get(self._name, ()) else self._city.membership.far_factor
        return self._interval_us * far

    def _is_confirmed(self, name: str, member: _Member, now_us: int) -> bool:
        """Another watcher has spoken since, and has heard nothing either; or there is none, or it says nothing."""
        patience_us = self._interval_us * self._city.membership.missed_hellos
        if now_us - member.suspected_us >= patience_us:
            return True
        others = [self._members[other] for other in self._watchers[name] if other in self._members]
        asked = [other for other in others if not other.gone and now_us - other.spoke_us < patience_us]
        return not asked or any(other.spoke_us >= member.suspected_us for other in asked)

    def is_alive(self, broker: str) -> bool:
        if broker == self._name:
            return True
        member = self._members.get(broker)
        return member is not None and not member.gone

    def clients(self, broker: str) -> int:
        return self._members[broker].clients

    def others(self) -> tuple[str, ...]:
        return tuple(self._members)

    # What is said.

    def due(self, now_us: int) -> list[str]:
        """The members to greet now."""
        every = ((name, member.greeted_us + self._every_us(name)) for name, member in self._members.items())
        return [name for name, due_us in every if now_us >= due_us]

    def greeted(self, names: list[str], now_us: int) -> None:
        for name in names:
            self._members[name].greeted_us = now_us

    def beats(self, now_us: int) -> tuple[Beat, ...]:
        return tuple(
            Beat(name, member.incarnation, member.count, member.clients, self._age_ms(member, now_us), member.gone)
            for name, member in self._members.items()
            if member.incarnation
        )

    def _age_ms(self, member: _Member, now_us: int) -> int:
        return (now_us - member.heard_us) // 1000
