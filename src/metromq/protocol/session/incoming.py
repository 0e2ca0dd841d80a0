"""What a client publishes, and its acknowledgements of what we sent."""

from typing import Final, final

from metromq.errors import ProtocolViolation
from metromq.protocol import reasons
from metromq.protocol.packing import Packer
from metromq.protocol.remembered import Remembered
from metromq.protocol.replay import FETCH_TOPIC
from metromq.protocol.session import records
from metromq.protocol.session.access import Access
from metromq.protocol.session.backlog import PASSED, RELEASED
from metromq.protocol.session.commits import Waiter
from metromq.protocol.session.delivery import Delivery, PacketsPassed
from metromq.protocol.session.forwarding import Piece, alike_end, next_packet, run_end
from metromq.protocol.session.handshake import RESERVED
from metromq.protocol.session.hub import Hub
from metromq.protocol.session.message import Message
from metromq.protocol.session.network_connection import NetworkConnection
from metromq.protocol.session.route import Route
from metromq.protocol.session.session import Session, mark_of
from metromq.protocol.wire.encoding import encode_ack
from metromq.protocol.wire.packets import MQTT5, PUBACK, PUBCOMP, PUBREC, PUBREL, Ack, Publish

ALLOWED_BYTES: Final = 1 << 17  # of topics that are remembered as open to one client,
ALLOWED_EACH_BYTES: Final = 130  # beside their length
MAX_ALIAS_BYTES: Final = 1 << 17  # of all topics that one client has given aliases


@final
class _AckLater(Waiter):
    """PUBACK, PUBREC or PUBCOMP that leaves when the journal has the message."""

    def __init__(self, incoming: "Incoming", kind: int, packet_id: int, reason_code: int) -> None:
        self.incoming = incoming
        self.kind = kind
        self.packet_id = packet_id
        self.reason_code = reason_code

    def committed(self) -> None:
        self.incoming.acknowledge(self.kind, self.packet_id, self.reason_code)

    def failed(self) -> None:
        self.incoming.not_stored(self.kind, self.packet_id)


@final
class _ReleaseLater(Waiter):
    """PUBREL that leaves when the journal has the subscriber's PUBREC."""

    def __init__(self, delivery: Delivery, session: Session, packet_id: int) -> None:
        self.delivery = delivery
        self.session = session
        self.packet_id = packet_id

    def committed(self) -> None:
        self.delivery.release(self.session, self.packet_id)

    def failed(self) -> None:
        self.delivery.release(self.session, self.packet_id)


@final
class Incoming:
    """One client's side of PUBLISH, and of acknowledgements."""

    def __init__(self, connection: NetworkConnection, hub: Hub, access: Access, session: Session) -> None:
        self.session = session
        self.fast = not hub.settings.record_qos0  # the short ways may be taken
        self._connection = connection
        self._output = connection.output
        self._hub = hub
        self._access = access
        self._aliases: dict[int, str] | None = None
        self._unacknowledged = 0  # QoS 1 and 2 messages accepted and not yet confirmed
        self._restricted = not access.unrestricted(session)
        self._allowed: Remembered[bytes, bool] | None = None  # topics that it may publish to

    def permissions_changed(self) -> None:
        self._allowed = None
        self._restricted = not self._access.unrestricted(self.session)

    # --- the short way of QoS 0 -----------------------------------------------------------------------------------

    def forward(self, data: bytes, position: int, start: int, stop: int, end: int) -> int:
        """Forwards QoS 0 packets unparsed; returns where they ended, 0: the first takes the long way.

        Packets one behind the other that have one route leave in one piece, whatever their topics are.
        """
        hub = self._hub
        routes = hub.routes
        newer = self._output.version == MQTT5
        route: Route | None = None
        piece: Piece | None = None
        while True:
            topic_end = start + 2 + ((data[start] << 8) | data[start + 1]) if stop - start >= 2 else stop + 1
            if topic_end > stop or topic_end == start + 2 or data[start + 2] == 0x24:  # `$` topics may be reserved
                break
            body = topic_end
            if newer:
                if topic_end >= stop or data[topic_end]:
                    break
                body += 1
            found = routes.of_packet(data, start + 2, topic_end)
            if found is None or (self._restricted and not self._is_allowed(data[start + 2 : topic_end])):
                break
            size = stop - position
            if route is None or (found is not route and not found.leads_like(route)):
                if not found.plain or found.copies is None:
                    break
                if piece is not None and route is not None:
                    self._spread(route, data, piece, position)
                elif stop == end:  # a lone message, as most are: without a list of what is in it
                    packet = data if position == 0 else data[position:]
                    self._spread_run(found, packet, 1, size, start - position, topic_end - position, body - position)
                    return end
                route = found
                piece = Piece(position, start - position, topic_end - position, size)
            count = 1
            if stop + size <= end and data[topic_end - 1] == data[topic_end - 1 + size]:
                stop = run_end(data, position, size, data[position:body], end)
                count = (stop - position) // size
            assert piece is not None
            piece.add(count, size, body - position)
            position = stop
            if route.copies or hub.topic_counts.recording:
                break  # which want to know the topic
            start, stop = next_packet(data, position, end, 0x30)
            if not stop or stop - position > hub.settings.max_packet_size_bytes:
                break
        if piece is None or route is None:
            return 0
        self._spread(route, data, piece, position)
        return position

    def _spread(self, route: Route, data: bytes, piece: Piece, stop: int) -> None:
        """Gives a piece of what came, up to `stop`, to everyone on a route."""
        packets = data if piece.start == 0 and stop == len(data) else data[piece.start : stop]
        if piece.runs == 1:
            head_bytes = piece.head_bytes // piece.count
            self._spread_run(route, packets, piece.count, piece.size, piece.header, piece.topic_end, head_bytes)
            return
        self._received(piece.count, len(packets) - piece.head_bytes)
        self._hub.publishing.spread_medley(route, packets, piece, self._output.version == MQTT5)

    def _spread_run(
        self, route: Route, run: bytes, count: int, size: int, header: int, topic_end: int, head_bytes: int
    ) -> None:
        """The same for packets of one topic and one size, of each of which `head_bytes` are no payload."""
        hub = self._hub
        self._received(count, count * (size - head_bytes))
        newer = self._output.version == MQTT5
        publisher = self.session.client_id if hub.topic_counts.recording else ""  # else a look at one more cold object
        hub.publishing.spread(route, run, size, header, topic_end, newer, publisher, "", route.copies)

    def _received(self, count: int, payload_bytes: int) -> None:
        counters = self._hub.counters
        counters.packets_received += count
        counters.messages_received += count
        counters.publish_bytes_received += payload_bytes

    # --- PUBLISH from the client ----------------------------------------------------------------------------------

    def publish(self, publish: Publish) -> None:
        hub = self._hub
        settings = hub.settings
        session = self.session
        hub.counters.messages_received += 1
        hub.counters.publish_bytes_received += len(publish.payload)
        if publish.qos > settings.max_qos:  # [MQTT-3.2.2-11]
            raise ProtocolViolation("this QoS is not supported [MQTT-3.2.2-11]", reasons.QOS_NOT_SUPPORTED)
        if publish.retain and not settings.retain_available:  # [MQTT-3.2.2-14]
            raise ProtocolViolation("RETAIN is not supported [MQTT-3.2.2-14]", reasons.RETAIN_NOT_SUPPORTED)
        topic = self._topic(publish)
        if topic == FETCH_TOPIC and publish.qos < 2:
            hub.replay.fetch(self._connection, session, publish)
            if publish.qos:
                self._output.acknowledge(PUBACK, publish.packet_id, 0)
            return
        if publish.qos:
            if publish.qos == 2 and self._is_repeat(session, topic, publish):  # [MQTT-4.3.3-10]
                self._ack_when_stored(PUBREC, publish.packet_id, 0)
                return
            self._unacknowledged += 1
            if self._output.version == MQTT5 and self._unacknowledged > settings.receive_maximum:  # [MQTT-3.3.4-7]
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
            session.take_in(publish.packet_id, mark_of(topic, publish.payload))
            receivers = hub.publishing.publish(message, session, publish.packet_id)
            self._ack_when_stored(PUBREC, publish.packet_id, 0 if receivers else reasons.NO_MATCHING_SUBSCRIBERS)
        else:
            receivers = hub.publishing.publish(message, session)
            if publish.qos:
                self._ack_when_stored(PUBACK, publish.packet_id, 0 if receivers else reasons.NO_MATCHING_SUBSCRIBERS)

    def _is_repeat(self, session: Session, topic: str, publish: Publish) -> bool:
        """Another message without DUP is none: its client has lost its session, and counts from the beginning again."""
        mark = session.incoming.get(publish.packet_id, -1)
        return mark == 0 or (mark > 0 and (publish.dup or mark == mark_of(topic, publish.payload)))

    def publish_run(self, data: bytes, position: int, start: int, stop: int, end: int) -> int:
        """The short way of QoS 1: packets one behind the other on topics with plain routes, from `position` on.

        Returns where they end; 0: nothing was done, the first takes the long way.
        """
        hub = self._hub
        newer = self._output.version == MQTT5
        may_pass = not newer and hub.publishing.passes_packets()
        packets: PacketsPassed | None = None
        acks: list[bytes] = []
        at = position
        count = payload_bytes = 0
        while stop and stop - at <= hub.settings.max_packet_size_bytes:
            body = start + 4 + ((data[start] << 8) | data[start + 1]) if stop - start >= 4 else stop + 1
            if body > stop or body == start + 4 or data[start + 2] == 0x24 or (newer and (body == stop or data[body])):
                break
            packet_id = (data[body - 2] << 8) | data[body - 1]
            if not packet_id or (newer and self._unacknowledged >= hub.settings.receive_maximum):
                break
            route = self._known_route(data, start + 2, body - 2)
            if route is None:
                break
            size, alike = stop - at, 1
            session = route.targets[0].session if may_pass and len(route.targets) == 1 else None
            if session is not None and route.targets[0].qos and hub.delivery.passes(session, size):
                if packets is None or packets.session is not session:
                    if packets is not None:
                        packets.leave()
                    packets = PacketsPassed(session, data, acks)
                alike = self._alike(data, at, start + 2, body - 2, stop, end, route, session)
                packets.add(at, body, size, alike)
                hub.counters.messages_sent += alike
                hub.counters.publish_bytes_sent += alike * (stop - body)
            else:
                if packets is not None:
                    packets.leave()  # before what follows
                    packets = None
                payload = data[body + 1 if newer else body : stop]
                topic = data[start + 2 : body - 2]
                self._publish1(route, topic, payload, packet_id, b"" if newer else data[at : body - 2], acks)
            payload_bytes += alike * (stop - body - (1 if newer else 0))
            count += alike
            at += alike * size
            start, stop = next_packet(data, at, end, 0x32) if at < end else (0, 0)
        if packets is not None:
            packets.leave()
        if acks:
            self._output.write(b"".join(acks))
        self._received(count, payload_bytes)
        return at if count else 0

    def _alike(
        self, data: bytes, at: int, topic: int, topic_end: int, stop: int, end: int, route: Route, session: Session
    ) -> int:
        """How many packets behind each other, from `at` to `stop` and on, are as long and may go to the session as the
        first may: 1 or more."""
        size = stop - at
        if stop + size > end or data[at + 1] != data[stop + 1]:
            return 1
        if self._restricted:
            head_end = topic_end
        else:
            head_end = topic + self._hub.routes.deciding_bytes(data, topic, topic_end, route)
        end = min(end, at + size * session.backlog.most_to_pass(session.window))
        return (alike_end(data, at, size, data[at:head_end], topic_end - at, end) - at) // size

    def _publish1(
        self, route: Route, topic: bytes, payload: bytes, packet_id: int, head: bytes, acks: list[bytes]
    ) -> None:
        """One message on its short way; `head` as in `publish_known`. PUBACK joins the others if it can leave now."""
        hub = self._hub
        session = self.session
        message = Message(topic.decode(), payload, 1)
        message.time_us = hub.clock.wall_us
        message.publisher = session.client_id
        receivers = hub.publishing.publish_known(route, message, session, head)
        if hub.commits.log is None and (receivers or head):
            acks.append(encode_ack(PUBACK, packet_id, 0, self._output.version))
        else:
            self._unacknowledged += 1
            self._ack_when_stored(PUBACK, packet_id, 0 if receivers else reasons.NO_MATCHING_SUBSCRIBERS)

    def _known_route(self, data: bytes, start: int, end: int) -> Route | None:
        """The route of a topic to which this client may publish at QoS 1 without more questions."""
        hub = self._hub
        route = hub.routes.of_packet(data, start, end)
        if (
            route is None
            or not route.plain
            or hub.settings.max_qos == 0
            or (self._restricted and not self._is_allowed(data[start:end]))
            or (hub.commits.log is not None and hub.commits.log.full())
        ):
            return None
        return route

    def _topic(self, publish: Publish) -> str:
        """The topic name, through its alias where there is one [MQTT-3.3.2-7..12]."""
        topic, alias = publish.topic, publish.topic_alias
        if alias:
            if alias > self._hub.settings.max_topic_alias:
                raise ProtocolViolation(
                    "the topic alias is over the maximum [MQTT-3.3.2-9]", reasons.TOPIC_ALIAS_INVALID
                )
            if self._aliases is None:
                self._aliases = {}
            if topic:
                self._aliases[alias] = topic
                if sum([len(name) for name in self._aliases.values()]) > MAX_ALIAS_BYTES:
                    raise ProtocolViolation("the topics with an alias are too long together", reasons.QUOTA_EXCEEDED)
            else:
                topic = self._aliases.get(alias, "")
                if not topic:
                    raise ProtocolViolation("the topic alias is unknown", reasons.PROTOCOL_ERROR)
        if topic.count("/") >= self._hub.settings.max_topic_levels:
            raise ProtocolViolation("the topic has too many levels", reasons.TOPIC_NAME_INVALID)
        return topic

    def _refusal(self, session: Session, topic: str, publish: Publish) -> int:
        """A reason not to take the message; 0: none."""
        if topic.startswith("$") and topic.partition("/")[0] in RESERVED:
            return reasons.NOT_AUTHORIZED
        if self._restricted:
            key = topic.encode()
            if not self._is_allowed(key):
                if not self._access.may_publish(session, topic):
                    return reasons.NOT_AUTHORIZED
                if self._allowed is None:
                    self._allowed = Remembered(ALLOWED_BYTES)
                self._allowed.put(key, True, ALLOWED_EACH_BYTES + len(key))
        hub = self._hub
        if publish.qos and hub.commits.log is not None and hub.commits.log.full():
            return reasons.QUOTA_EXCEEDED
        if (
            publish.retain
            and publish.payload
            and not hub.retained.has_room(topic, len(publish.payload) + len(publish.properties))
        ):
            return reasons.QUOTA_EXCEEDED
        return 0

    def _refused(self, publish: Publish, reason_code: int) -> None:
        self._hub.counters.refused += 1
        if publish.qos == 0:
            return
        kind = PUBACK if publish.qos == 1 else PUBREC
        if self._output.version == MQTT5:
            self._ack_when_stored(kind, publish.packet_id, reason_code)  # in its turn [MQTT-4.6.0-2]
        elif reason_code == reasons.QUOTA_EXCEEDED:
            self._connection.shut("no room; the client keeps its message")
        else:  # older versions know no refusal: confirm and drop, as the standard allows [MQTT-3.3.5-2]
            self._ack_when_stored(kind, publish.packet_id, 0)

    def _ack_when_stored(self, kind: int, packet_id: int, reason_code: int) -> None:
        if self._hub.commits.log is None:
            self.acknowledge(kind, packet_id, reason_code)
        else:
            self._hub.commits.when_committed(_AckLater(self, kind, packet_id, reason_code))

    def acknowledge(self, kind: int, packet_id: int, reason_code: int) -> None:
        if (kind != PUBREC or reason_code >= 0x80) and self._unacknowledged:
            self._unacknowledged -= 1
        self._output.acknowledge(kind, packet_id, reason_code)

    def not_stored(self, kind: int, packet_id: int) -> None:
        """The journal could not take the message."""
        self._hub.counters.refused += 1
        if kind == PUBREC:
            self.session.incoming.pop(packet_id, None)
        if kind == PUBCOMP:
            self.acknowledge(kind, packet_id, 0)
        elif self._output.version == MQTT5:
            self.acknowledge(kind, packet_id, reasons.QUOTA_EXCEEDED)
        else:
            self._connection.shut("the disk is full; the client keeps its message")

    # --- acknowledgements -----------------------------------------------------------------------------------------

    def on_ack(self, ack: Ack) -> None:
        session = self.session
        hub = self._hub
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
                self._output.write(
                    encode_ack(PUBREL, ack.packet_id, reasons.PACKET_IDENTIFIER_NOT_FOUND, self._output.version)
                )
            elif session.backlog.durable and hub.commits.log is not None:
                hub.commits.when_committed(_ReleaseLater(hub.delivery, session, ack.packet_id))
            else:
                hub.delivery.release(session, ack.packet_id)
        else:
            self._released(session, ack.packet_id)

    def confirmed_run(self, data: bytes, position: int, end: int) -> int:
        """The short way of PUBACKs for messages of QoS 1 that are under way; where they end, 0: there is none."""
        session = self.session
        backlog = session.backlog
        at = position
        while at + 4 <= end and data[at] == 0x40 and data[at + 1] == 2:
            packet_id = (data[at + 2] << 8) | data[at + 3]
            if not backlog.confirms_passed(packet_id) and not self._confirmed(session, packet_id):
                break
            at += 4
        if at == position:
            return 0
        self._hub.counters.packets_received += (at - position) >> 2
        self._hub.delivery.pump(session)
        return at

    def _confirmed(self, session: Session, packet_id: int) -> bool:
        """PUBACK of a message of QoS 1; False: none such is under way."""
        backlog = session.backlog
        entry = backlog.inflight.get(packet_id)
        if entry is None or (entry is not PASSED and entry.flags & 3 != 1):
            return False
        if backlog.durable:
            self._hub.delivery.acknowledged(session, packet_id)
        else:
            del backlog.inflight[packet_id]
        return True

    def _released(self, session: Session, packet_id: int) -> None:
        """PUBREL: the identifier is free again; PUBCOMP waits until the journal knows [MQTT-4.3.3-11]."""
        if packet_id not in session.incoming:  # or no more, but perhaps only in memory so far
            self._ack_when_stored(PUBCOMP, packet_id, reasons.PACKET_IDENTIFIER_NOT_FOUND)
            return
        session.incoming.pop(packet_id, None)
        if session.backlog.durable and self._hub.commits.log is not None:
            self._hub.commits.append(records.RELEASED, Packer().u32(session.backlog.number).u16(packet_id).done(), True)
            self._ack_when_stored(PUBCOMP, packet_id, 0)
        else:
            self.acknowledge(PUBCOMP, packet_id, 0)

    def _is_allowed(self, topic: bytes) -> bool:
        return self._allowed is not None and self._allowed.get(topic) is not None
