"""One broker's part in the city: answers the hub, carries out what the node wants, and keeps links to peers; no I/O.

Three narrow doors lead outside. What is stored goes through the hub into its log; what is sent goes to a transport;
what time it is the shell says with `hub.at` before it calls anything here. The live broker and the simulator differ
only behind these doors.
"""

from collections.abc import Callable
from typing import Any, Final, final

from metromq.errors import PeerViolation
from metromq.federation.city import City
from metromq.federation.effects import (
    ClockSkewed,
    Effect,
    FactsLearnt,
    FireWill,
    HandOver,
    Keep,
    NeighboursChanged,
    Replay,
    Reroute,
    RetainedTold,
    RoutesChanged,
    Send,
    SendRetained,
    SessionFound,
    SessionRefused,
    SessionTaken,
    WillFired,
)
from metromq.federation.host.catch_up import CatchUp
from metromq.federation.host.copies import Copies
from metromq.federation.host.last_wills import LastWills
from metromq.federation.host.receiving import Receiving
from metromq.federation.host.retained_versions import RetainedVersions
from metromq.federation.host.roaming import Reporting as Reporting
from metromq.federation.host.roaming import Roaming
from metromq.federation.host.timers import Timers
from metromq.federation.links.frames import BATCH_TOPIC, CONTROL_TOPIC, RUN_TOPIC, decode_frame, encode_frame
from metromq.federation.links.inbox import Inbox
from metromq.federation.links.link import Link
from metromq.federation.links.relay import RELAY_TOPIC, RelayTransport
from metromq.federation.links.transport import Transport
from metromq.federation.node import Node
from metromq.protocol import Packer, Unpacker, reasons
from metromq.protocol.session import (
    KIND_LINK,
    KIND_WILL,
    Federation,
    Hub,
    LinkCopy,
    Message,
    NetworkConnection,
    Session,
    Waiter,
    records,
)

TICKS_PER_HELLO: Final = 5
BUSY_TICK_S: Final = 0.01
LONGEST_TICK_S: Final = 0.25  # links and timers need a look several times a second, however rare hellos are


@final
class Host(Federation):
    """Make it before the hub recovers; `start` after that, then `tick` at least every `tick_s` seconds.

    It has many methods because three rooms meet in it: one for each question of the hub, each event of a link and each
    effect of the node. Its attributes are the parts that do the work.
    """

    def __init__(self, city: City, name: str, hub: Hub, report: Reporting) -> None:
        self.city = city
        self.name = name
        self.hub = hub
        self.node = Node(city, name, hub.clock.wall_us, self._now_us(), lambda: hub.clock.wall_us)
        self.inbox = Inbox()
        self.links: dict[str, Link] = {}
        self.heard: dict[str, NetworkConnection] = {}  # connections over which peers speak to us
        self._hello_s = city.membership.hello_interval_ms / 1000
        self.tick_s = min(self._hello_s / TICKS_PER_HELLO, LONGEST_TICK_S)
        self._report = report
        self._transport: RelayTransport | None = None
        self._ticked_at = hub.clock.now
        self._timers = Timers()
        self._copies = Copies(hub, self.node, self.inbox)
        self._retained = RetainedVersions(hub, self.node, self._copies, self._timers, self.run)
        self._catch_up = CatchUp(hub, self.node, self._copies)
        self.roaming = Roaming(hub, self.node, self._copies, self._catch_up, self._timers, self.run, report)
        self.receiving = Receiving(hub, self.node, self.inbox, self._copies, self._retained, self.roaming)
        self._wills = LastWills(hub, self.node, self.inbox, self._copies, self.run, report)
        self._runners: dict[type, Callable[[Any], None]] = {
            Send: self._send_frame,
            Keep: self._keep,
            RoutesChanged: self._routes_changed,
            FactsLearnt: self._facts_learnt,
            NeighboursChanged: self._neighbours_changed,
            Reroute: self._catch_up.reroute,
            HandOver: self._catch_up.hand_over,
            Replay: self._catch_up.replay,
            SendRetained: self._retained.send,
            RetainedTold: self._retained.told,
            SessionFound: self.roaming.found,
            SessionRefused: self.roaming.refused,
            SessionTaken: self.roaming.taken,
            ClockSkewed: self._clock_skewed,
            FireWill: self._wills.fire,
            WillFired: self._wills.fired,
        }

    def _now_us(self) -> int:
        return int(self.hub.clock.now * 1_000_000)

    # --- life -----------------------------------------------------------------------------------------------------

    def start(self, transport: Transport) -> None:
        """After recovery: opens links to the peers and begins to greet."""
        clock = self.hub.clock
        self._transport = RelayTransport(self.name, transport, self, lambda: clock.now, clock.wall_us)
        self._ticked_at = self.hub.clock.now
        if self._catch_up.away_us() >= 0:
            self.node.restarted(self._catch_up.away_us(), self._now_us())
        for peer in self.node.neighbours:
            self._open_link(peer)
        for session in list(self.hub.sessions.by_client_id.values()):
            if session.departed_to:
                self.roaming.restored(session)
            else:
                self.node.directory.restored(
                    session.client_id,
                    session.claimed_us,
                    session.username,
                    session.opened_us,
                    session.clean_us,
                )
            self._remember_ages(session)
        self.run(self.node.directory.living(self.city.names))
        self._wills.start()
        self.tick()

    def _remember_ages(self, session: Session) -> None:
        clock = self.hub.clock
        for full_filter in session.grants:
            since_us = session.since_us(full_filter)
            if since_us:
                age_us = max(0, clock.wall_us - since_us)
                self.node.announcer.wanted_since(full_filter, self._now_us() - age_us)

    def stop(self) -> None:
        for link in self.links.values():
            link.close()

    def tick(self) -> None:
        hub, now_us = self.hub, self._now_us()
        passed_s = hub.clock.now - self._ticked_at
        self._ticked_at = hub.clock.now
        if passed_s > self.tick_s + self._hello_s:
            self._report("warning", "this process stood still", seconds=round(passed_s, 3))
            self.node.coordinator.overslept(now_us, int(passed_s * 1_000_000))
        if self._transport is not None:
            self._transport.tick(hub.clock.now)
        self.run(self.node.tick(now_us, len(hub.connections.open) - len(self.heard)))
        self._catch_up.mark()
        self._timers.run(hub.clock.now)
        self.roaming.tick()

    def rest_s(self) -> float:
        """How long the next tick may wait."""
        return BUSY_TICK_S if self.roaming.is_busy() else self.tick_s

    def link_up(self, link: Link) -> None:
        via = {"through": self.via(link.peer)} if self.via(link.peer) else {}
        self._report("info", "link is up", peer=link.peer, waiting=link.backlog.unsettled(), **via)
        self.run(self.node.peer_up(link.peer, self._now_us()))
        self._retained.tell_back(link.peer)
        self.hub.links.resume(link.backlog)

    def link_down(self, link: Link, problem: str) -> None:
        self._report("info", "link is down", peer=link.peer, problem=problem)
        if link.peer in self.node.up:
            self.run(self.node.peer_down(link.peer, self._now_us()))

    def is_alive(self, peer: str) -> bool:
        return peer in self.node.coordinator.alive(self._now_us())

    def via(self, peer: str) -> str:
        """The broker through which messages go to a peer that cannot be reached directly; empty: they need none."""
        return self._transport.via(peer) if self._transport is not None else ""

    def problem(self, peer: str) -> str:
        """Why a peer cannot be reached directly; empty: it can."""
        return self._transport.problem(peer) if self._transport is not None else ""

    # --- the node's effects ---------------------------------------------------------------------------------------

    def run(self, effects: list[Effect]) -> None:
        for effect in effects:
            self._runners[type(effect)](effect)
        if effects:
            self._copies.changed()

    def _send_frame(self, effect: Send) -> None:
        self.links[effect.peer].send_frame(encode_frame(effect.frame))

    def _keep(self, effect: Keep) -> None:
        self.hub.commits.append(records.CONTROL, Packer().text(effect.peer).blob(encode_frame(effect.frame)).done())

    def _facts_learnt(self, effect: FactsLearnt) -> None:
        for fact in effect.facts:
            self._report("info", "fact", kind=fact.kind, key=fact.key, owner=fact.owner, epoch=fact.epoch)

    def _clock_skewed(self, effect: ClockSkewed) -> None:
        seconds = round(effect.ahead_us / 1e6, 3)
        if effect.apart:
            self._report("warning", "clocks differ; set one of them right", peer=effect.peer, peer_is_ahead_s=seconds)
        else:
            self._report("info", "clocks agree again", peer=effect.peer, peer_is_ahead_s=seconds)

    def _neighbours_changed(self, effect: NeighboursChanged) -> None:
        """Links follow what the router says; what waits for a peer that is no neighbour any more stays in the hub."""
        wanted = set(self.node.neighbours)
        for peer in [peer for peer in self.links if peer not in wanted]:
            self.links.pop(peer).close()
        for peer in sorted(wanted - set(self.links)):
            self._open_link(peer)

    def _open_link(self, peer: str) -> None:
        if self._transport is not None:
            link = self.links[peer] = Link(self.hub, self.hub.links.backlog(peer), self._transport, self)
            link.open()

    def _routes_changed(self, effect: RoutesChanged) -> None:
        for topic_filter in effect.filters:
            self.hub.routes.invalidate(topic_filter)

    # --- what the hub asks ----------------------------------------------------------------------------------------

    def run_copies(self, topic: str) -> list[LinkCopy] | None:
        return self._copies.of_run(self.node.route(topic))

    def copies(self, message: Message) -> list[LinkCopy]:
        return self._copies.of(message)

    def picks_share(self, group: str, filter: str, message: Message) -> bool:
        return self._copies.picks_share(f"$share/{group}/{filter}", message)

    def subscribed(self, filter: str, share: str, members: int) -> None:
        full = f"$share/{share}/{filter}" if share else filter
        self.run(self.node.subscribed(full, self._now_us(), members if share else 1))
        if not share:
            self._retained.ask(filter)

    def unsubscribed(self, filter: str, share: str) -> None:
        self.run(self.node.unsubscribed(f"$share/{share}/{filter}" if share else filter, self._now_us()))

    def asks(self, connection: NetworkConnection, client_id: str, clean_start: bool, username: str) -> bool:
        return self.roaming.asks(connection, client_id, clean_start, username)

    def gave_up(self, connection: NetworkConnection, client_id: str) -> None:
        self.roaming.gave_up(connection, client_id)

    def connected(self, session: Session, resumed: bool) -> None:
        self.roaming.entered(session)
        self._wills.changed(session)

    def will_changed(self, session: Session) -> None:
        self._wills.changed(session)

    def publishes_will(self, session: Session, message: Message) -> bool:
        self._wills.publish(session, message)
        return True

    def stamp_us(self, wall_us: int) -> int:
        return self.node.clock.stamp_us()

    def claimed_us(self, client_id: str) -> int:
        return self.node.directory.claimed_us(client_id) or self.node.clock.stamp_us()

    def ended(self, session: Session) -> None:
        if not session.departed_to and not self.roaming.is_entering(session.client_id):
            self.run(self.node.directory.ended(session.client_id))

    def retains(self, message: Message) -> bool:
        return self._retained.accepts(message)

    def not_retained(self, message: Message) -> None:
        self._retained.not_kept(message)

    def retained_waits(self, session: Session, full_filter: str, new: bool) -> bool:
        return self._retained.waits(session, full_filter, new)

    def keeps_up(self, message: Message, copies: list[LinkCopy]) -> None:
        self._retained.keep_up(message, copies)

    # --- what peers send ------------------------------------------------------------------------------------------

    def link_accepted(self, peer: str, connection: NetworkConnection) -> None:
        old = self.heard.get(peer)
        if old is not None and old is not connection:
            old.terminate(reasons.PROTOCOL_ERROR, "the peer has a newer connection")
        self.heard[peer] = connection
        self.node.peer_connected(peer, self._now_us())
        if self._transport is not None:
            self._transport.heard_directly(peer)

    def link_lost(self, peer: str, connection: NetworkConnection) -> None:
        if self.heard.get(peer) is connection:
            del self.heard[peer]

    def journal_told(self, peer: str, journal: str) -> None:
        """A peer that has proved its name says which journal its sequences count in."""
        try:
            number = int(journal, 16)
        except ValueError:
            return
        if self.inbox.journal_of(peer, number):
            self._report("warning", "the peer started with a new journal", peer=peer)

    def arrived(self, peer: str, topic: str, payload: bytes, waiter: Waiter | None) -> None:
        if topic == CONTROL_TOPIC:
            self.run(self.node.frame(peer, payload, self._now_us()))
        elif topic == BATCH_TOPIC:
            self.receiving.batch(peer, payload, waiter)
        elif topic == RUN_TOPIC:
            self.receiving.run(peer, payload)
        elif topic == RELAY_TOPIC and self._transport is not None:
            self._transport.arrived(peer, payload)
        else:
            raise PeerViolation(reasons.PROTOCOL_ERROR, f"{topic} is no topic of a link")

    # --- after a restart ------------------------------------------------------------------------------------------

    def recovered(self, kind: int, body: bytes) -> None:
        reader = Unpacker(body)
        peer = reader.text()
        if kind == records.LINK:
            self.inbox.restore_cursor(peer, reader.u64(), reader.i64())
        else:
            self.node.restore(peer, decode_frame(reader.blob()), self._now_us())

    def replayed(self, message: Message, uses: int) -> None:
        self._catch_up.recalled(message)
        if message.kind in (KIND_LINK, KIND_WILL) and message.origin_offset >= 0:
            self.inbox.received(message.origin, message.origin_offset, uses)
        elif uses:
            self.inbox.rerouted(message.origin, message.origin_offset)

    def snapshot(self) -> bytes:
        packer = Packer().blob(self.inbox.dump())
        kept = self.node.snapshot()
        packer.u32(len(kept))
        for keep in kept:
            packer.text(keep.peer).blob(encode_frame(keep.frame))
        self._retained.pack(packer)
        self._catch_up.pack(packer)
        return packer.done()

    def restored(self, state: bytes) -> None:
        if not state:
            return
        reader = Unpacker(state)
        self.inbox.load(reader.blob())
        for _ in range(reader.u32()):
            peer = reader.text()
            self.node.restore(peer, decode_frame(reader.blob()), self._now_us())
        self._retained.unpack(reader)
        if not reader.at_end():
            self._catch_up.unpack(reader)
