"""The broker without its network: sessions, routes, retained messages, and what must be stored first."""

from typing import final

from metromq.protocol.packing import Packer
from metromq.protocol.session import records, store
from metromq.protocol.session.city import Federation as Federation
from metromq.protocol.session.city import LinkCopy as LinkCopy
from metromq.protocol.session.commitment import Waiter as Waiter
from metromq.protocol.session.delivery import ENTRY_BYTES
from metromq.protocol.session.log import Log
from metromq.protocol.session.message import KIND_WILL, Message
from metromq.protocol.session.outlet import Outlet
from metromq.protocol.session.publishing import Publishing
from metromq.protocol.session.seen_ids import SeenIds
from metromq.protocol.session.session import NEVER, SENT, Entry, Grant, Session
from metromq.protocol.session.settings import Settings
from metromq.protocol.topics.names import split_shared
from metromq.protocol.wire.packets import Subscription, Will
from metromq.protocol.wire.reasons import SESSION_TAKEN_OVER


@final
class Hub(Publishing):
    """All state of one broker. Every call happens at `now`, which the shell sets with `at`."""

    def __init__(self, settings: Settings, log: Log | None = None, name: str = "metromq") -> None:
        super().__init__(settings, log, name)
        self.assigned = 0
        self.connect_tokens = settings.max_connects_per_s
        self.connect_at = 0.0
        self.sessions: dict[str, Session] = {}
        self.detached: dict[str, Session] = {}
        self.by_number: dict[int, Session] = {}
        self.next_number = 1
        self.connections: dict[Outlet, None] = {}  # Connection objects, typed by what the hub needs of them
        # Clean starts that wait until the journal has no old session, and their users.
        self.erasing: dict[str, tuple[Outlet, str]] = {}
        self.interests: dict[tuple[str, str], int] = {}  # (filter, share) -> subscriptions

    def at(self, now: float, wall_us: int) -> None:
        self.now = now
        self.wall_us = wall_us
        census = self.census
        if census is not None and wall_us >= census.until_us:
            census.turn(wall_us)

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

    def clients_known(self) -> int:
        """Sessions of clients, connected or not; links to peers are none."""
        return sum(1 for client_id in self.sessions if not client_id.startswith("$link/"))

    def clients_connected(self) -> int:
        return self.clients_known() - len(self.detached)

    def is_foreign(self, client_id: str, username: str) -> bool:
        """Whether the session with this identifier belongs to another user; "" is the user of clients without one."""
        session = self.sessions.get(client_id)
        if session is not None:
            return session.username != username
        waiting = self.erasing.get(client_id)
        return waiting is not None and not waiting[0].closing and waiting[1] != username

    def adopt(self, client_id: str, username: str, opened_us: int) -> Session:
        """A session that comes from another broker, before its client is let in."""
        session = self._new_session(client_id)
        session.username = username
        session.opened_us = opened_us
        session.expiry_s = NEVER
        session.detached_at = self.now
        session.detached_wall_us = self.wall_us
        self.detached[client_id] = session
        return session

    def restart(self, session: Session) -> None:
        """Its client went on elsewhere and begins anew here: what was under way is no more, what waits stays."""
        session.is_stale = False
        session.incoming.clear()
        for entry in list(session.inflight.values()):
            if entry.state > SENT:
                self.abandon(session, entry)
            else:
                entry.dup = False

    def note_seen(self, session: Session) -> None:
        if session.durable and session.seen is not None:
            self.append(records.SESSION_SEEN, Packer().u32(session.number).blob(session.seen.pack()).done())

    def note_session(self, session: Session) -> None:
        if self.log is not None:
            self._record_session(session)

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
        present = session is not None and not session.is_stale
        if session is None:
            session = self._new_session(client_id)
            session.opened_us = self.federation.stamp_us(self.wall_us)
            session.clean_us = session.opened_us if clean_start else 0
        if session.is_stale:
            self.restart(session)
        session.claimed_us = self.federation.claimed_us(client_id)
        if self.federated and expiry_s and session.seen is None:
            session.seen = SeenIds()
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
        if self.census is not None:
            self.census.connects += 1
        if len(self.connections) > self.counters.clients_maximum:
            self.counters.clients_maximum = len(self.connections)
        self.federation.connected(session, present)
        return session, present

    def rights_changed(self) -> None:
        """The access list was read again: new routes follow it, and what waits is checked before it is sent."""
        self.routes.clear()
        for session in self.sessions.values():
            self.suspect(session)
        for connection in list(self.connections):
            connection.permissions_changed()

    def discard(self, client_id: str) -> bool:
        """Ends a recorded session for a clean start [MQTT-3.1.2-4]; True: CONNACK must wait until the journal knows."""
        session = self.sessions.get(client_id)
        if session is None or not session.durable:
            return False
        if session.outlet is not None:
            session.outlet.terminate(SESSION_TAKEN_OVER, "another connection uses this client identifier")
            self.detach(session, False)
        self.close(session)
        return True

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
        self.federation.ended(session)
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
        self.publish(message, None)
        if session.durable:  # behind the message: a crash between the two may repeat the will but never loses it
            self.append(records.SESSION_DETACHED, store.pack_detached(session))

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
        session.will = None
        self.close(session)

    def rest(self, session: Session) -> None:
        """A recovered session waits for its client; its clocks go on from the moment it was left."""
        if session.client_id.startswith("$"):
            return  # a link has no clocks
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
        if self.census is not None:
            count = self.census.of(filter)
            count.opened += 1
            count.most_subscribers = max(count.most_subscribers, self.interests.get((filter, share), 0) + 1)
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
        if not self.federated or not self.federation.retained_waits(session, full_filter, new):
            self._send_retained(grant)

    def retained_now(self, session: Session, full_filter: str) -> None:
        """The same for a subscription that has waited."""
        grant = session.grants.get(full_filter)
        if grant is not None:
            self._send_retained(grant)

    def _interested(self, filter: str, share: str) -> None:
        key = (filter, share)
        count = self.interests.get(key, 0)
        self.interests[key] = count + 1
        if count == 0 or share:
            self.federation.subscribed(filter, share, count + 1)

    def unsubscribe(self, session: Session, full_filter: str) -> bool:
        if full_filter not in session.grants:
            return False
        self._drop_grant(session, full_filter)
        self.counters.unsubscribes += 1
        if self.census is not None:
            self.census.of(split_shared(full_filter)[1]).closed += 1
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
            if grant.share:
                self.federation.subscribed(grant.filter, grant.share, count)
        else:
            self.interests.pop(key, None)
            self.federation.unsubscribed(grant.filter, grant.share)

    def oldest_needed(self) -> int:
        """The oldest offset that a session still needs; -1: none."""
        oldest = -1
        for session in self.sessions.values():
            offset = session.oldest_offset()
            if offset >= 0 and (oldest < 0 or offset < oldest):
                oldest = offset
        return oldest
