"""The sessions of this broker's clients: how they begin, wait, move, and end, and the wills they leave."""

from typing import Final, final

from metromq.protocol.packing import Packer
from metromq.protocol.reasons import ADMINISTRATIVE_ACTION, SESSION_TAKEN_OVER
from metromq.protocol.session import records, store
from metromq.protocol.session.backlog import RELEASED, SENT, Backlogs
from metromq.protocol.session.clock import Clock
from metromq.protocol.session.commits import Commits, Waiter
from metromq.protocol.session.counters import BrokerCounters
from metromq.protocol.session.delivery import Delivery, SentWhenStored
from metromq.protocol.session.estates import ENDED, Estates
from metromq.protocol.session.federation import CityPlace
from metromq.protocol.session.hub_settings import HubSettings
from metromq.protocol.session.message import KIND_REPLAY, KIND_WILL, Message
from metromq.protocol.session.network_connection import NetworkConnection
from metromq.protocol.session.publishing import Publishing
from metromq.protocol.session.records import Target
from metromq.protocol.session.seen_ids import SeenIds
from metromq.protocol.session.session import NEVER, Session
from metromq.protocol.session.subscriptions import Subscriptions
from metromq.protocol.wire.packets import Will


@final
class _ProceedLater(Waiter):
    """CONNACK of a clean start that leaves when a crash can no longer bring back the old session."""

    def __init__(self, sessions: "Sessions", connection: NetworkConnection, client_id: str) -> None:
        self.sessions = sessions
        self.connection = connection
        self.client_id = client_id

    def committed(self) -> None:
        self.sessions.erased(self.connection, self.client_id)

    def failed(self) -> None:
        self.sessions.erased(self.connection, self.client_id)


LOOK_S: Final = 5.0  # detached sessions are looked at so often, or when the next of them is due


@final
class Sessions:
    """Every session by its client identifier, connected or not.

    It has many methods because each thing that can happen to a session, from its start over moves to its end, is one.
    """

    def __init__(
        self,
        name: str,
        settings: HubSettings,
        clock: Clock,
        commits: Commits,
        backlogs: Backlogs,
        delivery: Delivery,
        publishing: Publishing,
        subscriptions: Subscriptions,
        city: CityPlace,
        counters: BrokerCounters,
        estates: Estates,
    ) -> None:
        self.estates = estates  # of those that have ended
        self.by_client_id: dict[str, Session] = {}
        self.detached: dict[str, Session] = {}
        # Clean starts that wait until the journal has no old session, and their users.
        self.erasing: dict[str, tuple[NetworkConnection, str]] = {}
        self._name = name
        self._assigned = 0  # client identifiers, so far
        self._rests_until = 0.0
        self._settings = settings
        self._clock = clock
        self._commits = commits
        self._backlogs = backlogs
        self._delivery = delivery
        self._publishing = publishing
        self._subscriptions = subscriptions
        self._city = city
        self._counters = counters
        self._look_at = 0.0  # when a detached session may be due

    def get(self, client_id: str) -> Session | None:
        return self.by_client_id.get(client_id)

    def connected(self) -> int:
        """How many have a client."""
        return len(self.by_client_id) - len(self.detached)

    def is_foreign(self, client_id: str, username: str) -> bool:
        """Whether the session with this identifier belongs to another user; "" is the user of clients without one."""
        session = self.by_client_id.get(client_id)
        if session is not None:
            return session.username != username
        waiting = self.erasing.get(client_id)
        return waiting is not None and not waiting[0].output.closing and waiting[1] != username

    # --- the beginning --------------------------------------------------------------------------------------------

    def attach(
        self,
        connection: NetworkConnection,
        client_id: str,
        username: str,
        clean_start: bool,
        expiry_s: int,
        window: int,
        will: Will | None,
    ) -> tuple[Session, bool]:
        """A client has been accepted; returns its session and whether it was there before [MQTT-3.1.2-4..6]."""
        session = self.by_client_id.get(client_id)
        if session is not None and session.connection is not None:
            self._take_over(session, session.connection)
            session = self.by_client_id.get(client_id)
        if session is not None and clean_start:
            self.close(session)
            session = None
        present = session is not None and not session.is_stale
        federation = self._city.federation
        if session is None:
            session = self._new(client_id)
            session.opened_us = federation.stamp_us(self._clock.wall_us)
            session.clean_us = session.opened_us if clean_start else 0
        if session.is_stale:
            self._restart(session)
        session.clean_us = max(session.clean_us, federation.clean_us(client_id))
        session.claimed_us = federation.claimed_us(client_id)
        session.greeted_us = federation.stamp_us(self._clock.wall_us)
        if self._city.joined and expiry_s and session.seen is None:
            session.seen = SeenIds()
        self.detached.pop(client_id, None)
        session.connection = connection
        session.output = connection.output
        session.username = username
        session.will = will
        session.will_at = 0.0  # [MQTT-3.1.3-9]
        session.window = min(window, self._settings.max_inflight)
        self._set_expiry(session, expiry_s)
        self.record(session)
        federation.connected(session, present)
        return session, present

    def _restart(self, session: Session) -> None:
        """Its client went on elsewhere and begins anew here: what was under way is no more, what waits stays."""
        session.is_stale = False
        session.incoming.clear()
        for entry in list(session.backlog.inflight.values()):
            if entry.state > SENT:
                self._backlogs.abandon(session.backlog, entry)
            else:
                entry.dup = False

    def _take_over(self, session: Session, connection: NetworkConnection) -> None:
        connection.terminate(SESSION_TAKEN_OVER, "another connection uses this client identifier")
        self.detach(session, False)

    def _discard(self, client_id: str) -> bool:
        """Ends a recorded session for a clean start [MQTT-3.1.2-4]; True: CONNACK must wait until the journal knows."""
        session = self.by_client_id.get(client_id)
        if session is None or not session.backlog.durable:
            return False
        if session.connection is not None:
            self._take_over(session, session.connection)
        self.close(session)
        return True

    def must_wait(self, connection: NetworkConnection, client_id: str, clean_start: bool, username: str) -> bool:
        """Whether an old session must first leave the journal; a newer CONNECT takes the place of one that waits."""
        earlier = self.erasing.get(client_id)
        if earlier is not None:
            earlier[0].terminate(SESSION_TAKEN_OVER, "another connection uses this client identifier")
        elif not (clean_start and self._discard(client_id)):
            return False
        self.erasing[client_id] = (connection, username)
        self._commits.when_committed(_ProceedLater(self, connection, client_id))
        return True

    def erased(self, connection: NetworkConnection, client_id: str) -> None:
        """The journal has no old session any more: who waited for that goes on."""
        waiting = self.erasing.get(client_id)
        if waiting is not None and waiting[0] is connection:
            del self.erasing[client_id]
            connection.proceed()

    def assign_client_id(self) -> str:
        """A client identifier that no session has [MQTT-3.1.3-6]."""
        while True:
            self._assigned += 1
            client_id = f"{self._name}-{self._clock.wall_us:x}-{self._assigned}"
            if client_id not in self.by_client_id:
                return client_id

    def adopt(self, client_id: str, username: str, opened_us: int) -> Session:
        """A session that comes from another broker, before its client is let in."""
        session = self._new(client_id)
        session.username = username
        session.opened_us = opened_us
        session.expiry_s = NEVER
        session.detached_at = self._clock.now
        session.detached_wall_us = self._clock.wall_us
        self.detached[client_id] = session
        return session

    def queue_again(
        self, session: Session, message: Message, flags: int, identifiers: tuple[int, ...], state: int
    ) -> None:
        """Queues a message that came with its session from another broker."""
        backlog = session.backlog
        message.kind = KIND_REPLAY
        message.offset = -1
        if self._commits.log is not None:
            body = records.encode_message(message, [Target(backlog.number, flags, identifiers)])
            message.offset = self._commits.store(body, SentWhenStored(self._delivery, session, message))
        self._delivery.enqueue(session, message, flags, identifiers)
        if state and backlog.queue and not backlog.spilled:
            entry = backlog.queue.last()
            entry.dup = True
            if state != SENT:
                entry.state = RELEASED
                self._commits.append(records.RECEIVED, Packer().u32(backlog.number).u16(entry.packet_id).done())

    def _new(self, client_id: str) -> Session:
        session = Session(self._backlogs.take_number(), client_id)
        self.by_client_id[client_id] = session
        return session

    # --- what is written down -------------------------------------------------------------------------------------

    def record(self, session: Session) -> None:
        """A session that outlives its connection, or a will that must, is written down."""
        backlog = session.backlog
        if self._commits.log is None or not (session.expiry_s or session.will is not None or backlog.durable):
            return
        self._commits.append(records.SESSION_OPENED, store.pack_session(session))
        if not backlog.durable:
            backlog.durable = True
            for full_filter, grant in session.grants.items():
                if not grant.of_replay:
                    self._commits.append(records.SUBSCRIBED, store.pack_grant(full_filter, grant))

    def record_seen(self, session: Session) -> None:
        """What a session has had elsewhere is written down, and what its client has sent there and not released."""
        if session.backlog.durable and session.seen is not None:
            packer = Packer().u32(session.backlog.number).blob(session.seen.pack())
            store.pack_incoming(packer, session)
            self._commits.append(records.SESSION_SEEN, packer.done())

    def settle_seen(self, session: Session) -> None:
        """Its client asks for more than QoS 0: what it has had so far is not meant, also not after a restart."""
        if session.seen is not None and session.seen.settle():
            self.record_seen(session)

    def _record_detached(self, session: Session) -> None:
        if session.backlog.durable:
            self._commits.append(records.SESSION_DETACHED, store.pack_detached(session))

    def expiry_changed(self, session: Session, expiry_s: int) -> None:
        """DISCONNECT may carry a new session expiry interval."""
        self._set_expiry(session, expiry_s)
        self.record(session)

    def _set_expiry(self, session: Session, expiry_s: int) -> None:
        session.expiry_s = min(expiry_s, self._settings.max_session_expiry_s)

    # --- the end --------------------------------------------------------------------------------------------------

    def detach(self, session: Session, clean: bool) -> None:
        """The connection has ended; `clean`: with a DISCONNECT that removes the will [MQTT-3.14.4-3]."""
        session.connection = None
        session.output = None
        if session.gate is not None:  # replays end with the connection that asked for them
            session.gate = None
            self._subscriptions.end_replays(session)
        self._counters.disconnects += 1
        if clean:
            session.will = None
        session.detached_at = self._clock.now
        session.detached_wall_us = self._clock.wall_us
        will = session.will
        self._record_detached(session)
        if session.expiry_s == 0:
            self.close(session)
            return
        self.detached[session.client_id] = session
        self._look_soon(session)
        if will is not None and will.delay_s == 0:
            self._publish_will(session)
            return
        if will is not None:
            session.will_at = self._clock.now + will.delay_s
            self._look_soon(session)
        self._city.federation.will_changed(session)

    def close(self, session: Session) -> None:
        """The session ends: a waiting will is published [MQTT-3.1.2-8], then all its state is gone.

        But for what other members of its groups get: that is seen to later.
        """
        if session.closed:
            return
        if session.will is not None and session.connection is None:
            self._publish_will(session)
        session.closed = True
        session.will = None
        self._city.federation.will_changed(session)
        filters = list(session.grants)
        for full_filter in filters:
            self._subscriptions.drop(session, full_filter)
        self._city.federation.ended(session)
        self.by_client_id.pop(session.client_id, None)
        self.detached.pop(session.client_id, None)
        backlog = session.backlog
        if self.estates.begin(session, filters):
            return
        backlog.clear()
        if backlog.durable:
            self._commits.append(records.SESSION_CLOSED, Packer().u32(backlog.number).done())

    def _publish_will(self, session: Session) -> None:
        will = session.will
        session.will = None
        session.will_at = 0.0
        if will is None:
            return
        qos = min(will.qos, self._settings.max_qos)
        message = Message(will.topic, will.payload, qos, will.retain, will.properties)
        message.time_us = self._clock.wall_us
        message.publisher = session.client_id
        message.kind = KIND_WILL
        if will.expiry_s >= 0:
            message.expires_at_us = self._clock.wall_us + will.expiry_s * 1_000_000
        if not self._city.federation.publishes_will(session, message):
            self._publishing.publish(message, None)
        self._city.federation.will_changed(session)
        self._record_detached(session)  # behind the message: a crash between may repeat the will but never loses it

    def publish_will(self, session: Session) -> None:
        """Its time has come early: the session leaves this broker, and its client is not there."""
        if session.will is not None and session.connection is None:
            self._publish_will(session)

    def void_will(self, session: Session) -> None:
        """Another broker has published the will: the client counts as lost, and is told so if it is still there."""
        session.will = None
        session.will_at = 0.0
        if session.connection is not None:
            session.connection.terminate(ADMINISTRATIVE_ACTION, "this broker was cut off, and the will was published")
            self.detach(session, False)
        else:
            self._record_detached(session)

    def rest_until(self, when: float) -> None:
        """Until then no session ends and no will is published, except for a client's own doing."""
        self._rests_until = when

    def tick(self) -> None:
        """Ends sessions and publishes wills whose time has come."""
        now = self._clock.now
        if self.estates.sessions:
            self.estates.tick()
        if not self.detached or now < self._look_at or now < self._rests_until:
            return
        self._look_at = now + LOOK_S
        for session in list(self.detached.values()):
            if session.will_at and session.will_at <= now:
                self._publish_will(session)
            if session.expiry_s != NEVER and session.detached_at + session.expiry_s <= now:
                self.close(session)
            else:
                self._look_soon(session)

    def _look_soon(self, session: Session) -> None:
        """Sees to it that a detached session is looked at when its will or its end is due."""
        if session.will_at:
            self._look_at = min(self._look_at, session.will_at)
        if session.expiry_s != NEVER:
            self._look_at = min(self._look_at, session.detached_at + session.expiry_s)

    # --- after a restart ------------------------------------------------------------------------------------------

    def restore(self, session: Session) -> None:
        """The journal, or a snapshot, knows of this session."""
        if session.client_id.startswith(ENDED):
            self.estates.restore(session)
        else:
            self.by_client_id[session.client_id] = session
        self._backlogs.saw_number(session.backlog.number)

    def renamed(self, session: Session, client_id: str) -> None:
        """The journal says that it has ended, and others get what it left."""
        for full_filter in list(session.grants):
            self._subscriptions.drop(session, full_filter)
        del self.by_client_id[session.client_id]
        session.client_id = client_id
        self.restore(session)

    def forget(self, session: Session) -> None:
        """Removes a session that the journal says is gone, without recording it again."""
        self.estates.sessions.pop(session.backlog.number, None)
        session.backlog.durable = False
        session.backlog.clear()
        session.will = None
        self.close(session)

    def rest(self, session: Session) -> None:
        """A recovered session waits for its client; its clocks go on from the moment it was left."""
        if session.closed:
            return
        self.detached[session.client_id] = session
        away_s = max(0.0, (self._clock.wall_us - session.detached_wall_us) / 1e6)
        session.detached_at = self._clock.now - away_s
        if session.will is not None:
            session.will_at = max(session.detached_at + session.will.delay_s, 1e-9)
        self._look_soon(session)
