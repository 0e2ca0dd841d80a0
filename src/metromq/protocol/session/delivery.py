"""How messages reach the clients: the window of what is under way, the bytes of a PUBLISH, and acknowledgements."""

from typing import Final, final

from metromq.protocol.session import records
from metromq.protocol.session.backlog import HELD, RELEASED, SENT, Backlogs, Entry
from metromq.protocol.session.clock import Clock
from metromq.protocol.session.commits import Waiter
from metromq.protocol.session.counters import BrokerCounters
from metromq.protocol.session.message import Message
from metromq.protocol.session.output import ClientOutput, Output
from metromq.protocol.session.routes import RouteTable
from metromq.protocol.session.session import RouteTarget, Session
from metromq.protocol.session.topic_counts import TopicCounts
from metromq.protocol.wire.encoding import encode_ack, encode_publish
from metromq.protocol.wire.packets import MQTT5, PUBREL
from metromq.protocol.wire.values import BYTES

PUBACK_BYTES: Final = b"\x40\x02"  # and the packet identifier
UNNUMBERED_PUBACK: Final = PUBACK_BYTES + b"\0\0"
HIGH_BYTES: Final = bytes([number >> 8 for number in range(0x1_0000)])  # of packet identifiers,
LOW_BYTES: Final = bytes(range(0x100)) * 0x100  # so that many are written at once


@final
class SentWhenStored(Waiter):
    """A message for one session, which gets it when the journal has it."""

    def __init__(self, delivery: "Delivery", session: Session, message: Message) -> None:
        self.delivery = delivery
        self.session = session
        self.message = message

    def committed(self) -> None:
        self.delivery.pump(self.session)

    def undo(self) -> None:
        self.delivery.take_back(self.session, self.message)

    def failed(self) -> None:
        pass


@final
class PacketsPassed:
    """QoS 1 packets of MQTT 3.1.1 that one client gets as they came, but for their identifiers; all in one piece.

    Packets of one size behind each other, as sensors send them, are copied together and then numbered.
    """

    def __init__(self, session: Session, data: bytes, acks: list[bytes]) -> None:
        """`data`: where the packets stand; `acks`: where the PUBACKs of those that left go."""
        self.session = session
        self._data = data
        self._acks = acks
        self._pieces: list[bytes] = []
        self._start = self._end = 0  # of the packets to be copied together,
        self._size = self._at = 0  # each one's size, and the place of the identifier in it,
        self._first_id = 0  # and what the first is to have there

    def add(self, start: int, body: int, size: int, count: int) -> None:
        """So many packets of one size behind each other; the identifier of the first ends at `body`."""
        first_id = self.session.backlog.passes_on(count)
        if size != self._size or body - 2 - start != self._at or first_id == 1:
            self._close_run()
            self._start, self._size, self._at, self._first_id = start, size, body - 2 - start, first_id
        self._end = start + count * size

    def _close_run(self) -> None:
        size = self._size
        if not size:
            return
        at, first_id, data = self._at, self._first_id, self._data
        count = (self._end - self._start) // size
        acks, place = self._acks, self._start + at
        if count == 1:
            acks.append(PUBACK_BYTES)
            acks.append(data[place : place + 2])
            pieces = self._pieces
            pieces.append(data[self._start : place])
            pieces.append(BYTES[first_id >> 8])
            pieces.append(BYTES[first_id & 0xFF])
            pieces.append(data[place + 2 : self._end])
            return
        confirmed = bytearray(UNNUMBERED_PUBACK * count)
        confirmed[2::4] = data[place : self._end : size]
        confirmed[3::4] = data[place + 1 : self._end : size]
        acks.append(bytes(confirmed))
        packets = bytearray(data[self._start : self._end])
        packets[at::size] = HIGH_BYTES[first_id : first_id + count]
        packets[at + 1 :: size] = LOW_BYTES[first_id : first_id + count]
        self._pieces.append(bytes(packets))

    def leave(self) -> None:
        self._close_run()
        self._size = 0
        output, pieces = self.session.output, self._pieces
        if output is not None:
            output.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))


@final
class Delivery:
    """Everything between a route and the bytes for one client."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        backlogs: Backlogs,
        routes: RouteTable,
        counters: BrokerCounters,
        topic_counts: TopicCounts,
    ) -> None:
        self.slow: Output | None = None  # the last receiver found lagging; who published to it slows down
        self._name = name
        self._clock = clock
        self._backlogs = backlogs
        self._routes = routes
        self._counters = counters
        self._topic_counts = topic_counts

    def take_slow(self) -> Output | None:
        """The receiver that was found lagging since the last time, if there was one."""
        slow = self.slow
        if slow is not None:
            self.slow = None
        return slow

    # --- QoS 0 ----------------------------------------------------------------------------------------------------

    def send0(self, target: RouteTarget, message: Message) -> None:
        """QoS 0 goes at once or not at all."""
        output = target.session.output
        if output is None:
            return
        gate = target.session.gate
        if gate is not None and not target.is_own and gate.takes(message):
            return
        if not output.room():
            output.dropped += 1
            self._counters.dropped += 1
            return
        retain = message.retain and target.retain_as_published  # [MQTT-3.3.1-12], [MQTT-3.3.1-13]
        data = self.packet(output, message, 0, retain, False, 0, target.identifiers)
        if data is not None:
            output.write(data)
            if output.waiting_bytes > output.soft_limit_bytes:
                self.slow = output

    # --- QoS 1 and 2 ----------------------------------------------------------------------------------------------

    def accepts(self, session: Session, message: Message) -> bool:
        """Whether the session's queue has room; a message that finds none is dropped and counted."""
        if session.roamed and self.came_already(session, message):
            return False
        return self.has_room(session)

    def has_room(self, session: Session) -> bool:
        """The same for what it may have had before."""
        backlog = session.backlog
        if self._backlogs.has_room(backlog):
            return True
        self._counters.dropped += 1
        return False

    def came_already(self, session: Session, message: Message, for_sure: bool = False) -> bool:
        """Whether a session that roams has had the message, by another way; `for_sure`: not only at QoS 0."""
        seen = session.seen
        if seen is None or not session.roamed:
            return False
        origin = message.origin or self._name
        offset = message.origin_offset if message.origin else message.offset
        return offset >= 0 and (seen.holds(origin, offset) if for_sure else seen.holds_fleeting(origin, offset))

    def had_as_stored(self, session: Session, message: Message, qos: int) -> None:
        """A session got a message as a stored one, in place of its publication, which may come by another way."""
        seen = session.seen
        if seen is not None and message.qos and message.origin and message.origin_offset >= 0:
            if qos:
                seen.add(message.origin, message.origin_offset)
            elif session.connection is not None:  # at QoS 0 it does not wait for who is away
                seen.add_fleeting(message.origin, message.origin_offset)

    def enqueue(
        self, session: Session, message: Message, flags: int, identifiers: tuple[int, ...], note: bytes = b""
    ) -> None:
        """Into the session's backlog; a session that may roam remembers that it has had the message."""
        if note:
            session.is_member = True
        seen = session.seen
        if seen is not None:
            if message.origin:
                if message.origin_offset >= 0:
                    seen.add(message.origin, message.origin_offset)
            elif message.offset >= 0:
                seen.add(self._name, message.offset)
        self._backlogs.enqueue(session.backlog, message, flags, identifiers, note)

    def take_back(self, session: Session, message: Message) -> None:
        """The message was not stored: the disk is full. It may come again, or another one with its number."""
        session.backlog.undo(message.offset)
        if session.seen is not None:
            offset = message.origin_offset if message.origin else message.offset
            session.seen.take_back(message.origin or self._name, offset)

    def passes(self, session: Session, size: int) -> bool:
        """Whether a client gets a QoS 1 packet of MQTT 3.1.1 at once, in that version, and never a second time."""
        output = session.output
        backlog = session.backlog
        return not (
            output is None
            or session.expiry_s
            or output.version == MQTT5
            or backlog.under_way() >= session.window
            or backlog.behind()
            or output.closing
            or output.waiting_bytes > output.soft_limit_bytes
            or not backlog.next_is_free()
            or size > output.max_packet_bytes
        )

    def deliver_now(self, session: Session, message: Message, head: bytes) -> None:
        """A QoS 1 message that is in no journal: past the queue where the queue would let it pass anyway."""
        output = session.output
        backlog = session.backlog
        if (
            output is not None
            and backlog.under_way() < session.window
            and not backlog.behind()
            and not output.closing
            and output.waiting_bytes <= output.soft_limit_bytes
            and not session.arriving
            and backlog.next_is_free()
        ):
            entry = Entry(-1, 1, (), backlog.next_packet_id(), message)
            packet_id = entry.packet_id
            size = len(head) + 2 + len(message.payload)
            as_it_came = bool(head) and output.version != MQTT5 and not self._topic_counts.recording
            if as_it_came and size <= output.max_packet_bytes:
                entry.state = SENT
                entry.dup = True
                self._counters.messages_sent += 1
                self._counters.publish_bytes_sent += len(message.payload)
                output.write(b"".join([head, BYTES[packet_id >> 8], BYTES[packet_id & 0xFF], message.payload]))
                backlog.inflight[packet_id] = entry
            elif self._send(output, message, entry):
                backlog.inflight[packet_id] = entry
        elif self.accepts(session, message):
            self.enqueue(session, message, 1, ())
            self.pump(session)

    def pump(self, session: Session) -> None:
        """Sends what the client's window [MQTT-3.3.4-9] and the network have room for, in order [MQTT-4.6.0-6]."""
        output = session.output
        backlog = session.backlog
        if output is None or session.arriving or not backlog.behind():
            return
        inflight = backlog.inflight
        backlogs = self._backlogs
        while len(inflight) < session.window and not output.closing:
            entry = backlogs.next_entry(backlog)
            if entry is None or entry.packet_id in inflight or entry.state == HELD:
                return
            if output.waiting_bytes > output.soft_limit_bytes:
                output.hungry = True
                return
            message = backlogs.pop(backlog)
            if session.suspect and self._closed_to(session, entry, message):
                continue
            if entry.state == RELEASED:
                inflight[entry.packet_id] = entry
                output.write(encode_ack(PUBREL, entry.packet_id, 0, output.version))
            elif self._send(output, message, entry):
                inflight[entry.packet_id] = entry
            else:  # expired or too large: done with, after a restart too
                backlogs.note(records.ACKNOWLEDGED, backlog, entry.packet_id)

    def suspect(self, session: Session) -> None:
        """What waits for the session was queued under rights that may have changed: it is checked before it is sent."""
        if self._routes.read_check is not None:
            session.suspect = session.backlog.waiting()

    def _closed_to(self, session: Session, entry: Entry, message: Message) -> bool:
        """Whether an entry is dropped because its session may no longer read the topic.

        Where QoS 2 may have begun, it goes on with PUBREL: the client may know the packet identifier.
        """
        session.suspect -= 1
        if entry.state == RELEASED or self._routes.may_read(session, message.topic):
            return False
        self._counters.dropped += 1
        if entry.dup and entry.flags & 3 == 2:
            entry.state = RELEASED
            self._backlogs.note(records.RECEIVED, session.backlog, entry.packet_id)
            return False
        self._backlogs.note(records.ACKNOWLEDGED, session.backlog, entry.packet_id)
        return True

    def resume(self, session: Session) -> None:
        """Sends again what was under way when the last connection ended [MQTT-4.4.0-1]."""
        self._backlogs.requeue_inflight(session.backlog)
        self.suspect(session)
        self.pump(session)

    # --- the bytes ------------------------------------------------------------------------------------------------

    def _send(self, output: ClientOutput, message: Message, entry: Entry) -> bool:
        retain = bool(entry.flags & 4)
        data = self.packet(output, message, entry.flags & 3, retain, entry.dup, entry.packet_id, entry.identifiers)
        if data is None:
            return False
        if self._topic_counts.recording and not entry.dup:
            self._topic_counts.waited(self._clock.wall_us - message.time_us)
        entry.state = SENT
        entry.dup = True
        output.write(data)
        return True

    def packet(
        self,
        output: ClientOutput,
        message: Message,
        qos: int,
        retain: bool,
        dup: bool,
        packet_id: int,
        identifiers: tuple[int, ...],
    ) -> bytes | None:
        """The bytes for this client; None when the message has expired or is too large for it."""
        counters = self._counters
        topic = message.topic.encode()
        expiry_s = -1
        if message.expires_at_us:
            left_us = message.expires_at_us - self._clock.wall_us
            if left_us <= 0 and not dup:  # [MQTT-3.3.2-5]; a delivery that has begun goes on [MQTT-4.4.0-1]
                counters.expired += 1
                counters.dropped += 1
                return None
            expiry_s = max(0, (left_us + 999_999) // 1_000_000)  # [MQTT-3.3.2-6]
        if output.version == MQTT5:
            alias = 0
            if output.aliases is not None:
                alias = output.aliases.of(message.topic)
                if alias < 0:
                    alias, topic = -alias, b""
            data = encode_publish(
                MQTT5,
                topic,
                message.payload,
                qos,
                retain,
                dup,
                packet_id,
                message.properties,
                expiry_s,
                alias,
                identifiers,
            )
        else:
            data = encode_publish(output.version, topic, message.payload, qos, retain, dup, packet_id)
        if len(data) > output.max_packet_bytes:  # [MQTT-3.1.2-24], [MQTT-3.1.2-25]
            if output.aliases is not None:
                output.aliases.forget(message.topic)
            counters.dropped += 1
            return None
        counters.messages_sent += 1
        counters.publish_bytes_sent += len(message.payload)
        return data

    # --- acknowledgements -----------------------------------------------------------------------------------------

    def acknowledged(self, session: Session, packet_id: int) -> bool:
        """PUBACK or PUBCOMP, or a PUBREC that refuses; False: no such packet is under way."""
        backlog = session.backlog
        if backlog.inflight.pop(packet_id, None) is None:
            return False
        self._backlogs.note(records.ACKNOWLEDGED, backlog, packet_id)
        self.pump(session)
        return True

    def received(self, session: Session, packet_id: int) -> bool:
        """PUBREC of the subscriber; PUBREL follows with `release` once the journal knows. False: unknown packet."""
        entry = session.backlog.inflight.get(packet_id)
        if entry is None:
            return False
        if entry.state == SENT:
            entry.state = HELD
            self._backlogs.note(records.RECEIVED, session.backlog, packet_id, True)
        return True

    def release(self, session: Session, packet_id: int) -> None:
        """Sends PUBREL, now or, when the client has gone and come back meanwhile, in its turn [MQTT-4.3.3-1]."""
        backlog = session.backlog
        entry = backlog.inflight.get(packet_id)
        output = session.output
        if entry is None:
            for entry in backlog.queue:
                if entry.packet_id == packet_id and entry.state == HELD:
                    entry.state = RELEASED
                    break
            self.pump(session)
        elif entry.state >= RELEASED:
            entry.state = RELEASED
            if output is not None:
                output.write(encode_ack(PUBREL, packet_id, 0, output.version))
