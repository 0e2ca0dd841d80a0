"""Membership and facts among the brokers themselves, by gossip, without any extra server.

Every broker greets those that watch it at every hello interval and all others that it has a link to more rarely. A
greeting carries the latest sign of life of every broker that the sender watches, so a broker counts as alive while
anybody within reach hears it, directly or not (watch.py). Changed facts are passed on to everybody who is greeted;
greetings carry a digest of the book, a difference makes peers exchange their books.

In a city of more than `mesh_up_to` brokers everybody watches a few companions only. Facts, and rumours of who is lost,
go from companion to companion, so that what a broker says and hears does not grow with the city.

Takeover: when the owner of a fact is gone, the heir that the succession names claims it with the next epoch. Return: a
broker that hears that someone else owns what it is at home in claims it back, again with the next epoch. Two sides of a
split may each have an owner; when they meet, the greater (epoch, owner) wins everywhere, and the home broker, if it
lives, claims last.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, final

from metromq.errors import ProtocolViolation
from metromq.federation.city import City
from metromq.federation.coordination.contacts import EVERYBODY, Companions, Contacts
from metromq.federation.coordination.coordinator import (
    AliveChanged,
    Beat,
    Coordinator,
    Count,
    Event,
    Greet,
    Greeting,
    Returned,
    Spread,
    Tell,
)
from metromq.federation.coordination.facts import BROKER, CITY, FOLLOWS, PATCH, Change, Fact
from metromq.federation.coordination.patches import patch_between, patched
from metromq.federation.coordination.rumours import ALIVE, DOUBTED, LOST, Rumour, Rumours
from metromq.federation.coordination.succession import Succession
from metromq.federation.coordination.watch import Watch

MOST_DIFFERENT: Final = 4  # greetings in a row that differ: then a peer is told everything, though news still comes


@final
class EmbeddedCoordinator(Coordinator):
    """It has many methods because it answers as a small city does and as a large one does, with rumours besides."""

    def __init__(self, city: City, name: str, incarnation: int, succession: Succession, now_us: int) -> None:
        super().__init__(city, name, incarnation, succession, now_us)
        self._count = 0
        self._clients = 0
        self._rumours = Rumours()
        self.watch = Watch(city, name, self._rumours)
        self._alive = self.book.members
        self._judged = -1, -1  # revisions of the watch and of the book at which nothing was left to take over
        self._counted = -1  # the revision of the watch at which the living were told
        self._counted_at = -1  # and at which they were counted
        self._living_now: tuple[str, ...] = ()
        # Greetings in a row in which a peer did not agree with us, and the revision of the book at the last of them.
        self._differs: dict[str, tuple[int, int]] = {}
        self._contacted_at = -1  # the choice of companions that `contacts` tells
        self._contacts: Contacts = EVERYBODY
        self._reclaimed = -1  # the revision of the book in which nothing was left to claim back
        self._unsaid: dict[Fact, str] = {}  # who follows, to be passed on at the next tick, and who said so
        self._said_by_fact = -1  # the newest description that somebody said by a fact to follow
        self._unread: dict[str, int] = {}  # peers that told of a description that we could not read, and its epoch
        self._miscounts: set[str] = set()  # peers whose last greeting had another count of who follows
        self._count_members(now_us)

    # What happens.

    def tick(self, now_us: int, clients: int) -> list[Event]:
        self._clients = clients
        events: list[Event] = []
        due = sorted({*self.watch.judge(now_us), *self.watch.due(now_us)})
        if due:
            self._count += 1
            self.watch.greeted(due, now_us)
            if self.watch.is_wide:
                events += [Greet(peer, self._wide_greeting(peer, now_us)) for peer in due]
            else:
                greeting = self._greeting(now_us)
                events += [Greet(peer, greeting) for peer in due]
        events += self._spread((), "", now_us)
        events += self._pass_on() + self._count_on()
        events += self._changed(self._claims(now_us), "", now_us)
        events += self._living(now_us)
        return events

    def next_us(self, now_us: int) -> int:
        if self._unsaid or self.following.is_news:
            return now_us
        doubted_us = self._rumours.next_us()
        next_us = self.watch.next_us(now_us)
        return next_us if doubted_us is None else max(min(next_us, doubted_us), now_us)

    def met(self, peer: str, now_us: int) -> list[Event]:
        wide = self.watch.is_wide
        return [Greet(peer, self._wide_greeting(peer, now_us) if wide else self._greeting(now_us))]

    def greeted(self, peer: str, greeting: Greeting, now_us: int) -> list[Event]:
        self.watch.heard(peer, greeting.beats, now_us)
        if not self.watch.is_wide:
            return [Tell(peer, self.book.facts())] if greeting.digest != self.book.digest() else []
        self.watch.confirm(now_us)
        events: list[Event] = []
        if self.watch.answers(peer, now_us):
            self._count += 1
            events.append(Greet(peer, self._wide_greeting(peer, now_us)))
        elif greeting.asks and not self.watch.watches(peer):
            events.append(Greet(peer, self._wide_greeting(peer, now_us)))
        own = [Rumour(peer, beat.incarnation, beat.count, ALIVE) for beat in greeting.beats if beat.broker == peer]
        events += self._spread([one for one in own if self._rumours.of(peer).state != ALIVE], peer, now_us)
        return events + self._compare(peer, greeting) + self._compare_counts(peer, greeting)

    def _compare(self, peer: str, greeting: Greeting) -> list[Event]:
        """News travels while peers greet each other: only who differs twice in a row has missed something."""
        count, revision = self._differs.pop(peer, (0, -1))
        if (greeting.digest, greeting.lost) == (self.book.digest(), self._rumours.digest()):
            return []
        # After a change of the city everybody has something to say: the whole book, many times over, would be too much.
        is_moving = greeting.lost == self._rumours.digest() and revision != self.book.revision
        if count == 0 or (is_moving and count + 1 < MOST_DIFFERENT):
            self._differs[peer] = count + 1, self.book.revision
            return []
        events: list[Event] = []
        if greeting.digest != self.book.digest():
            events.append(Tell(peer, self.book.facts()))
        if greeting.lost != self._rumours.digest():
            events.append(Spread(peer, self._rumours.all_lost(), True))
        return events

    # Who follows the city's description.

    def says_by_fact(self) -> bool:
        """In a large city only where somebody of an earlier release does, which could not count us otherwise."""
        return not self.watch.is_wide or self._said_by_fact == self._followed.epoch

    def counted(self, peer: str, mark: int, bits: int) -> None:
        self.following.hear(mark, bits)

    def _count_on(self) -> list[Event]:
        following = self.following
        if not self.watch.is_wide or not following.epoch:
            return []
        if not following.has(self.name) and self.book.is_member(self.name):
            following.add(self.name)
        if not following.is_news:
            return []
        following.is_news = False
        return [self._count_for(peer) for peer in self.watch.others()]

    def _count_for(self, peer: str) -> Count:
        return Count(peer, self.following.mark, self.following.bits)

    def _compare_counts(self, peer: str, greeting: Greeting) -> list[Event]:
        """As for facts: only who differs twice in a row has missed something."""
        if greeting.following == self.following.digest():
            self._miscounts.discard(peer)
        elif peer in self._miscounts:
            self._miscounts.discard(peer)
            return [self._count_for(peer)]
        else:
            self._miscounts.add(peer)
        return []

    # What is said of those that are not watched here.

    def contacts(self) -> Contacts:
        if not self.watch.is_wide:
            return EVERYBODY
        if self._contacted_at != self.watch.chosen:
            self._contacted_at = self.watch.chosen
            self._contacts = Companions(frozenset(self.watch.others()))
        return self._contacts

    def companions_of(self, name: str) -> frozenset[str] | None:
        return self.watch.companions_of(name) - {self.name} if self.watch.is_wide else None

    def heard_of(self, peer: str, rumours: tuple[Rumour, ...], whole: bool, now_us: int) -> list[Event]:
        if not self.watch.is_wide:
            return []
        answers = [answer for rumour in rumours for answer in self._answers(rumour, whole)]
        heard = [_doubted(rumour) if whole else rumour for rumour in rumours]
        told = {answer.broker for answer in answers}
        events: list[Event] = [Spread(peer, tuple(answers))] if answers else []
        return events + self._spread([*answers, *(item for item in heard if item.broker not in told)], peer, now_us)

    def _answers(self, rumour: Rumour, whole: bool) -> list[Rumour]:
        """What we know better: of ourselves, of whom we hear, and, where two compare all they know, of the others."""
        broker = rumour.broker
        if broker == self.name:
            return [self._own_answer(rumour)] if rumour.state != ALIVE else []
        if self.watch.watches(broker) and self.watch.is_alive(broker):
            known = Rumour(broker, *self.watch.last_heard(broker), ALIVE)
        else:
            known = self._rumours.of(broker)
        is_better = known.state == ALIVE and known.version > rumour.version
        return [known] if is_better and (whole or self.watch.watches(broker)) and rumour.state != ALIVE else []

    def _own_answer(self, rumour: Rumour) -> Rumour:
        """Nobody is lost who says otherwise, with a greater number."""
        self.incarnation = max(self.incarnation, rumour.incarnation)
        self._count = max(self._count, rumour.count) + 1
        return Rumour(self.name, self.incarnation, self._count, ALIVE)

    def _spread(self, heard: list[Rumour] | tuple[Rumour, ...], source: str, now_us: int) -> list[Event]:
        """Takes rumours in, those of our own watch too, and passes on what is news; everybody does so once."""
        if not self.watch.is_wide:
            return []
        found, self.watch.verdicts = self.watch.verdicts, []
        until_us = now_us + self.city.membership.hello_interval_ms * 1000
        events: list[Event] = []
        news: list[Rumour] = []
        for rumour in (*found, *heard):
            before = self._rumours.of(rumour.broker)
            if self.book.is_member(rumour.broker) and self._rumours.hear(rumour, until_us):
                news.append(rumour)
                if rumour.state == LOST:
                    self.watch.told_lost(rumour.broker)
                is_new = before.state != ALIVE or rumour.incarnation != before.incarnation
                if rumour.state == ALIVE and is_new and not self.watch.watches(rumour.broker):
                    events.append(Returned(rumour.broker))
        silent = self._rumours.run_out(now_us)
        for broker in silent:
            self.watch.told_lost(broker)
        if news or silent:
            self.watch.choose(now_us)
        if news:
            told = tuple(news)
            events += [Spread(peer, told) for peer in self.watch.others() if peer != source or found]
        return events

    def patch_of(self, facts: tuple[Fact, ...]) -> tuple[Fact, ...]:
        followed = self._followed
        if not self.watch.is_wide or not self._text_before or followed not in facts:
            return ()
        patch = Fact(PATCH, CITY, followed.owner, followed.epoch, patch_between(self._text_before, followed.value))
        return tuple([patch if fact is followed else fact for fact in facts])

    def _whole(self, peer: str, patch: Fact) -> list[Fact] | None:
        """The description that a peer tells by a patch, if it is news; None: we follow another one than it thinks."""
        self._unread.pop(peer, None)
        if (patch.epoch, patch.owner) <= (self._followed.epoch, self._followed.owner):
            return []
        text = patched(self._followed.value or self.writes_city(), patch.value)
        if text is None:
            self._unread[peer] = patch.epoch
            return None
        return [Fact(CITY, CITY, patch.owner, patch.epoch, text)]

    def told(self, peer: str, facts: tuple[Fact, ...], now_us: int) -> list[Event]:
        """Takes over newer facts, and claims the own home back at once when they give it to someone else."""
        patch = next((fact for fact in facts if fact.kind == PATCH), None)
        if patch is not None and not patch.value:
            return [Tell(peer, self.book.facts())]
        if patch is not None:
            whole = self._whole(peer, patch)
            if whole is None:
                return [Tell(peer, (Fact(PATCH, CITY, self.name, patch.epoch),))]
            facts = (*whole, *[fact for fact in facts if fact.kind != PATCH])
        elif self._unread.get(peer, -1) > self._followed.epoch and not any(fact.kind == CITY for fact in facts):
            return []  # they may make no sense without the description, which it is about to tell
        adopted = self.adopt(facts, now_us)
        joining = {fact.key for fact in facts if fact.kind == BROKER}
        for fact in facts:
            if fact.owner and fact.owner not in joining and not self._may_have_been(fact.owner):
                raise ProtocolViolation(f"{peer} sent facts of {fact.owner}, a broker that is not in the city's file")
        changes = (*adopted, *self.book.merge(facts))
        for change in changes:
            if change.after.kind not in (CITY, FOLLOWS):  # these are old news to whoever was away
                self.watch.vouched(change.after.owner, now_us)
        return self._changed((*changes, *self._reclaim()), peer, now_us)

    def _may_have_been(self, broker: str) -> bool:
        """A city that has changed may have had members of whom this broker never heard."""
        return self.is_changed or self.book.knows_broker(broker)

    def propose(self, facts: tuple[Fact, ...], now_us: int) -> list[Event]:
        adopted = self.adopt(facts, now_us)
        return self._changed((*adopted, *self.book.merge(facts)), "", now_us)

    def restore(self, facts: tuple[Fact, ...], now_us: int) -> list[Event]:
        events = super().restore(facts, now_us)
        self._count_members(now_us)
        return events

    def city_changed(self, now_us: int) -> None:
        self.watch.city_changed(self.city)
        self._count_members(now_us)
        self.following.begin(self._followed, self.city.names)
        self._miscounts.clear()

    def overslept(self, now_us: int, pause_us: int) -> None:
        self.watch.overslept(now_us, pause_us)

    # Who is there.

    def surely_us(self) -> int:
        return self.watch.surely_us()

    def alive(self, now_us: int) -> tuple[str, ...]:
        """Counted again only when it has changed: it is asked for at every tick."""
        if self._counted_at != self.watch.revision:
            self._counted_at = self.watch.revision
            lost, members = self.watch.lost(), self.book.members
            self._living_now = _shared(tuple([name for name in members if name not in lost])) if lost else members
        return self._living_now

    def is_alive(self, name: str, now_us: int) -> bool:
        return self.book.is_member(name) and self.watch.is_alive(name)

    def _living(self, now_us: int) -> list[Event]:
        if self._counted == self.watch.revision:
            return []
        self._counted = self.watch.revision
        alive = self.alive(now_us)
        if alive == self._alive:
            return []
        self._alive = alive
        return [AliveChanged(alive)]

    def _count_members(self, now_us: int) -> None:
        self._rumours.forget(self.book.members)
        self.watch.count_members(self.book.members, now_us)

    def _greeting(self, now_us: int) -> Greeting:
        return Greeting(self.incarnation, self.book.digest(), (self._own_beat(), *self.watch.beats(now_us)))

    def _wide_greeting(self, peer: str, now_us: int) -> Greeting:
        """Of others it says only what the peer can use: of those that it watches too."""
        beats = (self._own_beat(), *self.watch.beats_for(peer, now_us))
        digests = self.book.digest(), self._rumours.digest()
        watches, following = self.watch.watches(peer), self.following.digest()
        return Greeting(self.incarnation, digests[0], beats, digests[1], watches, following)

    def _own_beat(self) -> Beat:
        return Beat(self.name, self.incarnation, self._count, self._clients, 0)

    # Who is responsible.

    def _changed(self, changes: tuple[Change, ...], source: str, now_us: int) -> list[Event]:
        if not changes:
            return []
        # The source knows its own facts, but not the claims that they made us do.
        claimed = any(change.after.owner == self.name for change in changes)
        named = {change.after.key for change in changes if change.after.kind == BROKER}
        told = {*self.watch.others(), *named, *self.leaving()} - {self.name}
        if self.watch.is_wide and all(change.after.kind == FOLLOWS for change in changes):
            self._followers_said(changes)
            self._unsaid.update((change.after, source) for change in changes)
            told = set()
        events = self.events_of(changes, tuple(sorted(peer for peer in told if peer != source or claimed)))
        if any(change.after.kind in (BROKER, CITY) for change in changes):
            self._count_members(now_us)
            events += self._living(now_us)
        return events

    def _followers_said(self, changes: tuple[Change, ...]) -> None:
        for change in changes:
            if change.after.epoch == self._followed.epoch:
                self._said_by_fact = change.after.epoch
                self.following.add(change.after.key)

    def _pass_on(self) -> list[Event]:
        """Where it is said by facts, everybody does so, and nobody is in a hurry to hear it: many at a time."""
        unsaid, self._unsaid = self._unsaid, {}
        events: list[Event] = []
        for peer in self.watch.others() if unsaid else ():
            facts = tuple([fact for fact, source in unsaid.items() if source != peer])
            if facts:
                events.append(Tell(peer, facts))
        return events

    def _claims(self, now_us: int) -> tuple[Change, ...]:
        """What this broker must take over now."""
        if not self.book.is_member(self.name):
            return ()
        found = list(self._reclaim())
        judged = self.watch.revision, self.book.revision
        if self._judged == judged:
            return tuple(found)
        orphans = self.book.orphans(self.watch.lost())
        if not orphans:
            self._judged = judged
            return tuple(found)
        living = _Living(self, now_us)
        for fact in orphans:
            if self.succession.heir(fact, living) == self.name:
                found += self._claim(fact)
        if judged == (self.watch.revision, self.book.revision) and not self.succession.heir_varies:
            self._judged = judged  # all of it is for others to claim, until somebody else is lost or something is said
        return tuple(found)

    def _reclaim(self) -> list[Change]:
        if self._reclaimed == self.book.revision or not self.book.is_member(self.name):
            return []
        found: list[Change] = []
        astray = [fact for fact in self.succession.astray() if fact == self.book.get(fact.kind, fact.key)]
        for fact in (*astray, *self.book.said()):
            if fact.owner != self.name and self.succession.home(fact) == self.name and not self._is_handed(fact):
                found += self._claim(fact)
        self._reclaimed = self.book.revision
        return found

    def _is_handed(self, fact: Fact) -> bool:
        """Whether its owner gives it to us by itself."""
        return self.succession.hands_over(fact) and self.watch.is_alive(fact.owner)

    def _claim(self, fact: Fact) -> tuple[Change, ...]:
        value = self.succession.inherited(fact)
        return self.book.merge((self.book.next(fact.kind, fact.key, self.name, value),))

    def load(self, broker: str) -> int:
        return self._clients if broker == self.name else self.watch.clients(broker)


@final
class _Living:
    """Who is there, by a coordinator, for a succession to ask: it seldom asks for more than a few."""

    def __init__(self, coordinator: EmbeddedCoordinator, now_us: int) -> None:
        self._coordinator = coordinator
        self._now_us = now_us

    def __contains__(self, name: object, /) -> bool:
        return isinstance(name, str) and self._coordinator.is_alive(name, self._now_us)

    def __getitem__(self, name: str, /) -> int:
        return self._coordinator.load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._coordinator.alive(self._now_us))


@lru_cache(maxsize=64)
def _shared(names: tuple[str, ...]) -> tuple[str, ...]:
    """One list of the living for all brokers of a process that have equal ones."""
    return names


def _doubted(rumour: Rumour) -> Rumour:
    """What whoever was away says of others may be its own mistake: they have time to answer."""
    if rumour.state != LOST:
        return rumour
    return Rumour(rumour.broker, rumour.incarnation, rumour.count, DOUBTED)
