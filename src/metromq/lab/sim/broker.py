"""A simulated broker: the host of a real Node, with sessions, a journal and durable links in memory."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from metromq.federation.city import City
from metromq.federation.directory import NO_SESSION
from metromq.federation.distribution import Hop
from metromq.federation.effects import (
    Effect,
    HandOver,
    Keep,
    Replay,
    Reroute,
    Send,
    SendRetained,
    SessionArrived,
    SessionFound,
    SessionRefused,
    SessionTaken,
)
from metromq.federation.interest import FilterIndex
from metromq.federation.links.batch import CHECK, SYNC, LinkMessage, decode_batch, encode_batch
from metromq.federation.links.frames import SessionState, decode_frame, encode_frame
from metromq.federation.links.inbox import DELIVER, DISTRIBUTE, DROP, SHARE, Inbox
from metromq.federation.links.outbox import Outbox
from metromq.federation.node import Node
from metromq.federation.stages import CLIENT, FINAL, HANDOVER, OWNER
from metromq.lab.sim.network import Network
from metromq.lab.sim.sessions import Session, Sessions, SimClient, is_shared
from metromq.protocol.session.message import Message
from metromq.protocol.topics.areas import area_of

GHOST_HELLOS = 8  # how long a moved session still collects what was on its way to the old broker


@dataclass(slots=True)
class Counters:
    """Messages in and out, as the paper counts them: publications and subscriptions, with clients and with peers."""

    publications_in: int = 0
    publications_out: int = 0
    subscriptions_in: int = 0
    between: int = 0  # messages sent to peers


@dataclass(slots=True)
class Record:
    """A journalled message, where it was sent, and at which stage it came."""

    message: Message
    stage: int
    peers: set[str]
    time_us: int


@dataclass(slots=True)
class Disk:
    """What survives a kill."""

    journal: list[Record] = field(default_factory=list)
    kept: list[tuple[str, bytes]] = field(default_factory=list)
    outboxes: dict[str, Outbox] = field(default_factory=dict)
    inbox: Inbox = field(default_factory=Inbox)
    retained: dict[str, Message] = field(default_factory=dict)
    sessions: Sessions = field(default_factory=Sessions)
    since: dict[str, int] = field(default_factory=dict)  # when each client connected
    leaving: list[tuple[str, SessionState]] = field(default_factory=list)
    lives: int = 0
    offset: int = 0


class SimBroker:
    def __init__(self, city: City, name: str, network: Network) -> None:
        self.city = city
        self.name = name
        self.network = network
        self.disk = Disk(outboxes={other: Outbox() for other in city.names if other != name})
        self.counters = Counters()
        self.running = False
        self.node: Node | None = None
        self.peers: dict[str, SimBroker] = {}  # filled by the city
        self._held: list[Callable[[], None]] | None = None  # while paused
        self._connections: dict[str, int] = {}  # the connection to each peer that we know to be up
        self._ghosts: dict[str, str] = {}
        self._number = 0
        self._encoded: tuple[object, bytes] = (None, b"")  # the last frame: broadcasts come one after the other
        self._runners: dict[type, Callable[[Any], None]] = {
            Send: self._send_frame,
            Keep: lambda effect: self.disk.kept.append((effect.peer, encode_frame(effect.frame))),
            Reroute: self._reroute,
            HandOver: self._hand_over,
            Replay: self._replay,
            SendRetained: self._send_retained,
            SessionTaken: self._session_taken,
            SessionArrived: self._session_arrived,
            SessionFound: lambda effect: None,
            SessionRefused: self._session_refused,
        }

    @property
    def now_us(self) -> int:
        return int(self.network.env.now * 1_000_000) + 1

    # Life and death.

    def start(self) -> None:
        self.disk.lives += 1
        self.running = True
        self._held = None
        self.node = node = Node(self.city, self.name, self.disk.lives, self.now_us)
        for peer, data in self.disk.kept:
            node.restore(peer, decode_frame(data), self.now_us)
        for topic_filter, members in self.disk.sessions.filters():
            self._run(node.subscribed(topic_filter, self.now_us, members if is_shared(topic_filter) else 1))
        for client, session in self.disk.sessions.by_name.items():
            node.directory.restored(client, self.disk.since[client], session.client.user, session.opened_us)
        self._run(node.directory.living(self.city.names))
        self.network.start(self.name)
        self._tick(self.disk.lives)

    def kill(self) -> None:
        """As kill -9: connections break, what is not on disk is gone."""
        self.running = False
        self.node = None
        self.network.stop(self.name)
        for outbox in self.disk.outboxes.values():
            outbox.lost()
        for session in list(self.disk.sessions.by_name.values()):
            session.connected = False
            if session.clean:
                self._end_session(session)

    def pause(self) -> None:
        """As SIGSTOP: connections stay, nothing is answered."""
        self._held = []

    def resume(self) -> None:
        held, self._held = self._held or [], None
        for action in held:
            action()

    def later(self, action: Callable[[], None]) -> None:
        """Runs what the network brings, now or after the pause."""
        if self._held is not None:
            self._held.append(action)
        elif self.running:
            action()

    def _tick(self, life: int) -> None:
        if self.disk.lives != life or not self.running:
            return
        if self._held is None and self.node is not None:
            clients = sum(session.connected for session in self.disk.sessions.by_name.values())
            self._run(self.node.tick(self.now_us, clients))
        self.network.after(self.city.membership.hello_interval_ms / 5000, lambda: self._tick(life))

    def peer_up(self, peer: str) -> None:
        connection = self.network.generation(self.name, peer)

        def up() -> None:
            self._connections[peer] = connection
            self.disk.outboxes[peer].resume(self.peers[peer].disk.inbox.cursor(self.name))
            self._run(self._node.peer_up(peer, self.now_us))
            for to, frame in list(self.disk.leaving):
                if to == peer:
                    self._send_frame(Send(peer, frame))
            self._pump(peer)

        self.later(up)

    def peer_down(self, peer: str) -> None:
        def down() -> None:
            self.disk.outboxes[peer].lost()
            self._run(self._node.peer_down(peer, self.now_us))

        self.later(down)

    @property
    def _node(self) -> Node:
        assert self.node is not None, f"{self.name} is not running"
        return self.node

    # Clients.

    def connect(self, client: SimClient, clean: bool, will: Message | None = None) -> None:
        session = self.disk.sessions.by_name.get(client.name)
        if session is not None and session.client.user != client.user:
            client.refused = True
            return
        if session is not None and (clean or session.clean):
            self._end_session(session)
            session = None
        opened_us = session.opened_us if session is not None else NO_SESSION
        if session is None:
            session = self.disk.sessions.by_name[client.name] = Session(client, True, clean, opened_us=self.now_us)
        session.connected, session.will = True, will
        session.flush()
        self.disk.since[client.name] = self.now_us
        effects = self._node.directory.connected(client.name, self.now_us, clean, not clean, client.user, opened_us)
        self._run(effects)

    def disconnect(self, client: str, abruptly: bool) -> None:
        session = self.disk.sessions.by_name.get(client)
        if session is None:
            return
        session.connected = False
        will, session.will = session.will, None
        if will is not None and abruptly:
            self._accept(will)
        if session.clean:
            self._end_session(session)
            self._run(self._node.directory.ended(client))

    def subscribe(self, client: str, topic_filter: str, qos: int) -> None:
        session = self.disk.sessions.by_name[client]
        self.counters.subscriptions_in += 1
        self.disk.sessions.add(session, topic_filter, qos)
        self._want(topic_filter)
        if not is_shared(topic_filter):
            for message in self._retained_matching((topic_filter,)):
                if message.payload:
                    session.take(message, min(qos, message.qos), True)

    def unsubscribe(self, client: str, topic_filter: str) -> None:
        self.disk.sessions.remove(self.disk.sessions.by_name[client], topic_filter)
        self._want(topic_filter)

    def publish(self, client: str, topic: str, payload: str, qos: int, retain: bool) -> None:
        self.counters.publications_in += 1
        self._accept(Message(topic, payload.encode(), qos, retain, publisher=client))

    def _want(self, topic_filter: str) -> None:
        if self.node is None:
            return
        members = self.disk.sessions.holders(topic_filter)
        if members:
            effects = self.node.subscribed(topic_filter, self.now_us, members if is_shared(topic_filter) else 1)
        else:
            effects = self.node.unsubscribed(topic_filter, self.now_us)
        self._run(effects)

    def _end_session(self, session: Session) -> None:
        for topic_filter in list(session.subscriptions):
            self.disk.sessions.remove(session, topic_filter)
            self._want(topic_filter)
        self.disk.sessions.by_name.pop(session.client.name, None)

    # Messages.

    def _accept(self, message: Message) -> None:
        """A client's own message, or its will."""
        message.time_us, message.origin = self.now_us, self.name
        offset = self._journal(message, CLIENT)
        message.origin_offset = offset
        self._number += 1
        route = self._node.route(message.topic, CLIENT, self.name, offset if message.qos else self._number)
        if message.retain:
            self._retain(message)
        self.counters.publications_out += self.disk.sessions.deliver(message, True, route.shares)
        self._forward(message, offset, route.hops)

    def _journal(self, message: Message, stage: int) -> int:
        """The offset in our journal, or -1 for QoS 0."""
        if not message.qos:
            return -1
        self.disk.journal.append(Record(message, stage, set(), self.now_us))
        self.disk.offset = len(self.disk.journal) - 1
        return self.disk.offset

    def _forward(self, message: Message, offset: int, hops: tuple[Hop, ...], flags: int = 0) -> None:
        for hop in hops:
            if not message.qos and (hop.durable_only or hop.peer not in self._node.up):
                continue
            entry = LinkMessage(
                message,
                hop.stage,
                max(offset, 0),
                flags | (CHECK if hop.check else 0),
                hop.served,
                hop.shares,
                hop.shares_done,
            )
            if offset >= 0:
                self.disk.journal[offset].peers.add(hop.peer)
            self.disk.outboxes[hop.peer].add(entry)
            self._pump(hop.peer)

    def _pump(self, peer: str) -> None:
        if peer not in self._node.up or self._connections[peer] != self.network.generation(self.name, peer):
            return
        outbox = self.disk.outboxes[peer]
        while batch := outbox.next_batch():
            self._send_batch(peer, batch, True)
        while batch := outbox.fleeting_batch():
            self._send_batch(peer, batch, False)

    def _send_batch(self, peer: str, batch: list[LinkMessage], acknowledged: bool) -> None:
        data = encode_batch(batch, self.now_us)
        self.counters.publications_out += len(batch)
        self.counters.between += len(batch)
        other = self.peers[peer]
        connection = self.network.generation(self.name, peer) if acknowledged else -1
        self.network.send(self.name, peer, lambda: other.later(lambda: other.batch(self.name, data, connection)))

    def batch(self, sender: str, data: bytes, connection: int) -> None:
        for entry in decode_batch(data, self.now_us):
            self.counters.publications_in += 1
            self._receive(sender, entry)
        if connection == self.network.generation(self.name, sender):
            other = self.peers[sender]
            self.network.send(self.name, sender, lambda: other.later(lambda: other.acknowledged(self.name)))

    def acknowledged(self, peer: str) -> None:
        self.disk.outboxes[peer].acknowledged()
        self._pump(peer)

    def _receive(self, sender: str, entry: LinkMessage) -> None:
        message = entry.message
        uses = self.disk.inbox.accept(sender, entry, self.name)
        if uses == DROP:
            return
        if message.retain and not self._retain(message) and (entry.flags & SYNC or self._has_retained(message)):
            uses &= ~DELIVER
        if entry.flags & SYNC:
            if uses & DELIVER and message.payload:
                self.disk.sessions.deliver(message, True, (), retain=True)
            return
        shares = entry.shares if uses & SHARE else ()
        hops: tuple[Hop, ...] = ()
        offset = self._journal(message, entry.stage)
        if uses & DISTRIBUTE:
            route = self._node.route(
                message.topic,
                entry.stage,
                message.origin,
                message.origin_offset,
                entry.served,
                shares,
                entry.shares_done,
                bool(entry.flags & CHECK),
            )
            hops, shares = route.hops, route.shares
        self.counters.publications_out += self.disk.sessions.deliver(message, bool(uses & DELIVER), shares)
        self._forward(message, offset, hops)

    # Retained messages: the greater (time, broker) wins everywhere; an empty payload is a deletion.

    def _retain(self, message: Message) -> bool:
        known = self.disk.retained.get(message.topic)
        if known is not None and (known.time_us, known.origin) >= (message.time_us, message.origin):
            return False
        self.disk.retained[message.topic] = message
        return True

    def _has_retained(self, message: Message) -> bool:
        known = self.disk.retained[message.topic]
        return (known.time_us, known.origin) == (message.time_us, message.origin)

    def _retained_matching(self, filters: tuple[str, ...]) -> list[Message]:
        if not self.disk.retained:
            return []
        index = FilterIndex()
        for topic_filter in filters:
            index.put(topic_filter, 1)
        return [message for topic, message in sorted(self.disk.retained.items()) if index.matching(topic)]

    # Effects.

    def _run(self, effects: list[Effect]) -> None:
        for effect in effects:
            runner = self._runners.get(type(effect))
            if runner is not None:
                runner(effect)

    def _send_frame(self, effect: Send) -> None:
        if effect.frame is not self._encoded[0]:
            self._encoded = (effect.frame, encode_frame(effect.frame))
        data = self._encoded[1]
        other = self.peers[effect.peer]
        done = effect.frame if isinstance(effect.frame, SessionState) else None

        def arrive() -> None:
            if done is not None and (effect.peer, done) in self.disk.leaving:
                self.disk.leaving.remove((effect.peer, done))
            other.later(lambda: other.frame(self.name, data))

        self.network.send(self.name, effect.peer, arrive)

    def frame(self, sender: str, data: bytes) -> None:
        node = self._node
        before = node.counters.interest_in
        effects = node.frame(sender, data, self.now_us)
        self.counters.subscriptions_in += node.counters.interest_in - before
        self._run(effects)

    def subscriptions_out(self) -> int:
        return self._node.counters.interest_out

    def reset_counters(self) -> None:
        self.counters = Counters()
        self._node.counters.interest_out = 0

    def _reroute(self, effect: Reroute) -> None:
        level = self.city.areas.l_b
        taken = self.disk.outboxes[effect.peer].take(
            lambda entry: entry.stage == OWNER and area_of(entry.message.topic, level) == effect.area
        )
        for entry in taken:
            offset = self._journal(entry.message, CLIENT)
            message = entry.message
            route = self._node.route(
                message.topic,
                CLIENT,
                self.name,
                message.origin_offset,
                shares_done=entry.shares_done,
                check=True,
            )
            if route.shares:
                self.disk.sessions.deliver(message, False, route.shares)
            self._forward(message, offset, route.hops)

    def _hand_over(self, effect: HandOver) -> None:
        since_us = self.now_us - effect.age_us
        for record in list(self.disk.journal):
            message = record.message
            if record.time_us < since_us or area_of(message.topic, self.city.areas.l_b) != effect.area:
                continue
            served = tuple(dict.fromkeys((self.name, message.origin, *sorted(record.peers))))
            self._again(record, Hop(effect.heir, HANDOVER, True, served))

    def _replay(self, effect: Replay) -> None:
        if not self.disk.journal:
            return
        index = FilterIndex()
        for topic_filter, age_us in effect.wanted:
            index.put(topic_filter, age_us)
        for record in list(self.disk.journal):
            message, age_us = record.message, self.now_us - record.time_us
            if effect.peer in (*record.peers, message.origin):
                continue
            if not any(age_us <= index.get(topic_filter) for topic_filter in index.matching(message.topic)):
                continue
            if self._node.replays(message.topic, message.origin, age_us, self.now_us):
                self._again(record, Hop(effect.peer, FINAL, True))

    def _again(self, record: Record, hop: Hop) -> None:
        """Journals a message anew for a link, because a link's sequences only grow."""
        record.peers.add(hop.peer)
        self._forward(record.message, self._journal(record.message, FINAL), (hop,))

    def _send_retained(self, effect: SendRetained) -> None:
        for message in self._retained_matching(effect.filters):
            self._forward(message, self._journal(message, FINAL), (Hop(effect.peer, FINAL),), SYNC)

    # Sessions that move.

    def _session_refused(self, effect: SessionRefused) -> None:
        """The live broker lets nobody in before the answer; here the newcomer leaves again."""
        session = self.disk.sessions.by_name.get(effect.client)
        if session is not None and self.disk.since[effect.client] == effect.time_us:
            session.client.refused = True
            self._end_session(session)

    def _session_taken(self, effect: SessionTaken) -> None:
        session = self.disk.sessions.by_name.get(effect.client)
        if session is None:
            return
        if effect.foreign:
            session.client.refused = True
            self._end_session(session)
            return
        session.connected, session.will = False, None
        if effect.clean_start or session.clean:
            self._end_session(session)
            return
        self._ghosts[effect.client] = effect.broker
        self._export(session, effect, False)
        wait_s = GHOST_HELLOS * self.city.membership.hello_interval_ms / 1000

        def bury() -> None:
            self._ghosts.pop(effect.client, None)
            self._export(session, effect, True)
            self._end_session(session)

        self.network.after(wait_s, lambda: self.later(bury))

    def _export(self, session: Session, effect: SessionTaken, last: bool) -> None:
        messages = [LinkMessage(message, FINAL) for message, _, _ in session.queue]
        session.queue.clear()
        state = {
            "user": session.client.user,
            "opened_us": session.opened_us,
            "subscriptions": session.subscriptions,
            "messages": encode_batch(messages, self.now_us).hex(),
        }
        frame = SessionState(effect.client, effect.time_us, last, json.dumps(state).encode())
        self.disk.leaving.append((effect.broker, frame))
        self._send_frame(Send(effect.broker, frame))

    def _session_arrived(self, effect: SessionArrived) -> None:
        session = self.disk.sessions.by_name.get(effect.client)
        if session is None or self.disk.since[effect.client] != effect.time_us:
            return
        state = json.loads(effect.state)
        if state["user"] != session.client.user:
            return
        session.opened_us = min(session.opened_us, state["opened_us"])
        self._node.directory.opened(effect.client, session.opened_us)
        if session.arrived is None:
            session.arrived = set()
        for topic_filter, qos in state["subscriptions"].items():
            self.disk.sessions.add(session, topic_filter, qos)
            self._want(topic_filter)
        for entry in decode_batch(bytes.fromhex(state["messages"]), self.now_us):
            session.take(entry.message, entry.message.qos, False)
        if effect.last:
            session.arrived = None
