"""One client connection without I/O: bytes in with `receive`, bytes out through the outlet."""

from typing import Final, final

from metromq.errors import MalformedPacket, PeerViolation, ProtocolViolation
from metromq.protocol.session.access import Access, Decision, Peer
from metromq.protocol.session.commits import Waiter
from metromq.protocol.session.forwarding import run_end
from metromq.protocol.session.handshake import CLOSED, HELD_BACK, NEW, OPEN
from metromq.protocol.session.hub import Hub
from metromq.protocol.session.incoming import AckLater, Incoming
from metromq.protocol.session.outlet import Outlet
from metromq.protocol.session.session import Session
from metromq.protocol.topics.names import split_shared, validate_filter
from metromq.protocol.wire import reasons
from metromq.protocol.wire.decode import decode
from metromq.protocol.wire.encode import encode
from metromq.protocol.wire.packets import (
    AUTH,
    CONNECT,
    DISCONNECT,
    MQTT5,
    PUBACK,
    PUBLISH,
    Ack,
    Auth,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)

PINGRESP_BYTES: Final = b"\xd0\x00"


@final
class _BytesLater(Waiter):
    """SUBACK or UNSUBACK that leaves when the journal has the change."""

    def __init__(self, connection: "Connection", data: bytes) -> None:
        self.connection = connection
        self.data = data

    def committed(self) -> None:
        if not self.connection.closing:
            self.connection.write(self.data)

    def failed(self) -> None:
        self.connection.terminate(reasons.QUOTA_EXCEEDED, "the disk is full")


@final
class Connection(Incoming):
    """Reads packets in order and acts on each before the next [MQTT-4.6.0-5]."""

    def __init__(self, hub: Hub, access: Access, peer: Peer) -> None:
        super().__init__(hub, access, peer)
        self.tail: bytes = b""
        self.pieces: list[bytes] | None = None  # of a packet that is larger than what came so far
        self.missing = 0
        self.slow_target: Outlet | None = (
            None  # a receiver that lags: the shell reads less eagerly until it has drained
        )

    # --- bytes ----------------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Takes what came from the network; never raises for what a peer may send."""
        if self.closing:
            return
        self.heard_at = self.hub.clock.now
        self.hub.counters.bytes_received += len(data)
        if self.state == HELD_BACK:
            self.tail += data
            if len(self.tail) > self.max_incoming_bytes:
                self.terminate(reasons.QUOTA_EXCEEDED, "too much was sent before the client could go on")
            return
        if self.missing:
            pieces = self.pieces
            assert pieces is not None
            pieces.append(data)
            self.missing -= len(data)
            if self.missing > 0:
                return
            data = b"".join(pieces)
            self.pieces = None
            self.missing = 0
        elif self.tail:
            data = self.tail + data
            self.tail = b""
        try:
            self._parse(data)
        except PeerViolation as error:
            self.violated(error)

    def express(self, data: bytes) -> bool:
        """Forwards a lone QoS 0 message on a known topic without a look at the clock; False: nothing was done."""
        size = len(data)
        if not self.fast or self.closing or self.tail or self.missing or size < 4 or size > self.max_incoming_bytes:
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
        if not self._forward(data, 0, start, size, size):
            return False
        self.hub.counters.bytes_received += size
        return True

    def proceed(self) -> None:
        """Enters, and goes on with what the client has sent meanwhile."""
        self._enter()
        self._catch_up()

    def decide(self, decision: Decision) -> None:
        super().decide(decision)
        self._catch_up()

    def _catch_up(self) -> None:
        if self.tail and self.state != HELD_BACK and not self.closing:
            data = self.tail
            self.tail = b""
            try:
                self._parse(data)
            except PeerViolation as error:
                self.violated(error)

    def _parse(self, data: bytes) -> None:
        position = 0
        end = len(data)
        while position < end:
            start = position + 1
            length = 0
            shift = 0
            while True:
                if start >= end:
                    self.tail = data[position:]
                    return
                byte = data[start]
                start += 1
                length |= (byte & 127) << shift
                if byte < 128:
                    if byte == 0 and shift:
                        raise MalformedPacket("the remaining length is not in its shortest form [MQTT-1.5.5-1]")
                    break
                shift += 7
                if shift > 21:
                    raise MalformedPacket("the remaining length has more than four bytes [MQTT-1.5.5-1]")
            stop = start + length
            if stop - position > self.max_incoming_bytes:
                raise PeerViolation(reasons.PACKET_TOO_LARGE, "the packet is larger than this broker takes")
            if stop > end:
                if position == 0 and self.state == NEW and data[0] != 0x10:
                    raise ProtocolViolation("the first packet is not CONNECT [MQTT-3.1.0-1]")
                self._keep(data, position, stop - end)
                return
            first = data[position]
            if self.fast:
                if first == 0x30:
                    forwarded = self._forward(data, position, start, stop, end)
                    if forwarded:
                        position = forwarded
                        continue
                elif first == 0x32 or (first == 0x40 and length == 2):
                    taken = (
                        self._publish_run(data, position, start, stop, end)
                        if first == 0x32
                        else self._confirmed_run(data, position, end)
                    )
                    if taken:
                        position = taken
                        self._note_slow()
                        if self.closing:
                            return
                        continue
            self.hub.counters.packets_received += 1
            self._packet(first, data[start:stop])
            if self.closing:
                return
            position = stop
            if self.state == HELD_BACK:
                self.tail = data[position:]
                return

    def _keep(self, data: bytes, position: int, missing: int) -> None:
        if missing < 65536:
            self.tail = data[position:]
        else:  # a large packet is put together once, not again for every piece
            self.pieces = [data[position:]]
            self.missing = missing

    def _forward(self, data: bytes, position: int, start: int, stop: int, end: int) -> int:
        """Forwards a run of QoS 0 packets unparsed; returns where it ended, 0: this one takes the long way."""
        topic_end = start + 2 + ((data[start] << 8) | data[start + 1]) if stop - start >= 2 else stop + 1
        newer = self.version == MQTT5
        if topic_end > stop or topic_end == start + 2 or data[start + 2] == 0x24:  # `$` topics may be reserved
            return 0
        body = topic_end
        if newer:
            if topic_end >= stop or data[topic_end]:
                return 0
            body += 1
        topic = data[start + 2 : topic_end]
        hub = self.hub
        route = hub.routes.cache.get(topic)
        if route is None:
            return 0
        if not route.plain or route.copies is None or (self.restricted and not self._allowed(topic)):
            return 0
        size = stop - position
        run_stop = stop if stop + size > end else run_end(data, position, size, data[position:body], end)
        if position == 0 and run_stop == end:
            run = data
        else:
            run = data[position:run_stop]
        count = len(run) // size
        counters = hub.counters
        counters.packets_received += count
        counters.messages_received += count
        counters.publish_bytes_received += len(run) - count * (body - position)
        publisher = self.client_id() if hub.topic_counts.recording else ""  # a look at one more cold object otherwise
        hub.publishing.spread(
            route, run, size, start - position, topic_end - position, newer, publisher, "", route.copies
        )
        self._note_slow()
        return run_stop

    def _note_slow(self) -> None:
        """Whoever publishes to a receiver that lags is read less eagerly until that one has drained."""
        slow = self.hub.delivery.take_slow()
        if slow is not None:
            self.slow_target = slow

    # --- packets --------------------------------------------------------------------------------------------------

    def _packet(self, first: int, body: bytes) -> None:
        kind = first >> 4
        if self.state != OPEN:
            self._early(kind, first, body)
            return
        if kind == CONNECT:
            raise ProtocolViolation("a second CONNECT [MQTT-3.1.0-2]")
        packet = decode(first, body, self.version)
        if self.peer_broker:
            self._from_peer(packet)
        elif kind == PUBLISH:
            assert isinstance(packet, Publish)
            self._publish(packet)
            self._note_slow()
        elif isinstance(packet, Ack):
            self._ack(packet)
        elif isinstance(packet, Pingreq):
            self.write(PINGRESP_BYTES)  # [MQTT-3.12.4-1]
        elif isinstance(packet, Subscribe):
            self._subscribe(packet)
        elif isinstance(packet, Unsubscribe):
            self._unsubscribe(packet)
        elif isinstance(packet, Disconnect):
            self._disconnect(packet)
        elif isinstance(packet, Auth):
            self.on_auth(packet)

    def _from_peer(self, packet: Packet) -> None:
        """A link carries batches, control frames and signs of life, nothing else."""
        if isinstance(packet, Publish):
            waiter = AckLater(self, PUBACK, packet.packet_id, 0) if packet.qos else None
            self.hub.city.federation.arrived(self.peer_broker, packet.topic, packet.payload, waiter)
        elif isinstance(packet, Pingreq):
            self.write(PINGRESP_BYTES)
        elif isinstance(packet, Disconnect):
            self.shut("the peer said goodbye")
            self.lost(True)
        else:
            raise ProtocolViolation("a link carries only PUBLISH")

    def _early(self, kind: int, first: int, body: bytes) -> None:
        if self.state == NEW:
            if kind != CONNECT:
                raise ProtocolViolation("the first packet is not CONNECT [MQTT-3.1.0-1]")
            self._guess_version(body)
            packet = decode(first, body, 0)
            assert isinstance(packet, Connect)
            self.on_connect(packet)
        elif kind == DISCONNECT:  # the client may give up an exchange (section 4.12)
            self.shut("the client gave up authentication")
        elif kind == AUTH:
            packet = decode(first, body, MQTT5)
            assert isinstance(packet, Auth)
            self.on_auth(packet)
        else:
            raise ProtocolViolation("only AUTH may come before CONNACK [MQTT-3.1.4-5]")

    def _guess_version(self, body: bytes) -> None:
        """So that a broken CONNECT is answered in the version it claims."""
        length = (body[0] << 8 | body[1]) if len(body) > 2 else 0
        if len(body) > 2 + length:
            self.version = MQTT5 if body[2 + length] >= MQTT5 else 4

    # --- SUBSCRIBE, UNSUBSCRIBE, DISCONNECT -----------------------------------------------------------------------

    def _subscribe(self, subscribe: Subscribe) -> None:
        session = self.session
        assert session is not None
        hub = self.hub
        codes: list[int] = []
        granted: list[tuple[Subscription, bool]] = []
        for wanted in subscribe.subscriptions:
            validate_filter(wanted.filter)
            share, filter = split_shared(wanted.filter)
            if share and wanted.no_local:  # [MQTT-3.8.3-4]
                raise ProtocolViolation("No Local on a shared subscription [MQTT-3.8.3-4]")
            code = self._subscription_code(session, wanted, filter)
            codes.append(code)
            if code <= 2:
                granted.append((wanted, hub.subscriptions.subscribe(session, wanted, subscribe.identifier)))
        self._answer(session, self._suback(subscribe.packet_id, codes))
        for wanted, new in granted:
            hub.retained.subscribed(session, wanted.filter, new)

    def _suback(self, packet_id: int, codes: list[int]) -> bytes:
        properties = Properties()
        failures = sorted({code for code in codes if code >= 0x80})
        if failures and self.version == MQTT5 and self.problem_information:  # [MQTT-3.1.2-29]
            properties.reason_string = "; ".join([reasons.NAMES[code] for code in failures])
            data = encode(Suback(packet_id, codes, properties), MQTT5)
            if len(data) <= self.max_packet_bytes:  # [MQTT-3.9.2-1]
                return data
        return encode(Suback(packet_id, codes, Properties()), self.version)

    def _subscription_code(self, session: Session, wanted: Subscription, filter: str) -> int:
        failure = 0x80
        if (
            wanted.filter not in session.grants
            and len(session.grants) >= self.hub.settings.max_subscriptions_per_client
        ):
            return reasons.QUOTA_EXCEEDED if self.version == MQTT5 else failure
        if filter.count("/") >= self.hub.settings.max_topic_levels:
            return reasons.TOPIC_FILTER_INVALID if self.version == MQTT5 else failure
        if filter.startswith("$metromq") or not self.access.may_subscribe(session, filter):
            return reasons.NOT_AUTHORIZED if self.version == MQTT5 else failure
        return min(wanted.qos, self.hub.settings.max_qos)

    def _unsubscribe(self, unsubscribe: Unsubscribe) -> None:
        session = self.session
        assert session is not None
        codes: list[int] = []
        for filter in unsubscribe.filters:
            validate_filter(filter)
            codes.append(0 if self.hub.subscriptions.unsubscribe(session, filter) else reasons.NO_SUBSCRIPTION_EXISTED)
        self._answer(session, encode(Unsuback(unsubscribe.packet_id, codes, Properties()), self.version))

    def _answer(self, session: Session, data: bytes) -> None:
        if len(data) > self.max_packet_bytes:  # [MQTT-3.1.2-24]
            self.terminate(reasons.PACKET_TOO_LARGE, "the answer is larger than the client takes")
        elif session.backlog.durable and self.hub.commits.log is not None:
            self.hub.commits.when_committed(_BytesLater(self, data))
        else:
            self.write(data)

    def _disconnect(self, disconnect: Disconnect) -> None:
        session = self.session
        assert session is not None
        properties = disconnect.properties
        if properties is not None and properties.session_expiry_s is not None:
            if self.asked_expiry_s == 0 and properties.session_expiry_s:  # [MQTT-3.1.2-23]
                raise ProtocolViolation("the session expiry was 0 in CONNECT and may not be raised")
            self.hub.sessions.expiry_changed(session, properties.session_expiry_s)
        self.shut("the client said goodbye")
        self.lost(disconnect.reason_code == reasons.SUCCESS)  # any other leaves the will [MQTT-3.14.4-3]

    def permissions_changed(self) -> None:
        self.allowed = None
        session = self.session
        if session is not None:
            self.restricted = not self.access.unrestricted(session)
            if self.access.expels(self.peer, self.auth_method, session.username):
                self.terminate(reasons.NOT_AUTHORIZED, "the user was removed, or has another password")
        elif self.request is not None and not self.closing:
            decided = self.decision is not None and self.decision.later is None
            username = self.decision.username if self.decision is not None and decided else None
            if self.access.expels(self.peer, self.auth_method, username):
                self.refuse(reasons.SERVER_UNAVAILABLE, "the users were read again meanwhile; try again")

    def drained(self) -> None:
        """The network took what waited: send on what was held back."""
        self.hungry = False
        if self.session is not None and self.state != CLOSED:
            self.hub.delivery.pump(self.session)
