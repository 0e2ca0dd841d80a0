"""The first half of a connection: CONNECT, enhanced authentication, CONNACK, and how a connection ends."""

from typing import Final, final

from metromq.errors import PeerViolation, ProtocolViolation
from metromq.protocol.session.access import Access, Decision, Later, Peer
from metromq.protocol.session.commits import Waiter
from metromq.protocol.session.hub import Hub
from metromq.protocol.session.outlet import Outlet
from metromq.protocol.session.session import NEVER, Session
from metromq.protocol.wire import reasons
from metromq.protocol.wire.encode import encode
from metromq.protocol.wire.packets import MQTT5, MQTT31, Auth, Connack, Connect, Disconnect, Properties, Will

NEW: Final = 0
AUTHENTICATING: Final = 1
OPEN: Final = 2
CLOSED: Final = 3
# What the client sends waits: its authentication is being decided (again), or it is accepted and its session is still
# looked for elsewhere, or an old one is being erased.
HELD_BACK: Final = 4

# 0x85 and, in 3.1.1, return code 2: the identifier is "not allowed by the server". The user is, so it is not 0x87.
FOREIGN: Final = "another user has a session with this client identifier"

LINK_PREFIX: Final = "$link/"  # client identifiers of peer brokers
LINK_PACKET_FACTOR: Final = 4  # a batch of a peer may be this much larger than a client's packet

# What CONNACK of 3.1.1 has a code for; other violations only close [MQTT-3.1.2-2], [MQTT-3.1.3-9].
ANSWERED_311: Final = (reasons.UNSUPPORTED_PROTOCOL_VERSION, reasons.CLIENT_IDENTIFIER_NOT_VALID)
RESERVED: Final = ("$SYS", "$metromq")  # topics that only the broker itself publishes


class Handshake(Outlet):
    """A connection up to its CONNACK; `Connection` adds what comes after."""

    def __init__(self, hub: Hub, access: Access, peer: Peer) -> None:
        limit = hub.settings.max_outgoing_bytes
        super().__init__(hub.dirty, limit // 4, limit)
        self.hub = hub
        self.access = access
        self.peer = peer
        self.state = NEW
        self.session: Session | None = None
        self.opened_at = hub.clock.now  # or when a re-authentication began to wait for its decision
        self.heard_at = hub.clock.now
        self.keepalive_s = 0.0
        self.close_reason = ""
        self.problem_information = True
        self.request: Connect | None = None  # kept while AUTH packets are exchanged
        self.auth_method: str | None = None
        self.exchange: object = None
        self.asked_expiry_s = 0
        self.decision: Decision | None = None  # on this client, kept while it is held back
        self.peer_broker = ""  # the broker at the other end, when this is a link
        self.max_incoming_bytes = hub.settings.max_packet_size_bytes
        self.restricted = False
        self.fast = False
        hub.connections.open[self] = None

    def client_id(self) -> str:
        return "" if self.session is None else self.session.client_id

    # --- CONNECT and AUTH -----------------------------------------------------------------------------------------

    def on_connect(self, connect: Connect) -> None:
        self.version = connect.version
        properties = connect.properties
        if properties.request_problem_information is False:
            self.problem_information = False
        if self.hub.connections.too_many():
            self.refuse(reasons.SERVER_BUSY, "the broker has as many connections as it may")
            return
        if not self.hub.connections.may_connect():
            self.refuse(reasons.CONNECTION_RATE_EXCEEDED, "too many connects at once; try again in a second")
            return
        if properties.maximum_packet_size:
            self.max_packet_bytes = properties.maximum_packet_size
        self.request = connect
        self.auth_method = properties.auth_method
        self._check_will(connect.will)
        decision = self.access.connect(
            self.peer,
            connect.client_id,
            connect.username,
            connect.password,
            properties.auth_method,
            properties.auth_data or b"",
        )
        self._decided(decision)

    def _check_will(self, will: Will | None) -> None:
        if will is None:
            return
        settings = self.hub.settings
        if will.qos > settings.max_qos:  # [MQTT-3.2.2-12]
            raise ProtocolViolation("the will's QoS is not supported [MQTT-3.2.2-12]", reasons.QOS_NOT_SUPPORTED)
        if will.retain and not settings.retain_available:  # [MQTT-3.2.2-13]
            raise ProtocolViolation("retained wills are not supported [MQTT-3.2.2-13]", reasons.RETAIN_NOT_SUPPORTED)

    def on_auth(self, auth: Auth) -> None:
        """Goes on with an exchange, or starts a new one on an open connection [MQTT-4.12.0-1..7], [MQTT-4.12.1-1]."""
        if self.auth_method is None or auth.properties.auth_method != self.auth_method:
            raise ProtocolViolation("AUTH with another method than CONNECT's [MQTT-4.12.1-1]")
        data = auth.properties.auth_data or b""
        if self.state == OPEN and auth.reason_code == reasons.REAUTHENTICATE:
            decision = self.access.connect(self.peer, self.client_id(), None, None, self.auth_method, data)
        elif auth.reason_code == reasons.CONTINUE_AUTHENTICATION and self.exchange is not None:
            decision = self.access.continued(self.exchange, data)
        else:
            raise ProtocolViolation("AUTH at the wrong moment")
        self._decided(decision)

    def decide(self, decision: Decision) -> None:
        """The decision that was to come later."""
        if self.closing:
            return
        self.decision = None
        self.state = AUTHENTICATING
        if self.session is not None:
            self._open()
        self._decided(decision)

    def _wait(self, decision: Decision, later: Later) -> None:
        """Packets stay in order: even an open connection reads nothing until it is known whose it is."""
        if self.session is not None:
            self.opened_at = self.hub.clock.now
            self.fast = False
        self.state = HELD_BACK
        self.decision = decision
        later.start(self)

    def _stop_waiting(self, late: bool) -> None:
        decision = self.decision
        if decision is not None and decision.later is not None:
            self.decision = None
            decision.later.abandoned(late)

    def _decided(self, decision: Decision) -> None:
        if decision.later is not None:
            self._wait(decision, decision.later)
            return
        properties = Properties()
        properties.auth_method = self.auth_method
        properties.auth_data = decision.data
        if decision.reason_code == reasons.CONTINUE_AUTHENTICATION:
            self.exchange = decision.exchange
            if self.state != OPEN:
                self.state = AUTHENTICATING
            self.write(encode(Auth(reasons.CONTINUE_AUTHENTICATION, properties), MQTT5))
            return
        self.exchange = None
        if not decision.reason_code and self.session is not None and decision.username != self.session.username:
            decision = Decision(reasons.NOT_AUTHORIZED, "re-authentication as another user")
        if decision.reason_code:
            if self.state == OPEN:
                self.terminate(reasons.disconnect_code(decision.reason_code), decision.reason)
            else:
                self.refuse(decision.reason_code, decision.reason)
        elif self.state == OPEN:
            self.write(encode(Auth(reasons.SUCCESS, properties), MQTT5))  # [MQTT-4.12.1-2]
        else:
            self._accept(decision)

    def _accept(self, decision: Decision) -> None:
        connect = self.request
        assert connect is not None
        if not connect.client_id:
            if connect.version == MQTT31 or (connect.version < MQTT5 and not connect.clean_start):  # [MQTT-3.1.3-8]
                self.refuse(reasons.CLIENT_IDENTIFIER_NOT_VALID, "an empty client identifier needs a clean session")
                return
        elif connect.client_id.startswith("$"):
            self._accept_link(connect, decision)
            return
        if self._is_refused(connect.client_id, decision.username):
            return
        self.decision = decision
        if self.hub.city.joined and connect.client_id:
            self.state = HELD_BACK
            if self.hub.city.federation.asks(self, connect.client_id, connect.clean_start, decision.username):
                return
        self._enter()

    def _is_refused(self, client_id: str, username: str) -> bool:
        """Whether the identifier's session is another user's, and stays so."""
        hub = self.hub
        if hub.settings.foreign_client_id_replaces or not hub.sessions.is_foreign(client_id, username):
            return False
        self.refuse(reasons.CLIENT_IDENTIFIER_NOT_VALID, FOREIGN)
        return True

    def _accept_link(self, connect: Connect, decision: Decision) -> None:
        """A peer broker that has proved its name."""
        self.request = None
        if not decision.broker or connect.client_id != LINK_PREFIX + decision.broker:
            self.refuse(reasons.CLIENT_IDENTIFIER_NOT_VALID, "client identifiers that start with $ are reserved")
            return
        self.peer_broker = decision.broker
        self.max_incoming_bytes = self.hub.settings.max_packet_size_bytes * LINK_PACKET_FACTOR
        self.keepalive_s = connect.keepalive_s * 1.5
        self.state = OPEN
        properties = Properties()
        properties.auth_method = self.auth_method
        properties.auth_data = decision.data
        self.write(encode(Connack(False, reasons.SUCCESS, properties), self.version))
        self.hub.city.federation.link_accepted(decision.broker, self)

    def _enter(self) -> None:
        connect, decision = self.request, self.decision
        if connect is None or decision is None or decision.later is not None or self.closing:
            return
        client_id, assigned = connect.client_id, ""
        if not client_id:
            client_id = self.hub.sessions.assign_client_id()  # [MQTT-3.1.3-6]
            assigned = client_id
        if connect.will is not None and not self._may_leave(connect.will, client_id, decision.username):
            self.refuse(reasons.NOT_AUTHORIZED, "the client may not publish to the topic of its will")
            return
        if self._is_refused(client_id, decision.username):  # it may have come while this client waited
            return
        clean_start = connect.clean_start or self.hub.sessions.is_foreign(client_id, decision.username)
        if self._must_wait(client_id, clean_start, decision.username):
            return
        self.request = None
        self.decision = None
        expiry_s, window, keepalive_s = self._negotiate(connect)
        session, present = self.hub.sessions.attach(
            self, client_id, decision.username, clean_start, expiry_s, window, connect.will
        )
        self.session = session
        self.hub.connections.entered()
        self.restricted = not self.access.unrestricted(session)
        self._open()
        self._connack(connect, session, present, assigned, keepalive_s, decision)
        self.hub.delivery.resume(session)

    def _open(self) -> None:
        self.state = OPEN
        self.fast = not self.hub.settings.record_qos0

    def _must_wait(self, client_id: str, clean_start: bool, username: str) -> bool:
        """Whether an old session must first leave the journal; a newer CONNECT takes the place of one that waits."""
        erasing = self.hub.sessions.erasing
        earlier = erasing.get(client_id)
        if earlier is not None:
            earlier[0].terminate(reasons.SESSION_TAKEN_OVER, "another connection uses this client identifier")
        elif not (clean_start and self.hub.sessions.discard(client_id)):
            return False
        self.state = HELD_BACK
        erasing[client_id] = (self, username)
        self.hub.commits.when_committed(_ProceedLater(self, client_id))
        return True

    def erased(self, client_id: str) -> None:
        """The journal has no old session any more."""
        waiting = self.hub.sessions.erasing.get(client_id)
        if waiting is not None and waiting[0] is self:
            del self.hub.sessions.erasing[client_id]
            self.proceed()

    def _may_leave(self, will: Will, client_id: str, username: str) -> bool:
        """Whether the client could publish its will itself."""
        if will.topic.partition("/")[0] in RESERVED:
            return False
        asking = Session(0, client_id)
        asking.username = username
        return self.access.may_publish(asking, will.topic)

    def _negotiate(self, connect: Connect) -> tuple[int, int, int]:
        """Session expiry, send window and keepalive from what both sides want."""
        settings = self.hub.settings
        properties = connect.properties
        keepalive_s = connect.keepalive_s
        if connect.version == MQTT5:
            expiry_s = properties.session_expiry_s or 0
            self.asked_expiry_s = expiry_s
            window = properties.receive_maximum or 65535
            self.alias_maximum = properties.topic_alias_maximum or 0
            if settings.max_keepalive_s and (keepalive_s == 0 or keepalive_s > settings.max_keepalive_s):
                keepalive_s = settings.max_keepalive_s  # [MQTT-3.1.2-21]
        else:
            expiry_s = 0 if connect.clean_start else NEVER
            window = 65535
        self.keepalive_s = keepalive_s * 1.5  # [MQTT-3.1.2-22]
        return expiry_s, window, keepalive_s

    def _connack(
        self, connect: Connect, session: Session, present: bool, assigned: str, keepalive_s: int, decision: Decision
    ) -> None:
        properties = Properties()
        if connect.version == MQTT5:
            settings = self.hub.settings
            if (connect.properties.session_expiry_s or 0) != session.expiry_s:
                properties.session_expiry_s = session.expiry_s
            properties.receive_maximum = settings.receive_maximum
            properties.maximum_packet_size = settings.max_packet_size_bytes
            properties.topic_alias_maximum = settings.max_topic_alias
            if settings.max_qos < 2:
                properties.maximum_qos = settings.max_qos
            if not settings.retain_available:
                properties.retain_available = False
            if assigned:
                properties.assigned_client_id = assigned
            if keepalive_s != connect.keepalive_s:
                properties.server_keepalive_s = keepalive_s
            if connect.properties.request_response_information:
                properties.response_information = _response_topic(session)
            properties.auth_method = self.auth_method
            properties.auth_data = decision.data
        data = encode(Connack(present, reasons.SUCCESS, properties), self.version)
        if len(data) > self.max_packet_bytes:  # [MQTT-3.1.2-24]: nothing that may be left out makes it small enough
            self.shut("CONNACK is larger than the client takes")
        self.write(data)

    # --- the end --------------------------------------------------------------------------------------------------

    def refuse(self, reason_code: int, reason: str) -> None:
        """CONNACK with an error, then the end [MQTT-3.2.2-7]."""
        properties = Properties()
        if self.version >= MQTT5 and reason and self.problem_information:
            properties.reason_string = reason
        data = encode(Connack(False, reason_code, properties), self.version)
        if len(data) > self.max_packet_bytes:  # [MQTT-3.2.2-19]
            data = encode(Connack(False, reason_code, Properties()), self.version)
        self.write(data)
        self.shut(reason)

    def terminate(self, reason_code: int, reason: str) -> None:
        """DISCONNECT from the server, where the version has one, then the end [MQTT-3.14.4-1]."""
        if (self.state == OPEN or self.session is not None) and self.version == MQTT5:
            properties = Properties()
            if self.problem_information and reason:
                properties.reason_string = reason
            data = encode(Disconnect(reason_code, properties), MQTT5)
            if len(data) > self.max_packet_bytes:  # [MQTT-3.14.2-3]
                data = encode(Disconnect(reason_code, Properties()), MQTT5)
            self.write(data)
        self.shut(reason)

    def violated(self, error: PeerViolation) -> None:
        """The peer broke the standard: this one connection ends [MQTT-4.13.1-1]."""
        self.hub.counters.violations += 1
        if self.state == OPEN:
            self.terminate(error.reason_code, str(error))
        elif self.version >= MQTT5 or error.reason_code in ANSWERED_311:
            self.refuse(error.reason_code, str(error))
        else:
            self.shut(str(error))

    def shut(self, reason: str) -> None:
        """Nothing more is read or accepted; the shell closes when the last byte is out."""
        if self.closing:
            return
        self.closing = True
        self.close_reason = reason
        self._stop_waiting(False)
        if not self.marked:
            self.marked = True
            self.dirty.append(self)

    def lost(self, clean: bool = False) -> None:
        """The network connection is gone; `clean`: after a DISCONNECT."""
        if self.state == CLOSED:
            return
        self.state = CLOSED
        self.closing = True
        self._stop_waiting(False)
        self.hub.connections.open.pop(self, None)
        session = self.session
        if session is not None and session.outlet is self:
            self.hub.sessions.detach(session, clean)
        elif self.peer_broker:
            self.hub.city.federation.link_lost(self.peer_broker, self)
        elif self.request is not None:
            self.hub.city.federation.gave_up(self, self.request.client_id)

    def check(self) -> None:
        """Called now and then: time to CONNECT and its decision, and keepalive [MQTT-3.1.2-22]."""
        now = self.hub.clock.now
        if self.closing:
            return
        if self.state != OPEN:
            if now - self.opened_at > self.hub.settings.connect_timeout_s:
                self._too_late()
        elif self.keepalive_s and now - self.heard_at > self.keepalive_s:
            self.terminate(reasons.KEEP_ALIVE_TIMEOUT, "nothing was heard for one and a half keepalive intervals")

    def _too_late(self) -> None:
        if self.decision is None or self.decision.later is None:
            self.shut("no CONNECT in time")
            return
        self._stop_waiting(True)
        self.decide(Decision(reasons.SERVER_UNAVAILABLE, "authentication took too long; try again later"))


@final
class _ProceedLater(Waiter):
    """CONNACK of a clean start that leaves when a crash can no longer bring back the old session."""

    def __init__(self, connection: Handshake, client_id: str) -> None:
        self.connection = connection
        self.client_id = client_id

    def committed(self) -> None:
        self.connection.erased(self.client_id)

    def failed(self) -> None:
        self.connection.erased(self.client_id)


def _response_topic(session: Session) -> str:
    """A topic only this client should subscribe to; identifiers that no topic can hold stand by their number."""
    client_id = session.client_id
    usable = len(client_id) <= 1000 and "+" not in client_id and "#" not in client_id
    return f"response/{client_id if usable else session.backlog.number}"
