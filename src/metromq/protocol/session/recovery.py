"""The hub's state from its journal: a snapshot, then every record after it, in order."""

import struct
from collections.abc import Iterator
from typing import Final, final

from metromq.errors import JournalError, OffsetsGone
from metromq.protocol.packing import Packer, Unpacker
from metromq.protocol.session import records, store
from metromq.protocol.session.hub import Hub
from metromq.protocol.session.message import Message
from metromq.protocol.session.seen_ids import SeenIds, unpack_seen
from metromq.protocol.session.session import HELD, RELEASED, SENT, Entry, Session

VERSION: Final = 1
SESSIONS_PER_PIECE: Final = 50
MESSAGES_PER_PIECE: Final = 250
MESSAGES_PER_LOOK: Final = 10_000


@final
class Snapshot:
    """Everything a restart needs, as of the records appended so far.

    Made at once, which takes a fraction of the time that packing does; `pieces` may be asked for later and in another
    thread, whatever the hub does meanwhile.
    """

    def __init__(self, hub: Hub) -> None:
        packer = Packer().u8(VERSION).u32(hub.next_number).i64(hub.newest_offset).blob(hub.federation.snapshot())
        self._front = packer.done()
        self._sessions = [store.copy_of(session) for session in hub.sessions.values() if session.durable]
        self._messages = hub.retained.values()

    def pieces(self) -> Iterator[bytes]:
        """The state in pieces of a millisecond's work or less."""
        yield self._front + Packer().u32(len(self._sessions)).done()
        for start in range(0, len(self._sessions), SESSIONS_PER_PIECE):
            packer = Packer()
            for session in self._sessions[start : start + SESSIONS_PER_PIECE]:
                packer.blob(store.pack_state(session))
            yield packer.done()
        kept: list[Message] = []
        for start in range(0, len(self._messages), MESSAGES_PER_LOOK):
            some = self._messages[start : start + MESSAGES_PER_LOOK]
            kept += [message for message in some if not message.topic.startswith("$SYS/")]
            yield b""
        yield Packer().u32(len(kept)).done()
        for start in range(0, len(kept), MESSAGES_PER_PIECE):
            packer = Packer()
            for message in kept[start : start + MESSAGES_PER_PIECE]:
                packer.blob(store.pack_retained(message))
            yield packer.done()


def recover(
    hub: Hub, state: bytes | None, log_records: Iterator[tuple[int, int, bytes]], is_damaged: bool = False
) -> int:
    """Rebuilds the hub; returns how many records were read. Sessions start to expire and wills to count now.

    `is_damaged`: damage was accepted, so messages that wait for a session may be gone.
    """
    recovery = _Recovery(hub)
    try:
        if state is not None:
            recovery.load(state)
        count = 0
        for kind, offset, body in log_records:
            recovery.apply(kind, offset, body)
            count += 1
    except (struct.error, ValueError, IndexError) as error:
        raise JournalError(f"the journal cannot be understood: {error}; was it written by a newer version?") from error
    if is_damaged:
        recovery.drop_lost()
    recovery.finish()
    return count


@final
class _Recovery:
    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.attached: set[int] = set()

    def load(self, state: bytes) -> None:
        hub = self.hub
        reader = Unpacker(state)
        version = reader.u8()
        if version != VERSION:
            raise JournalError(f"snapshot of version {version}; this version of MetroMQ reads {VERSION}")
        hub.next_number = reader.u32()
        hub.newest_offset = reader.i64()
        hub.federation.restored(reader.blob())
        for _ in range(reader.u32()):
            session, grants, attached = store.unpack_state(reader.blob())
            self._add(session)
            for grant in grants:
                hub.restore_grant(grant)
            if attached:
                self.attached.add(session.number)
        for _ in range(reader.u32()):
            message = store.unpack_retained(reader.blob())
            hub.retained.set(message.topic, message)

    def _add(self, session: Session) -> None:
        hub = self.hub
        hub.sessions[session.client_id] = session
        hub.by_number[session.number] = session
        hub.next_number = max(hub.next_number, session.number + 1)

    def apply(self, kind: int, offset: int, body: bytes) -> None:
        if kind == records.MESSAGE:
            self._message(offset, body)
            return
        reader = Unpacker(body)
        if kind in (records.LINK, records.CONTROL):
            self.hub.federation.recovered(kind, body)
            return
        number = reader.u32()
        if kind == records.SESSION_OPENED:
            self._opened(number, reader)
            return
        session = self.hub.by_number.get(number)
        if session is None:
            return
        if kind == records.SESSION_CLOSED:
            self.attached.discard(number)
            session.will = None
            self.hub.forget(session)
        elif kind == records.SUBSCRIBED:
            self.hub.restore_grant(store.unpack_grant(session, reader))
        elif kind == records.UNSUBSCRIBED:
            self.hub.restore_ungrant(session, reader.text())
        elif kind == records.SESSION_DETACHED:
            self.attached.discard(number)
            store.unpack_detached(session, reader)
        elif kind == records.RELEASED:
            session.incoming.pop(reader.u16(), None)
        elif kind == records.ACKNOWLEDGED:
            self._acknowledged(session, reader.u16())
        elif kind == records.ACKNOWLEDGED_THROUGH:
            self._acknowledged_through(session, reader.i64())
        elif kind == records.RECEIVED:
            self._received(session, reader.u16())
        elif kind == records.SESSION_SEEN:
            session.seen = unpack_seen(reader.blob())
            session.roamed = True
        else:
            raise JournalError(f"unknown kind of record: {kind}")

    def _opened(self, number: int, reader: Unpacker) -> None:
        client_id = reader.text()
        session = self.hub.by_number.get(number)
        if session is None:
            old = self.hub.sessions.get(client_id)
            if old is not None:
                self.hub.forget(old)
            session = Session(number, client_id)
            self._add(session)
        store.unpack_session(session, reader)
        if session.departed_to:
            session.seen = None
        elif self.hub.federated and session.seen is None and not client_id.startswith("$"):
            session.seen = SeenIds()
        self.attached.add(number)

    def _message(self, offset: int, body: bytes) -> None:
        hub = self.hub
        record = records.decode_message(body, offset)
        message = record.message
        hub.wall_us = max(hub.wall_us, message.time_us)
        if message.retain and message.kind != 2:
            hub.store_retained(message)
        if record.publisher_session and record.packet_id:
            publisher = hub.by_number.get(record.publisher_session)
            if publisher is not None:
                publisher.incoming[record.packet_id] = None
        if message.origin:
            hub.federation.replayed(message, record.packet_id)
        for target in record.targets:
            session = hub.by_number.get(target.session)
            if session is not None:
                hub.enqueue(session, message, target.flags, target.identifiers, target.note)
        hub.newest_offset = offset

    def _acknowledged(self, session: Session, packet_id: int) -> None:
        entry = self._find(session, packet_id)
        if entry is not None:
            self._uncount(session, entry)
            session.queue.remove(entry)

    def _uncount(self, session: Session, entry: Entry) -> None:
        if entry.message is not None:  # those of a snapshot are counted at the end
            session.queued_bytes -= self.hub.entry_bytes(entry)

    def _find(self, session: Session, packet_id: int) -> Entry | None:
        """The packet in the queue; None: it is not there. It may still be in the journal behind one that lags."""
        if session.queue and session.queue.first().packet_id == packet_id:
            return session.queue.first()
        while True:
            for entry in session.queue:
                if entry.packet_id == packet_id:
                    return entry
            if not session.spilled:
                return None
            known = len(session.queue)
            self.hub.refill(session, 10)
            if len(session.queue) == known:
                return None

    def _acknowledged_through(self, session: Session, offset: int) -> None:
        while True:
            if not session.queue and session.spilled:
                self.hub.refill(session)
            if not session.queue or session.queue.first().offset > offset:
                return
            self._uncount(session, session.queue.popleft())

    def _received(self, session: Session, packet_id: int) -> None:
        entry = self._find(session, packet_id)
        if entry is not None:
            entry.state = RELEASED

    def drop_lost(self) -> None:
        """Takes out of every queue what the journal has lost; it counts as dropped."""
        for session in self.hub.sessions.values():
            lost = self._recount(session) if session.spilled else 0
            for entry in list(session.queue):
                try:
                    self.hub.load(entry)
                except OffsetsGone:
                    session.queue.remove(entry)
                    lost += 1
            session.dropped += lost
            self.hub.counters.dropped += lost

    def _recount(self, session: Session) -> int:
        """Counts what is left of the messages that wait in the journal alone; how many are lost."""
        log = self.hub.log
        assert log is not None
        try:
            scan = log.scan(session.spill_offset)
        except OffsetsGone as gone:
            session.spill_offset = gone.first
            scan = log.scan(gone.first)
        left = 0
        for kind, offset, body in scan:
            if kind == records.MESSAGE:
                targets = records.decode_message(body, offset).targets
                left += any([target.session == session.number for target in targets])
        lost = session.spilled - left
        session.spilled = left
        session.spill_sequence += lost
        return lost

    def finish(self) -> None:
        hub = self.hub
        for session in list(hub.sessions.values()):
            session.queued_bytes = 0
            for index, entry in enumerate(session.queue):
                session.queued_bytes += hub.entry_bytes(entry)
                if entry.state == HELD:
                    entry.state = RELEASED
                elif index < hub.settings.max_inflight:
                    entry.dup = True  # it may have been sent; the journal does not note that
            session.doubtful = max(0, hub.settings.max_inflight - len(session.queue))
            for entry in session.queue:
                if entry.state == SENT:
                    entry.state = 0
            if session.number in self.attached:
                session.detached_wall_us = hub.wall_us
            hub.rest(session)
        hub.committed_position = hub.position
        hub.committed_offset = hub.newest_offset
