"""Sessions and the backlogs of links as bytes: the control records of the journal and the parts of a snapshot."""

from typing import Final

from metromq.protocol.packing import Packer, Unpacker
from metromq.protocol.session.backlog import Backlog, Entry, LinkBacklog
from metromq.protocol.session.message import Message
from metromq.protocol.session.records import MAX_IDENTIFIERS, decode_message, encode_message
from metromq.protocol.session.seen_ids import unpack_seen
from metromq.protocol.session.session import Grant, Session
from metromq.protocol.topics.names import split_shared
from metromq.protocol.wire.packets import Will

OLD_LINK_PREFIX: Final = "$link/"  # of the client identifiers by which releases before LINK_OPENED recorded links
ROAMED: Final = 1  # of a session
CONNECTED: Final = 2  # the same


def pack_session(session: Session) -> bytes:
    packer = Packer().u32(session.backlog.number).text(session.client_id).text(session.username).u32(session.expiry_s)
    packer.u64(session.backlog.sequence)
    _pack_will(packer, session.will)
    packer.u64(session.opened_us).u64(session.clean_us)
    packer.text(session.departed_to).u64(session.departed_us).u64(session.claimed_us)
    packer.u64(session.greeted_us).u64(session.arrival).u8(1 if session.is_stale else 0)
    return packer.u8((ROAMED if session.roamed else 0) | (CONNECTED if session.connection is not None else 0)).done()


def unpack_session(session: Session, reader: Unpacker) -> bool:
    """Reads what follows number and client id; whether its client was there, if that was written down."""
    session.username = reader.text()
    session.expiry_s = reader.u32()
    session.backlog.sequence = reader.u64()
    session.will = _unpack_will(reader)
    session.opened_us = 0 if reader.at_end() else reader.u64()  # older journals have the owner, but not since when
    session.clean_us = 0 if reader.at_end() else reader.u64()
    session.departed_to = "" if reader.at_end() else reader.text()
    session.departed_us = 0 if reader.at_end() else reader.u64()
    session.claimed_us = 0 if reader.at_end() else reader.u64()
    session.greeted_us = 0 if reader.at_end() else reader.u64()
    session.arrival = 0 if reader.at_end() else reader.u64()
    session.is_stale = False if reader.at_end() else bool(reader.u8())
    session.backlog.durable = True
    if reader.at_end():
        return False
    flags = reader.u8()
    session.roamed = session.roamed or bool(flags & ROAMED)
    return bool(flags & CONNECTED)


def pack_detached(session: Session) -> bytes:
    packer = Packer().u32(session.backlog.number).u32(session.expiry_s).u64(session.detached_wall_us)
    _pack_will(packer, session.will)
    return packer.done()


def unpack_detached(session: Session, reader: Unpacker) -> None:
    session.expiry_s = reader.u32()
    session.detached_wall_us = reader.u64()
    session.will = _unpack_will(reader)


def pack_grant(full_filter: str, grant: Grant) -> bytes:
    share, filter = split_shared(full_filter)
    flags = (
        grant.qos | (4 if grant.no_local else 0) | (8 if grant.retain_as_published else 0) | grant.retain_handling << 4
    )
    packer = Packer().u32(grant.session.backlog.number).text(filter).text(share).u8(flags).u32(grant.identifier)
    return packer.u64(grant.session.since_us(full_filter)).done()


def unpack_grant(session: Session, reader: Unpacker) -> tuple[str, Grant, int]:
    """The filter, with its group where it is shared, how the session has subscribed to it, and since when."""
    filter, share, flags, identifier = reader.text(), reader.text(), reader.u8(), reader.u32()
    grant = session.grant(share, flags & 3, bool(flags & 4), bool(flags & 8), flags >> 4, identifier)
    since_us = 0 if reader.at_end() else reader.u64()
    return (f"$share/{share}/{filter}" if share else filter), grant, since_us


def _pack_will(packer: Packer, will: Will | None) -> None:
    if will is None:
        packer.u8(0)
        return
    packer.u8(1).text(will.topic).blob(will.payload).u8(will.qos | (4 if will.retain else 0))
    packer.u32(will.delay_s).i64(will.expiry_s).blob(will.properties)


def _unpack_will(reader: Unpacker) -> Will | None:
    if not reader.u8():
        return None
    topic, payload, flags = reader.text(), reader.blob(), reader.u8()
    delay_s, expiry_s, properties = reader.u32(), reader.i64(), reader.blob()
    return Will(topic, payload, flags & 3, bool(flags & 4), delay_s, expiry_s, properties)


def copy_of(session: Session) -> Session:
    """What `pack_state` needs of a session, as it is now."""
    copy = Session(session.backlog.number, session.client_id)
    copy.username, copy.expiry_s, copy.will = session.username, session.expiry_s, session.will
    copy.opened_us, copy.clean_us = session.opened_us, session.clean_us
    copy.departed_to, copy.departed_us = session.departed_to, session.departed_us
    copy.claimed_us, copy.greeted_us = session.claimed_us, session.greeted_us
    copy.arrival, copy.is_stale = session.arrival, session.is_stale
    copy.seen = session.seen.copy() if session.seen is not None else None
    copy.roamed = session.roamed
    copy.connection = session.connection
    copy.detached_wall_us = session.detached_wall_us
    for full_filter, grant in session.grants.items():
        if not grant.of_replay:
            copy.put_grant(full_filter, grant)
    copy.wanted_us = session.wanted_us.copy() if session.wanted_us is not None else None
    if session.incoming:
        copy.incoming = session.incoming.copy()
    _copy_backlog(session.backlog, copy.backlog)
    return copy


def copy_of_link(backlog: LinkBacklog) -> LinkBacklog:
    copy = LinkBacklog(backlog.number, backlog.peer)
    _copy_backlog(backlog, copy)
    return copy


def _copy_backlog(backlog: Backlog, copy: Backlog) -> None:
    copy.sequence, copy.spilled = backlog.sequence, backlog.spilled
    copy.spill_offset, copy.spill_sequence = backlog.spill_offset, backlog.spill_sequence
    copy.spilled_bytes = backlog.spilled_bytes
    for entry in backlog.inflight.values():
        copy.queue.append(_copy_of_entry(entry))
    for entry in backlog.queue:
        copy.queue.append(_copy_of_entry(entry))


def _copy_of_entry(entry: Entry) -> Entry:
    copy = Entry(entry.offset, entry.flags, entry.identifiers, entry.packet_id, entry.message, entry.note)
    copy.state = entry.state
    copy.dup = entry.dup
    return copy


def pack_state(session: Session) -> bytes:
    """A whole session for a snapshot."""
    packer = Packer().u32(session.backlog.number).text(session.client_id).blob(pack_session(session))
    packer.u8(1 if session.connection is not None else 0).u64(session.detached_wall_us)
    packer.u32(len(session.grants))
    for full_filter, grant in session.grants.items():
        packer.blob(pack_grant(full_filter, grant))
    packer.u32(len(session.incoming))
    for packet_id in session.incoming:
        packer.u16(packet_id)
    _pack_backlog(packer, session.backlog)
    if session.seen is not None:
        packer.u8(1 if session.roamed else 0).blob(session.seen.pack())
        for mark in session.incoming.values():
            packer.u32(mark)
    return packer.done()


def pack_incoming(packer: Packer, session: Session) -> None:
    packer.u32(len(session.incoming))
    for packet_id, mark in session.incoming.items():
        packer.u16(packet_id).u32(mark)


def unpack_incoming(session: Session, reader: Unpacker) -> None:
    session.incoming = {reader.u16(): reader.u32() for _ in range(reader.u32())}


def unpack_state(data: bytes) -> tuple[Session, list[tuple[str, Grant]], bool]:
    """The session, its subscriptions and whether a client was connected when the snapshot was made."""
    reader = Unpacker(data)
    session = Session(reader.u32(), reader.text())
    details = Unpacker(reader.blob())
    details.u32()
    details.text()
    unpack_session(session, details)
    attached = bool(reader.u8())
    session.detached_wall_us = reader.u64()
    grants: list[tuple[str, Grant]] = []
    for _ in range(reader.u32()):
        inner = Unpacker(reader.blob())
        inner.u32()
        full_filter, grant, since_us = unpack_grant(session, inner)
        if since_us:
            session.wants_since(full_filter, since_us)
        grants.append((full_filter, grant))
    for _ in range(reader.u32()):
        session.take_in(reader.u16(), 0)
    _unpack_backlog(reader, session.backlog)
    if not reader.at_end():
        session.roamed = bool(reader.u8()) or session.roamed
        session.seen = unpack_seen(reader.blob())
    if not reader.at_end():
        for packet_id in session.incoming:
            session.incoming[packet_id] = reader.u32()
    return session, grants, attached


def pack_link_opened(backlog: LinkBacklog) -> bytes:
    return Packer().u32(backlog.number).text(backlog.peer).done()


def pack_link(backlog: LinkBacklog) -> bytes:
    """A link's backlog for a snapshot."""
    packer = Packer().u32(backlog.number).text(backlog.peer)
    _pack_backlog(packer, backlog)
    return packer.done()


def unpack_link(data: bytes) -> LinkBacklog:
    reader = Unpacker(data)
    backlog = LinkBacklog(reader.u32(), reader.text())
    backlog.durable = True
    _unpack_backlog(reader, backlog)
    return backlog


def peer_of(client_id: str) -> str:
    """Links were sessions once: the peer whose link went by this client identifier; empty: it is a client's."""
    return client_id.removeprefix(OLD_LINK_PREFIX) if client_id.startswith(OLD_LINK_PREFIX) else ""


def link_of(session: Session) -> LinkBacklog:
    """The backlog of a link that an older release packed as a session."""
    backlog = LinkBacklog(session.backlog.number, peer_of(session.client_id))
    backlog.durable = True
    _copy_backlog(session.backlog, backlog)
    return backlog


def _pack_backlog(packer: Packer, backlog: Backlog) -> None:
    packer.u64(backlog.sequence).u64(backlog.spilled).u64(backlog.spill_offset).u64(backlog.spill_sequence)
    packer.u64(backlog.spilled_bytes)
    entries = [*backlog.inflight.values(), *backlog.queue]
    packer.u32(len(entries))
    for entry in entries:
        packer.i64(entry.offset).u8(entry.flags).u8(entry.state).u8(1 if entry.dup else 0).u16(entry.packet_id)
        identifiers = entry.identifiers[:MAX_IDENTIFIERS]
        packer.u8(len(identifiers))
        for identifier in identifiers:
            packer.u32(identifier)
        packer.blob(_pack_message(entry.message) if entry.offset < 0 and entry.message is not None else b"")
        packer.blob(entry.note)


def _unpack_backlog(reader: Unpacker, backlog: Backlog) -> None:
    backlog.sequence, backlog.spilled = reader.u64(), reader.u64()
    backlog.spill_offset, backlog.spill_sequence = reader.u64(), reader.u64()
    backlog.spilled_bytes = reader.u64()
    for _ in range(reader.u32()):
        backlog.queue.append(_unpack_entry(reader))


def _unpack_entry(reader: Unpacker) -> Entry:
    offset, flags, state, dup, packet_id = reader.i64(), reader.u8(), reader.u8(), reader.u8(), reader.u16()
    identifiers: list[int] = []
    for _ in range(reader.u8()):
        identifiers.append(reader.u32())
    body = reader.blob()
    message = decode_message(body).message if body else None
    entry = Entry(offset, flags, tuple(identifiers), packet_id, message, reader.blob())
    entry.state = state
    entry.dup = bool(dup)
    return entry


def _pack_message(message: Message) -> bytes:
    return encode_message(message, [])


def pack_retained(message: Message) -> bytes:
    return Packer().i64(message.offset).blob(encode_message(message, [])).done()


def unpack_retained(data: bytes) -> Message:
    reader = Unpacker(data)
    offset = reader.i64()
    return decode_message(reader.blob(), offset).message
