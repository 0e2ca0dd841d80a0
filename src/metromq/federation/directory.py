"""Where is which client: one broker per client id remembers, chosen by hashing, so that a CONNECT costs one question.

The directory of a client is the living broker with the highest hash of both names. Where there are many, they have
their places on a circle of hashes, several each, and it is the next one from the client's own place, so that to find it
takes no longer in a large city. When brokers come or go, everybody
tells its clients to their new directories; what a lost directory knew is thereby known again. Of two brokers that both
claim a user's client, the one with the later CONNECT has it, and the other is told to close and to send the session
after. Another user's CONNECT is refused.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import final

from mypy_extensions import mypyc_attr

from metromq.federation.clean_starts import CleanStarts
from metromq.federation.effects import Effect, Send, SessionFound, SessionRefused, SessionTaken
from metromq.federation.hybrid_clock import HybridClock
from metromq.federation.links.frames import ClientAnswer, ClientClaim, ClientMoved, ClientReleased

NO_SESSION = (1 << 62) - 1  # when a session was opened that is not there yet: later than any other
TOLD_AGAIN_US = 600_000_000  # no link is dead for longer without anybody seeing it
MAX_TOLD = 10_000  # of each peer
MAX_STRAYS = 1_000
_MASK = (1 << 64) - 1
_SPREAD = 0x9E3779B97F4A7C15  # odd, so that multiplying mixes the low bits of a hash into the high ones
FEW = 16  # brokers of which each is looked at
PLACES = 16  # on the circle of each broker, so that all are directories of about as many clients


@dataclass(slots=True)
class _Own:
    time_us: int
    clean_start: bool
    told: str  # the directory that knows
    user: str = ""
    opened_us: int = 0
    replaces: bool = False
    clean_us: int = 0


@dataclass(frozen=True, slots=True)
class _Place:
    """A broker that has a client: since when, for whom, and since when that one has had the session."""

    time_us: int
    broker: str
    user: str
    opened_us: int
    replaces: bool
    clean_us: int = 0


def _keeps(one: _Place, other: _Place) -> _Place:
    """Of two brokers that both claim a client, the one that has it from now on.

    One user's client is where it connected last. Of two users the one keeps the session who opened it first, unless the
    broker of the later CONNECT lets newcomers end other users' sessions. Every broker comes to the same answer.
    """
    later = one if (one.time_us, one.broker) > (other.time_us, other.broker) else other
    if one.user == other.user or later.replaces:
        return later
    return min(one, other, key=lambda place: (place.opened_us, place.time_us, place.broker))


def _unheard(broker: str, claim: ClientClaim) -> None:
    """Nobody wants to know."""


@mypyc_attr(native_class=False)  # tests plant bugs in it
@final
class Directory:
    """It has many methods because it is told of everything that happens to clients, by hosts and by peers."""

    def __init__(self, name: str, alive: tuple[str, ...], clock: HybridClock, up: Container[str] | None = None) -> None:
        """`up` are the peers that frames can reach; None: all."""
        self._name = name
        self._clock = clock
        self._up = up
        self._owed: dict[str, dict[str, ClientMoved]] = {}  # to peers out of reach: nothing else would tell them
        # To others, and when: a link may be dead for a while before anybody sees it.
        self._told: dict[str, dict[str, tuple[int, ClientMoved]]] = {}
        self._circle = _circle(alive)
        self._alive = frozenset(alive)
        self.living_count = len(alive)
        self._own: dict[str, _Own] = {}  # clients with a session here
        self._places: dict[str, _Place] = {}  # clients whose directory this broker is
        # Clients that are elsewhere, and whose directory may not know: who let them in told us.
        self._strays: dict[str, str] = {}
        self.clean_starts = CleanStarts()
        self._waiting: dict[str, int] = {}  # clients that the host holds back until the answer
        self.on_claim: Callable[[str, ClientClaim], None] = _unheard  # told of every client's place

    def keeper_of(self, client: str) -> str:
        return next(self._preferred(client), self._name)

    def heir_of(self, client: str, broker: str) -> str:
        """The client's directory if `broker` were not there; empty: there is no other broker."""
        return next((heir for heir in self._preferred(client) if heir != broker), "")

    def _preferred(self, client: str) -> Iterator[str]:
        """Brokers in the order in which they would be the client's directory; on a circle some come more than once."""
        number, (places, brokers) = _hash(client), self._circle
        if len(places) <= FEW:
            # The number of the place keeps brokers of one rank in their order.
            ranked = [(-((number ^ place) * _SPREAD & _MASK), own) for own, place in enumerate(places)]
            for _, own in sorted(ranked):
                yield brokers[own]
            return
        first = bisect_right(places, number)
        for step in range(len(brokers)):
            yield brokers[(first + step) % len(brokers)]

    def has(self, client: str) -> bool:
        return client in self._own

    def is_asked(self, client: str) -> bool:
        """Whether the question where the client's session is has no answer yet."""
        return client in self._waiting

    def is_living(self, broker: str) -> bool:
        return broker in self._alive

    def claimed_us(self, client: str) -> int:
        """When the client connected here; 0: it is not here."""
        own = self._own.get(client)
        return own.time_us if own is not None else 0

    def clean_us(self, client: str) -> int:
        """When the client that is here began anew, here or elsewhere; 0: nobody knows that it did."""
        own = self._own.get(client)
        return own.clean_us if own is not None else 0

    def is_void(self, client: str, greeted_us: int) -> bool:
        """Whether a client that goes on here began anew elsewhere since it was greeted last."""
        own = self._own.get(client)
        return own is not None and not own.clean_start and greeted_us < own.clean_us

    def void_before(self, client: str, user: str) -> int:
        """When the client began anew, as far as we were told: parts of its session that it left before have ended."""
        return max(self.clean_starts.before(client, user), self.clean_us(client))

    def connected(
        self,
        client: str,
        time_us: int,
        clean_start: bool,
        asks: bool,
        user: str = "",
        opened_us: int = NO_SESSION,
        replaces: bool = False,
        clean_us: int = 0,
    ) -> list[Effect]:
        """A client connected here; with `asks` a SessionFound or SessionRefused follows.

        `opened_us` is when `user` opened the session that is here already.
        """
        self._own[client] = own = _Own(time_us, clean_start, "", user, opened_us, replaces, clean_us)
        kept: list[Effect] = []
        if clean_start and self.clean_starts.doubts():
            kept = self.clean_starts.began(client, user, clean_us, self._name)
        if asks:
            self._waiting[client] = time_us
        else:
            self._entered(own)
        stray = self._strays.pop(client, self._name)
        told = self._tell(client, own, asks)
        return kept + told + (self.told_to(client, (stray,)) if stray != self._name else [])

    def told_to(self, client: str, peers: Iterable[str]) -> list[Effect]:
        """Peers are told that the client is here, past its directory, which may not have heard of all of them yet."""
        own = self._own.get(client)
        if own is None:
            return []
        here = _Place(own.time_us, self._name, own.user, own.opened_us, own.replaces, own.clean_us)
        frame = _moved(client, here, own.clean_start)
        return [effect for peer in peers if peer != own.told for effect in self._to(peer, frame)]

    def restored(self, client: str, time_us: int, user: str = "", opened_us: int = 0, clean_us: int = 0) -> None:
        """A session that the journal brought back; told with the next change of the living."""
        self._clock.heard(max(time_us, opened_us))
        self._own[client] = _Own(time_us, False, "", user, opened_us, False, clean_us)

    def opened(self, client: str, opened_us: int, clean_us: int) -> None:
        """The client's session came from elsewhere: it is as old as this, and was begun anew then."""
        own = self._own.get(client)
        if own is not None:
            own.opened_us = min(own.opened_us, opened_us)
            own.clean_us = max(own.clean_us, clean_us)

    def let_in(self, client: str) -> None:
        """The host waits no more, whether its question was answered or not."""
        if self._waiting.pop(client, None) is not None:
            self._entered(self._own[client])

    def ended(self, client: str) -> list[Effect]:
        if client in self._waiting:
            return []  # what has ended is an old session: the claim is that of the CONNECT that waits
        own = self._own.pop(client, None)
        if own is None:
            return []
        return self._release(client, own, "")

    def _release(self, client: str, own: _Own, teller: str) -> list[Effect]:
        keeper = self.keeper_of(client)
        if keeper == self._name:
            self.released(self._name, ClientReleased(client, own.time_us))
            return []
        return [Send(keeper, ClientReleased(client, own.time_us))] if keeper != teller else []

    def living(self, alive: tuple[str, ...]) -> list[Effect]:
        """Brokers came or went: clients whose directory changed are told again, unanswered questions are settled.

        Who stood still is back without a new link, and has not heard who began anew meanwhile.
        """
        back = [peer for peer in alive if peer not in self._alive and peer != self._name]
        self._circle = _circle(alive)
        self._alive = frozenset(alive)
        self.living_count = len(alive)
        effects = [effect for peer in back for effect in self.clean_starts.told_to(peer)]
        moved = [client for client, own in self._own.items() if own.told != self.keeper_of(client)]
        return effects + self._tell_all(moved)

    def member_left(self, peer: str) -> None:
        """It has left the city for good, and the sessions that it held went with it."""
        self._places = {client: at for client, at in self._places.items() if at.broker != peer}

    def reconnected(self, peer: str) -> list[Effect]:
        """What was told over the link before it broke may be lost: tell it again."""
        told, owed = self._told.pop(peer, {}), self._owed.pop(peer, {})
        since_us = self._clock.stamp_us() - TOLD_AGAIN_US
        again = {client: frame for client, (time_us, frame) in told.items() if time_us >= since_us}
        effects = [effect for frame in {**again, **owed}.values() for effect in self._to(peer, frame)]
        effects += self.clean_starts.told_to(peer)
        return effects + self._tell_all([client for client, own in self._own.items() if own.told == peer])

    def unanswered(self, client: str) -> list[Effect]:
        """The host has waited long enough: let the client in without a session from elsewhere."""
        time_us = self._waiting.pop(client, None)
        if time_us is None:
            return []
        self._entered(self._own[client])
        return [SessionFound(client, time_us, "")]

    def claimed(self, peer: str, claim: ClientClaim) -> list[Effect]:
        """As directory: someone says that it has the client."""
        self._clock.heard(claim.time_us)
        self.on_claim(peer, claim)
        kept: list[Effect] = []
        if claim.clean_start and self.clean_starts.doubts():  # otherwise whoever has an older session hears of it
            kept = self.clean_starts.began(claim.client, claim.user, claim.clean_us, peer)
        return kept + self._placed(peer, claim)

    def _placed(self, peer: str, claim: ClientClaim) -> list[Effect]:
        anew = self.clean_starts.of(claim.client, claim.user)
        clean_us = max(claim.clean_us, anew.clean_us if anew is not None else 0)
        new = _Place(claim.time_us, peer, claim.user, claim.opened_us, claim.replaces, clean_us)
        old = self._places.get(claim.client)
        if old is None or old.broker == peer:
            if anew is not None and claim.time_us < anew.clean_us:  # it was away, and its client began anew meanwhile
                return self._to(peer, anew.frame())
            return self._put(claim, new, None)
        foreign = old.user != claim.user
        if _keeps(old, new) is old:
            if claim.asks and foreign:
                return self._to(peer, ClientAnswer(claim.client, claim.time_us, "", True))
            return self._to(peer, _moved(claim.client, old, claim.time_us < old.clean_us))
        # What counts is when the client was there last: it may have gone on with an older session since it began anew.
        is_void = old.time_us < new.clean_us
        effects = self._to(old.broker, _moved(claim.client, new, is_void))
        if foreign or is_void:
            return effects + self._put(claim, new, None)
        return effects + self._put(claim, replace(new, opened_us=min(old.opened_us, new.opened_us)), old)

    def _put(self, claim: ClientClaim, place: _Place, before: _Place | None) -> list[Effect]:
        """Remembers the place. A session that is only now opened is as old as its CONNECT: the next one is younger."""
        self._places[claim.client] = replace(place, opened_us=min(place.opened_us, place.time_us))
        if not claim.asks:
            return []
        clean_us = place.clean_us if place.clean_us > claim.clean_us else 0  # what it does not know
        broker, since_us = (before.broker, before.time_us) if before is not None else ("", 0)
        return self._to(place.broker, ClientAnswer(claim.client, claim.time_us, broker, False, clean_us, since_us))

    def answered(self, answer: ClientAnswer) -> list[Effect]:
        if self._waiting.get(answer.client) != answer.time_us:
            return []
        del self._waiting[answer.client]
        if answer.refused:
            self._own.pop(answer.client, None)
            return [SessionRefused(answer.client, answer.time_us)]
        own = self._own[answer.client]
        self._entered(own)
        own.clean_us = max(own.clean_us, answer.clean_us)
        return [SessionFound(answer.client, answer.time_us, answer.broker, answer.since_us)]

    def moved(self, moved: ClientMoved, teller: str = "") -> list[Effect]:
        """Who is told past the directory (`told_to`) gives up a session of the same user. Whoever waits here waits for
        the directory, and so does every question between two users."""
        self._clock.heard(moved.time_us)
        own = self._own.get(moved.client)
        is_past = teller == moved.broker and teller != self.keeper_of(moved.client)
        if is_past and own is not None and (own.user != moved.user or moved.client in self._waiting):
            return []
        if own is None:
            self._strays[moved.client] = moved.broker
            if len(self._strays) > MAX_STRAYS:
                del self._strays[next(iter(self._strays))]
            clean_us = moved.clean_us if moved.clean_start else 0
            return self.clean_starts.began(moved.client, moved.user, clean_us, moved.broker) if clean_us else []
        ours = _Place(own.time_us, self._name, own.user, own.opened_us, own.replaces)
        theirs = _Place(moved.time_us, moved.broker, moved.user, moved.opened_us, moved.replaces)
        if _keeps(theirs, ours) is ours:
            return []
        del self._own[moved.client]
        foreign = own.user != moved.user
        is_void = own.time_us < moved.clean_us if moved.clean_us else moved.clean_start
        effects: list[Effect] = []
        if is_void and not foreign:
            clean_us = moved.clean_us or moved.time_us
            effects += self.clean_starts.began(moved.client, own.user, clean_us, moved.broker)
            effects += self._release(moved.client, own, teller)
        # Who waits and has gone on elsewhere is not let in: that would be a later CONNECT than the one there.
        if self._waiting.pop(moved.client, None) is not None and foreign:
            effects.append(SessionRefused(moved.client, own.time_us))
        effects.append(SessionTaken(moved.client, moved.time_us, moved.broker, is_void, foreign, moved.clean_us))
        return effects

    def passed_on(self, broker: str, taken: SessionTaken, user: str, opened_us: int) -> list[Effect]:
        """The session that was taken from here had gone to `broker`, which is told where its client is."""
        moved = ClientMoved(taken.client, taken.time_us, taken.broker, taken.clean_start, user, opened_us)
        return self._to(broker, replace(moved, clean_us=taken.clean_us))

    def released(self, peer: str, released: ClientReleased) -> list[Effect]:
        place = self._places.get(released.client)
        if place is not None and place.broker == peer and place.time_us <= released.time_us:
            del self._places[released.client]
        return []

    def _entered(self, own: _Own) -> None:
        own.opened_us = min(own.opened_us, own.time_us)

    def _tell_all(self, clients: list[str]) -> list[Effect]:
        effects: list[Effect] = []
        for client in clients:
            effects += self._tell(client, self._own[client], client in self._waiting)
        return effects

    def _tell(self, client: str, own: _Own, asks: bool) -> list[Effect]:
        keeper = own.told = self.keeper_of(client)
        claim = ClientClaim(
            client, own.time_us, asks, own.clean_start, own.user, own.opened_us, own.replaces, own.clean_us
        )
        return self._to(keeper, claim)

    def _to(self, broker: str, frame: ClientClaim | ClientAnswer | ClientMoved) -> list[Effect]:
        """To ourselves without a frame."""
        if broker != self._name:
            if self._up is not None and broker not in self._up and isinstance(frame, ClientMoved):
                self._owed.setdefault(broker, {})[frame.client] = frame
                return []
            if isinstance(frame, ClientMoved):
                self._remember(broker, frame)
            return [Send(broker, frame)]
        if isinstance(frame, ClientClaim):
            return self.claimed(self._name, frame)
        return self.answered(frame) if isinstance(frame, ClientAnswer) else self.moved(frame)

    def _remember(self, broker: str, frame: ClientMoved) -> None:
        told = self._told.setdefault(broker, {})
        told.pop(frame.client, None)
        told[frame.client] = (self._clock.stamp_us(), frame)
        if len(told) > MAX_TOLD:
            del told[next(iter(told))]


def _moved(client: str, to: _Place, clean_start: bool) -> ClientMoved:
    return ClientMoved(client, to.time_us, to.broker, clean_start, to.user, to.opened_us, to.replaces, to.clean_us)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


@lru_cache(maxsize=16)
def _circle(brokers: tuple[str, ...]) -> tuple[list[int], list[str]]:
    """Places on the circle, in order, and whose they are; for a few brokers their hashes, in the order of names."""
    if len(brokers) <= FEW:
        return [_hash(broker) for broker in sorted(brokers)], sorted(brokers)
    found = sorted((_hash(f"{number}\0{broker}"), broker) for broker in brokers for number in range(PLACES))
    return [place for place, _ in found], [broker for _, broker in found]
