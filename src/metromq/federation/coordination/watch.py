"""Who is there: signs of life of every broker, and when their absence means that it is gone; no I/O.

A broker is watched closely by its neighbours: the members of its cluster, and those that stand next to it in the list
of all brokers. They miss it after a few hello intervals, tell each other at once, and judge together: it is gone when
another watcher has heard nothing either. Everybody else takes their word. So a lost broker is missed by the whole city
as soon as by its cluster.

In a city of more than `mesh_up_to` brokers the others watched here are companions alone (companions.py), and what is
found out of them goes around as rumours (rumours.py).

Under load greetings come late, and a takeover would add load. So whoever is late itself does not judge, a broker whose
greetings come slowly is given more time, and one that was taken for gone and lived on is given twice the time.
"""

from dataclasses import dataclass
from typing import Final, final

from metromq.federation.city import City
from metromq.federation.coordination.companions import companions_of
from metromq.federation.coordination.coordinator import Beat
from metromq.federation.coordination.rumours import ALIVE, LOST, Rumour, Rumours

BESIDE: Final = 2  # brokers on each side in the list of all that watch a broker, whatever its cluster
MOST_DOUBT: Final = 8  # how many times longer a broker is waited for that was wrongly taken for gone
MOST_SLOWNESS: Final = 4  # the same for one whose greetings come late
DIALLED_US: Final = 3_000_000  # so long peers may pause before they dial a broker again that was away
FEW: Final = 16  # brokers start within that time;
RISING_US: Final = 300_000  # a larger city is given so much longer for each of the others,
LONGEST_RISE_US: Final = 60_000_000  # up to this
EARLY: Final = 50  # a greeting may come this part of an interval early: clocks of event loops count milliseconds
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
    """What one broker knows of the others' lives. Times are microseconds of a monotonic clock.

    It has many methods because each reason for more patience, and each thing that it is asked, has its own.
    """

    def __init__(self, city: City, name: str, rumours: Rumours) -> None:
        self._city = city
        self._name = name
        self._rumours = rumours
        self.is_wide = False  # not everybody is watched here
        self.revision = 0  # grows when somebody is taken for gone, or for alive again
        self.chosen = 0  # grows when others are watched
        self.verdicts: list[Rumour] = []  # what was found out here, for everybody to know; whoever tells them clears it
        self._names: tuple[str, ...] = ()
        self._interval_us = city.membership.hello_interval_ms * 1000
        self._least_us = self._interval_us * city.membership.missed_hellos  # nobody is given less time
        self._greet_us = 0  # before then nobody is to be greeted
        self._members: dict[str, _Member] = {}
        self._watchers: dict[str, frozenset[str]] = {}
        self._ticked_us = -1
        self._late_us = 0  # how late our own ticks have been of late

    def city_changed(self, city: City) -> None:
        """Before the members are counted again."""
        self._city = city
        self._interval_us = city.membership.hello_interval_ms * 1000
        self._least_us = self._interval_us * city.membership.missed_hellos

    def count_members(self, names: tuple[str, ...], now_us: int) -> None:
        self._names = names
        self.is_wide = len(names) > self._city.membership.mesh_up_to
        self.choose(now_us)

    def choose(self, now_us: int) -> None:
        """Whom to watch; to be called again when somebody was lost or is back."""
        self.revision += 1
        self.chosen += 1
        # At the start everybody has time to find us: a broker that has just started must not claim the whole city.
        found_us = now_us if self.is_wide and self._members else now_us + self._head_start_us()
        chosen = self.companions_of(self._name) if self.is_wide else set(self._names) - {self._name}
        self._members = {
            other: self._members.get(other) or self._newcomer(other, found_us)
            for other in (sorted(chosen) if self.is_wide else self._names)
            if other in chosen
        }
        self._greet_us = 0
        before = self._watchers.get(self._name, frozenset())
        self._watchers = {name: self._watchers_of(name) for name in (*self._members, self._name)}
        if self.is_wide:  # asked again it could be others: of who is watched no longer only rumours are believed
            self._watchers[self._name] = frozenset(chosen)
        for other in self._watchers.get(self._name, frozenset()) - before:
            self._members[other].heard_us = max(self._members[other].heard_us, now_us)  # it greeted us rarely so far

    def _head_start_us(self) -> int:
        """How long silence says nothing when this broker has just started: the others may have yet to start, too.

        Who is missing in a city that runs is told by those that run. But if a large city that starts took those for
        lost that come last, everybody would inherit areas, and give them back, while it has most to do.
        """
        rising_us = (len(self._names) - FEW) * RISING_US if self.is_wide else 0
        return DIALLED_US + min(max(rising_us, 0), LONGEST_RISE_US)

    def _newcomer(self, name: str, found_us: int) -> _Member:
        known = self._rumours.of(name)
        member = _Member(known.incarnation, known.count, 0, found_us)
        member.gone = self._rumours.is_lost(name)
        return member

    def _watchers_of(self, name: str) -> frozenset[str]:
        if self.is_wide:
            return self.companions_of(name)
        if name not in self._names:
            return frozenset()
        names = sorted(self._names)
        cluster, place = self._city.cluster_of(name), names.index(name)
        near = {names[(place + step) % len(names)] for step in range(-BESIDE, BESIDE + 1)}
        near |= {other for other in names if cluster and self._city.cluster_of(other) == cluster}
        return frozenset(near - {name})

    def companions_of(self, name: str) -> frozenset[str]:
        return companions_of(name, self._names, lambda other: not self.is_alive(other))

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
                self._set_gone(member, member.gone or self._believes(peer, beat.broker))

    def _lives(self, member: _Member, beat: Beat, now_us: int) -> None:
        heard_us = now_us - beat.age_ms * 1000
        if member.incarnation:
            heard_us = max(member.heard_us, heard_us)
        is_same = beat.incarnation == member.incarnation
        if member.gone or not (is_same or not member.incarnation):
            self._found(beat.broker, beat.incarnation, beat.count, ALIVE)
        if member.gone and is_same:
            self._was_wrong(member, now_us)
        elif is_same:
            member.pace_us = max(heard_us - member.heard_us, member.pace_us * 7 // 8)
        else:
            member.doubt, member.pace_us = 1, 0
        member.incarnation, member.count, member.clients = beat.incarnation, beat.count, beat.clients
        member.heard_us, member.suspected_us = heard_us, -1
        self._set_gone(member, False)

    def _set_gone(self, member: _Member, gone: bool) -> None:
        self.revision += gone != member.gone
        member.gone = gone

    def _found(self, broker: str, incarnation: int, count: int, state: int) -> None:
        if self.is_wide:
            self.verdicts.append(Rumour(broker, incarnation, count, state))

    def _was_wrong(self, member: _Member, now_us: int) -> None:
        member.doubt = min(member.doubt * 2, MOST_DOUBT)
        member.doubted_us = now_us

    def _believes(self, peer: str, broker: str) -> bool:
        """Whoever watches a broker itself takes nobody's word for its end."""
        return peer in self._watchers[broker] and self._name not in self._watchers[broker]

    def told_lost(self, broker: str) -> None:
        """Everybody says so: only who has heard the broker itself knows better."""
        member = self._members.get(broker)
        if member is not None and member.spoke_us < 0:
            self._set_gone(member, True)

    def vouched(self, broker: str, now_us: int) -> None:
        """It has done something that only the living do."""
        member = self._members.get(broker)
        if member is not None:
            if member.gone:
                self._was_wrong(member, now_us)
            member.heard_us = max(member.heard_us, now_us - self._interval_us)
            member.suspected_us = -1
            if member.gone:
                self._found(broker, member.incarnation, member.count + 1, ALIVE)
            self._set_gone(member, False)

    def overslept(self, now_us: int, pause_us: int) -> None:
        for member in self._members.values():
            member.heard_us = max(member.heard_us, min(now_us, member.heard_us + pause_us))
            member.suspected_us = -1

    # What follows.

    def surely_us(self) -> int:
        """So long at least a silence is waited for."""
        return self._least_us - self._sooner_us()

    def judge(self, now_us: int) -> tuple[str, ...]:
        """Looks whose silence has become too long; the peers that must be told at once what we think."""
        gap_us = now_us - self._ticked_us if self._ticked_us >= 0 else 0
        self._ticked_us = now_us
        self._late_us = max(gap_us - self._interval_us, self._late_us * 49 // 50)
        if gap_us > self._interval_us:
            return ()  # what came meanwhile has not been read yet
        told: set[str] = set()
        sooner_us = self._sooner_us()
        for name, member in self._members.items():
            silence_us = now_us - member.heard_us
            if member.gone or (member.doubt == 1 and silence_us < self._least_us - sooner_us):
                continue
            if silence_us < self._patience_us(name, member, now_us):
                continue
            if member.suspected_us < 0:
                member.suspected_us = now_us
                told |= self._watchers[name]
            if self._is_confirmed(name, member, now_us):
                self._lose(name, member)
                told |= self._members.keys()
        return tuple(sorted(name for name in told if name in self._members and not self._members[name].gone))

    def _lose(self, name: str, member: _Member) -> None:
        self._set_gone(member, True)
        self._found(name, member.incarnation, member.count, LOST)

    def confirm(self, now_us: int) -> None:
        """Somebody has spoken: does it agree about those whose silence is too long?"""
        for name, member in self._members.items():
            if member.suspected_us >= 0 and not member.gone and self._is_confirmed(name, member, now_us):
                self._lose(name, member)

    def _patience_us(self, name: str, member: _Member, now_us: int) -> int:
        if member.doubt > 1 and now_us - member.doubted_us > FORGIVEN_US:
            member.doubt, member.doubted_us = member.doubt // 2, now_us
        every_us = self._every_us(name)
        is_slow = member.pace_us * 2 > every_us * 3  # hellos wait for ticks, so a little more is usual
        pace_us = min(member.pace_us, every_us * MOST_SLOWNESS) if is_slow else every_us
        sooner_us = self._sooner_us()
        return pace_us * self._city.membership.missed_hellos * member.doubt - sooner_us + self._late_us

    def _sooner_us(self) -> int:
        """Whoever hears of a loss from others should know within `missed_hellos` intervals too; rumours take longer."""
        return self._interval_us // (2 if self.is_wide else 4)

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
        if self.is_wide:  # few share the watch: who is silent itself is not waited for
            asked = [other for other in asked if other.suspected_us < 0]
        return not asked or any(other.spoke_us >= member.suspected_us for other in asked)

    def is_alive(self, broker: str) -> bool:
        if broker == self._name:
            return True
        member = self._members.get(broker)
        if member is not None:
            return not member.gone
        return self.is_wide and not self._rumours.is_lost(broker)

    def lost(self) -> set[str]:
        """The members that are not there."""
        found = {name for name, member in self._members.items() if member.gone}
        if self.is_wide:
            found |= {name for name in self._rumours.lost if name not in self._members}
        found.discard(self._name)
        return found

    def clients(self, broker: str) -> int:
        """How many it has; -1: nobody says so here."""
        member = self._members.get(broker)
        return member.clients if member is not None and member.incarnation else -1

    def watches(self, broker: str) -> bool:
        return broker in self._members

    def last_heard(self, broker: str) -> tuple[int, int]:
        """Incarnation and count of the last sign of life of a broker that is watched here."""
        member = self._members[broker]
        return member.incarnation, member.count

    def others(self) -> tuple[str, ...]:
        return tuple(self._members)

    # What is said.

    def due(self, now_us: int) -> list[str]:
        """The members to greet now, together with those whose turn would come soon: a process wakes up once for all."""
        if now_us < self._greet_us - self._interval_us // EARLY:
            return []
        soon_us = now_us + self._interval_us // 2
        every = ((name, member.greeted_us + self._every_us(name)) for name, member in self._members.items())
        return [name for name, due_us in every if soon_us >= due_us]

    def answers(self, peer: str, now_us: int) -> bool:
        """Whether its greeting is to be answered at once, because ours would soon be due.

        So one of two companions speaks and the other one answers, and each wakes once for both greetings.
        """
        member = self._members.get(peer)
        if member is None or now_us + self._interval_us // 2 < member.greeted_us + self._interval_us:
            return False
        self.greeted([peer], now_us + self._interval_us // 4)  # the next one is an answer too, unless none comes
        return True

    def greeted(self, names: list[str], now_us: int) -> None:
        for name in names:
            self._members[name].greeted_us = now_us
        waits = (member.greeted_us + self._every_us(name) for name, member in self._members.items())
        self._greet_us = min(waits, default=0)

    def next_us(self, now_us: int) -> int:
        """When there is something to do if nobody says anything: a greeting, or a silence that becomes too long."""
        patience_us = self._least_us - self._sooner_us()
        # Where ticks are rare one that is later would seem to be late.
        next_us = self._greet_us - (self._interval_us // (2 * EARLY) if self.is_wide else 0)
        for member in self._members.values():
            if not member.gone:
                next_us = min(next_us, member.heard_us + patience_us)
        return max(next_us, now_us)

    def beats(self, now_us: int) -> tuple[Beat, ...]:
        return tuple(self._beat(name, member, now_us) for name, member in self._members.items() if member.incarnation)

    def beats_for(self, peer: str, now_us: int) -> tuple[Beat, ...]:
        """Of those that the peer watches too; who is lost it hears as a rumour."""
        shared = ((name, self._members.get(name)) for name in self._watchers.get(peer, ()))
        return tuple(
            self._beat(name, member, now_us)
            for name, member in shared
            if member is not None and member.incarnation and not member.gone
        )

    def _beat(self, name: str, member: _Member, now_us: int) -> Beat:
        age_ms = self._age_ms(member, now_us)
        return Beat(name, member.incarnation, member.count, member.clients, age_ms, member.gone)

    def _age_ms(self, member: _Member, now_us: int) -> int:
        return (now_us - member.heard_us) // 1000
