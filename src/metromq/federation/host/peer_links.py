"""Which peers have a link: those that the routing names always, others while there is something to send; no I/O."""

from collections.abc import Callable
from typing import Final, final

from metromq.federation.city import City
from metromq.federation.effects import Effect, NeighboursChanged, Reopen, Send
from metromq.federation.host.timers import Timers
from metromq.federation.links.frame_bytes import encode_frame
from metromq.federation.links.frames import Hello, Rest
from metromq.federation.links.link import Link, LinkEvents
from metromq.federation.links.relay import RelayTransport
from metromq.federation.node import Node
from metromq.protocol.session import Hub

HEIRS_S: Final = 60.0  # so long after a broker has left the city its heirs are surely known
REST_AFTER_S: Final = 30.0  # without anything to send
LOOK_S: Final = 1.0  # between looks for links that are idle


@final
class PeerLinks:
    """`events` is told what happens on links; there are none before `start`."""

    def __init__(
        self, hub: Hub, node: Node, timers: Timers, events: LinkEvents, run: Callable[[list[Effect]], None]
    ) -> None:
        self.by_peer: dict[str, Link] = {}
        self.transport: RelayTransport | None = None
        self._hub = hub
        self._node = node
        self._timers = timers
        self._events = events
        self._run = run
        self._kept: frozenset[str] = frozenset()  # peers whose links never rest
        self._falling_asleep: set[str] = set()  # peers that were told that their link will rest
        self._looked_at = hub.clock.now

    def start(self, transport: RelayTransport) -> None:
        self.transport = transport
        self._kept = frozenset(self._node.neighbours)
        for peer in self._node.neighbours:
            self._open(peer)
        for peer, backlog in list(self._hub.links.by_peer.items()):
            if backlog.unsettled():
                self.reopen(Reopen(peer))

    def stop(self) -> None:
        for link in self.by_peer.values():
            link.close()

    def tick(self, now: float) -> None:
        if self.transport is not None:
            self.transport.tick(now)

    def is_calm(self) -> bool:
        """Whether all links are up that should be."""
        return self.transport is not None and self.transport.is_calm()

    def rests(self, peer: str) -> bool:
        """Whether there is no link to the peer because there was nothing to send."""
        link = self.by_peer.get(peer)
        if not self._node.coordinator.contacts().on_demand:
            return False
        return link.resting if link is not None else self._is_alive(peer)

    def send(self, effect: Send) -> None:
        """A control frame; opens a link for it, except for a greeting."""
        link = self._on_demand(effect.peer)
        if link is None or (isinstance(effect.frame, Hello) and not self._greets(link)):
            return
        if not isinstance(effect.frame, Hello | Rest):
            link.wake()
        link.send_frame(encode_frame(effect.frame))

    def _greets(self, link: Link) -> bool:
        """A greeting opens no link, and does not come behind the word that one will rest."""
        return link.up and link.peer not in self._falling_asleep

    def down(self, peer: str) -> None:
        """Its link has broken."""
        self._falling_asleep.discard(peer)

    # Who has one.

    def neighbours_changed(self, effect: NeighboursChanged) -> None:
        """Links follow what the router says; what waits for a peer that is no neighbour any more stays in the hub."""
        wanted = self._kept = frozenset(self._node.neighbours)
        for peer in [peer for peer in self.by_peer if peer not in wanted]:
            if not self._may_have(peer):  # otherwise it rests when it is idle
                self.by_peer.pop(peer).close()
        for peer in sorted(wanted):
            if peer in self.by_peer:
                self.by_peer[peer].wake()
            else:
                self._open(peer)

    def _open(self, peer: str) -> None:
        if self.transport is not None:
            self._make(peer, self.transport).open()

    def _make(self, peer: str, transport: RelayTransport) -> Link:
        link = self.by_peer[peer] = Link(
            self._hub, self._hub.links.backlog(peer), transport, self._events, self._node.clock
        )
        return link

    def city_changed(self, before: City, after: City) -> None:
        """Dials peers again whose addresses are other ones now, and forgets what waits for those that have left."""
        if self.transport is not None:
            for peer in [peer for peer, link in self.by_peer.items() if not link.resting]:
                known = peer in before.by_name and peer in after.by_name
                if known and before.link_address(peer) != after.link_address(peer):
                    self.transport.reset(peer, "its address has changed")
        self.forget_departed_later()

    def forget_departed_later(self) -> None:
        """What waits for brokers that are no members any more; by then it has gone to their heirs."""
        if any(not self._node.is_peer(peer) for peer in self._hub.links.by_peer):
            self._timers.at(self._hub.clock.now + HEIRS_S, self._forget_departed)

    def _forget_departed(self) -> None:
        backlogs = self._hub.backlogs
        for peer in [peer for peer in self._hub.links.by_peer if not self._node.is_peer(peer)]:
            backlog = self._hub.links.backlog(peer)
            backlogs.load_all(backlog)
            for entry in [*backlog.inflight.values(), *backlog.queue]:
                backlogs.abandon(backlog, entry)

    # On demand.

    def _on_demand(self, peer: str) -> Link | None:
        """The link, at rest if there was none; None: the peer must not have one."""
        link = self.by_peer.get(peer)
        if link is None and self.transport is not None and self._may_have(peer):
            link = self._make(peer, self.transport)
            link.rest()
        return link

    def _may_have(self, peer: str) -> bool:
        """Whether a link to it would be opened when there is something to send."""
        return self._node.coordinator.contacts().on_demand and self._node.is_peer(peer)

    def _is_alive(self, peer: str) -> bool:
        return self._node.coordinator.is_alive(peer, int(self._hub.clock.now * 1_000_000))

    def wants(self, peer: str) -> None:
        """There will be messages for the peer."""
        if peer not in self.by_peer and self._is_alive(peer):
            self._on_demand(peer)

    def reach_for(self, peer: str) -> None:
        """Opens a link, if there is none."""
        link = self._on_demand(peer)
        if link is not None:
            link.wake()

    def reopen(self, effect: Reopen) -> None:
        """For what waits for the peer, if there is something."""
        backlog = self._hub.links.by_peer.get(effect.peer)
        link = self._on_demand(effect.peer) if backlog is not None else None
        if link is not None and link.backlog.unsettled():
            link.wake()

    def look(self) -> None:
        """Links that nobody needs go to rest; those to lost peers are given up until the peers are back."""
        now = self._hub.clock.now
        if now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        self._falling_asleep -= self._kept
        for peer, link in list(self.by_peer.items()):
            self._was_heard(peer)
            if peer in self._kept or link.resting:
                continue
            if link.up and link.is_idle() and self._may_rest(peer):
                self._let_rest(link, now - link.used_at)
            elif not link.up and not self._is_alive(peer):
                self.by_peer.pop(peer).close()

    def _was_heard(self, peer: str) -> None:
        """Who returns our greetings need not be pinged too: each ping wakes two brokers."""
        heard_us = self._node.exchange.announcer.heard_us(peer)
        if heard_us and self.transport is not None:
            self.transport.was_heard(peer, heard_us / 1_000_000)

    def _may_rest(self, peer: str) -> bool:
        """Whether it would understand it, and nobody speaks with it through us."""
        is_between = self.transport is not None and self.transport.is_between(peer)
        return self._node.greetings.reads_rumours(peer) and not is_between

    def _let_rest(self, link: Link, idle_s: float) -> None:
        """The peer hears of it first, so that it does not take the end of the connection for a fault."""
        if idle_s < REST_AFTER_S:
            self._falling_asleep.discard(link.peer)
        elif link.peer not in self._falling_asleep:
            self._falling_asleep.add(link.peer)
            self._run([Send(link.peer, Rest())])
        else:
            self._falling_asleep.discard(link.peer)
            link.rest()
