"""What the broker writes into its journal: kinds of records and their bytes, for messages by `layout`.

A MESSAGE record gets an offset from the journal. It lists the sessions and links that must still get it, so that a
restart rebuilds every queue without matching a single filter. Most other kinds change the state of one of them.
"""

import struct
from collections.abc import Iterator
from typing import Final, final

from metromq.errors import JournalError
from metromq.protocol.session import layout
from metromq.protocol.session.layout import ARRIVED, GIVEN, KIND, KIND_SHIFT, NOTE, ORIGIN, QOS, RETAIN, USES
from metromq.protocol.session.message import KIND_LINK, Message

MESSAGE: Final = 1  # the only kind that the journal numbers
SESSION_OPENED: Final = 2
SESSION_CLOSED: Final = 3
SUBSCRIBED: Final = 4
UNSUBSCRIBED: Final = 5
ACKNOWLEDGED: Final = 6  # the subscriber is done with the packet id
RECEIVED: Final = 7  # the subscriber sent PUBREC for the packet id
RELEASED: Final = 8  # the publisher sent PUBREL for the packet id
SESSION_DETACHED: Final = 9  # the connection ended; expiry and will delay start to count
ACKNOWLEDGED_THROUGH: Final = 12  # the peer has everything up to the offset
LINK: Final = 10  # how far a peer's messages have come here
CONTROL: Final = 11  # state of the federation (membership, topic table)
SESSION_SEEN: Final = 13  # what a session that came from another broker has had there
LINK_OPENED: Final = 14  # a link to a peer; releases before this kind wrote SESSION_OPENED (`store.peer_of`)

MAX_TARGETS: Final = 65_535  # of one record; more of them take more records
MAX_IDENTIFIERS: Final = 255  # of one target; more matching subscriptions with identifiers than that are not written

# Values are packed and unpacked in the order of the layout's fields.
_HEAD: Final = layout.struct_of(layout.HEAD)
_TARGET: Final = layout.struct_of(layout.TARGET)
_IDENTIFIER: Final = layout.struct_of(layout.IDENTIFIER)
_NOTE_LENGTH: Final = layout.struct_of(layout.NOTE_LENGTH)
_ORIGIN_HEAD: Final = layout.struct_of(layout.ORIGIN_HEAD)
_USED: Final = layout.struct_of(layout.USED)
_ARRIVAL: Final = layout.struct_of(layout.ARRIVAL)
_LENGTH: Final = struct.Struct("<I")
_CURSOR: Final = struct.Struct("<Qq")


@final
class Target:
    """A backlog that a message waits in: its number, the granted QoS and flags, subscription identifiers."""

    def __init__(self, number: int, flags: int, identifiers: tuple[int, ...] = (), note: bytes = b"") -> None:
        self.number = number
        self.flags = flags  # bits 0-1: QoS; bit 2: the RETAIN flag to send
        self.identifiers = identifiers
        self.note = note  # what a link must say to its peer beside the message, or of a group's member (`shares`)


@final
class MessageRecord:
    """A MESSAGE record, decoded."""

    def __init__(
        self, message: Message, targets: list[Target], publisher_session: int, packet_id: int, uses: int
    ) -> None:
        self.message = message
        self.targets = targets
        self.publisher_session = publisher_session  # 0: no persistent session
        self.packet_id = packet_id  # of a QoS 2 publisher, so that its repeat is recognised after a crash
        self.uses = uses  # of a message that a link brought: what it was taken for, in the federation's bits


def encode_message(
    message: Message, targets: list[Target], publisher_session: int = 0, packet_id: int = 0, uses: int = 0
) -> bytes:
    topic = message.topic.encode()
    publisher = message.publisher.encode()
    flags = message.qos | message.kind << KIND_SHIFT
    if message.retain:
        flags |= RETAIN
    if message.origin:
        flags |= ORIGIN
    if uses:
        flags |= USES
    if message.arrived_us:
        flags |= ARRIVED
    parts = [
        _HEAD.pack(
            message.time_us,
            flags,
            message.expires_at_us,
            publisher_session,
            packet_id,
            len(topic),
            len(publisher),
            len(targets),
            len(message.properties),
        ),
        topic,
        publisher,
        message.properties,
    ]
    for target in targets:
        note = target.note
        identifiers = target.identifiers[:MAX_IDENTIFIERS]
        parts.append(_TARGET.pack(target.number, target.flags | (NOTE if note else 0), len(identifiers)))
        for identifier in identifiers:
            parts.append(_IDENTIFIER.pack(identifier))
        if note:
            parts.append(_NOTE_LENGTH.pack(len(note)))
            parts.append(note)
    if message.origin:
        origin = message.origin.encode()
        parts.append(_ORIGIN_HEAD.pack(message.origin_offset, len(origin)))
        parts.append(origin)
    if uses:
        parts.append(_USED.pack(uses))
    if message.arrived_us:
        parts.append(_ARRIVAL.pack(message.arrived_us))
    parts.append(message.payload)
    return b"".join(parts)


def waiting_for(scan: Iterator[tuple[int, int, bytes]], number: int) -> Iterator[tuple[Message, list[Target]]]:
    """The messages among the records of a journal that name the backlog with this number."""
    for kind, offset, body in scan:
        if kind == MESSAGE:
            record = decode_message(body, offset)
            targets = [target for target in record.targets if target.number == number and not target.flags & GIVEN]
            if targets:
                yield record.message, targets


def encode_cursor(peer: str, journal: int, sequence: int) -> bytes:
    """The body of a LINK record, as `Packer` would write it: every batch of a peer has one."""
    name = peer.encode()
    return b"".join([_LENGTH.pack(len(name)), name, _CURSOR.pack(journal, sequence)])


def decode_message(body: bytes, offset: int = -1) -> MessageRecord:
    try:
        return _decode_message(body, offset)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise JournalError(f"message record at offset {offset} cannot be decoded: {error}") from error


def _decode_message(body: bytes, offset: int) -> MessageRecord:
    time_us, flags, expires_us, session, packet_id, n_topic, n_publisher, n_targets, n_properties = _HEAD.unpack_from(
        body
    )
    position = _HEAD.size
    topic = body[position : position + n_topic].decode()
    position += n_topic
    publisher = body[position : position + n_publisher].decode()
    position += n_publisher
    properties = body[position : position + n_properties]
    position += n_properties
    targets: list[Target] = []
    for _ in range(n_targets):
        number, target_flags, count = _TARGET.unpack_from(body, position)
        position += _TARGET.size
        identifiers: list[int] = []
        for _ in range(count):
            identifiers.append(_IDENTIFIER.unpack_from(body, position)[0])
            position += _IDENTIFIER.size
        note = b""
        if target_flags & NOTE:
            n_note: int = _NOTE_LENGTH.unpack_from(body, position)[0]
            position += _NOTE_LENGTH.size
            note = body[position : position + n_note]
            position += n_note
        targets.append(Target(number, target_flags & ~NOTE, tuple(identifiers), note))
    origin, origin_offset = "", -1
    if flags & ORIGIN:
        origin_offset, n_origin = _ORIGIN_HEAD.unpack_from(body, position)
        position += _ORIGIN_HEAD.size
        origin = body[position : position + n_origin].decode()
        position += n_origin
    kind = (flags >> KIND_SHIFT) & KIND
    uses = 0
    if flags & USES:
        uses = _USED.unpack_from(body, position)[0]
        position += _USED.size
    elif kind == KIND_LINK:  # as older releases wrote it
        uses, packet_id = packet_id, 0
    arrived_us = 0
    if flags & ARRIVED:
        arrived_us = _ARRIVAL.unpack_from(body, position)[0]
        position += _ARRIVAL.size
    message = Message(
        topic,
        body[position:],
        flags & QOS,
        bool(flags & RETAIN),
        properties,
        expires_us,
        time_us,
        publisher,
        kind,
        origin,
        origin_offset,
    )
    message.arrived_us = arrived_us
    message.offset = offset
    return MessageRecord(message, targets, session, packet_id, uses)
