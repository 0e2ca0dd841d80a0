"""The packets of a replay, as a client gets them: QoS 0, and with MQTT 5 each says what it is a copy of."""

from typing import Final

from metromq.moments import text_of
from metromq.protocol.replay import ID_PROPERTY, NOTICE_TOPIC, TIME_PROPERTY
from metromq.protocol.session import Message
from metromq.protocol.wire import MQTT5, Properties, encode_publish, encode_raw

SECOND_US: Final = 1_000_000


class PacketWriter:
    """For one client: its version, the largest packet that it takes, its subscription identifier."""

    def __init__(self, version: int, max_packet_bytes: int, identifiers: tuple[int, ...]) -> None:
        self._version = version
        self._most = max_packet_bytes
        self._identifiers = identifiers

    def write(self, message: Message, origin: str, offset: int, now_us: int) -> bytes | None:
        """None: it has expired [MQTT-3.3.2-5], or is too large for the client [MQTT-3.1.2-24]."""
        expiry_s = -1
        if message.expires_at_us:
            left_us = message.expires_at_us - now_us
            if left_us <= 0:
                return None
            expiry_s = -(-left_us // SECOND_US)
        properties = b""
        if self._version == MQTT5:
            properties = message.properties + marks(origin, offset, message.time_us)
        return self._packet(message.topic, message.payload, properties, expiry_s)

    def notice(self, text: str) -> bytes:
        return self._packet(NOTICE_TOPIC, text.encode(), b"", -1) or b""

    def _packet(self, topic: str, payload: bytes, properties: bytes, expiry_s: int) -> bytes | None:
        data = encode_publish(
            self._version, topic.encode(), payload, 0, False, False, 0, properties, expiry_s, 0, self._identifiers
        )
        return data if len(data) <= self._most else None


def marks(origin: str, offset: int, time_us: int) -> bytes:
    """By which a client recognises a message that comes again."""
    if offset < 0:
        return b""
    user = ((ID_PROPERTY, f"{origin}/{offset}"), (TIME_PROPERTY, text_of(time_us)))
    return encode_raw(Properties(user=user))
