"""Joins the federation's node with the live hub: asks it where messages go and carries out what it wants."""

import asyncio
import secrets
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from metromq.broker import logs
from metromq.broker.city.history import History
from metromq.broker.city.link import Link
from metromq.broker.city.moves import Moves
from metromq.broker.city.notes import note_of, read_note
from metromq.broker.turns import Turns
from metromq.errors import MetroError, PeerViolation
from metromq.federation.city import City
from metromq.federation.distribution import EMPTY_ROUTE, Hop, Route
from metromq.federation.effects import (
    Effect,
    HandOver,
    Keep,
    Replay,
    Reroute,
    RoutesChanged,
    Send,
    SendRetained,
    SessionArrived,
    SessionFound,
    SessionTaken,
    TableChanged,
)
from metromq.federation.links.batch import CHECK, SYNC, LinkMessage, decode_batch
from metromq.federation.links.frames import BATCH_TOPIC, CONTROL_TOPIC, RUN_TOPIC, decode_frame, encode_frame
from metromq.federation.links.inbox import DELIVER, DISTRIBUTE, DROP, SHARE, Inbox
from metromq.federation.links.runs import decode_run
from metromq.federation.node import Node
from metromq.federation.stages import CLIENT, FINAL
from metromq.files import replace_file
from metromq.protocol.packing import Packer, Unpacker
from metromq.protocol.session import records
from metromq.protocol.session.hub import Federation, Hub, LinkCopy, Waiter
from metromq.protocol.session.message import KIND_LINK, Message
from metromq.protocol.session.outlet import Outlet
from metromq.protocol.session.session import Session
from metromq.protocol.topics.names import matches
from metromq.protocol.wire.reasons import PROTOCOL_ERROR

MAX_TOMBSTONES = 100_000


class CityHost(Federation):
    """The live broker's side of the city; the simulator has its own host around the same node."""

    def __init__(self, city: City, name: str, hub: Hub, turns: Turns, data_dir: Path | None) -> None:
        self.city = city
        self.name = name
        self.hub = hub
        self.turns = turns
        self.journal_id = _journal_id(data_dir)
        self.node = Node(city, name, hub.wall_us, self._now_us())
        self.inbox = Inbox()
        self.links: dict[str, Link] = {}
        self.history = History(self)
        self.moves = Moves(self)
        self.heard: dict[str, Outlet] = {}  # connections over which peers speak to us
        self.received_messages: dict[str, int] = dict.fromkeys(self.node.peers, 0)
        self.received_bytes: dict[str, int] = dict.fromkeys(self.node.peers, 0)
        self._tombstones: dict[str, tuple[int, str]] = {}
        self._entry: LinkMessage | None = None  # the peer's message that is being taken
        self._uses = 0
        self._routed: Message | None = None
        self._route: Route = EMPTY_ROUTE
        self._copies: dict[Route, list[LinkCopy]] = {}
        self._fleeting_copies: dict[Route, list[LinkCopy]] = {}  # the same at QoS 0, which takes no second way
        self._number = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._runners: dict[type, Callable[[Any], None]] = {
            Send: self._send_frame,
            Keep: self._keep,
            RoutesChanged: self._routes_changed,
            TableChanged: self._table_changed,
            Reroute: self.history.reroute,
            HandOver: self.history.hand_over,
            Replay: self.history.replay,
            SendRetained: self._send_retained,
            SessionFound: self.moves.found,
            SessionTaken: self.moves.taken,
            SessionArrived: lambda effect: None,  # sessions travel as messages, so that none is lost on the way
        }

    def _now_us(self) -> int:
        return int(self.hub.now * 1_000_000)

    # --- life -----------------------------------------------------------------------------------------------------

    def start(
        self, secret: bytes | None, addresses: Mapping[str, tuple[str, int]], tls: ssl.SSLContext | None = None
    ) -> None:
        """After recovery: dials every peer and begins to greet."""
        for session in self.hub.sessions.values():
            if not session.client_id.startswith("$"):
                self.node.directory.restored(session.client_id, session.detached_wall_us)
        for peer in self.node.peers:
            link = Link(self, peer, self.hub.link_session(peer), secret, tls)
            self.links[peer] = link
            address = addresses.get(peer) or self.city.link_address(peer)
            self._tasks.append(asyncio.create_task(link.run(*address)))
        self.run(self.node.directory.living(self.city.names))
        self._tasks.append(asyncio.create_task(self._tick()))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _tick(self) -> None:
        interval_s = self.city.membership.hello_interval_ms / 5000
        pause_s = self.city.membership.hello_interval_ms / 1000
        last = self.hub.now
        while True:
            self.turns.now()
            if self.hub.now - last > interval_s + pause_s:
                slept_s = self.hub.now - last
                logs.warning("this process stood still", seconds=round(slept_s, 3))
                self.node.coordinator.overslept(self._now_us(), int(slept_s * 1_000_000))
            last = self.hub.now
            clients = len(self.hub.connections) - len(self.heard)
            self.run(self.node.tick(self._now_us(), clients))
            self.history.mark()
            self.turns.worked()
            await asyncio.sleep(interval_s)

    def link_up(self, link: Link) -> None:
        self.run(self.node.peer_up(link.peer, self._now_us()))
        self.hub.resume(link.session)

    def link_down(self, link: Link) -> None:
        self.run(self.node.peer_down(link.peer, self._now_us()))

    # --- the node's effects ---------------------------------------------------------------------------------------

    def run(self, effects: list[Effect]) -> None:
        for effect in effects:
            self._runners[type(effect)](effect)
        if effects:
            self._routed = None

    def _send_frame(self, effect: Send) -> None:
        self.links[effect.peer].send_frame(encode_frame(effect.frame))

    def _keep(self, effect: Keep) -> None:
        self.hub.append(records.CONTROL, Packer().text(effect.peer).blob(encode_frame(effect.frame)).done())

    def _table_changed(self, effect: TableChanged) -> None:
        for entry in effect.entries:
            logs.info("topic table", area=entry.area, owner=entry.owner, epoch=entry.epoch)

    def _routes_changed(self, effect: RoutesChanged) -> None:
        for topic_filter in effect.filters:
            self.hub.routes.invalidate(topic_filter)

    def _send_retained(self, effect: SendRetained) -> None:
        """Everything stored, and every deletion still known, of the filters; the peer keeps what is newer."""
        copies = [self.copy_for(Hop(effect.peer, FINAL), SYNC)]
        found: dict[str, Message] = {}  # filters overlap: each topic once
        for topic_filter in effect.filters:
            for message in (*self.hub.retained.match(topic_filter), *self._deletions(topic_filter)):
                found[message.topic] = message
        for message in found.values():
            if not message.topic.startswith("$"):
                self.hub.replay(message, copies)

    def copy_for(self, hop: Hop, flags: int = 0) -> LinkCopy:
        return LinkCopy(self.hub.link_session(hop.peer), note_of(hop, flags))

    # --- what the hub asks ----------------------------------------------------------------------------------------

    def run_copies(self, topic: str) -> list[LinkCopy] | None:
        return self._fleeting(self.node.route(topic))

    def _fleeting(self, route: Route) -> list[LinkCopy] | None:
        """The copies of a QoS 0 message, where they are the same for every message of the topic."""
        if route.shares or any(hop.shares or hop.shares_done for hop in route.hops):
            return None
        return [self.copy_for(hop) for hop in route.hops if not hop.durable_only]

    def copies(self, message: Message) -> list[LinkCopy]:
        route = self._routing(message)
        if not route.hops:
            return []
        known = self._copies if message.qos else self._fleeting_copies
        found = known.get(route)
        if found is None:
            found = [self.copy_for(hop) for hop in route.hops if message.qos or not hop.durable_only]
            if len(known) > 10_000:
                known.clear()
            known[route] = found
        return found

    def picks_share(self, group: str, filter: str, message: Message) -> bool:
        return f"$share/{group}/{filter}" in self._routing(message).shares

    def _routing(self, message: Message) -> Route:
        if message is self._routed:
            return self._route
        entry = self._entry
        if entry is None or entry.message is not message:
            log = self.hub.log
            self._number += 1
            number = log.next_offset() if message.qos and log is not None else self._number
            route = self.node.route(message.topic, CLIENT, self.name, number)
        else:
            shares = entry.shares if self._uses & SHARE else ()
            route = Route((), shares) if shares else EMPTY_ROUTE
            if self._uses & DISTRIBUTE:
                route = self.node.route(
                    message.topic,
                    entry.stage,
                    message.origin,
                    message.origin_offset,
                    entry.served,
                    shares,
                    entry.shares_done,
                    bool(entry.flags & CHECK),
                )
        self._routed, self._route = message, route
        return route

    def subscribed(self, filter: str, share: str, members: int) -> None:
        full = f"$share/{share}/{filter}" if share else filter
        self.run(self.node.subscribed(full, self._now_us(), members if share else 1))

    def unsubscribed(self, filter: str, share: str) -> None:
        self.run(self.node.unsubscribed(f"$share/{share}/{filter}" if share else filter, self._now_us()))

    def asks(self, outlet: Outlet, client_id: str, clean_start: bool) -> bool:
        return self.moves.asks(outlet, client_id, clean_start)

    def ended(self, session: Session) -> None:
        if not session.client_id.startswith("$"):
            self.run(self.node.directory.ended(session.client_id))

    # --- retained messages: the greater (time, broker) wins everywhere ----------------------------------------------

    def retains(self, message: Message) -> bool:
        if message.topic.startswith("$"):
            return True
        known = self._version(message.topic)
        if message.kind != KIND_LINK and message.time_us <= known[0]:
            message.time_us = known[0] + 1  # our own clock may lag; what a client says now is newer than what was
        if (message.time_us, message.origin or self.name) <= known:
            return False
        if message.payload:
            self._tombstones.pop(message.topic, None)
        else:
            self._tombstones[message.topic] = (message.time_us, message.origin or self.name)
            if len(self._tombstones) > MAX_TOMBSTONES:
                self._tombstones.pop(next(iter(self._tombstones)))
        return True

    def _version(self, topic: str) -> tuple[int, str]:
        stored = self.hub.retained.get(topic)
        if stored is not None:
            return stored.time_us, stored.origin or self.name
        return self._tombstones.get(topic, (0, ""))

    def _deletions(self, topic_filter: str) -> list[Message]:
        found: list[Message] = []
        for topic, (time_us, origin) in self._tombstones.items():
            if matches(topic_filter, topic):
                found.append(Message(topic, b"", 1, True, b"", 0, time_us, "", KIND_LINK, origin, 0))
        return found

    # --- what peers send ------------------------------------------------------------------------------------------

    def link_accepted(self, peer: str, outlet: Outlet) -> None:
        old = self.heard.get(peer)
        if old is not None and old is not outlet:
            old.terminate(PROTOCOL_ERROR, "the peer has a newer connection")
        self.heard[peer] = outlet

    def link_lost(self, peer: str, outlet: Outlet) -> None:
        if self.heard.get(peer) is outlet:
            del self.heard[peer]

    def journal_told(self, peer: str, journal: str) -> None:
        try:
            number = int(journal, 16)
        except ValueError:
            return
        if self.inbox.journal_of(peer, number):
            logs.warning("the peer started with a new journal", peer=peer)

    def arrived(self, peer: str, topic: str, payload: bytes, waiter: Waiter | None) -> None:
        if topic == CONTROL_TOPIC:
            self.run(self.node.frame(peer, payload, self._now_us()))
            return
        self.received_bytes[peer] += len(payload)
        if topic == BATCH_TOPIC:
            self._batch(peer, payload, waiter)
        elif topic == RUN_TOPIC:
            self._run(peer, payload)
        else:
            raise PeerViolation(PROTOCOL_ERROR, f"{topic} is no topic of a link")

    def _batch(self, peer: str, payload: bytes, waiter: Waiter | None) -> None:
        entries = decode_batch(payload, self.hub.wall_us)
        self.received_messages[peer] += len(entries)
        for entry in entries:
            self._receive(peer, entry)
        self._entry = None
        if waiter is not None:
            cursor = Packer().text(peer).u64(self.inbox.journal_number(peer)).i64(self.inbox.cursor(peer)).done()
            self.hub.append(records.LINK, cursor, True)
            self.inbox.settled(peer)
            self.hub.when_committed(waiter)

    def _run(self, peer: str, payload: bytes) -> None:
        """QoS 0 packets as their publisher sent them: passed on as they are wherever that is possible."""
        run = decode_run(payload)
        note = read_note(run.note)
        count = len(run.packets) // run.size
        self.received_messages[peer] += count
        route = self.hub.routes.find(run.topic())
        onward: list[LinkCopy] | None = []
        if note.stage < FINAL:
            onward = self._fleeting(self.node.route(route.topic, note.stage, run.origin, 0, note.served))
        if route.plain and onward is not None and self.name not in note.served:
            self.hub.spread(route, run.packets, run.size, run.header, run.topic_end, run.newer, "", run.origin, onward)
            return
        for text in run.payloads():
            message = Message(route.topic, text, 0, False, b"", 0, self.hub.wall_us, "", KIND_LINK, run.origin)
            self._receive(peer, LinkMessage(message, note.stage, 0, note.flags, note.served))
        self._entry = None

    def _receive(self, peer: str, entry: LinkMessage) -> None:
        message = entry.message
        uses = self.inbox.accept(peer, entry, self.name)
        if uses == DROP:
            return
        if self.moves.is_session(message):
            self.moves.arrived(peer, message)
            return
        if entry.flags & SYNC:
            self._sync(message)
            return
        if message.retain and self._version(message.topic) == (message.time_us, message.origin):
            uses &= ~DELIVER  # it came as a stored message before
        self._entry, self._uses = entry, uses
        self.hub.publish(message, None, uses, bool(uses & DELIVER))

    def _sync(self, message: Message) -> None:
        """A stored message that a peer has: kept if it is newer, and given to who subscribed before it came."""
        if not self.hub.keep(message):
            return
        if message.payload:
            for target in self.hub.routes.find(message.topic.encode()).targets:
                self.hub.send_retained(target.session, message, min(target.qos, message.qos), target.identifiers)
                self.hub.pump(target.session)

    # --- after a restart ------------------------------------------------------------------------------------------

    def recovered(self, kind: int, body: bytes) -> None:
        reader = Unpacker(body)
        peer = reader.text()
        if kind == records.LINK:
            self.inbox.restore_cursor(peer, reader.u64(), reader.i64())
        else:
            self.node.restore(peer, decode_frame(reader.blob()), self._now_us())

    def replayed(self, message: Message, uses: int) -> None:
        if message.kind == KIND_LINK and message.origin_offset >= 0:
            self.inbox.received(message.origin, message.origin_offset, uses)

    def snapshot(self) -> bytes:
        packer = Packer().blob(self.inbox.dump())
        kept = self.node.snapshot()
        packer.u32(len(kept))
        for keep in kept:
            packer.text(keep.peer).blob(encode_frame(keep.frame))
        packer.u32(len(self._tombstones))
        for topic, (time_us, origin) in self._tombstones.items():
            packer.text(topic).u64(time_us).text(origin)
        return packer.done()

    def restored(self, state: bytes) -> None:
        if not state:
            return
        reader = Unpacker(state)
        self.inbox.load(reader.blob())
        for _ in range(reader.u32()):
            peer = reader.text()
            self.node.restore(peer, decode_frame(reader.blob()), self._now_us())
        for _ in range(reader.u32()):
            topic = reader.text()
            self._tombstones[topic] = (reader.u64(), reader.text())


def _journal_id(data_dir: Path | None) -> str:
    """Names this broker's journal, so that peers notice when it starts anew."""
    if data_dir is None:
        return secrets.token_hex(7)
    path = data_dir / "journal-id"
    known = path.read_text().strip() if path.exists() else ""
    if not known:  # new, or emptied by a machine that crashed before the file was synced
        data_dir.mkdir(parents=True, exist_ok=True)
        known = secrets.token_hex(7)
        replace_file(path, known)
    return known


def link_secret(city: City) -> bytes | None:
    """The city's secret from its file or the file it names; None: certificates alone prove who is a peer."""
    if city.links.secret_file is not None:
        secret = city.links.secret_file.read_bytes().strip()
    else:
        secret = (city.links.secret or "").encode()
    if not secret and not city.links.certified:
        raise MetroError("the city has neither a secret nor certificates for its links")
    return secret or None
