"""The broker without its network: sessions, routes, retained messages, and what must be stored first."""

from collections import deque
from typing import final

from mypy_extensions import mypyc_attr

from metromq.protocol.session import records, store
from metromq.protocol.session.delivery import ENTRY_BYTES, Delivery
from metromq.protocol.session.log import Log
from metromq.protocol.session.message import KIND_REPLAY, KIND_WILL, Message
from metromq.protocol.session.outlet import Outlet
from metromq.protocol.session.packing import Packer
from metromq.protocol.session.records import Target
from metromq.protocol.session.routes import RemoteCheck, Route, RouteTable, RouteTarget
from metromq.protocol.session.session import NEVER, Entry, Grant, Session
from metromq.protocol.session.settings import Settings
from metromq.protocol.topics.names import split_shared
from metromq.protocol.topics.retained import RetainedTree
from metromq.protocol.wire.packets import Subscription, Will
from metromq.protocol.wire.reasons import SESSION_TAKEN_OVER

FROM_CLIENT = 0  # stage of a message that a client of this broker published


@mypyc_attr(allow_interpreted_subclasses=True)
class Waiter:
    """Something that goes on when the journal has what it waits for."""

    def committed(self) -> None:
        raise NotImplementedError

    def failed(self) -> None:
        """The records were not written (disk full) and are undone."""
        raise NotImplementedError


@final
class LinkCopy:
    """One copy of a message for one peer: the link's session and what to say beside the message."""

    def __init__(self, session: Session, note: bytes) -> None:
        self.session = session
        self.note = note


@mypyc_attr(allow_interpreted_subclasses=True)
class Federation(RemoteCheck):
    """What a hub asks and tells the rest of the city; the base class is a city of one broker.

    When an answer of `is_local` changes, the federation invalidates the routes it concerns (`hub.routes.invalidate`).
    """

    def copies(self, message: Message) -> list[LinkCopy]:
        """The peers that get a copy of a message that is being published here."""
        return []

    def subscribed(self, filter: str, share: str) -> None:
        """The first subscription to this filter (in this share group) was made here."""

    def unsubscribed(self, filter: str, share: str) -> None:
        """The last one is gone."""

    def retains(self, message: Message) -> bool:
        """Whether a message with RETAIN is newer than what the city knows of its topic, and is to be stored."""
        return True

    def connected(self, session: Session, resumed: bool) -> None:
        """A client has connected here."""

    def snapshot(self) -> bytes:
        """What the federation must know after a restart."""
        return b""

    def restored(self, state: bytes) -> None:
        """The snapshot was read again."""

    def recovered(self, kind: int, body: bytes) -> None:
        """A LINK or CONTROL record was read again after a restart."""

    def replayed(self, message: Message) -> None:
        """A message that came from a peer was read again after a restart."""

    def picks_share(self, group: str, filter: str, message: Message) -> bool:
        """Whether this broker's members are served with this message."""
        return True


@final
class _Pending:
    def __init__(self, position: int, offset: int, sessions: list[Session], waiter: Waiter | None) -> None:
        self.position = position
        self.offset = offset  # of the message among the records; -1: none
        self.sessions = sessions  # to pump
        self.waiter = waiter


@final
class Hub(Delivery):
    """All state of one broker. Every call happens at `now`, which the shell sets with `at`."""

    def __init__(self, settings: Settings, log: Log | None = None, name: str = "metromq") -> None:
        super().__init__(settings, log)
        self.name = name
        self.assigned = 0
        self.connect_tokens = settings.max_connects_per_s
        self.connect_at = 0.0
        self.routes = RouteTable()
        self.retained: RetainedTree[Message] = RetainedTree()
        self.sessions: dict[str, Session] = {}
        self.detached: dict[str, Session] = {}
        self.by_number: dict[int, Session] = {}
        self.next_number = 1
        self.connections: dict[Outlet, None] = {}  # Connection objects, typed by what the hub needs of them
        self.pending: deque[_Pending] = deque()
        self.federation = Federation()
        self.federated = False
        self.loose_offset = -1
        self.interests: dict[tuple[str, str], int] = {}  # (filter, share) -> subscriptions
        if log is None:
            self.committed_offset = 1 << 62

    def federate(self, federation: Federation) -> None:
        """Makes this broker one of many."""
        self.federation = federation
        self.federated = True
        self.routes.remote_check = federation
        self.routes.clear()

    def at(self, now: float, wall_us: int) -> None:
        self.now = now
        self.wall_us = wall_us

    def may_connect(self) -> bool:
        """Takes one of the connects this second has, in bursts of up to one second's worth."""
        rate = self.settings.max_connects_per_s
        if rate <= 0:
            return True
        self.connect_tokens = min(rate, self.connect_tokens + (self.now - self.connect_at) * rate)
        self.connect_at = self.now
        if self.connect_tokens < 1:
            return False
        self.connect_tokens -= 1
        return True

    # --- sessions -------------------------------------------------------------------------------------------------

    def link_session(self, peer: str) -> Session:
        """The session that holds what a peer broker must still get; made once, kept until `close`."""
        client_id = f"$link/{peer}"
        session = self.sessions.get(client_id)
        if session is None:
            session = self._new_session(client_id)
            session.expiry_s = NEVER
            session.durable = self.log is not None
            self.append(records.SESSION_OPENED, store.pack_session(session))
        return session

    def attach(
        self,
        outlet: Outlet,
        client_id: str,
        username: str,
        clean_start: bool,
        expiry_s: int,
        window: int,
        will: Will | None,
    ) -> tuple[Session, bool]:
        """A client has been accepted; returns its session and whether it was there before [MQTT-3.1.2-4..6]."""
        session = self.sessions.get(client_id)
        if session is not None and session.outlet is not None:
            session.outlet.terminate(SESSION_TAKEN_OVER, "another connection uses this client identifier")
            self.detach(session, False)
            session = self.sessions.get(client_id)
        if session is not None and clean_start:
            self.close(session)
            session = None
        present = session is not None
        if session is None:
            session = self._new_session(client_id)
        self.detached.pop(client_id, None)
        session.outlet = outlet
        session.username = username
        session.will = will
        session.will_at = 0.0  # [MQTT-3.1.3-9]
        session.window = min(window, self.settings.max_inflight)
        self.set_expiry(session, expiry_s)
        if self.log is not None:
            self._record_session(session)
        self.counters.connects += 1
        if len(self.connections) > self.counters.clients_maximum:
            self.counters.clients_maximum = len(self.connections)
        self.federation.connected(session, present)
        return session, present

    def assign_client_id(self) -> str:
        """A client identifier that no session has [MQTT-3.1.3-6]."""
        while True:
            self.assigned += 1
            client_id = f"{self.name}-{self.wall_us:x}-{self.assigned}"
            if client_id not in self.sessions:
                return client_id

    def _new_session(self, client_id: str) -> Session:
        session = Session(self.next_number, client_id)
        self.next_number += 1
        self.sessions[client_id] = session
        self.by_number[session.number] = session
        return session

    def set_expiry(self, session: Session, expiry_s: int) -> None:
        session.expiry_s = min(expiry_s, self.settings.max_session_expiry_s)

    def _record_session(self, session: Session) -> None:
        """A session that outlives its connection, or a will that must, is written down."""
        if not (session.expiry_s or session.will is not None or session.durable):
            return
        self.append(records.SESSION_OPENED, store.pack_session(session))
        if not session.durable:
            session.durable = True
            for grant in session.grants.values():
                self.append(records.SUBSCRIBED, store.pack_grant(grant))

    def expiry_changed(self, session: Session, expiry_s: int) -> None:
        """DISCONNECT may carry a new session expiry interval."""
        self.set_expiry(session, expiry_s)
        if self.log is not None:
            self._record_session(session)

    def detach(self, session: Session, clean: bool) -> None:
        """The connection has ended; `clean`: with a DISCONNECT that removes the will [MQTT-3.14.4-3]."""
        session.outlet = None
        self.counters.disconnects += 1
        if clean:
            session.will = None
        session.detached_at = self.now
        session.detached_wall_us = self.wall_us
        will = session.will
        if session.durable:
            self.append(records.SESSION_DETACHED, store.pack_detached(session))
        if session.expiry_s == 0:
            self.close(session)
            return
        self.detached[session.client_id] = session
        if will is not None:
            if will.delay_s == 0:
                self._publish_will(session)
            else:
                session.will_at = self.now + will.delay_s

    def close(self, session: Session) -> None:
        """The session ends: a waiting will is published [MQTT-3.1.2-8], then all its state is gone."""
        if session.closed:
            return
        if session.will is not None and session.outlet is None:
            self._publish_will(session)
        session.closed = True
        for full_filter in list(session.grants):
            self._drop_grant(session, full_filter)
        self.sessions.pop(session.client_id, None)
        self.by_number.pop(session.number, None)
        self.detached.pop(session.client_id, None)
        session.queue.clear()
        session.inflight.clear()
        session.spilled = 0
        if session.durable:
            self.append(records.SESSION_CLOSED, Packer().u32(session.number).done())

    def _publish_will(self, session: Session) -> None:
        will = session.will
        session.will = None
        session.will_at = 0.0
        if will is None:
            return
        message = Message(will.topic, will.payload, min(will.qos, self.settings.max_qos), will.retain, will.properties)
        message.time_us = self.wall_us
        message.publisher = session.client_id
        message.kind = KIND_WILL
        if will.expiry_s >= 0:
            message.expires_at_us = self.wall_us + will.expiry_s * 1_000_000
        if session.durable:
            self.append(records.SESSION_DETACHED, store.pack_detached(session))  # without its will from here on
        self.publish(message, None)

    def tick(self) -> None:
        """Ends sessions and publishes wills whose time has come."""
        if not self.detached:
            return
        for session in list(self.detached.values()):
            if session.will_at and session.will_at <= self.now:
                self._publish_will(session)
            if session.expiry_s != NEVER and session.detached_at + session.expiry_s <= self.now:
                self.close(session)

    # --- after a restart ------------------------------------------------------------------------------------------

    def restore_grant(self, grant: Grant) -> None:
        if self.routes.add(grant):
            self._interested(grant.filter, grant.share)

    def restore_ungrant(self, session: Session, full_filter: str) -> None:
        self._drop_grant(session, full_filter)

    def forget(self, session: Session) -> None:
        """Removes a session that the journal says is gone, without recording it again."""
        session.durable = False
        self.close(session)

    def rest(self, session: Session) -> None:
        """A recovered session waits for its client; its clocks go on from the moment it was left."""
        self.detached[session.client_id] = session
        away_s = max(0.0, (self.wall_us - session.detached_wall_us) / 1e6)
        session.detached_at = self.now - away_s
        if session.will is not None:
            session.will_at = max(session.detached_at + session.will.delay_s, 1e-9)

    def entry_bytes(self, entry: Entry) -> int:
        return len(self.load(entry).payload) + ENTRY_BYTES

    # --- subscriptions --------------------------------------------------------------------------------------------

    def subscribe(self, session: Session, wanted: Subscription, identifier: int) -> bool:
        """Grants a subscription that has been checked; returns whether it is new."""
        share, filter = split_shared(wanted.filter)
        qos = min(wanted.qos, self.settings.max_qos)
        grant = Grant(
            session, filter, share, qos, wanted.no_local, wanted.retain_as_published, wanted.retain_handling, identifier
        )
        new = self.routes.add(grant)
        self.counters.subscribes += 1
        if session.durable:
            self.append(records.SUBSCRIBED, store.pack_grant(grant), True)
        if new:
            self._interested(filter, share)
        return new

    def retained_for(self, session: Session, full_filter: str, new: bool) -> None:
        """Sends the retained messages a subscription asks for [MQTT-3.3.1-9..11]; shared ones get none."""
        grant = session.grants.get(full_filter)
        if grant is None or grant.share or grant.retain_handling == 2 or (grant.retain_handling == 1 and not new):
            return
        self._send_retained(grant)

    def _interested(self, filter: str, share: str) -> None:
        key = (filter, share)
        count = self.interests.get(key, 0)
        self.interests[key] = count + 1
        if count == 0:
            self.federation.subscribed(filter, share)

    def unsubscribe(self, session: Session, full_filter: str) -> bool:
        if full_filter not in session.grants:
            return False
        self._drop_grant(session, full_filter)
        self.counters.unsubscribes += 1
        if session.durable:
            self.append(records.UNSUBSCRIBED, Packer().u32(session.number).text(full_filter).done(), True)
        return True

    def _drop_grant(self, session: Session, full_filter: str) -> None:
        grant = self.routes.remove(session, full_filter)
        if grant is None:
            return
        key = (grant.filter, grant.share)
        count = self.interests.get(key, 0) - 1
        if count > 0:
            self.interests[key] = count
        else:
            self.interests.pop(key, None)
            self.federation.unsubscribed(grant.filter, grant.share)

    def _send_retained(self, grant: Grant) -> None:
        session = grant.session
        check = self.routes.read_check
        identifiers = (grant.identifier,) if grant.identifier else ()
        for message in self.retained.match(grant.filter):
            if message.expires_at_us and message.expires_at_us <= self.wall_us:
                self.retained.remove(message.topic)
                continue
            if check is None or check.may_read(session, message.topic):
                self.send_retained(session, message, min(grant.qos, message.qos), identifiers)
        self.pump(session)

    def send_retained(self, session: Session, message: Message, qos: int, identifiers: tuple[int, ...]) -> None:
        """One stored message for one session, with RETAIN set [MQTT-3.3.1-8]."""
        outlet = session.outlet
        if qos == 0:
            if outlet is not None and outlet.room():
                data = self.packet(outlet, message, 0, True, False, 0, identifiers)
                if data is not None:
                    outlet.write(data)
            return
        if not self.accepts(session, message):
            return
        log = self.log
        if log is not None and (session.durable or session.behind()):
            copy = Message(message.topic, message.payload, message.qos, True, message.properties, message.expires_at_us)
            copy.time_us = self.wall_us
            copy.publisher = message.publisher
            copy.kind = KIND_REPLAY
            copy.offset = log.append_message(
                records.encode_message(copy, [Target(session.number, qos | 4, identifiers)])
            )
            self.position += 1
            self.urgent = True
            self.pending.append(_Pending(self.position, copy.offset, [session], None))
            self.enqueue(session, copy, qos | 4, identifiers)
        else:
            loose = message
            if message.offset >= 0:  # it may be older than the journal; this entry lives in memory only
                loose = Message(
                    message.topic, message.payload, message.qos, True, message.properties, message.expires_at_us
                )
            self.enqueue(session, loose, qos | 4, identifiers)

    # --- publishing -----------------------------------------------------------------------------------------------

    def store_retained(self, message: Message) -> None:
        """The newest message with RETAIN stays; an empty payload removes it [MQTT-3.3.1-5..7]."""
        if self.federated and not self.federation.retains(message):
            return
        if not message.payload:
            self.retained.remove(message.topic)
        elif len(self.retained) < self.settings.max_retained_messages or self.retained.get(message.topic) is not None:
            self.retained.set(message.topic, message)

    def publish(self, message: Message, publisher: Session | None, packet_id: int = 0) -> int:
        """Accepts a message and returns how many receivers it has; what must wait for the journal waits for
        `self.position` to be committed."""
        route = self.routes.find(message.topic.encode())
        if message.retain:
            self.store_retained(message)
        route.publications += 1
        route.bytes += len(message.payload)
        if message.qos == 0:
            if self.log is not None and (message.retain or self.settings.record_qos0):
                message.offset = self.log.append_message(records.encode_message(message, []))
                self.position += 1
            return self._publish0(route, message, publisher)
        return self._publish12(route, message, publisher, packet_id)

    def publish_system(self, message: Message) -> None:
        """A retained message of the broker itself; never journalled."""
        self.store_retained(message)
        self._publish0(self.routes.find(message.topic.encode()), message, None)

    def _publish0(self, route: Route, message: Message, publisher: Session | None) -> int:
        count = 0
        for target in route.targets:
            chosen: RouteTarget | None = target
            if target.no_local and target.session is publisher:
                chosen = target.without_local()
            if chosen is not None:
                self._send0(chosen, message)
                count += 1
        for group in route.groups:
            if self.federation.picks_share(group.name, group.filter, message):
                grant = group.pick()
                if grant is not None and self._may_read(grant.session, message.topic):
                    self._send0(_target_of(grant), message)
                    count += 1
        if self.federated:
            for copy in self.federation.copies(message):
                outlet = copy.session.outlet
                if outlet is not None:
                    outlet.forward(message, copy.note)
                    count += 1
        route.deliveries += count
        return count

    def _may_read(self, session: Session, topic: str) -> bool:
        check = self.routes.read_check
        return check is None or check.may_read(session, topic)

    def _send0(self, target: RouteTarget, message: Message) -> None:
        outlet = target.session.outlet
        if outlet is None:
            return
        if not outlet.room():
            outlet.dropped += 1
            self.counters.dropped += 1
            return
        retain = message.retain and target.retain_as_published  # [MQTT-3.3.1-12], [MQTT-3.3.1-13]
        data = self.packet(outlet, message, 0, retain, False, 0, target.identifiers)
        if data is not None:
            outlet.write(data)

    def _publish12(self, route: Route, message: Message, publisher: Session | None, packet_id: int) -> int:
        receivers: list[RouteTarget] = []
        for target in route.targets:
            if target.no_local and target.session is publisher:
                rest = target.without_local()
                if rest is not None:
                    receivers.append(rest)
            else:
                receivers.append(target)
        for group in route.groups:
            if self.federation.picks_share(group.name, group.filter, message):
                grant = group.pick()
                if grant is not None and self._may_read(grant.session, message.topic):
                    receivers.append(_target_of(grant))
        count = len(receivers)
        queued: list[RouteTarget] = []
        for target in receivers:
            if target.qos == 0:
                self._send0(target, message)
            elif self.accepts(target.session, message):
                queued.append(target)
        copies: list[LinkCopy] = self.federation.copies(message) if self.federated else []
        self.deliver12(message, queued, copies, publisher, packet_id)
        route.deliveries += count
        return count + len(copies)

    def deliver12(
        self,
        message: Message,
        queued: list[RouteTarget],
        copies: list[LinkCopy],
        publisher: Session | None,
        packet_id: int,
    ) -> None:
        """Writes the message down with everyone who must get it, and queues it for them."""
        log = self.log
        if log is not None:
            targets: list[Target] = []
            for target in queued:
                if target.session.durable or target.session.behind():
                    targets.append(Target(target.session.number, _flags(message, target), target.identifiers))
            for copy in copies:
                targets.append(Target(copy.session.number, message.qos | (4 if message.retain else 0), (), copy.note))
            owner = publisher.number if publisher is not None and publisher.durable and packet_id else 0
            message.offset = log.append_message(records.encode_message(message, targets, owner, packet_id))
            self.position += 1
            self.urgent = True
        elif copies:
            self.loose_offset += 1
            message.offset = self.loose_offset  # links count what they carry, with or without a journal
        sessions: list[Session] = []
        for target in queued:
            self.enqueue(target.session, message, _flags(message, target), target.identifiers)
            sessions.append(target.session)
        for copy in copies:
            self.enqueue(copy.session, message, message.qos | (4 if message.retain else 0), (), copy.note)
            sessions.append(copy.session)
        if log is None:
            for session in sessions:
                self.pump(session)
        else:
            self.pending.append(_Pending(self.position, message.offset, sessions, None))

    # --- commitment -----------------------------------------------------------------------------------------------

    def when_committed(self, waiter: Waiter) -> None:
        """Calls the waiter when everything appended so far is as durable as the configuration asks."""
        if self.log is None or self.committed_position >= self.position:
            waiter.committed()
        else:
            self.urgent = True
            self.pending.append(_Pending(self.position, -1, [], waiter))

    def committed(self, position: int) -> None:
        """The journal has everything up to `position`."""
        self.committed_position = max(self.committed_position, position)
        pending = self.pending
        while pending and pending[0].position <= position:
            done = pending.popleft()
            if done.offset >= 0:
                self.committed_offset = done.offset
            for session in done.sessions:
                self.pump(session)
            if done.waiter is not None:
                done.waiter.committed()

    def failed(self, position: int) -> None:
        """Records after `position` were not written: what they did to queues is undone, those who wait are told."""
        lost: list[_Pending] = []
        while self.pending and self.pending[-1].position > position:
            lost.append(self.pending.pop())
        for one in lost:  # the newest first
            for session in one.sessions:
                _undo(session)
            if one.waiter is not None:
                one.waiter.failed()
        self.position = position

    def oldest_needed(self) -> int:
        """The oldest offset that a session still needs; -1: none."""
        oldest = -1
        for session in self.sessions.values():
            offset = session.oldest_offset()
            if offset >= 0 and (oldest < 0 or offset < oldest):
                oldest = offset
        return oldest


def _flags(message: Message, target: RouteTarget) -> int:
    return min(message.qos, target.qos) | (4 if message.retain and target.retain_as_published else 0)


def _target_of(grant: Grant) -> RouteTarget:
    target = RouteTarget(grant.session)
    target.add(grant)
    return target


def _undo(session: Session) -> None:
    """Takes back the newest entry: its message was not written."""
    if session.spilled:
        session.spilled -= 1
        session.sequence -= 1
    elif session.queue:
        entry = session.queue.pop()
        if entry.message is not None:
            session.queued_bytes -= len(entry.message.payload) + ENTRY_BYTES
        session.sequence -= 1
