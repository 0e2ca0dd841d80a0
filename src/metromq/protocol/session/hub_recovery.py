"""The hub's state from its journal: a snapshot, then every record after it, in order."""

import struct
from collections.abc import Iterator
from typing import Final, final

from metromq.errors import JournalUnusable, OffsetsGone
from metromq.protocol.packing import Packer, Unpacker
from metromq.protocol.session import records, store
from metromq.protocol.session.backlog import HELD, RELEASED, SENT, Backlog, Entry, LinkBacklog
from metromq.protocol.session.hub import Hub
from metromq.protocol.session.layout import GIVEN
from metromq.protocol.session.message import KIND_LINK, KIND_REPLAY, Message
from metromq.protocol.session.route import LinkCopy
from metromq.protocol.session.seen_ids import SeenIds, unpack_seen
from metromq.protocol.session.session import Grant, Session, mark_of

VERSION: Final = 2
VERSION_WITHOUT_LINKS: Final = 1  # links were among the sessions, by client identifiers with a prefix
SESSIONS_PER_PIECE: Final = 50
BYTES_PER_PIECE: Final = 1 << 18  # of retained messages,
PACKED_BYTES: Final = 1 << 10  # each of which takes the time that copying so many more bytes does
MESSAGES_PER_LOOK: Final = 10_000

_OF_BACKLOG: Final = (records.ACKNOWLEDGED, records.ACKNOWLEDGED_THROUGH, records.RECEIVED)
_OF_SESSION: Final = (
    records.SESSION_CLOSED,
    records.SUBSCRIBED,
    records.UNSUBSCRIBED,
    records.SESSION_DETACHED,
    records.RELEASED,
    records.SESSION_SEEN,
)


@final
class Snapshot:
    """Everything a restart needs, as of the records appended so far.

    Made at once, which takes a fraction of the time that packing does; `pieces` may be asked for later and in another
    thread, whatever the hub does meanwhile.
    """

    def __init__(self, hub: Hub) -> None:
        packer = Packer().u8(VERSION).u32(hub.backlogs.next_number).i64(hub.commits.newest_offset)
        self._front = packer.blob(hub.city.federation.snapshot()).done()
        every = [*hub.sessions.by_client_id.values(), *hub.sessions.estates.sessions.values()]
        durable = [session for session in every if session.backlog.durable]
        self._sessions = [store.copy_of(session) for session in durable]
        self._links = [store.copy_of_link(backlog) for backlog in hub.links.by_peer.values()]
        self._messages = hub.retained.messages.values()

    def pieces(self) -> Iterator[bytes]:
        """The state in pieces of a millisecond's work or less."""
        yield self._front + Packer().u32(len(self._sessions)).done()
        for start in range(0, len(self._sessions), SESSIONS_PER_PIECE):
            packer = Packer()
            for session in self._sessions[start : start + SESSIONS_PER_PIECE]:
                packer.blob(store.pack_state(session))
            yield packer.done()
        yield Packer().u32(len(self._links)).done()
        for backlog in self._links:
            yield Packer().blob(store.pack_link(backlog)).done()
        kept: list[Message] = []
        for start in range(0, len(self._messages), MESSAGES_PER_LOOK):
            some = self._messages[start : start + MESSAGES_PER_LOOK]
            kept += [message for message in some if not message.topic.startswith("$SYS/")]
            yield b""
        yield Packer().u32(len(kept)).done()
        packer = Packer()
        size = 0
        for message in kept:
            packed = store.pack_retained(message)
            packer.blob(packed)
            size += PACKED_BYTES + len(packed)
            if size >= BYTES_PER_PIECE:
                yield packer.done()
                packer = Packer()
                size = 0
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
        raise JournalUnusable(
            f"the journal cannot be understood: {error}; was it written by a newer version?"
        ) from error
    if is_damaged:
        recovery.drop_lost()
    recovery.finish()
    return count


@final
class _Recovery:
    """Records name sessions and links by their numbers, which nobody needs once this is done."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.sessions: dict[int, Session] = {}
        self.backlogs: dict[int, Backlog] = {}  # of sessions and links
        self.attached: set[int] = set()
        self.connected: set[int] = set()  # of the sessions, for sure
        self.has_fleeting = False  # somebody subscribed at QoS 0

    # --- a snapshot -----------------------------------------------------------------------------------------------

    def load(self, state: bytes) -> None:
        hub = self.hub
        reader = Unpacker(state)
        version = reader.u8()
        if version not in (VERSION, VERSION_WITHOUT_LINKS):
            raise JournalUnusable(f"snapshot of version {version}; this version of MetroMQ reads {VERSION}")
        hub.backlogs.next_number = reader.u32()
        hub.commits.newest_offset = reader.i64()
        hub.city.federation.restored(reader.blob())
        for _ in range(reader.u32()):
            self._load_session(reader.blob())
        if version == VERSION:
            for _ in range(reader.u32()):
                self._add_link(store.unpack_link(reader.blob()))
        for _ in range(reader.u32()):
            message = store.unpack_retained(reader.blob())
            hub.retained.set(message)

    def _load_session(self, state: bytes) -> None:
        session, grants, attached = store.unpack_state(state)
        if store.peer_of(session.client_id):
            self._add_link(store.link_of(session))
            return
        self._add(session)
        for full_filter, grant in grants:
            self._grant(full_filter, grant)
        if attached:
            self.attached.add(session.backlog.number)
            self.connected.add(session.backlog.number)
        self._doubt_spilled(session.backlog)

    def _grant(self, full_filter: str, grant: Grant) -> None:
        self.has_fleeting = self.has_fleeting or not grant.qos
        self.hub.subscriptions.restore(full_filter, grant)

    def _add(self, session: Session) -> None:
        number = session.backlog.number
        self.sessions[number] = session
        self.backlogs[number] = session.backlog
        self.hub.sessions.restore(session)

    def _add_link(self, backlog: LinkBacklog) -> None:
        self.backlogs[backlog.number] = backlog
        self.hub.links.restore(backlog)

    # --- records --------------------------------------------------------------------------------------------------

    def apply(self, kind: int, offset: int, body: bytes) -> None:
        if kind == records.MESSAGE:
            self._message(offset, body)
        elif kind in (records.LINK, records.CONTROL):
            self.hub.city.federation.recovered(kind, body)
        else:
            reader = Unpacker(body)
            number = reader.u32()
            if kind == records.SESSION_OPENED:
                self._opened(number, reader)
            elif kind == records.LINK_OPENED:
                self._link_opened(number, reader.text())
            elif kind in _OF_BACKLOG:
                backlog = self.backlogs.get(number)
                if backlog is not None:
                    self._apply_to_backlog(kind, backlog, reader)
            elif kind in _OF_SESSION:
                session = self.sessions.get(number)
                if session is not None:
                    self._apply_to_session(kind, session, reader)
            else:
                raise JournalUnusable(f"unknown kind of record: {kind}")

    def _apply_to_backlog(self, kind: int, backlog: Backlog, reader: Unpacker) -> None:
        if kind == records.ACKNOWLEDGED:
            self._acknowledged(backlog, reader.u16())
        elif kind == records.ACKNOWLEDGED_THROUGH:
            self._acknowledged_through(backlog, reader.i64())
        else:
            self._received(backlog, reader.u16())

    def _apply_to_session(self, kind: int, session: Session, reader: Unpacker) -> None:
        hub = self.hub
        if kind == records.SESSION_CLOSED:
            self._forget(session)
        elif kind == records.SUBSCRIBED:
            full_filter, grant, since_us = store.unpack_grant(session, reader)
            if since_us:
                session.wants_since(full_filter, since_us)
            self._grant(full_filter, grant)
        elif kind == records.UNSUBSCRIBED:
            hub.subscriptions.drop(session, reader.text())
        elif kind == records.SESSION_DETACHED:
            self.attached.discard(session.backlog.number)
            self.connected.discard(session.backlog.number)
            self._doubt(session.backlog)
            store.unpack_detached(session, reader)
        elif kind == records.SESSION_SEEN:
            session.seen = unpack_seen(reader.blob())
            session.roamed = True
            if not reader.at_end():  # older journals do not say
                store.unpack_incoming(session, reader)
        else:
            session.incoming.pop(reader.u16(), None)

    def _opened(self, number: int, reader: Unpacker) -> None:
        client_id = reader.text()
        if store.peer_of(client_id):
            self._link_opened(number, store.peer_of(client_id))
            return
        session = self.sessions.get(number)
        if session is None:
            old = self.hub.sessions.get(client_id)
            if old is not None:
                self._forget(old)
            session = Session(number, client_id)
            self._add(session)
        elif session.client_id != client_id:
            self.hub.sessions.renamed(session, client_id)
        if store.unpack_session(session, reader):
            self.connected.add(number)
        else:
            self.connected.discard(number)
        if session.departed_to:
            session.seen = None
        elif self.hub.city.joined and session.seen is None:
            session.seen = SeenIds()
        if not session.closed:
            self.attached.add(number)

    def _link_opened(self, number: int, peer: str) -> None:
        if number not in self.backlogs:
            backlog = LinkBacklog(number, peer)
            backlog.durable = True
            self._add_link(backlog)

    def _forget(self, session: Session) -> None:
        number = session.backlog.number
        self.attached.discard(number)
        self.connected.discard(number)
        self.sessions.pop(number, None)
        self.backlogs.pop(number, None)
        self.hub.sessions.forget(session)

    def _message(self, offset: int, body: bytes) -> None:
        hub = self.hub
        record = records.decode_message(body, offset)
        message = record.message
        hub.clock.wall_us = max(hub.clock.wall_us, message.time_us)
        if message.retain and message.kind != KIND_REPLAY:
            hub.retained.store(message)
        if record.publisher_session and record.packet_id:
            publisher = self.sessions.get(record.publisher_session)
            if publisher is not None:
                publisher.take_in(record.packet_id, mark_of(message.topic, message.payload))
        if self.has_fleeting and message.qos and message.kind != KIND_REPLAY:
            self._recall_fleeting(message, record.uses)
        holders: list[Session] = []
        copies: list[LinkCopy] = []
        for target in record.targets:
            session = self.sessions.get(target.number)
            backlog = self.backlogs.get(target.number)
            if target.flags & GIVEN:
                if backlog is not None:
                    self._acknowledged(backlog, target.identifiers[0])
            elif session is not None:
                holders.append(session)
                hub.delivery.enqueue(session, message, target.flags, target.identifiers, target.note)
            elif isinstance(backlog, LinkBacklog):
                copies.append(LinkCopy(backlog, target.note))
                hub.backlogs.enqueue(backlog, message, target.flags, target.identifiers, target.note)
        hub.city.federation.replayed(message, record.uses, holders, copies)
        hub.commits.newest_offset = offset

    def _recall_fleeting(self, message: Message, uses: int) -> None:
        """Who was there had it at QoS 0, of which the journal notes nothing: it must not come by another way too."""
        hub = self.hub
        if not hub.city.joined or (message.kind == KIND_LINK and not hub.city.federation.delivers(uses)):
            return
        origin = message.origin or hub.name
        offset = message.origin_offset if message.origin else message.offset
        for target in hub.routes.build(message.topic).targets:  # nothing is remembered: not all interest is known yet
            session = target.session
            if target.qos == 0 and session.seen is not None and session.backlog.number in self.connected:
                session.seen.add_fleeting(origin, offset)

    def _acknowledged(self, backlog: Backlog, packet_id: int) -> None:
        entry = self._find(backlog, packet_id)
        if entry is not None:
            self._uncount(backlog, entry)
            backlog.queue.remove(entry)

    def _uncount(self, backlog: Backlog, entry: Entry) -> None:
        if entry.message is not None:  # those of a snapshot are counted at the end
            backlog.queued_bytes -= self.hub.backlogs.entry_bytes(entry)

    def _find(self, backlog: Backlog, packet_id: int) -> Entry | None:
        """The packet in the queue; None: it is not there. It may still be in the journal behind one that lags."""
        if backlog.queue and backlog.queue.first().packet_id == packet_id:
            return backlog.queue.first()
        while True:
            for entry in backlog.queue:
                if entry.packet_id == packet_id:
                    return entry
            if not backlog.spilled:
                return None
            known = len(backlog.queue)
            self.hub.backlogs.refill(backlog, 10)
            if len(backlog.queue) == known:
                return None

    def _acknowledged_through(self, backlog: Backlog, offset: int) -> None:
        while True:
            if not backlog.queue and backlog.spilled:
                self.hub.backlogs.refill(backlog)
            if not backlog.queue or backlog.queue.first().offset > offset:
                return
            self._uncount(backlog, backlog.queue.popleft())

    def _received(self, backlog: Backlog, packet_id: int) -> None:
        entry = self._find(backlog, packet_id)
        if entry is not None:
            entry.state = RELEASED

    # --- the end --------------------------------------------------------------------------------------------------

    def drop_lost(self) -> None:
        """Takes out of every queue what the journal has lost; it counts as dropped."""
        for backlog in self.backlogs.values():
            lost = self._recount(backlog) if backlog.spilled else 0
            for entry in list(backlog.queue):
                try:
                    self.hub.backlogs.load(entry)
                except OffsetsGone:
                    backlog.queue.remove(entry)
                    lost += 1
            self.hub.counters.dropped += lost

    def _recount(self, backlog: Backlog) -> int:
        """Counts what is left of the messages that wait in the journal alone; how many are lost."""
        log = self.hub.commits.log
        assert log is not None
        try:
            scan = log.scan(backlog.spill_offset)
        except OffsetsGone as gone:
            backlog.spill_offset = gone.first
            scan = log.scan(gone.first)
        left = 0
        for kind, offset, body in scan:
            if kind == records.MESSAGE:
                targets = records.decode_message(body, offset).targets
                left += any([target.number == backlog.number for target in targets])
        lost = backlog.spilled - left
        backlog.spilled = left
        backlog.spill_sequence += lost
        return lost

    def finish(self) -> None:
        hub = self.hub
        for number, backlog in self.backlogs.items():
            if number in self.attached or number not in self.sessions:
                self._doubt(backlog)
            self._settle(backlog)
        for number, session in self.sessions.items():
            if number in self.attached:
                session.detached_wall_us = hub.clock.wall_us
            hub.sessions.rest(session)
        hub.commits.recovered()

    def _doubt(self, backlog: Backlog) -> None:
        """What may have been sent by now counts as sent: the journal does not note that."""
        most = self.hub.settings.max_inflight
        for index, entry in enumerate(backlog.queue):
            if index >= most:
                break
            if entry.state not in (HELD, RELEASED):
                entry.dup = True
        self._doubt_spilled(backlog)

    def _doubt_spilled(self, backlog: Backlog) -> None:
        """The same for what only the journal holds, of which a snapshot does not say."""
        backlog.doubtful = min(backlog.spilled, max(0, self.hub.settings.max_inflight - len(backlog.queue)))

    def _settle(self, backlog: Backlog) -> None:
        backlog.queued_bytes = 0
        for entry in backlog.queue:
            backlog.queued_bytes += self.hub.backlogs.entry_bytes(entry)
            if entry.state == HELD:
                entry.state = RELEASED
            if entry.state == SENT:
                entry.state = 0
