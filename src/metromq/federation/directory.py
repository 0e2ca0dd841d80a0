"""Where is which client: one broker per client id remembers, chosen by hashing, so that a CONNECT costs one question.

The directory of a client is the living broker with the highest hash of both names. When brokers come or go, everybody
tells its clients to their new directories; what a lost directory knew is thereby known again. Of two brokers that both
claim a client, the one with the later CONNECT has it, and the other is told to close and to send the session after.
"""

import hashlib
from dataclasses import dataclass
from typing import final

from metromq.federation.effects import Effect, Send, SessionFound, SessionTaken
from metromq.federation.links.frames import ClientAnswer, ClientClaim, ClientMoved, ClientReleased

_MASK = (1 << 64) - 1
_SPREAD = 0x9E3779B97F4A7C15  # odd, so that multiplying mixes the low bits of a hash into the high ones


@dataclass(slots=True)
class _Own:
    time_us: int
    clean_start: bool
    told: str  # the directory that knows


@final
class Directory:
    def __init__(self, name: str, alive: tuple[str, ...]) -> None:
        self._name = name
        self._hashes = _hashes(alive)
        self._own: dict[str, _Own] = {}  # clients with a session here
        self._places: dict[str, tuple[int, str]] = {}  # clients whose directory this broker is: since when, where
        self._waiting: dict[str, int] = {}  # clients that the host holds back until the answer

    def keeper_of(self, client: str) -> str:
        number = _hash(client)
        best, keeper = -1, self._name
        for broker, mixed in self._hashes:
            weight = (number ^ mixed) * _SPREAD & _MASK
            if weight > best:
                best, keeper = weight, broker
        return keeper

    def connected(self, client: str, time_us: int, clean_start: bool, asks: bool) -> list[Effect]:
        """A client connected here; with `asks` a SessionFound follows."""
        self._own[client] = own = _Own(time_us, clean_start, "")
        if asks:
            self._waiting[client] = time_us
        return self._tell(client, own, asks)

    def restored(self, client: str, time_us: int) -> None:
        """A session that the journal brought back; told with the next change of the living."""
        self._own[client] = _Own(time_us, False, "")

    def ended(self, client: str) -> list[Effect]:
        own = self._own.pop(client, None)
        if own is None:
            return []
        keeper = self.keeper_of(client)
        if keeper == self._name:
            self.released(self._name, ClientReleased(client, own.time_us))
            return []
        return [Send(keeper, ClientReleased(client, own.time_us))]

    def living(self, alive: tuple[str, ...]) -> list[Effect]:
        """Brokers came or went: clients whose directory changed are told again, unanswered questions are settled."""
        self._hashes = _hashes(alive)
        effects: list[Effect] = []
        for client, own in self._own.items():
            if own.told != self.keeper_of(client):
                effects += self._tell(client, own, client in self._waiting)
        return effects

    def member_left(self, peer: str) -> None:
        """It has left the city for good, and the sessions that it held went with it."""
        self._places = {client: at for client, at in self._places.items() if at[1] != peer}

    def reconnected(self, peer: str) -> list[Effect]:
        """What was told over the link before it broke may be lost: tell it again."""
        effects: list[Effect] = []
        for client, own in self._own.items():
            if own.told == peer:
                effects += self._tell(client, own, client in self._waiting)
        return effects

    def unanswered(self, client: str) -> list[Effect]:
        """The host has waited long enough: let the client in without a session from elsewhere."""
        time_us = self._waiting.pop(client, None)
        return [] if time_us is None else [SessionFound(client, time_us, "")]

    def claimed(self, peer: str, claim: ClientClaim) -> list[Effect]:
        """As directory: someone says that it has the client."""
        time_us, place = self._places.get(claim.client, (0, ""))
        if place and place != peer and (time_us, place) > (claim.time_us, peer):
            return self._to(peer, ClientMoved(claim.client, time_us, place, False))
        self._places[claim.client] = (claim.time_us, peer)
        effects: list[Effect] = []
        if place and place != peer:
            effects += self._to(place, ClientMoved(claim.client, claim.time_us, peer, claim.clean_start))
        if claim.asks:
            before = place if place != peer and not claim.clean_start else ""
            effects += self._to(peer, ClientAnswer(claim.client, claim.time_us, before))
        return effects

    def answered(self, answer: ClientAnswer) -> list[Effect]:
        if self._waiting.get(answer.client) != answer.time_us:
            return []
        del self._waiting[answer.client]
        return [SessionFound(answer.client, answer.time_us, answer.broker)]

    def moved(self, moved: ClientMoved) -> list[Effect]:
        own = self._own.get(moved.client)
        if own is None or (own.time_us, self._name) > (moved.time_us, moved.broker):
            return []
        del self._own[moved.client]
        effects: list[Effect] = []
        if self._waiting.pop(moved.client, None) is not None:
            effects.append(SessionFound(moved.client, own.time_us, ""))
        effects.append(SessionTaken(moved.client, moved.time_us, moved.broker, moved.clean_start))
        return effects

    def released(self, peer: str, released: ClientReleased) -> None:
        time_us, place = self._places.get(released.client, (0, ""))
        if place == peer and time_us <= released.time_us:
            del self._places[released.client]

    def _tell(self, client: str, own: _Own, asks: bool) -> list[Effect]:
        keeper = own.told = self.keeper_of(client)
        return self._to(keeper, ClientClaim(client, own.time_us, asks, own.clean_start))

    def _to(self, broker: str, frame: ClientClaim | ClientAnswer | ClientMoved) -> list[Effect]:
        """To ourselves without a frame."""
        if broker != self._name:
            return [Send(broker, frame)]
        if isinstance(frame, ClientClaim):
            return self.claimed(self._name, frame)
        return self.answered(frame) if isinstance(frame, ClientAnswer) else self.moved(frame)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _hashes(brokers: tuple[str, ...]) -> list[tuple[str, int]]:
    return [(broker, _hash(broker)) for broker in sorted(brokers)]
