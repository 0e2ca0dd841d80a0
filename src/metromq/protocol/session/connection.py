"""One client connection without I/O: bytes in with `receive`, bytes out through its output."""

from typing import Final, final

from metromq.errors import PeerViolation, ProtocolViolation
from metromq.protocol import reasons
from metromq.protocol.session.access import Access, AccessDecision, Peer
from metromq.protocol.session.handshake import Handshake
from metromq.protocol.session.hub import Hub
from metromq.protocol.session.incoming import Incoming
from metromq.protocol.session.network_connection import NetworkConnection
from metromq.protocol.session.output import ClientOutput
from metromq.protocol.session.peer_incoming import PINGRESP_BYTES, PeerIncoming
from metromq.protocol.session.session import Session
from metromq.protocol.session.subscribing import Subscribing
from metromq.protocol.wire.decoding import decode
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.framer import packet_bounds
from metromq.protocol.wire.packets import (
    AUTH,
    CONNECT,
    DISCONNECT,
    MQTT5,
    PUBLISH,
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Properties,
    Publish,
    Subscribe,
    Unsubscribe,
)

STRANGER_BYTES: Final = 131_072  # of a packet before CONNACK: room for the largest will and long names
LARGE_BYTES: Final = 65_536  # a packet that lacks so much is put together once, not again for every piece
LINK_PACKET_FACTOR: Final = 4  # a batch of a peer may be this much larger than a client's packet

# What CONNACK of 3.1.1 has a code for; other violations only close [MQTT-3.1.2-2], [MQTT-3.1.3-9].
ANSWERED_311: Final = (reasons.UNSUPPORTED_PROTOCOL_VERSION, reasons.CLIENT_IDENTIFIER_NOT_VALID)
# The reasons with which another server may be named (section 4.11).
ELSEWHERE: Final = (reasons.USE_ANOTHER_SERVER, reasons.SERVER_MOVED)


@final
class _LargePacket:
    """A packet of which much has still to come."""

    def __init__(self, first: bytes, missing: int) -> None:
        self.pieces = [first]
        self.missing = missing

    def add(self, data: bytes) -> bool:
        """Whether the packet is whole."""
        self.pieces.append(data)
        self.missing -= len(data)
        return self.missing <= 0


@final
class Connection(NetworkConnection):
    """Reads packets in order and gives each to the part it is for before the next [MQTT-4.6.0-5].

    The parts: `output`; `handshake` until the client is in, and while it authenticates again; `incoming` from its first
    PUBLISH or acknowledgement on, since most clients only listen.
    It has many methods because the shell, the session and its own parts each call some of it.
    """

    def __init__(self, hub: Hub, access: Access, peer: Peer) -> None:
        limit = hub.settings.max_outgoing_bytes
        super().__init__(ClientOutput(hub.dirty, limit // 4, limit))
        self.hub = hub
        self.access = access
        self.peer = peer
        self.handshake: Handshake | None = Handshake(self, hub, access, peer)
        self.session: Session | None = None  # of a client that is in
        self.incoming: Incoming | None = None
        self.peer_incoming: PeerIncoming | None = None  # of a peer that is in
        self.heard_at = hub.clock.now
        self.keepalive_s = 0.0
        self.auth_method: str | None = None
        self.keeps_session = False  # beyond this connection: its CONNECT, of MQTT 5, has asked for it
        self.ended = False
        self._tail: bytes = b""  # of a packet that is not whole, or of all that came while the client was held back
        self._large: _LargePacket | None = None
        hub.connections.open[self] = None
        hub.connections.look_at(self, self._too_late_at())

    def is_open(self) -> bool:
        """Whether CONNACK has let a client or a peer in."""
        return self.session is not None or self.peer_incoming is not None

    # --- bytes ----------------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Takes what came from the network; never raises for what a peer may send."""
        if self.output.closing:
            return
        hub = self.hub
        self.heard_at = hub.clock.now
        hub.counters.bytes_received += len(data)
        if self.handshake is not None and self.handshake.held_back:
            self._tail += data
            if len(self._tail) > self._most_bytes():
                self.terminate(reasons.QUOTA_EXCEEDED, "too much was sent before the client could go on")
            return
        if self._large is not None:
            if not self._large.add(data):
                return
            data = b"".join(self._large.pieces)
            self._large = None
        elif self._tail:
            data = self._tail + data
            self._tail = b""
        self._read(data)

    def express(self, data: bytes) -> bool:
        """Forwards a lone QoS 0 message on a known topic without a look at the clock; False: nothing was done."""
        size = len(data)
        incoming = self.incoming
        if incoming is None or not incoming.fast or self.handshake is not None or self.output.closing:
            return False
        if self._tail or self._large is not None or size < 4 or size > self.hub.settings.max_packet_size_bytes:
            return False
        if data[0] != 0x30 or self.hub.topic_counts.recording:
            return False
        length = data[1]
        start = 2
        if length >= 128:
            length += (data[2] << 7) - 128
            start = 3
        if length != size - start or (start == 3 and (data[2] == 0 or data[2] >= 128)):
            return False
        if not incoming.forward(data, 0, start, size, size):
            return False
        self.hub.counters.bytes_received += size
        return True

    def _most_bytes(self) -> int:
        most = self.hub.settings.max_packet_size_bytes
        return most * LINK_PACKET_FACTOR if self.peer_incoming is not None else most

    def _catch_up(self) -> None:
        """Goes on with what the client has sent while it was held back."""
        held_back = self.handshake is not None and self.handshake.held_back
        if self._tail and not held_back and not self.output.closing:
            data = self._tail
            self._tail = b""
            self._read(data)

    def _read(self, data: bytes) -> None:
        try:
            self._parse(data)
        except PeerViolation as error:
            self.violated(error)

    def _parse(self, data: bytes) -> None:
        position = 0
        end = len(data)
        output = self.output
        counters = self.hub.counters
        while position < end:
            start, stop = packet_bounds(data, position, self._most_bytes())
            if start == 0:
                self._tail = data[position:]
                return
            if stop > end:
                self._keep(data, position, stop - end)
                return
            first = data[position]
            incoming = self.incoming
            if incoming is not None and incoming.fast:
                taken = 0
                if first == 0x30:
                    taken = incoming.forward(data, position, start, stop, end)
                elif first == 0x32:
                    taken = incoming.publish_run(data, position, start, stop, end)
                elif first == 0x40 and stop - start == 2:
                    taken = incoming.confirmed_run(data, position, end)
                if taken:
                    position = taken
                    if output.closing:
                        return
                    continue
            elif self.peer_incoming is not None and self.peer_incoming.parcel(first, data, start, stop):
                position = stop
                if output.closing:
                    return
                continue
            counters.packets_received += 1
            self._packet(first, data[start:stop])
            if output.closing:
                return
            position = stop
            if self.handshake is not None and self.handshake.held_back:
                self._tail = data[position:]
                return

    def _keep(self, data: bytes, position: int, missing: int) -> None:
        handshake = self.handshake
        if position == 0 and handshake is not None and not handshake.begun() and data[0] != 0x10:
            raise ProtocolViolation("the first packet is not CONNECT [MQTT-3.1.0-1]")
        self._check_stranger(len(data) - position + missing)
        if missing < LARGE_BYTES:
            self._tail = data[position:]
        else:
            self._large = _LargePacket(data[position:], missing)

    def _check_stranger(self, size: int) -> None:
        """Before anybody knows who it is, a connection may not make the broker hold as much as a client may."""
        if size > STRANGER_BYTES and not self.is_open():
            raise PeerViolation(reasons.PACKET_TOO_LARGE, f"a client sends at most {STRANGER_BYTES} bytes to be let in")

    def drained(self) -> None:
        """The network took what waited: send on what was held back."""
        self.output.hungry = False
        if self.session is not None and not self.ended:
            self.hub.delivery.pump(self.session)

    # --- packets --------------------------------------------------------------------------------------------------

    def _packet(self, first: int, body: bytes) -> None:
        kind = first >> 4
        session = self.session
        peer_incoming = self.peer_incoming
        if session is None and peer_incoming is None:
            self._early(kind, first, body)
            return
        if kind == CONNECT:
            raise ProtocolViolation("a second CONNECT [MQTT-3.1.0-2]")
        packet = decode(first, body, self.output.version)
        if session is None:
            assert peer_incoming is not None
            peer_incoming.packet(packet)
        elif kind == PUBLISH:
            assert isinstance(packet, Publish)
            self._incoming(session).publish(packet)
        elif isinstance(packet, Ack):
            self._incoming(session).on_ack(packet)
        elif isinstance(packet, Pingreq):
            self.output.write(PINGRESP_BYTES)  # [MQTT-3.12.4-1]
        elif isinstance(packet, Subscribe):
            Subscribing(self, self.hub, self.access, session).subscribe(packet)
        elif isinstance(packet, Unsubscribe):
            Subscribing(self, self.hub, self.access, session).unsubscribe(packet)
        elif isinstance(packet, Disconnect):
            self._disconnect(packet, session)
        elif isinstance(packet, Auth):
            self._authenticate(packet)

    def _incoming(self, session: Session) -> Incoming:
        incoming = self.incoming
        if incoming is None:
            incoming = self.incoming = Incoming(self, self.hub, self.access, session)
        return incoming

    def _early(self, kind: int, first: int, body: bytes) -> None:
        handshake = self.handshake
        assert handshake is not None
        if not handshake.begun() and kind == CONNECT:
            self._guess_version(body)
        self._check_stranger(len(body))
        if not handshake.begun():
            if kind != CONNECT:
                raise ProtocolViolation("the first packet is not CONNECT [MQTT-3.1.0-1]")
            packet = decode(first, body, 0)
            assert isinstance(packet, Connect)
            newcomer = self.peer.newcomer
            if newcomer is not None:
                self.hub.connections.newcomers.spoke(newcomer)
            handshake.on_connect(packet)
            self._after(handshake)
        elif kind == DISCONNECT:  # the client may give up an exchange (section 4.12)
            self.shut("the client gave up authentication")
        elif kind == AUTH:
            packet = decode(first, body, MQTT5)
            assert isinstance(packet, Auth)
            self._authenticate(packet)
        else:
            raise ProtocolViolation("only AUTH may come before CONNACK [MQTT-3.1.4-5]")

    def _guess_version(self, body: bytes) -> None:
        """So that a broken CONNECT is answered in the version it claims."""
        length = (body[0] << 8 | body[1]) if len(body) > 2 else 0
        if len(body) > 2 + length:
            self.output.version = MQTT5 if body[2 + length] >= MQTT5 else 4

    def _disconnect(self, disconnect: Disconnect, session: Session) -> None:
        properties = disconnect.properties
        if properties is not None and properties.session_expiry_s is not None:
            if not self.keeps_session and properties.session_expiry_s:  # [MQTT-3.1.2-23]
                raise ProtocolViolation("the session expiry was 0 in CONNECT and may not be raised")
            self.hub.sessions.expiry_changed(session, properties.session_expiry_s)
        self.shut("the client said goodbye")
        self.lost(disconnect.reason_code == reasons.SUCCESS)  # any other leaves the will [MQTT-3.14.4-3]

    # --- the handshake --------------------------------------------------------------------------------------------

    def _authenticate(self, auth: Auth) -> None:
        handshake = self.handshake
        if handshake is None:
            handshake = Handshake(self, self.hub, self.access, self.peer, self.session, self.auth_method)
            self.handshake = handshake
        handshake.on_auth(auth)
        self._after(handshake)
        self._be_looked_at()

    def _be_looked_at(self) -> None:
        moment = self._too_late_at()
        if moment:
            self.hub.connections.look_at(self, moment)

    def proceed(self) -> None:
        """Lets the client in, and goes on with what it has sent meanwhile."""
        handshake = self.handshake
        if handshake is not None:
            handshake.enter()
            self._after(handshake)
            self._catch_up()

    def decide(self, decision: AccessDecision) -> None:
        """The decision that was to come later."""
        handshake = self.handshake
        if handshake is not None and not self.output.closing:
            handshake.decide(decision)
            self._after(handshake)
            self._catch_up()

    def _after(self, handshake: Handshake) -> None:
        """Takes what came of a handshake that is over, and lets go of it."""
        if not handshake.done or self.handshake is not handshake:
            return
        self.handshake = None
        hub, session = self.hub, handshake.session
        if handshake.peer_broker:
            self.peer_incoming = PeerIncoming(self, hub, handshake.peer_broker, handshake.is_reader)
            self.keepalive_s = handshake.keepalive_s
            self._be_looked_at()
            self._no_newcomer()
            if not handshake.is_reader:
                hub.city.federation.link_accepted(handshake.peer_broker, self)
        elif session is not None and self.session is None:
            self.auth_method = handshake.auth_method
            self.keeps_session = handshake.asked_expiry_s > 0
            self.keepalive_s = handshake.keepalive_s
            self.session = session
            self._be_looked_at()
            self._no_newcomer()
            self.peer = self.peer.settled()
            hub.connections.entered()
            hub.delivery.resume(session)

    def _no_newcomer(self) -> None:
        """It was let in, or is gone."""
        newcomer = self.peer.newcomer
        if newcomer is not None:
            self.hub.connections.newcomers.gone(newcomer)
            self.peer.newcomer = None

    def permissions_changed(self) -> None:
        session = self.session
        if self.incoming is not None:
            self.incoming.permissions_changed()
        if session is not None:
            if self.access.expels(self.peer, self.auth_method, session.username):
                self.terminate(reasons.NOT_AUTHORIZED, "the user was removed, or has another password")
        elif self.handshake is not None and not self.output.closing:
            self.handshake.rights_changed()

    # --- the end --------------------------------------------------------------------------------------------------

    def refuse(self, reason_code: int, reason: str, server_reference: str = "") -> None:
        """CONNACK with an error, then the end [MQTT-3.2.2-7]."""
        self.output.write(self._last_packet(False, reason_code, reason, server_reference))
        self.shut(reason)

    def terminate(self, reason_code: int, reason: str, server_reference: str = "") -> None:
        """DISCONNECT from the server, where the version has one, then the end [MQTT-3.14.4-1]."""
        if self.output.version == MQTT5 and self.is_open():
            self.output.write(self._last_packet(True, reason_code, reason, server_reference))
        self.shut(reason)

    def _last_packet(self, is_open: bool, reason_code: int, reason: str, server_reference: str) -> bytes:
        """DISCONNECT, or CONNACK with an error; what the client's maximum has no room for is left out, the reason
        string first [MQTT-3.2.2-19], [MQTT-3.14.2-3]. Only MQTT 5 has either of the two properties."""
        output = self.output
        text = reason if output.version >= MQTT5 and output.problem_information else ""
        reference = server_reference if output.version >= MQTT5 and reason_code in ELSEWHERE else ""
        data = _last_packet(is_open, reason_code, text, reference, output.version)
        if len(data) > output.max_packet_bytes and text:
            data = _last_packet(is_open, reason_code, "", reference, output.version)
        if len(data) > output.max_packet_bytes and reference:
            data = _last_packet(is_open, reason_code, "", "", output.version)
        return data

    def violated(self, error: PeerViolation) -> None:
        """The peer broke the standard: this one connection ends [MQTT-4.13.1-1]."""
        self.hub.counters.violations += 1
        if self.is_open():
            self.terminate(error.reason_code, str(error))
        elif self.output.version >= MQTT5 or error.reason_code in ANSWERED_311:
            self.refuse(error.reason_code, str(error))
        else:
            self.shut(str(error))

    def shut(self, reason: str) -> None:
        """Nothing more is read or accepted; the shell closes when the last byte is out. Nobody is told the reason."""
        if self.output.closing:
            return
        self.output.closing = True
        if self.handshake is not None:
            self.handshake.stop_waiting(False)
        self.output.mark()

    def lost(self, clean: bool = False) -> None:
        """The network connection is gone; `clean`: after a DISCONNECT."""
        if self.ended:
            return
        self.ended = True
        self.output.closing = True
        hub, session, handshake = self.hub, self.session, self.handshake
        if handshake is not None:
            handshake.stop_waiting(False)
        hub.connections.open.pop(self, None)
        self._no_newcomer()
        if session is not None:
            hub.connections.clients -= 1
        if session is not None and session.connection is self:
            hub.sessions.detach(session, clean)
        elif self.peer_incoming is not None:
            if not self.peer_incoming.is_reader:
                hub.city.federation.link_lost(self.peer_incoming.peer, self)
        elif handshake is not None and handshake.request is not None:
            hub.city.federation.gave_up(self, handshake.request.client_id)
        self.session = None
        self.peer_incoming = None
        self.incoming = None  # which know this connection: nobody but the garbage collector would part them
        self.handshake = None

    def check(self) -> float:
        """Time to CONNECT and its decision, and keepalive [MQTT-3.1.2-22]."""
        if self.output.closing:
            return 0.0
        now = self.hub.clock.now
        handshake = self.handshake
        if handshake is not None and self._is_decided_late(handshake):
            if now - handshake.since > self.hub.settings.connect_timeout_s:
                handshake.too_late()
                self._after(handshake)
                self._catch_up()
        elif self.keepalive_s and now - self.heard_at > self.keepalive_s:
            self.terminate(reasons.KEEP_ALIVE_TIMEOUT, "nothing was heard for one and a half keepalive intervals")
        return self._too_late_at()

    def _is_decided_late(self, handshake: Handshake) -> bool:
        return handshake.held_back or not self.is_open()

    def _too_late_at(self) -> float:
        if self.output.closing:
            return 0.0
        handshake = self.handshake
        if handshake is not None and self._is_decided_late(handshake):
            return handshake.since + self.hub.settings.connect_timeout_s
        return self.heard_at + self.keepalive_s if self.keepalive_s else 0.0


def _last_packet(is_open: bool, reason_code: int, text: str, reference: str, version: int) -> bytes:
    properties = Properties()
    properties.reason_string = text or None
    properties.server_reference = reference or None
    if is_open:
        return encode(Disconnect(reason_code, properties), version)
    return encode(Connack(False, reason_code, properties), version)
