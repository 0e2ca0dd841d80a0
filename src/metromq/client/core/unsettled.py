"""Messages of the server until they are acknowledged, and the topic aliases of the connection they came on."""

from metromq.client.core.messages import Message
from metromq.errors import ProtocolViolation
from metromq.protocol import reasons
from metromq.protocol.wire import PUBACK, PUBREC, Ack, Publish


class UnsettledMessage:
    """A QoS 1 message that the application has not taken, or a QoS 2 message that the server has not released."""

    __slots__ = ("acknowledged", "qos", "serial")

    def __init__(self, serial: int, qos: int) -> None:
        self.serial = serial
        self.qos = qos
        self.acknowledged = False


class Unsettled:
    """Acknowledges a message only when the application has it, so that the server's window bounds our queue."""

    def __init__(self, receive_maximum: int, topic_alias_maximum: int) -> None:
        self._receive_maximum = receive_maximum
        self._topic_alias_maximum = topic_alias_maximum
        self._aliases: dict[int, str] = {}
        self._unsettled: dict[int, UnsettledMessage] = {}
        self._last_serial = 0

    def receive(self, packet: Publish) -> Message | Ack | None:
        """A message to deliver, the PUBREC that the server missed, or nothing for a repetition."""
        topic = self._resolve(packet) if packet.topic_alias else packet.topic
        packet_id = packet.packet_id
        if packet.qos == 2 and packet_id in self._unsettled:
            return Ack(PUBREC, packet_id) if self._unsettled[packet_id].acknowledged else None
        self._last_serial += 1
        if packet.qos:
            self._unsettled[packet_id] = UnsettledMessage(self._last_serial, packet.qos)
            if len(self._unsettled) > self._receive_maximum:
                raise ProtocolViolation("more messages than our receive maximum", reasons.RECEIVE_MAXIMUM_EXCEEDED)
        return Message(topic, packet, self._last_serial)

    def taken(self, message: Message) -> Ack | None:
        """The acknowledgement for a message, unless it came on a connection or in a session that is over."""
        incoming = self._unsettled.get(message.mid)
        if incoming is None or incoming.serial != message.serial or incoming.acknowledged:
            return None
        if message.qos == 1:
            del self._unsettled[message.mid]
            return Ack(PUBACK, message.mid)
        incoming.acknowledged = True
        return Ack(PUBREC, message.mid)

    def released(self, packet_id: int) -> bool:
        """PUBREL: whether the message was known."""
        return self._unsettled.pop(packet_id, None) is not None

    def reconnected(self, session_present: bool) -> None:
        """What of the last connection still counts: nothing, or in a kept session its QoS 2 messages."""
        self._aliases.clear()
        self._unsettled = {
            number: incoming
            for number, incoming in self._unsettled.items()
            if session_present and incoming.qos == 2  # the server sends those of QoS 1 again
        }

    def _resolve(self, packet: Publish) -> str:
        if packet.topic_alias > self._topic_alias_maximum:
            raise ProtocolViolation("topic alias over our maximum [MQTT-3.1.2-26]", reasons.TOPIC_ALIAS_INVALID)
        if packet.topic:
            self._aliases[packet.topic_alias] = packet.topic
        elif packet.topic_alias not in self._aliases:
            raise ProtocolViolation("topic alias that was never set", reasons.TOPIC_ALIAS_INVALID)
        return self._aliases[packet.topic_alias]
