"""One client connection without I/O: bytes in with `receive`, bytes out through the outlet."""

from typing import Final, final

from metromq.errors import MalformedPacket, PeerViolation, ProtocolViolation
from metromq.protocol.session import records
from metromq.protocol.session.access import Access, Peer
from metromq.protocol.session.forwarding import run_end, to_newer, to_older
from metromq.protocol.session.handshake import CLOSED, NEW, OPEN, Handshake
from metromq.protocol.session.hub import Hub, Waiter
from metromq.protocol.session.message import Message
from metromq.protocol.session.outlet import Outlet
from metromq.protocol.session.packing import Packer
from metromq.protocol.session.routes import Route
from metromq.protocol.session.session import Session
from metromq.protocol.topics.names import split_shared, validate_filter
from metromq.protocol.wire import reasons
from metromq.protocol.wire.decode import decode
from metromq.protocol.wire.encode import encode, encode_ack
from metromq.protocol.wire.packets import (
    AUTH,
    CONNECT,
    MQTT5,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    Ack,
    Auth,
    Connect,
    Disconnect,
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
RESERVED: Final = ("$SYS", "$metromq")  # topics that only the broker itself publishes


@final
class _AckLater(Waiter):
    """PUBACK, PUBREC or PUBCOMP that leaves when the journal has the message."""

    def __init__(self, connection: "Connection", kind: int, packet_id: int, reason_code: int) -> None:
        self.connection = connection
        self.kind = kind
        self.packet_id = packet_id
        self.reason_code = reason_code

    def committed(self) -> None:
        self.connection.acknowledge(self.kind, self.packet_id, self.reason_code)

    def failed(self) -> None:
        self.connection.not_stored(self.kind, self.packet_id)


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
class _ReleaseLater(Waiter):
    """PUBREL that leaves when the journal has the subscriber's PUBREC."""

    def __init__(self, hub: Hub, session: Session, packet_id: int) -> None:
        self.hub = hub
        self.session = session
        self.packet_id = packet_id

    def committed(self) -> None:
        self.hub.release(self.session, self.packet_id)

    def failed(self) -> None:
        self.hub.release(self.session, self.packet_id)


@final
class Connection(Handshake):
    """Reads packets in order and acts on each before the next [MQTT-4.6.0-5]."""

    def __init__(self, hub: Hub, access: Access, peer: Peer) -> None:
        super().__init__(hub, access, peer)
        self.tail: bytes = b""
        self.pieces: list[bytes] | None = None  # of a packet that is larger than what came so far
        self.missing = 0
        self.aliases_in: dict[int, str] | None = None
        self.unacknowledged = 0  # QoS 1 and 2 messages accepted and not yet confirmed
        self.slow_target: Outlet | None = (
            None  # a receiver that lags: the shell reads less eagerly until it has drained
        )
        self.allowed: set[bytes] | None = None  # topics the access list has allowed this client to publish

    # --- bytes ----------------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Takes what came from the network; never raises for what a peer may send."""
        if self.closing:
            return
        self.heard_at = self.hub.now
        self.hub.counters.bytes_received += len(data)
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
                    break
                shift += 7
                if shift > 21:
                    raise MalformedPacket("the remaining length has more than four bytes [MQTT-1.5.5-1]")
            stop = start + length
            if stop - position > self.hub.settings.max_packet_size_bytes:
                raise PeerViolation(reasons.PACKET_TOO_LARGE, "the packet is larger than this broker takes")
            if stop > end:
                if position == 0 and self.state == NEW and data[0] != 0x10:
                    raise ProtocolViolation("the first packet is not CONNECT [MQTT-3.1.0-1]")
                self._keep(data, position, stop - end)
                return
            first = data[position]
            if first == 0x30 and self.fast:
                forwarded = self._forward(data, position, start, stop, end)
                if forwarded:
                    position = forwarded
                    continue
            self.hub.counters.packets_received += 1
            self._packet(first, data[start:stop])
            if self.closing:
                return
            position = stop

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
        if topic_end > stop or topic_end == start + 2:
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
        if not route.plain or (self.restricted and not self._allowed(topic)):
            return 0
        size = stop - position
        run_stop = run_end(data, position, size, data[position:body], end)
        if position == 0 and run_stop == end:
            run = data
        else:
            run = data[position:run_stop]
        self._spread(route, run, size, start - position, topic_end - position)
        return run_stop

    def _allowed(self, topic: bytes) -> bool:
        return self.allowed is not None and topic in self.allowed

    def _spread(self, route: Route, run: bytes, size: int, header: int, topic_end: int) -> None:
        """Gives one run of packets to everyone on the route."""
        counters = self.hub.counters
        count = len(run) // size
        payload_bytes = len(run) - count * topic_end
        counters.packets_received += count
        counters.messages_received += count
        counters.publish_bytes_received += payload_bytes
        route.publications += count
        route.bytes += payload_bytes
        newer = self.version == MQTT5
        other = b""
        sent = 0
        for target in route.targets:
            outlet = target.session.outlet
            if outlet is None:
                continue
            if outlet.stalled or outlet.waiting_bytes >= outlet.hard_limit_bytes or size + 1 > outlet.max_packet_bytes:
                outlet.room()
                outlet.dropped += count
                counters.dropped += count
                continue
            if (outlet.version == MQTT5) == newer:
                outlet.write(run)
            else:
                if not other:
                    other = to_older(run, size, topic_end, header) if newer else to_newer(run, size, topic_end, header)
                outlet.write(other)
            if outlet.waiting_bytes > outlet.soft_limit_bytes:
                self.slow_target = outlet
            sent += count
        route.deliveries += sent
        counters.messages_sent += sent
        counters.publish_bytes_sent += sent * (payload_bytes // count)

    # --- packets --------------------------------------------------------------------------------------------------

    def _packet(self, first: int, body: bytes) -> None:
        kind = first >> 4
        if self.state != OPEN:
            self._early(kind, first, body)
            return
        if kind == CONNECT:
            raise ProtocolViolation("a second CONNECT [MQTT-3.1.0-2]")
        packet = decode(first, body, self.version)
        if kind == PUBLISH:
            assert isinstance(packet, Publish)
            self._publish(packet)
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

    def _early(self, kind: int, first: int, body: bytes) -> None:
        if self.state == NEW:
            if kind != CONNECT:
                raise ProtocolViolation("the first packet is not CONNECT [MQTT-3.1.0-1]")
            self._guess_version(body)
            packet = decode(first, body, 0)
            assert isinstance(packet, Connect)
            self.on_connect(packet)
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

    # --- PUBLISH from the client ----------------------------------------------------------------------------------

    def _publish(self, publish: Publish) -> None:
        hub = self.hub
        settings = hub.settings
        session = self.session
        assert session is not None
        hub.counters.messages_received += 1
        hub.counters.publish_bytes_received += len(publish.payload)
        if publish.qos > settings.max_qos:  # [MQTT-3.2.2-11]
            raise ProtocolViolation("this QoS is not supported [MQTT-3.2.2-11]", reasons.QOS_NOT_SUPPORTED)
        if publish.retain and not settings.retain_available:  # [MQTT-3.2.2-14]
            raise ProtocolViolation("RETAIN is not supported [MQTT-3.2.2-14]", reasons.RETAIN_NOT_SUPPORTED)
        topic = self._topic(publish)
        if publish.qos:
            if publish.qos == 2 and publish.packet_id in session.incoming:  # a repeat [MQTT-4.3.3-10]
                self._ack_when_stored(PUBREC, publish.packet_id, 0)
                return
            self.unacknowledged += 1
            if self.version == MQTT5 and self.unacknowledged > settings.receive_maximum:  # [MQTT-3.3.4-7]
                raise ProtocolViolation("more messages than the receive maximum", reasons.RECEIVE_MAXIMUM_EXCEEDED)
        refusal = self._refusal(session, topic, publish.qos)
        if refusal:
            self._refused(publish, refusal)
            return
        message = Message(topic, publish.payload, publish.qos, publish.retain, publish.properties)
        message.time_us = hub.wall_us
        message.publisher = session.client_id
        if publish.expiry_s >= 0:
            message.expires_at_us = hub.wall_us + publish.expiry_s * 1_000_000
        if publish.qos == 2:
            session.incoming.add(publish.packet_id)
            receivers = hub.publish(message, session, publish.packet_id)
            self._ack_when_stored(PUBREC, publish.packet_id, 0 if receivers else reasons.NO_MATCHING_SUBSCRIBERS)
        else:
            receivers = hub.publish(message, session)
            if publish.qos:
                self._ack_when_stored(PUBACK, publish.packet_id, 0 if receivers else reasons.NO_MATCHING_SUBSCRIBERS)

    def _topic(self, publish: Publish) -> str:
        """The topic name, through its alias where there is one [MQTT-3.3.2-7..12]."""
        topic, alias = publish.topic, publish.topic_alias
        if alias:
            if alias > self.hub.settings.max_topic_alias:
                raise ProtocolViolation(
                    "the topic alias is over the maximum [MQTT-3.3.2-9]", reasons.TOPIC_ALIAS_INVALID
                )
            if self.aliases_in is None:
                self.aliases_in = {}
            if topic:
                self.aliases_in[alias] = topic
            else:
                topic = self.aliases_in.get(alias, "")
                if not topic:
                    raise ProtocolViolation("the topic alias is unknown", reasons.PROTOCOL_ERROR)
        if topic.count("/") >= self.hub.settings.max_topic_levels:
            raise ProtocolViolation("the topic has too many levels", reasons.TOPIC_NAME_INVALID)
        return topic

    def _refusal(self, session: Session, topic: str, qos: int) -> int:
        """A reason not to take the message; 0: none."""
        if topic.startswith("$") and topic.partition("/")[0] in RESERVED:
            return reasons.NOT_AUTHORIZED
        if self.restricted:
            key = topic.encode()
            if not self._allowed(key):
                if not self.access.may_publish(session, topic):
                    return reasons.NOT_AUTHORIZED
                if self.allowed is None or len(self.allowed) > 1000:
                    self.allowed = set()
                self.allowed.add(key)
        log = self.hub.log
        if qos and log is not None and log.full():
            return reasons.QUOTA_EXCEEDED
        return 0

    def _refused(self, publish: Publish, reason_code: int) -> None:
        self.hub.counters.refused += 1
        if publish.qos == 0:
            return
        if self.version == MQTT5:
            self.acknowledge(PUBACK if publish.qos == 1 else PUBREC, publish.packet_id, reason_code)
        elif reason_code == reasons.QUOTA_EXCEEDED:
            self.shut("the disk is full; the client keeps its message")
        else:  # older versions know no refusal: confirm and drop, as the standard allows [MQTT-3.3.5-2]
            self.acknowledge(PUBACK if publish.qos == 1 else PUBREC, publish.packet_id, 0)

    def _ack_when_stored(self, kind: int, packet_id: int, reason_code: int) -> None:
        if self.hub.log is None:
            self.acknowledge(kind, packet_id, reason_code)
        else:
            self.hub.when_committed(_AckLater(self, kind, packet_id, reason_code))

    def acknowledge(self, kind: int, packet_id: int, reason_code: int) -> None:
        if self.closing:
            return
        if kind != PUBREC or reason_code >= 0x80:
            self.unacknowledged -= 1
        self.write(encode_ack(kind, packet_id, reason_code, self.version))

    def not_stored(self, kind: int, packet_id: int) -> None:
        """The journal could not take the message."""
        self.hub.counters.refused += 1
        if kind == PUBREC and self.session is not None:
            self.session.incoming.discard(packet_id)
        if kind == PUBCOMP:
            self.acknowledge(kind, packet_id, 0)
        elif self.version == MQTT5:
            self.acknowledge(kind, packet_id, reasons.QUOTA_EXCEEDED)
        else:
            self.shut("the disk is full; the client keeps its message")

    # --- acknowledgements -----------------------------------------------------------------------------------------

    def _ack(self, ack: Ack) -> None:
        session = self.session
        assert session is not None
        hub = self.hub
        if ack.kind == PUBACK or ack.kind == PUBCOMP:
            hub.acknowledged(session, ack.packet_id)
        elif ack.kind == PUBREC:
            if ack.reason_code >= 0x80:  # [MQTT-4.3.3-4]: no PUBREL, the message is done
                hub.acknowledged(session, ack.packet_id)
            elif not hub.received(session, ack.packet_id):
                self.write(encode_ack(PUBREL, ack.packet_id, reasons.PACKET_IDENTIFIER_NOT_FOUND, self.version))
            elif session.durable and hub.log is not None:
                hub.when_committed(_ReleaseLater(hub, session, ack.packet_id))
            else:
                hub.release(session, ack.packet_id)
        else:
            self._released(session, ack.packet_id)

    def _released(self, session: Session, packet_id: int) -> None:
        """PUBREL: the identifier is free again; PUBCOMP waits until the journal knows [MQTT-4.3.3-11]."""
        if packet_id not in session.incoming:
            self.write(encode_ack(PUBCOMP, packet_id, reasons.PACKET_IDENTIFIER_NOT_FOUND, self.version))
            return
        session.incoming.discard(packet_id)
        if session.durable and self.hub.log is not None:
            self.hub.append(records.RELEASED, Packer().u32(session.number).u16(packet_id).done(), True)
            self._ack_when_stored(PUBCOMP, packet_id, 0)
        else:
            self.acknowledge(PUBCOMP, packet_id, 0)

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
                granted.append((wanted, hub.subscribe(session, wanted, subscribe.identifier)))
        self._answer(session, encode(Suback(subscribe.packet_id, codes, Properties()), self.version))
        for wanted, new in granted:
            hub.retained_for(session, wanted.filter, new)

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
            codes.append(0 if self.hub.unsubscribe(session, filter) else reasons.NO_SUBSCRIPTION_EXISTED)
        self._answer(session, encode(Unsuback(unsubscribe.packet_id, codes, Properties()), self.version))

    def _answer(self, session: Session, data: bytes) -> None:
        if session.durable and self.hub.log is not None:
            self.hub.when_committed(_BytesLater(self, data))
        else:
            self.write(data)

    def _disconnect(self, disconnect: Disconnect) -> None:
        session = self.session
        assert session is not None
        properties = disconnect.properties
        if properties is not None and properties.session_expiry_s is not None:
            if session.expiry_s == 0 and properties.session_expiry_s:  # [MQTT-3.1.2-23]
                raise ProtocolViolation("the session expiry was 0 in CONNECT and may not be raised")
            self.hub.expiry_changed(session, properties.session_expiry_s)
        self.shut("the client said goodbye")
        self.lost(disconnect.reason_code != reasons.DISCONNECT_WITH_WILL)

    def permissions_changed(self) -> None:
        self.allowed = None
        if self.session is not None:
            self.restricted = not self.access.unrestricted(self.session)

    def drained(self) -> None:
        """The network took what waited: send on what was held back."""
        if self.session is not None and self.state != CLOSED:
            self.hub.pump(self.session)
