"""What a client sends us: PUBLISH with its acknowledgements, and the acknowledgements of what we sent."""

from typing import final

from metromq.errors import ProtocolViolation
from metromq.protocol.session import records
from metromq.protocol.session.access import Access, Peer
from metromq.protocol.session.backlog import RELEASED
from metromq.protocol.session.commits import Waiter
from metromq.protocol.session.handshake import RESERVED, Handshake
from metromq.protocol.session.hub import Hub
from metromq.protocol.session.message import Message
from metromq.protocol.session.packing import Packer
from metromq.protocol.session.routes import Route
from metromq.protocol.session.session import Session
from metromq.protocol.wire import reasons
from metromq.protocol.wire.encode import encode, encode_ack
from metromq.protocol.wire.packets import MQTT5, PUBACK, PUBCOMP, PUBREC, PUBREL, Ack, Properties, Publish


@final
class AckLater(Waiter):
    """PUBACK, PUBREC or PUBCOMP that leaves when the journal has the message."""

    def __init__(self, connection: "Incoming", kind: int, packet_id: int, reason_code: int) -> None:
        self.connection = connection
        self.kind = kind
        self.packet_id = packet_id
        self.reason_code = reason_code

    def committed(self) -> None:
        self.connection.acknowledge(self.kind, self.packet_id, self.reason_code)

    def failed(self) -> None:
        self.connection.not_stored(self.kind, self.packet_id)


@final
class _ReleaseLater(Waiter):
    """PUBREL that leaves when the journal has the subscriber's PUBREC."""

    def __init__(self, hub: Hub, session: Session, packet_id: int) -> None:
        self.hub = hub
        self.session = session
        self.packet_id = packet_id

    def committed(self) -> None:
        self.hub.delivery.release(self.session, self.packet_id)

    def failed(self) -> None:
        self.hub.delivery.release(self.session, self.packet_id)


class Incoming(Handshake):
    """A connection that takes messages; `Connection` adds subscriptions and the bytes."""

    def __init__(self, hub: Hub, access: Access, peer: Peer) -> None:
        super().__init__(hub, access, peer)
        self.aliases_in: dict[int, str] | None = None
        self.unacknowledged = 0  # QoS 1 and 2 messages accepted and not yet confirmed
        self.allowed: set[bytes] | None = None  # topics the access list has allowed this client to publish

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
        refusal = self._refusal(session, topic, publish)
        if refusal:
            self._refused(publish, refusal)
            return
        message = Message(topic, publish.payload, publish.qos, publish.retain, publish.properties)
        message.time_us = hub.clock.wall_us
        message.publisher = session.client_id
        if publish.expiry_s >= 0:
            message.expires_at_us = hub.clock.wall_us + publish.expiry_s * 1_000_000
        if publish.qos == 2:
            session.incoming[publish.packet_id] = None
            receivers = hub.publishing.publish(message, session, publish.packet_id)
            self._ack_when_stored(PUBREC, publish.packet_id, 0 if receivers else reasons.NO_MATCHING_SUBSCRIBERS)
        else:
            receivers = hub.publishing.publish(message, session)
            if publish.qos:
                self._ack_when_stored(PUBACK, publish.packet_id, 0 if receivers else reasons.NO_MATCHING_SUBSCRIBERS)

    def _publish_run(self, data: bytes, position: int, start: int, stop: int, end: int) -> int:
        """The short way of QoS 1: packets of one size on a topic whose route is known, from `position` on.

        Returns where they end; 0: nothing was done, the first takes the long way.
        """
        body = start + 4 + ((data[start] << 8) | data[start + 1]) if stop - start >= 4 else stop + 1
        newer = self.version == MQTT5
        if body > stop or data[start + 2] == 0x24 or (newer and body == stop):
            return 0
        session = self.session
        route = self._known_route(data[start + 2 : body - 2])
        if route is None or session is None:
            return 0
        hub = self.hub
        size = stop - position
        head = data[position : body - 2]
        length = len(head)
        most = hub.settings.receive_maximum
        at = position
        acks: list[bytes] = []
        while True:
            place = at + length
            packet_id = (data[place] << 8) | data[place + 1]
            if packet_id == 0 or (newer and (data[place + 2] or self.unacknowledged >= most)):
                break
            message = Message(route.topic, data[place + 3 if newer else place + 2 : at + size], 1)
            message.time_us = hub.clock.wall_us
            message.publisher = session.client_id
            receivers = hub.publishing.publish_known(route, message, session, b"" if newer else head)
            if hub.commits.log is None and (receivers or not newer):
                acks.append(encode_ack(PUBACK, packet_id, 0, self.version))
            else:
                self.unacknowledged += 1
                self._ack_when_stored(PUBACK, packet_id, 0 if receivers else reasons.NO_MATCHING_SUBSCRIBERS)
            at += size
            if at + size > end or data[at : at + length] != head or self.closing:
                break
        if acks:
            self.write(acks[0] if len(acks) == 1 else b"".join(acks))
        count = (at - position) // size
        counters = hub.counters
        counters.packets_received += count
        counters.messages_received += count
        counters.publish_bytes_received += count * (size - length - (3 if newer else 2))
        return at if count else 0

    def _known_route(self, topic: bytes) -> Route | None:
        """The route of a topic to which this client may publish at QoS 1 without more questions."""
        hub = self.hub
        route = hub.routes.cache.get(topic)
        if (
            route is None
            or not route.plain
            or hub.settings.max_qos == 0
            or (self.restricted and not self._allowed(topic))
            or (hub.commits.log is not None and hub.commits.log.full())
        ):
            return None
        return route

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

    def _refusal(self, session: Session, topic: str, publish: Publish) -> int:
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
        hub = self.hub
        if publish.qos and hub.commits.log is not None and hub.commits.log.full():
            return reasons.QUOTA_EXCEEDED
        if publish.retain and publish.payload and not hub.retained.has_room(topic):
            return reasons.QUOTA_EXCEEDED
        return 0

    def _refused(self, publish: Publish, reason_code: int) -> None:
        self.hub.counters.refused += 1
        if publish.qos == 0:
            return
        kind = PUBACK if publish.qos == 1 else PUBREC
        if self.version == MQTT5:
            self._ack_when_stored(kind, publish.packet_id, reason_code)  # in its turn [MQTT-4.6.0-2]
        elif reason_code == reasons.QUOTA_EXCEEDED:
            self.shut("no room; the client keeps its message")
        else:  # older versions know no refusal: confirm and drop, as the standard allows [MQTT-3.3.5-2]
            self._ack_when_stored(kind, publish.packet_id, 0)

    def _ack_when_stored(self, kind: int, packet_id: int, reason_code: int) -> None:
        if self.hub.commits.log is None:
            self.acknowledge(kind, packet_id, reason_code)
        else:
            self.hub.commits.when_committed(AckLater(self, kind, packet_id, reason_code))

    def acknowledge(self, kind: int, packet_id: int, reason_code: int) -> None:
        if self.closing:
            return
        if (kind != PUBREC or reason_code >= 0x80) and self.unacknowledged:
            self.unacknowledged -= 1
        if reason_code < 0x80 or self.version != MQTT5 or not self.problem_information:  # [MQTT-3.1.2-29]
            self.write(encode_ack(kind, packet_id, reason_code, self.version))
            return
        properties = Properties()
        properties.reason_string = reasons.NAMES[reason_code]
        data = encode(Ack(kind, packet_id, reason_code, properties), MQTT5)
        if len(data) > self.max_packet_bytes:  # [MQTT-3.4.2-2], [MQTT-3.5.2-2]
            data = encode_ack(kind, packet_id, reason_code, MQTT5)
        self.write(data)

    def not_stored(self, kind: int, packet_id: int) -> None:
        """The journal could not take the message."""
        self.hub.counters.refused += 1
        if kind == PUBREC and self.session is not None:
            self.session.incoming.pop(packet_id, None)
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
        entry = session.backlog.inflight.get(ack.packet_id)
        if ack.kind == PUBACK or ack.kind == PUBCOMP:
            if entry is not None:
                if (entry.flags & 3 == 1) != (ack.kind == PUBACK):
                    raise ProtocolViolation("an acknowledgement of another QoS than the message's [MQTT-4.3.2-3]")
                if ack.kind == PUBACK or entry.state >= RELEASED:  # PUBCOMP answers PUBREL
                    hub.delivery.acknowledged(session, ack.packet_id)
        elif ack.kind == PUBREC:
            if entry is not None and entry.flags & 3 != 2:
                raise ProtocolViolation("PUBREC for a message of QoS 1 [MQTT-4.3.2-3]")
            if ack.reason_code >= 0x80:  # [MQTT-4.4.0-2]: no PUBREL, the message is done
                hub.delivery.acknowledged(session, ack.packet_id)
            elif not hub.delivery.received(session, ack.packet_id):
                self.write(encode_ack(PUBREL, ack.packet_id, reasons.PACKET_IDENTIFIER_NOT_FOUND, self.version))
            elif session.backlog.durable and hub.commits.log is not None:
                hub.commits.when_committed(_ReleaseLater(hub, session, ack.packet_id))
            else:
                hub.delivery.release(session, ack.packet_id)
        else:
            self._released(session, ack.packet_id)

    def _confirmed_run(self, data: bytes, position: int, end: int) -> int:
        """The short way of PUBACKs for messages of QoS 1 that are under way; where they end, 0: there is none."""
        session = self.session
        if session is None:
            return 0
        inflight = session.backlog.inflight
        durable = session.backlog.durable
        at = position
        while at + 4 <= end and data[at] == 0x40 and data[at + 1] == 2:
            packet_id = (data[at + 2] << 8) | data[at + 3]
            entry = inflight.get(packet_id)
            if entry is None or entry.flags & 3 != 1:
                break
            if durable:
                self.hub.delivery.acknowledged(session, packet_id)
            else:
                del inflight[packet_id]
            at += 4
        if at == position:
            return 0
        self.hub.counters.packets_received += (at - position) >> 2
        if not durable:
            self.hub.delivery.pump(session)
        return at

    def _released(self, session: Session, packet_id: int) -> None:
        """PUBREL: the identifier is free again; PUBCOMP waits until the journal knows [MQTT-4.3.3-11]."""
        if packet_id not in session.incoming:  # or no more, but perhaps only in memory so far
            self._ack_when_stored(PUBCOMP, packet_id, reasons.PACKET_IDENTIFIER_NOT_FOUND)
            return
        session.incoming.pop(packet_id, None)
        if session.backlog.durable and self.hub.commits.log is not None:
            self.hub.commits.append(records.RELEASED, Packer().u32(session.backlog.number).u16(packet_id).done(), True)
            self._ack_when_stored(PUBCOMP, packet_id, 0)
        else:
            self.acknowledge(PUBCOMP, packet_id, 0)

    def _allowed(self, topic: bytes) -> bool:
        return self.allowed is not None and topic in self.allowed
