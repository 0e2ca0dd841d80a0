"""The client's half of MQTT without I/O: bytes, wishes and `now` in, effects out.

One core is one session: it outlives connections. `connect` starts the next connection; if the server still has the
session, unacknowledged messages are sent again [MQTT-4.4.0-1].
"""

from collections.abc import Sequence
from dataclasses import replace

from metromq.client.core.effects import Closed, Deliver, Effect, Failed, Opened, Send, Settled, Unclaimed
from metromq.client.core.messages import Message
from metromq.client.core.options import Authentication, ClientOptions
from metromq.client.core.outbox import Outbox
from metromq.client.core.unsettled import Unsettled
from metromq.errors import ConnectionLost, ConnectRefused, MqttError, PeerViolation, ProtocolViolation, UsageError
from metromq.protocol import reasons
from metromq.protocol.topics import validate_filter, validate_topic
from metromq.protocol.wire import (
    MQTT5,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Ack,
    Connack,
    Framer,
    Packet,
    Properties,
    Publish,
    Subscription,
    decode,
    encode,
    packets,
)


class ClientCore:
    """One session of one client.

    It has many methods because each kind of packet has a handler, and each thing that the user can ask for a call.
    """

    def __init__(self, options: ClientOptions) -> None:
        self.options = options
        self.identifier = options.identifier
        self.connack: Connack | None = None
        self._open = False
        self._connecting = False
        self._version = options.version
        self._framer = Framer(options.max_packet_size_bytes)
        self._outbox = Outbox()
        # Before MQTT 5 there is no receive maximum to hold the server to.
        self._inbox = Unsettled(
            options.receive_maximum if options.version == MQTT5 else 65535, options.topic_alias_maximum
        )
        self._asked: dict[int, tuple[int, int]] = {}  # SUBSCRIBE and UNSUBSCRIBE: packet id -> token, answers expected
        self._reauthentication: int | None = None
        self._last_token = 0
        self._keepalive_s = 0.0
        self._sent_at = 0.0
        self._received_at = 0.0
        self._pinged = False
        self._pinged_at = 0.0

    @property
    def is_open(self) -> bool:
        return self._open

    @property
    def awaits_answers(self) -> bool:
        """Whether an operation of ours waits for the server, so that reading must go on."""
        return bool(self._outbox or self._asked or self._reauthentication or self._connecting)

    @property
    def session_present(self) -> bool:
        return self.connack is not None and self.connack.session_present

    # Opening and closing

    def connect(self, now: float) -> list[Effect]:
        """Begins a connection: the CONNECT to send once the network is there."""
        options = self.options
        properties = Properties()
        if self._version == MQTT5:
            properties = replace(
                options.properties,
                session_expiry_s=options.session_expiry_s,
                receive_maximum=options.receive_maximum,
                topic_alias_maximum=options.topic_alias_maximum or None,
                maximum_packet_size=options.max_packet_size_bytes
                if options.max_packet_size_bytes < 268_435_460
                else None,
            )
            if options.authentication:
                properties.auth_method = options.authentication.method
                properties.auth_data = options.authentication.start()
        will = options.will.packet() if options.will else None
        packet = packets.Connect(
            self.identifier,
            self._version,
            options.clean_start,
            options.keepalive_s,
            options.username,
            options.password,
            will,
            properties,
        )
        self._framer = Framer(options.max_packet_size_bytes)
        self._connecting = True
        self._pinged = False
        self._received_at = now
        self.connack = None
        return [self._send(packet, now)]

    def disconnect(self, now: float, reason_code: int = 0, properties: Properties | None = None) -> list[Effect]:
        """Says goodbye; 0x04 asks the server to publish the will all the same."""
        if not self._open:
            return self.lost(None)
        return [self._send(packets.Disconnect(reason_code, properties), now), *self.lost(None)]

    def lost(self, error: MqttError | None) -> list[Effect]:
        """The connection is over: nothing asked on it will be answered; unacknowledged messages stay in the session."""
        if not (self._open or self._connecting):
            return []
        self._open = self._connecting = False
        reason = error or ConnectionLost("the connection was closed before the server answered")
        tokens = self._outbox.abandon() + [token for token, _ in self._asked.values()]
        if self._reauthentication is not None:
            tokens.append(self._reauthentication)
        for packet_id in self._asked:
            self._outbox.free_id(packet_id)
        self._asked.clear()
        self._reauthentication = None
        return [*(Failed(token, reason) for token in tokens), Closed(error)]

    # What the application wants

    def publish(self, packet: Publish, now: float) -> tuple[int, list[Effect]]:
        """Sends a message; the token (0 at QoS 0, which gets no answer) is settled by PUBACK or PUBCOMP."""
        validate_topic_or_alias(packet)
        self._check_allowed(packet)
        if packet.qos == 0:
            return 0, [self._send(packet, now)]
        token = self._token()
        self._outbox.add(token, packet)
        return token, self._pump(now)

    def subscribe(
        self, subscriptions: Sequence[Subscription], identifier: int, properties: Properties, now: float
    ) -> tuple[int, list[Effect]]:
        if not subscriptions:
            raise UsageError("subscribe needs at least one topic filter")
        self._check_open()
        for subscription in subscriptions:
            check_filter(subscription.filter)
        packet = packets.Subscribe(self._outbox.reserve_id(), list(subscriptions), identifier, properties)
        return self._ask(packet, packet.packet_id, len(subscriptions), now)

    def unsubscribe(self, filters: Sequence[str], properties: Properties, now: float) -> tuple[int, list[Effect]]:
        if not filters:
            raise UsageError("unsubscribe needs at least one topic filter")
        self._check_open()
        for name in filters:
            check_filter(name)
        packet = packets.Unsubscribe(self._outbox.reserve_id(), list(filters), properties)
        return self._ask(packet, packet.packet_id, len(filters), now)

    def reauthenticate(self, now: float) -> tuple[int, list[Effect]]:
        """Proves again who we are on an open connection (section 4.12.1)."""
        authentication = self.options.authentication
        if authentication is None or self._reauthentication is not None:
            raise UsageError("re-authentication needs an authentication method and no other one under way")
        self._check_open()
        self._reauthentication = self._token()
        return self._reauthentication, [self._send(_auth(authentication, authentication.start(), True), now)]

    def taken(self, message: Message, now: float) -> list[Effect]:
        """The application has the message: now it is acknowledged, or, without a connection, when it comes again."""
        ack = self._inbox.taken(message) if message.qos else None
        return [self._send(ack, now)] if ack is not None and self._open else []

    # Time

    def wrote(self, now: float) -> None:
        """Something was written past this core: until the next silence the server needs no ping."""
        self._sent_at = max(self._sent_at, now)

    def was_heard(self, at: float) -> None:
        """The server has shown elsewhere that it got what was sent then: that is as good as an answer to a ping."""
        self._received_at = max(self._received_at, at)

    def deadline(self) -> float | None:
        """When `tick` should be called next."""
        if not self._open or not self._keepalive_s:
            return None
        if self._pinged:  # whatever we send meanwhile: a server that is gone takes everything
            return self._pinged_at + self._keepalive_s / 2
        return min(self._sent_at, self._received_at) + self._keepalive_s

    def tick(self, now: float, reading: bool = True) -> list[Effect]:
        """Pings in silence [MQTT-3.1.2-20]; while we do not read, the server's silence says nothing."""
        deadline = self.deadline()
        if deadline is None or now < deadline:
            return []
        if not self._pinged or not reading:
            self._pinged = True
            self._pinged_at = self._received_at = now
            return [self._send(packets.Pingreq(), now)]
        return self.lost(ConnectionLost(f"the server has not answered a PINGREQ for {self._keepalive_s / 2:g} s"))

    # What the server says

    def receive(self, data: bytes, now: float) -> list[Effect]:
        effects: list[Effect] = []
        self._received_at = now
        self._pinged = False
        framer = self._framer
        framer.feed(data)
        try:
            while self._open or self._connecting:
                frame = framer.next()
                if frame is None:
                    break
                packet = decode(frame[0], frame[1], self._version, False)
                if isinstance(packet, Publish) and self._open:
                    self._on_publish(packet, now, effects)
                elif isinstance(packet, Ack) and self._open:
                    self._on_ack(packet, now, effects)
                else:
                    self._on_other(packet, now, effects)
        except PeerViolation as error:
            effects += self._violated(error, now)
        return effects

    def _violated(self, error: PeerViolation, now: float) -> list[Effect]:
        goodbye: list[Effect] = []
        if self._open and self._version == MQTT5 and error.reason_code in reasons.IN_DISCONNECT_OF_CLIENT:
            goodbye.append(self._send(packets.Disconnect(error.reason_code), now))
        return [*goodbye, *self.lost(ConnectionLost(f"the server broke the protocol: {error}", error.reason_code))]

    def _on_other(self, packet: Packet, now: float, effects: list[Effect]) -> None:
        if isinstance(packet, packets.Pingresp):
            return
        if isinstance(packet, packets.Auth):
            self._on_auth(packet, now, effects)
        elif isinstance(packet, Connack):
            if not self._connecting:
                raise ProtocolViolation("a second CONNACK [MQTT-3.2.0-2]")
            self._on_connack(packet, now, effects)
        elif self._connecting:
            raise ProtocolViolation("a packet before CONNACK [MQTT-3.2.0-1]")
        elif isinstance(packet, packets.Disconnect):
            effects += self.lost(disconnected(packet))
        elif isinstance(packet, packets.Suback | packets.Unsuback):
            self._on_answer(packet, effects)

    def _on_connack(self, packet: Connack, now: float, effects: list[Effect]) -> None:
        options, properties = self.options, packet.properties
        if packet.reason_code:
            said = f": {properties.reason_string}" if properties.reason_string else ""
            text = f"the server refused the connection: {reasons.name_of(packet.reason_code)}{said}"
            effects += self.lost(ConnectRefused(text, packet.reason_code, properties.server_reference))
            return
        if packet.session_present and options.clean_start:
            raise ProtocolViolation("session present after a clean start [MQTT-3.2.2-2]")
        if options.authentication:
            options.authentication.finish(properties.auth_data)
        self._connecting = False
        self._open = True
        self.connack = packet
        self.identifier = properties.assigned_client_id or self.identifier
        kept = properties.server_keepalive_s  # [MQTT-3.1.2-21]
        self._keepalive_s = float(options.keepalive_s if kept is None else kept)
        self._outbox.window = min(options.max_inflight, properties.receive_maximum or 65535)
        effects.append(Opened(packet))
        self._resume(packet.session_present, now, effects)

    def _resume(self, session_present: bool, now: float, effects: list[Effect]) -> None:
        """Sends again, in order, what the server has not acknowledged, or forgets it where the server has."""
        self._inbox.reconnected(session_present)
        if not session_present:
            self._outbox.forget()
            return
        for packet_id in self._outbox.resume():
            effects.append(self._send(Ack(PUBREL, packet_id), now))
        effects += self._pump(now)

    def _on_publish(self, packet: Publish, now: float, effects: list[Effect]) -> None:
        received = self._inbox.receive(packet)
        if isinstance(received, Message):
            effects.append(Deliver(received))
        elif received is not None:
            effects.append(self._send(received, now))

    def _on_ack(self, packet: Ack, now: float, effects: list[Effect]) -> None:
        unknown = reasons.PACKET_IDENTIFIER_NOT_FOUND if self._version == MQTT5 else reasons.SUCCESS
        if packet.kind == PUBREL:
            reason = reasons.SUCCESS if self._inbox.released(packet.packet_id) else unknown
            effects.append(self._send(Ack(PUBCOMP, packet.packet_id, reason), now))
            return
        outgoing = self._outbox.acknowledged(packet)
        if outgoing is None:
            if packet.kind == PUBREC:  # [MQTT-4.3.3-4] asks for a PUBREL all the same
                effects.append(self._send(Ack(PUBREL, packet.packet_id, unknown), now))
            elif packet.kind == PUBACK:
                effects.append(Unclaimed(packet.packet_id, packet.reason_code))
        elif outgoing.released and packet.kind == PUBREC:
            effects.append(self._send(Ack(PUBREL, packet.packet_id), now))
        else:
            if outgoing.token:
                effects.append(Settled(outgoing.token, (packet.reason_code,), packet.properties))
            effects += self._pump(now)

    def _on_answer(self, packet: packets.Suback | packets.Unsuback, effects: list[Effect]) -> None:
        token, expected = self._asked.pop(packet.packet_id, (0, 0))
        if not token:
            raise ProtocolViolation("SUBACK or UNSUBACK for nothing that was asked")
        self._outbox.free_id(packet.packet_id)
        codes = packet.reason_codes
        if self._version != MQTT5 and isinstance(packet, packets.Unsuback):
            codes = [0] * expected
        if len(codes) != expected:
            raise ProtocolViolation(f"{len(codes)} reason codes for {expected} topic filters [MQTT-3.8.4-6]")
        effects.append(Settled(token, tuple(codes), packet.properties))

    def _on_auth(self, packet: packets.Auth, now: float, effects: list[Effect]) -> None:
        authentication = self.options.authentication
        if authentication is None or packet.properties.auth_method != authentication.method:
            raise ProtocolViolation("AUTH with a method we did not ask for [MQTT-4.12.0-5]")
        data = packet.properties.auth_data or b""
        if packet.reason_code == reasons.CONTINUE_AUTHENTICATION:
            effects.append(self._send(_auth(authentication, authentication.answer(data), False), now))
        elif self._reauthentication is None:
            raise ProtocolViolation("AUTH says success, but no re-authentication was under way")
        else:
            authentication.finish(data)
            effects.append(Settled(self._reauthentication, (0,), packet.properties))
            self._reauthentication = None

    # Sending

    def _pump(self, now: float) -> list[Effect]:
        return [self._send(packet, now) for packet in self._outbox.due()] if self._open else []

    def _ask(self, packet: Packet, packet_id: int, expected: int, now: float) -> tuple[int, list[Effect]]:
        token = self._token()
        sent = self._send(packet, now)
        self._asked[packet_id] = (token, expected)
        return token, [sent]

    def _send(self, packet: Packet, now: float) -> Send:
        self._sent_at = now
        return Send(encode(packet, self._version))

    def _token(self) -> int:
        self._last_token += 1
        return self._last_token

    def _check_open(self) -> None:
        if not self._open:
            raise ConnectionLost("the client is not connected")

    def _check_allowed(self, packet: Publish) -> None:
        """Refuses what the server said in CONNACK that it does not take."""
        self._check_open()
        assert self.connack is not None
        properties = self.connack.properties
        if packet.qos not in (0, 1, 2):
            raise UsageError(f"QoS is 0, 1 or 2, not {packet.qos}")
        if properties.maximum_qos is not None and packet.qos > properties.maximum_qos:
            raise MqttError(f"the server accepts no QoS above {properties.maximum_qos}", reasons.QOS_NOT_SUPPORTED)
        if packet.retain and properties.retain_available is False:
            raise MqttError("the server accepts no retained messages", reasons.RETAIN_NOT_SUPPORTED)
        if packet.topic_alias > (properties.topic_alias_maximum or 0):
            raise MqttError("the topic alias is over the server's maximum", reasons.TOPIC_ALIAS_INVALID)
        most = properties.maximum_packet_size
        if most is not None and len(packet.payload) + 4 * len(packet.topic) + len(packet.properties) + 64 > most:
            size = _size(packet, self._version)
            if size > most:
                raise MqttError(f"the packet has {size} bytes, the server takes {most}", reasons.PACKET_TOO_LARGE)


def _size(packet: Publish, version: int) -> int:
    """The bytes of a PUBLISH that has no packet identifier yet."""
    packet.packet_id = 1 if packet.qos else 0
    size = len(encode(packet, version))
    packet.packet_id = 0
    return size


def disconnected(packet: packets.Disconnect) -> ConnectionLost:
    """The server's DISCONNECT as the error that the application sees."""
    properties = packet.properties or Properties()
    said = f": {properties.reason_string}" if properties.reason_string else ""
    text = f"the server disconnected: {reasons.name_of(packet.reason_code)}{said}"
    return ConnectionLost(text, packet.reason_code, properties.server_reference)


def validate_topic_or_alias(packet: Publish) -> None:
    if packet.topic or not packet.topic_alias or packet.qos:  # QoS 1 and 2 may be sent again where the alias is unknown
        try:
            validate_topic(packet.topic)
        except PeerViolation as error:
            raise UsageError(str(error)) from None


def check_filter(name: str) -> None:
    try:
        validate_filter(name)
    except PeerViolation as error:
        raise UsageError(str(error)) from None


def _auth(authentication: Authentication, data: bytes, again: bool) -> packets.Auth:
    reason = reasons.REAUTHENTICATE if again else reasons.CONTINUE_AUTHENTICATION
    return packets.Auth(reason, Properties(auth_method=authentication.method, auth_data=data))
