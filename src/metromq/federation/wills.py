"""Wills of clients whose broker is lost: another broker keeps a copy, and fires it in time; no I/O.

A broker tells each will to the broker that would be its client's directory if it were gone itself: that one hears where
the client connects next, so it knows whether the client is alive elsewhere. A will that was fired is noted, in the
journal too, until the lost broker is back and has heard of it. Whoever fires a will, it has the same name for ever (its
client and the time of the CONNECT), so if two brokers fire it nevertheless, subscribers get it once.
"""

from collections.abc import Container
from dataclasses import dataclass, replace
from typing import Final, final

from metromq.federation.coordination.sharing import Shared
from metromq.federation.directory import Directory
from metromq.federation.effects import Effect, FireWill, Keep, Send, WillFired
from metromq.federation.links.frames import ClientClaim, WillDropped, WillsAnew, WillsFired, WillTold

GRACE_US: Final = 5_000_000  # so long clients of a lost broker have to come back elsewhere
TOLD_AGAIN_US: Final = 10_000_000  # so soon a broker that has started anew has told the wills of its clients
MOST_BYTES: Final = 64 << 20  # of wills that are kept for one peer; those beyond are fired when it is back
MOST_FIRED: Final = 100_000  # that are noted for one peer
WILL_BYTES: Final = 200  # what a will counts for beside its text


@dataclass(frozen=True, slots=True)
class _Kept:
    will: WillTold
    since_us: int  # when it came


@final
class Wills:
    def __init__(self, name: str, directory: Directory, up: Container[str], living: tuple[str, ...]) -> None:
        self._name = name
        self._directory = directory
        self._up = up
        self._own: dict[str, tuple[WillTold, int]] = {}  # of our clients, and when it was told
        self._told: dict[str, str] = {}  # the broker that knows,
        self._told_before: dict[str, set[str]] = {}  # and those that knew when others were away, and have it still
        self._kept: dict[str, dict[str, _Kept]] = {}  # for peers
        self._bytes: dict[str, int] = {}
        self._fired: dict[str, dict[str, int]] = {}  # for peers that do not know yet
        self._gone: dict[str, int] = {}  # peers that are lost, since when
        self._reborn: dict[str, int] = {}  # peers that are back, since when
        self._ever = _AS_SET.of(living)  # and all that were ever there
        self.refused = 0  # wills for which there was no room
        directory.on_claim = self.claimed

    # Our own clients.

    def left(self, will: WillTold, now_us: int) -> list[Effect]:
        """A client connected with a will, or is lost and the will waits for its delay."""
        effects = self._take_back(will.client)
        self._own[will.client] = (will, now_us)
        return effects + self._tell(will.client, now_us)

    def dropped(self, client: str) -> list[Effect]:
        """The client said goodbye, or its will has been published."""
        effects = self._take_back(client)
        own, keeper = self._own.pop(client, None), self._told.pop(client, "")
        if own is not None and keeper in self._up:
            effects.append(Send(keeper, WillDropped(client, own[0].time_us)))
        return effects

    def _take_back(self, client: str) -> list[Effect]:
        """From those that are not its keeper any more, which might fire it when they take us for lost."""
        if client not in self._own:
            return []
        dropped = WillDropped(client, self._own[client][0].time_us)
        earlier = self._told_before.pop(client, ())
        return [Send(keeper, dropped) for keeper in sorted(earlier) if keeper in self._up]

    def _tell(self, client: str, now_us: int) -> list[Effect]:
        will, since_us = self._own[client]
        before, keeper = self._told.get(client, ""), self._directory.heir_of(client, self._name)
        self._told[client] = keeper
        if before not in ("", keeper):
            self._told_before.setdefault(client, set()).add(before)
        self._told_before.get(client, set()).discard(keeper)
        return [Send(keeper, _aged(will, now_us - since_us))] if keeper in self._up else []

    # Peers come and go.

    def living(self, alive: tuple[str, ...], now_us: int) -> list[Effect]:
        there = _AS_SET.of(alive)
        missing = self._ever - there
        self._gone = {peer: self._gone.get(peer, now_us) for peer in sorted(missing | (self._gone.keys() - there))}
        if not there <= self._ever:
            self._ever = there if there >= self._ever else self._ever | there
        effects: list[Effect] = []
        for client in list(self._own):
            if self._told.get(client) != self._directory.heir_of(client, self._name):
                effects += self._tell(client, now_us)
        for broker in self._gone:
            effects += self._pass_on(broker, now_us)
        return effects

    def _pass_on(self, broker: str, now_us: int) -> list[Effect]:
        """Wills of a lost broker go to whoever hears now where their clients connect."""
        effects: list[Effect] = []
        for client, kept in list(self._kept.get(broker, {}).items()):
            keeper = self._directory.heir_of(client, broker)
            if keeper != self._name and keeper in self._up:
                effects.append(Send(keeper, _aged(kept.will, now_us - kept.since_us)))
                self._forget(broker, client)
        return effects

    def met(self, peer: str, now_us: int) -> list[Effect]:
        """What was said over an earlier link may be lost: the peer is told everything again."""
        effects: list[Effect] = [Send(peer, WillsAnew())]
        for client in [client for client, keeper in self._told.items() if keeper == peer]:
            effects += self._tell(client, now_us)
        fired = self._fired.get(peer)
        if fired:
            effects.append(Send(peer, WillsFired(tuple(fired.items()))))
        return effects

    def reborn(self, peer: str, now_us: int) -> None:
        """It may have started anew: what it does not tell again in time was of its earlier life."""
        if self._kept.get(peer):
            self._reborn[peer] = now_us

    def _forget_earlier_lives(self, now_us: int) -> None:
        for peer, since_us in list(self._reborn.items()):
            if now_us - since_us >= TOLD_AGAIN_US:
                del self._reborn[peer]
                for client in [one for one, kept in self._kept.get(peer, {}).items() if kept.since_us < since_us]:
                    self._forget(peer, client)

    def member_left(self, peer: str) -> None:
        for kept in (self._kept, self._bytes, self._fired, self._gone):
            kept.pop(peer, None)
        self._ever -= {peer}

    # What peers say.

    def told(self, will: WillTold, now_us: int) -> list[Effect]:
        if will.broker == self._name:
            return []
        self._forget(will.broker, will.client)
        size = _size(will)
        if self._bytes.get(will.broker, 0) + size > MOST_BYTES:
            self.refused += 1
            return []
        self._kept.setdefault(will.broker, {})[will.client] = _Kept(will, now_us)
        self._bytes[will.broker] = self._bytes.get(will.broker, 0) + size
        return []

    def anew(self, peer: str) -> list[Effect]:
        self._kept.pop(peer, None)
        self._bytes.pop(peer, None)
        return []

    def taken_back(self, peer: str, dropped: WillDropped) -> list[Effect]:
        kept = self._kept.get(peer, {}).get(dropped.client)
        if kept is not None and kept.will.time_us <= dropped.time_us:
            self._forget(peer, dropped.client)
        fired = self._fired.get(peer, {})
        if fired.get(dropped.client) != dropped.time_us:
            return []
        del fired[dropped.client]
        return [self._note(peer)]

    def claimed(self, broker: str, claim: ClientClaim) -> None:
        """The client is at a broker: the wills that it left elsewhere before are void."""
        for other, wills in self._kept.items():
            kept = wills.get(claim.client) if other != broker else None
            if kept is not None and kept.will.time_us < claim.time_us:
                self._forget(other, claim.client)

    def fired(self, peer: str, fired: WillsFired) -> list[Effect]:
        """Wills of our own clients, which a peer has fired."""
        effects: list[Effect] = []
        for client, time_us in fired.wills:
            effects += [WillFired(client, time_us), Send(peer, WillDropped(client, time_us))]
        return effects

    # Time.

    def is_waiting(self) -> bool:
        """Whether wills of lost brokers will be due."""
        return bool(self._gone) and any(self._kept.get(broker) for broker in self._gone)

    def tick(self, now_us: int) -> list[Effect]:
        effects: list[Effect] = []
        if self._reborn:
            self._forget_earlier_lives(now_us)
        for broker, since_us in self._gone.items():
            for client, kept in list(self._kept.get(broker, {}).items()):
                if now_us >= _due_us(kept, since_us):
                    effects += self._fire(broker, client, kept.will)
        return effects

    def _fire(self, broker: str, client: str, will: WillTold) -> list[Effect]:
        self._forget(broker, client)
        noted = self._fired.setdefault(broker, {})
        noted[client] = will.time_us
        if len(noted) > MOST_FIRED:
            del noted[next(iter(noted))]
        return [FireWill(will), self._note(broker)]

    def _note(self, broker: str) -> Keep:
        return Keep(broker, WillsFired(tuple(self._fired.get(broker, {}).items())))

    def _forget(self, broker: str, client: str) -> None:
        kept = self._kept.get(broker, {}).pop(client, None)
        if kept is not None:
            self._bytes[broker] -= _size(kept.will)

    # After a restart.

    def restore(self, peer: str, fired: WillsFired) -> None:
        self._fired[peer] = dict(fired.wills)

    def snapshot(self) -> list[Keep]:
        return [self._note(peer) for peer, fired in self._fired.items() if fired]


def _as_set(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(names)


_AS_SET: Final = Shared(_as_set)


def _size(will: WillTold) -> int:
    return len(will.topic) + len(will.payload) + len(will.properties) + WILL_BYTES


def _aged(will: WillTold, passed_us: int) -> WillTold:
    """The will with the time that has passed since it was told."""
    if will.since_s < 0 or passed_us < 1_000_000:
        return will
    return replace(will, since_s=will.since_s + passed_us // 1_000_000)


def _due_us(kept: _Kept, gone_us: int) -> int:
    """The delay counts from the end of the connection: the client's own, or its broker's."""
    will = kept.will
    lost_us = gone_us if will.since_s < 0 else kept.since_us - will.since_s * 1_000_000
    return max(lost_us + will.delay_s * 1_000_000, gone_us + GRACE_US)
