"""From CONNECT to CONNACK: who the client is, whether it is let in, and on what terms; and AUTH later on."""

from typing import Final, final

from metromq.errors import ProtocolViolation
from metromq.protocol import reasons
from metromq.protocol.replay import READER_PREFIX
from metromq.protocol.session.access import Access, AccessDecision, Later, Peer
from metromq.protocol.session.hub import Hub
from metromq.protocol.session.network_connection import NetworkConnection
from metromq.protocol.session.output import Aliases
from metromq.protocol.session.session import NEVER, Session
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import MQTT5, MQTT31, Auth, Connack, Connect, Properties, Will

# 0x85 and, in 3.1.1, return code 2: the identifier is "not allowed by the server". The user is, so it is not 0x87.
FOREIGN: Final = "another user has a session with this client identifier"

LINK_PREFIX: Final = "$link/"  # client identifiers of peer brokers
LINK_OFFER: Final = "metromq-link"  # user property of a peer's CONNECT: the versions that it reads, such as 4-5
LINK_PACKET_FACTOR: Final = 4  # a batch of a peer may be this much larger than a client's packet

RESERVED: Final = ("$SYS", "$metromq", "$replay")  # topics that only the broker itself publishes


@final
class Handshake:
    """Lives until the client is in, or its new authentication is over; its connection then takes what came of it.

    It has many attributes because it holds what the client asked, what was decided, and what came of it.
    """

    def __init__(
        self,
        connection: NetworkConnection,
        hub: Hub,
        access: Access,
        peer: Peer,
        session: Session | None = None,
        auth_method: str | None = None,
    ) -> None:
        """With `session` a client that is in authenticates again, by the method that it had."""
        self.connection = connection
        self.output = connection.output
        self.hub = hub
        self.access = access
        self.peer = peer
        self.since = hub.clock.now  # it began, or began to wait for a decision
        self.request: Connect | None = None
        self.auth_method = auth_method
        self.exchange: object = None  # the authenticator's own state between two AUTH packets
        self.decision: AccessDecision | None = None  # on this client, kept while it is held back
        # What the client sends waits: its authentication is being decided (again), or it is accepted and its session is
        # still looked for elsewhere, or an old one is being erased.
        self.held_back = False
        self.done = False
        self.session = session
        self.peer_broker = ""  # the broker at the other end, when this is a link
        self.is_reader = False  # or a peer that only reads this broker's journal
        self.keepalive_s = 0.0
        self.asked_expiry_s = 0

    def begun(self) -> bool:
        """Whether CONNECT has come."""
        return self.request is not None or self.session is not None

    # --- CONNECT and AUTH -----------------------------------------------------------------------------------------

    def on_connect(self, connect: Connect) -> None:
        output, hub = self.output, self.hub
        output.version = connect.version
        properties = connect.properties
        if properties.request_problem_information is False:
            output.problem_information = False
        # Peers come in whatever clients do: without them it is no city.
        is_peer = hub.city.joined and connect.client_id.startswith(LINK_PREFIX)
        if not is_peer and (self._is_full() or self._is_too_fast()):
            return
        if properties.maximum_packet_size:
            output.max_packet_bytes = properties.maximum_packet_size
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

    def _is_full(self) -> bool:
        """Whether there is no room for another client; it is told."""
        full = self.hub.connections.too_many()
        if full:
            self.connection.refuse(reasons.SERVER_BUSY, "the broker has as many connections as it may")
        return full

    def _is_too_fast(self) -> bool:
        too_fast = not self.hub.connections.may_connect()
        if too_fast:
            self.connection.refuse(reasons.CONNECTION_RATE_EXCEEDED, "too many connects at once; try again in a second")
        return too_fast

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
        method = self.auth_method
        if method is None or auth.properties.auth_method != method:
            raise ProtocolViolation("AUTH with another method than CONNECT's [MQTT-4.12.1-1]")
        data = auth.properties.auth_data or b""
        session = self.session
        if session is not None and auth.reason_code == reasons.REAUTHENTICATE:
            decision = self.access.connect(self.peer, session.client_id, None, None, method, data)
        elif auth.reason_code == reasons.CONTINUE_AUTHENTICATION and self.exchange is not None:
            decision = self.access.continued(self.exchange, data)
        else:
            raise ProtocolViolation("AUTH at the wrong moment")
        self._decided(decision)

    # --- decisions ------------------------------------------------------------------------------------------------

    def decide(self, decision: AccessDecision) -> None:
        """The decision that was to come later."""
        self.decision = None
        self.held_back = False
        self._decided(decision)

    def _wait(self, decision: AccessDecision, later: Later) -> None:
        """Packets stay in order: even an open connection reads nothing until it is known whose it is."""
        if self.session is not None:
            self.since = self.hub.clock.now
        self.held_back = True
        self.decision = decision
        later.start(self.connection)

    def stop_waiting(self, late: bool) -> None:
        decision = self.decision
        if decision is not None and decision.later is not None:
            self.decision = None
            decision.later.abandoned(late)

    def awaits_decision(self) -> bool:
        return self.decision is not None and self.decision.later is not None

    def too_late(self) -> None:
        """Nothing came of it in time."""
        if not self.awaits_decision():
            self.connection.shut("no CONNECT in time")
            return
        self.stop_waiting(True)
        self.decide(AccessDecision(reasons.SERVER_UNAVAILABLE, "authentication took too long; try again later"))

    def rights_changed(self) -> None:
        """The users were read again while this client waited."""
        if self.request is None:
            return
        username = None
        if self.decision is not None and self.decision.later is None:
            username = self.decision.username
        if self.access.expels(self.peer, self.auth_method, username):
            self.connection.refuse(reasons.SERVER_UNAVAILABLE, "the users were read again meanwhile; try again")

    def _decided(self, decision: AccessDecision) -> None:
        if decision.later is not None:
            self._wait(decision, decision.later)
            return
        if decision.reason_code == reasons.CONTINUE_AUTHENTICATION:
            self.exchange = decision.exchange
            self._write_auth(reasons.CONTINUE_AUTHENTICATION, decision)
            return
        self.exchange = None
        if self.session is not None:
            self._decided_again(decision, self.session)
        elif decision.reason_code:
            self.connection.refuse(decision.reason_code, decision.reason, decision.server_reference)
        else:
            self._accept(decision)

    def _decided_again(self, decision: AccessDecision, session: Session) -> None:
        self.done = True
        if not decision.reason_code and decision.username != session.username:
            decision = AccessDecision(reasons.NOT_AUTHORIZED, "re-authentication as another user")
        if decision.reason_code:
            code = reasons.disconnect_code(decision.reason_code)
            self.connection.terminate(code, decision.reason, decision.server_reference)
        else:
            self._write_auth(reasons.SUCCESS, decision)  # [MQTT-4.12.1-2]

    def _write_auth(self, reason_code: int, decision: AccessDecision) -> None:
        properties = Properties()
        properties.auth_method = self.auth_method
        properties.auth_data = decision.data
        self.output.write(encode(Auth(reason_code, properties), MQTT5))

    # --- letting in -----------------------------------------------------------------------------------------------

    def _accept(self, decision: AccessDecision) -> None:
        connect = self.request
        assert connect is not None
        if not connect.client_id:
            if connect.version == MQTT31 or (connect.version < MQTT5 and not connect.clean_start):  # [MQTT-3.1.3-8]
                self.connection.refuse(
                    reasons.CLIENT_IDENTIFIER_NOT_VALID, "an empty client identifier needs a clean session"
                )
                return
        elif connect.client_id.startswith("$"):
            self._accept_link(connect, decision)
            return
        if self._is_refused(connect.client_id, decision.username):
            return
        self.decision = decision
        if self.hub.city.joined and connect.client_id:
            self.held_back = True
            federation = self.hub.city.federation
            if federation.asks(self.connection, connect.client_id, connect.clean_start, decision.username):
                return
        self.enter()

    def _is_refused(self, client_id: str, username: str) -> bool:
        """Whether the identifier's session is another user's, and stays so."""
        hub = self.hub
        if hub.settings.foreign_client_id_replaces or not hub.sessions.is_foreign(client_id, username):
            return False
        self.connection.refuse(reasons.CLIENT_IDENTIFIER_NOT_VALID, FOREIGN)
        return True

    def _accept_link(self, connect: Connect, decision: AccessDecision) -> None:
        """A peer broker that has proved its name."""
        self.request = None
        self.done = True
        self.is_reader = connect.client_id == READER_PREFIX + decision.broker
        if not decision.broker or (connect.client_id != LINK_PREFIX + decision.broker and not self.is_reader):
            self.connection.refuse(
                reasons.CLIENT_IDENTIFIER_NOT_VALID, "client identifiers that start with $ are reserved"
            )
            return
        self.peer_broker = decision.broker
        self.keepalive_s = connect.keepalive_s * 1.5
        self.connection.link_offer = dict(connect.properties.user).get(LINK_OFFER, "")
        properties = Properties()
        properties.auth_method = self.auth_method
        properties.auth_data = decision.data
        self.output.write(encode(Connack(False, reasons.SUCCESS, properties), self.output.version))

    def enter(self) -> None:
        """Lets the client in that was accepted, if nothing stands against it."""
        connect, decision, sessions = self.request, self.decision, self.hub.sessions
        if connect is None or decision is None or decision.later is not None or self.output.closing:
            return
        client_id, assigned = connect.client_id, ""
        if not client_id:
            client_id = assigned = sessions.assign_client_id()  # [MQTT-3.1.3-6]
        if connect.will is not None and not self._may_leave(connect.will, client_id, decision.username):
            self.connection.refuse(reasons.NOT_AUTHORIZED, "the client may not publish to the topic of its will")
            return
        # Others may have come while this client waited.
        if self._is_full() or self._is_refused(client_id, decision.username):
            return
        clean_start = connect.clean_start or sessions.is_foreign(client_id, decision.username)
        self.held_back = True
        if sessions.must_wait(self.connection, client_id, clean_start, decision.username):
            return
        self.request = None
        self.decision = None
        expiry_s, window, keepalive_s = self._negotiate(connect)
        session, present = sessions.attach(
            self.connection, client_id, decision.username, clean_start, expiry_s, window, connect.will
        )
        self.session = session
        self.done = True
        self._connack(connect, session, present, assigned, keepalive_s, decision)

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
            expiry_s = self.asked_expiry_s = properties.session_expiry_s or 0
            window = properties.receive_maximum or 65535
            if properties.topic_alias_maximum:
                self.output.aliases = Aliases(properties.topic_alias_maximum)
            if settings.max_keepalive_s and (keepalive_s == 0 or keepalive_s > settings.max_keepalive_s):
                keepalive_s = settings.max_keepalive_s  # [MQTT-3.1.2-21]
        else:
            expiry_s = 0 if connect.clean_start else NEVER
            window = 65535
        self.keepalive_s = keepalive_s * 1.5  # [MQTT-3.1.2-22]
        return expiry_s, window, keepalive_s

    def _connack(
        self,
        connect: Connect,
        session: Session,
        present: bool,
        assigned: str,
        keepalive_s: int,
        decision: AccessDecision,
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
        data = encode(Connack(present, reasons.SUCCESS, properties), self.output.version)
        if len(data) > self.output.max_packet_bytes:  # [MQTT-3.1.2-24]: leaving out what may be does not help
            self.connection.shut("CONNACK is larger than the client takes")
        self.output.write(data)


def _response_topic(session: Session) -> str:
    """A topic only this client should subscribe to; identifiers that no topic can hold stand by their number."""
    client_id = session.client_id
    usable = len(client_id) <= 1000 and "+" not in client_id and "#" not in client_id
    return f"response/{client_id if usable else session.backlog.number}"
