"""How messages reach one session: the queue, the window of what is under way, and what the journal holds for later."""

from metromq.protocol.packing import Packer
from metromq.protocol.session import records
from metromq.protocol.session.census import Census
from metromq.protocol.session.counters import Counters
from metromq.protocol.session.log import Log
from metromq.protocol.session.message import Message
from metromq.protocol.session.outlet import Outlet
from metromq.protocol.session.session import HELD, RELEASED, SENT, Entry, Session, packet_id_of
from metromq.protocol.session.settings import Settings
from metromq.protocol.wire.encode import encode_ack, encode_publish
from metromq.protocol.wire.packets import MQTT5, PUBREL
from metromq.protocol.wire.values import BYTES

ENTRY_BYTES = 200  # what an entry costs beside its payload, for the queue's byte limit


class Delivery:
    """Base of the hub: everything between a route and the bytes of a PUBLISH."""

    def __init__(self, settings: Settings, log: Log | None, name: str) -> None:
        self.settings = settings
        self.name = name
        self.log = log
        self.counters = Counters()
        self.census: Census | None = None  # counts per topic, while they are recorded
        self.dirty: list[Outlet] = []
        self.now = 0.0  # monotonic seconds
        self.wall_us = 0  # microseconds since 1970
        self.position = 0  # records appended so far
        self.urgent = False  # something appended waits for an acknowledgement
        self.committed_position = 0
        self.committed_offset = -1
        self.newest_offset = -1  # of the messages appended so far

    def append_message(self, body: bytes, urgent: bool) -> int:
        """Gives a message to the journal, which there must be; returns its offset."""
        log = self.log
        assert log is not None
        self.newest_offset = log.append_message(body)
        self.position += 1
        if urgent:
            self.urgent = True
        return self.newest_offset

    def append(self, kind: int, body: bytes, urgent: bool = False) -> None:
        log = self.log
        if log is not None:
            log.append(kind, body)
            self.position += 1
            if urgent:
                self.urgent = True

    def may_read(self, session: Session, topic: str) -> bool:
        """Whether the access list lets the session's user read the topic now."""
        return True

    def suspect(self, session: Session) -> None:
        """What waits for the session was queued under rights that may have changed: it is checked before it is sent."""
        session.suspect = session.waiting()

    def accepts(self, session: Session, message: Message) -> bool:
        """Whether the session's queue has room; a message that finds none is dropped and counted."""
        if session.roamed and self.came_already(session, message):
            return False
        settings = self.settings
        queued_bytes = session.queued_bytes + session.spilled_bytes
        if session.waiting() < settings.max_queued_messages and queued_bytes < settings.max_queued_bytes:
            return True
        session.dropped += 1
        self.counters.dropped += 1
        return False

    def came_already(self, session: Session, message: Message) -> bool:
        """Whether a session that roams has had the message, by another way."""
        seen = session.seen
        if seen is None or not session.roamed:
            return False
        origin = message.origin
        offset = message.origin_offset if origin else message.offset
        return offset >= 0 and seen.holds(origin or self.name, offset)

    def enqueue(
        self, session: Session, message: Message, flags: int, identifiers: tuple[int, ...], note: bytes = b""
    ) -> None:
        cost = len(message.payload) + ENTRY_BYTES
        if session.seen is not None:
            if message.origin:
                if message.origin_offset >= 0:
                    session.seen.add(message.origin, message.origin_offset)
            elif message.offset >= 0:
                session.seen.add(self.name, message.offset)
        if (
            self.log is not None
            and message.offset >= 0
            and (session.spilled or self._must_spill(session, message.offset))
        ):
            if not session.spilled:
                session.spill_offset = message.offset
                session.spill_sequence = session.sequence
            session.spilled += 1
            session.spilled_bytes += cost
            session.sequence += 1
            return
        session.queue.append(Entry(message.offset, flags, identifiers, session.next_packet_id(), message, note))
        session.queued_bytes += cost

    def deliver_now(self, session: Session, message: Message, head: bytes) -> None:
        """A QoS 1 message that is in no journal: past the queue where the queue would let it pass anyway."""
        outlet = session.outlet
        if (
            outlet is not None
            and len(session.inflight) < session.window
            and not session.behind()
            and not outlet.closing
            and not outlet.is_link
            and outlet.waiting_bytes <= outlet.soft_limit_bytes
            and not session.arriving
            and packet_id_of(session.sequence + 1) not in session.inflight
        ):
            entry = Entry(-1, 1, (), session.next_packet_id(), message)
            packet_id = entry.packet_id
            size = len(head) + 2 + len(message.payload)
            if head and outlet.version != MQTT5 and size <= outlet.max_packet_bytes and self.census is None:
                entry.state = SENT
                entry.dup = True
                self.counters.messages_sent += 1
                self.counters.publish_bytes_sent += len(message.payload)
                outlet.write(b"".join([head, BYTES[packet_id >> 8], BYTES[packet_id & 0xFF], message.payload]))
                session.inflight[packet_id] = entry
            elif self.send(outlet, message, entry):
                session.inflight[packet_id] = entry
        elif self.accepts(session, message):
            self.enqueue(session, message, 1, ())
            self.pump(session)

    def _must_spill(self, session: Session, offset: int) -> bool:
        """Copies of one message (through several shares) stay together: a page begins with a new message."""
        return self._page_full(session) and (not session.queue or session.queue.last().offset != offset)

    def _page_full(self, session: Session) -> bool:
        """Whether the session holds as much in memory as it may; the rest waits in the journal."""
        settings = self.settings
        return len(session.queue) >= settings.memory_entries or session.queued_bytes >= settings.memory_bytes

    def refill(self, session: Session, least: int = 0) -> None:
        """Takes the next page of what waits in the journal, and at least so many entries if there are."""
        log = self.log
        assert log is not None
        for kind, offset, body in log.scan(session.spill_offset):
            if kind != records.MESSAGE:
                continue
            record = records.decode_message(body, offset)
            found = False
            for target in record.targets:
                if target.session != session.number:
                    continue
                if not found:
                    found = True
                    session.spill_offset = offset
                    if least <= 0 and self._page_full(session):
                        return
                least -= 1
                self._unspill(session, record.message, target)
            if found:
                session.spill_offset = offset + 1  # the scan may end before the last: what is not flushed is not seen
            if not session.spilled:
                session.spilled_bytes = 0
                return

    def _unspill(self, session: Session, message: Message, target: records.Target) -> None:
        """One entry from the journal to the end of the queue."""
        session.spill_sequence += 1
        packet_id = packet_id_of(session.spill_sequence)
        entry = Entry(message.offset, target.flags, target.identifiers, packet_id, message, target.note)
        if session.doubtful:
            session.doubtful -= 1
            entry.dup = True
        session.queue.append(entry)
        cost = len(message.payload) + ENTRY_BYTES
        session.queued_bytes += cost
        session.spilled -= 1
        session.spilled_bytes -= cost

    def pump(self, session: Session) -> None:
        """Sends what the client's window [MQTT-3.3.4-9] and the network have room for, in order [MQTT-4.6.0-6]."""
        outlet = session.outlet
        if outlet is None or session.arriving:
            return
        inflight = session.inflight
        while len(inflight) < session.window and not outlet.closing:
            if not session.queue:
                if not session.spilled:
                    return
                self.refill(session)
                if not session.queue:
                    return
            entry = session.queue.first()
            if entry.offset > self.committed_offset or entry.packet_id in inflight or entry.state == HELD:
                return
            if outlet.waiting_bytes > outlet.soft_limit_bytes:
                outlet.hungry = True
                return
            session.queue.popleft()
            message = self.load(entry)
            session.queued_bytes -= len(message.payload) + ENTRY_BYTES
            if session.suspect and self._closed_to(session, entry, message):
                continue
            if entry.state == RELEASED:
                inflight[entry.packet_id] = entry
                outlet.write(encode_ack(PUBREL, entry.packet_id, 0, outlet.version))
            elif self.send(outlet, message, entry):
                inflight[entry.packet_id] = entry
            elif session.durable:  # expired or too large: done with, after a restart too
                self.append(records.ACKNOWLEDGED, _mark(session, entry.packet_id))

    def _closed_to(self, session: Session, entry: Entry, message: Message) -> bool:
        """Whether an entry is dropped because its session may no longer read the topic.

        Where QoS 2 may have begun, it goes on with PUBREL: the client may know the packet identifier.
        """
        session.suspect -= 1
        if entry.state == RELEASED or self.may_read(session, message.topic):
            return False
        self.counters.dropped += 1
        if entry.dup and entry.flags & 3 == 2:
            entry.state = RELEASED
            if session.durable:
                self.append(records.RECEIVED, _mark(session, entry.packet_id))
            return False
        if session.durable:
            self.append(records.ACKNOWLEDGED, _mark(session, entry.packet_id))
        return True

    def load(self, entry: Entry) -> Message:
        message = entry.message
        if message is None:
            log = self.log
            assert log is not None
            message = records.decode_message(log.read(entry.offset), entry.offset).message
            entry.message = message
        return message

    def send(self, outlet: Outlet, message: Message, entry: Entry) -> bool:
        qos = entry.flags & 3
        if outlet.is_link:
            entry.state = SENT
            return outlet.carry(message, entry.note)
        data = self.packet(outlet, message, qos, bool(entry.flags & 4), entry.dup, entry.packet_id, entry.identifiers)
        if data is None:
            return False
        if self.census is not None and not entry.dup:
            self.census.waited(self.wall_us - message.time_us)
        entry.state = SENT
        entry.dup = True
        outlet.write(data)
        return True

    def packet(
        self,
        outlet: Outlet,
        message: Message,
        qos: int,
        retain: bool,
        dup: bool,
        packet_id: int,
        identifiers: tuple[int, ...],
    ) -> bytes | None:
        """The bytes for this client; None when the message has expired or is too large for it."""
        topic = message.topic.encode()
        if outlet.version == MQTT5:
            expiry_s = -1
            if message.expires_at_us:
                left_us = message.expires_at_us - self.wall_us
                if left_us <= 0 and not dup:  # [MQTT-3.3.2-5]; a delivery that has begun goes on [MQTT-4.4.0-1]
                    self.counters.expired += 1
                    self.counters.dropped += 1
                    return None
                expiry_s = max(0, (left_us + 999_999) // 1_000_000)  # [MQTT-3.3.2-6]
            alias = 0
            if outlet.alias_maximum:
                alias = outlet.alias(message.topic)
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
            if message.expires_at_us and message.expires_at_us <= self.wall_us and not dup:
                self.counters.expired += 1
                self.counters.dropped += 1
                return None
            data = encode_publish(outlet.version, topic, message.payload, qos, retain, dup, packet_id)
        if len(data) > outlet.max_packet_bytes:  # [MQTT-3.1.2-24], [MQTT-3.1.2-25]
            outlet.forget_alias(message.topic)
            self.counters.dropped += 1
            return None
        self.counters.messages_sent += 1
        self.counters.publish_bytes_sent += len(message.payload)
        return data

    def resume(self, session: Session) -> None:
        """Sends again what was under way when the last connection ended [MQTT-4.4.0-1]."""
        if session.inflight:
            entries = list(session.inflight.values())
            session.inflight = {}
            for entry in reversed(entries):
                session.queue.appendleft(entry)
                session.queued_bytes += len(self.load(entry).payload) + ENTRY_BYTES
        self.suspect(session)
        self.pump(session)

    def acknowledged(self, session: Session, packet_id: int) -> bool:
        """PUBACK or PUBCOMP, or a PUBREC that refuses; False: no such packet is under way."""
        if session.inflight.pop(packet_id, None) is None:
            return False
        if session.durable:
            self.append(records.ACKNOWLEDGED, _mark(session, packet_id))
        self.pump(session)
        return True

    def load_all(self, session: Session) -> None:
        """Brings everything that waits in the journal into the queue, for a session that leaves or a link that ends."""
        if session.spilled and self.log is not None:
            self.log.flush()
            self.refill(session, session.spilled)

    def abandon(self, session: Session, entry: Entry) -> None:
        """Someone else takes care of this message."""
        session.inflight.pop(entry.packet_id, None)
        if session.queue.remove(entry):
            session.queued_bytes -= len(self.load(entry).payload) + ENTRY_BYTES
        if session.durable:
            self.append(records.ACKNOWLEDGED, _mark(session, entry.packet_id))

    def acknowledged_through(self, session: Session, offset: int) -> None:
        """A peer has committed every message up to this offset; links are acknowledged in order."""
        done = [packet_id for packet_id, entry in session.inflight.items() if entry.offset <= offset]
        for packet_id in done:
            del session.inflight[packet_id]
        if done:
            self.append(records.ACKNOWLEDGED_THROUGH, Packer().u32(session.number).i64(offset).done())
            self.pump(session)

    def received(self, session: Session, packet_id: int) -> bool:
        """PUBREC of the subscriber; PUBREL follows with `release` once the journal knows. False: unknown packet."""
        entry = session.inflight.get(packet_id)
        if entry is None:
            return False
        if entry.state == SENT:
            entry.state = HELD
            if session.durable:
                self.append(records.RECEIVED, _mark(session, packet_id), True)
        return True

    def release(self, session: Session, packet_id: int) -> None:
        """Sends PUBREL, now or, when the client has gone and come back meanwhile, in its turn [MQTT-4.3.3-1]."""
        entry = session.inflight.get(packet_id)
        outlet = session.outlet
        if entry is None:
            for entry in session.queue:
                if entry.packet_id == packet_id and entry.state == HELD:
                    entry.state = RELEASED
                    break
            self.pump(session)
        elif entry.state >= RELEASED:
            entry.state = RELEASED
            if outlet is not None:
                outlet.write(encode_ack(PUBREL, packet_id, 0, outlet.version))


def _mark(session: Session, packet_id: int) -> bytes:
    return Packer().u32(session.number).u16(packet_id).done()
