"""What goes in and out of the client: topics, received messages, wills."""

from dataclasses import dataclass
from typing import final

from metromq.errors import UsageError
from metromq.protocol.topics import matches, split_shared
from metromq.protocol.wire import Properties, Publish, decode_raw, encode_raw, packets

Payload = bytes | bytearray | memoryview | str | int | float | None


@final
class Topic(str):
    """A topic name: a string that knows which filters match it."""

    __slots__ = ()

    @property
    def value(self) -> str:
        return str(self)

    def matches(self, topic_filter: str) -> bool:
        """Whether the filter, shared (`$share/group/...`) or not, matches this topic."""
        return matches(split_shared(topic_filter)[1], self)


@final
class Message:
    """A message that the server sent us."""

    __slots__ = ("_packet", "_properties", "payload", "qos", "retain", "serial", "topic")

    def __init__(self, topic: str, packet: Publish, serial: int) -> None:
        self.topic = Topic(topic)
        self.payload = packet.payload
        self.qos = packet.qos
        self.retain = packet.retain
        self.serial = serial
        self._packet = packet
        self._properties: Properties | None = None

    @property
    def mid(self) -> int:
        """The packet identifier; 0 at QoS 0."""
        return self._packet.packet_id

    @property
    def dup(self) -> bool:
        return self._packet.dup

    @property
    def properties(self) -> Properties:
        """MQTT 5 properties, decoded when first asked for; all empty in older versions."""
        if self._properties is None:
            decoded = decode_raw(self._packet.properties)
            decoded.message_expiry_s = self._packet.expiry_s if self._packet.expiry_s >= 0 else None
            decoded.subscription_identifiers = self._packet.identifiers
            self._properties = decoded
        return self._properties

    def __repr__(self) -> str:
        return f"Message({str(self.topic)!r}, {self.payload!r}, qos={self.qos}, retain={self.retain})"


@dataclass(frozen=True, slots=True)
class Will:
    """What the server publishes when it loses us; its delay and expiry stand in the properties."""

    topic: str
    payload: Payload = None
    qos: int = 0
    retain: bool = False
    properties: Properties | None = None

    def packet(self) -> packets.Will:
        properties = self.properties or Properties()
        return packets.Will(
            self.topic,
            payload_bytes(self.payload),
            self.qos,
            self.retain,
            properties.will_delay_s or 0,
            -1 if properties.message_expiry_s is None else properties.message_expiry_s,
            encode_raw(properties),
        )


def publish_packet(topic: str, payload: Payload, qos: int, retain: bool, properties: Properties | None) -> Publish:
    """The PUBLISH for a message of ours, without its packet identifier."""
    if properties is None:
        return Publish(topic, payload_bytes(payload), qos, retain)
    if properties.subscription_identifiers:
        raise UsageError("a client must not send subscription identifiers in PUBLISH [MQTT-3.3.4-6]")
    return Publish(
        topic,
        payload_bytes(payload),
        qos,
        retain,
        properties=encode_raw(properties),
        expiry_s=-1 if properties.message_expiry_s is None else properties.message_expiry_s,
        topic_alias=properties.topic_alias or 0,
    )


def payload_bytes(payload: Payload) -> bytes:
    """Text as UTF-8, numbers as people write them, nothing as an empty payload."""
    if isinstance(payload, bytes):
        return payload
    if payload is None:
        return b""
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, int | float):
        return str(payload).encode()
    return bytes(payload)
