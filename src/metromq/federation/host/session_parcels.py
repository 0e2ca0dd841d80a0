"""What brokers say to each other when a session moves, as QoS 1 messages on their links: nothing of it is ever lost.

PIECE    from the old broker to the new one: subscriptions, what the session has had, and messages that wait for it
PROBE    from the new broker to all that may send to the old one: they know the new broker's subscriptions now, and
         should tell the old one
MARKER   from all of them to the old one: whatever it sends from now on goes to the new broker too
DRAINED  from the old broker to the new one: nothing more will come this way
"""

from dataclasses import dataclass, field, replace
from typing import Final

from metromq.protocol import Packer, Unpacker
from metromq.protocol.session import Message, records

TOPIC: Final = "$metromq/session"
PIECE: Final = 1
PROBE: Final = 2
MARKER: Final = 3
DRAINED: Final = 4
FIRST: Final = 1  # flag of a piece: it has the subscriptions
COMPLETE: Final = 2  # with it all has come that waited when the session was taken
MARKED: Final = 4  # it tells what came with the packet identifiers, and `claimed_us`; since version 9 of the link


@dataclass(slots=True)
class Waiting:
    """A message that waits for the session. `sequence` is its place in all that was ever queued for it."""

    sequence: int
    flags: int
    state: int
    identifiers: tuple[int, ...]
    message: Message


@dataclass(slots=True)
class Piece:
    client: str
    number: int  # of the move, given by the old broker
    flags: int
    username: str = ""
    taken_us: int = 0  # the CONNECT at the new broker that it follows
    base: int = 0  # the move that brought the session to where it comes from
    opened_us: int = 0
    clean_us: int = 0
    expiry_s: int = 0
    sequence: int = 0
    grants: list[bytes] = field(default_factory=list)
    incoming: dict[int, int] = field(default_factory=dict)  # as the session's; 0 where it is not MARKED
    seen: bytes = b""
    waiting: list[Waiting] = field(default_factory=list)
    # Filters, since how many microseconds they are wanted, and the brokers that could not be told of them; none: all
    # were told, but some may not have heard it.
    untold: list[tuple[str, int, tuple[str, ...]]] = field(default_factory=list)
    greeted_us: int = 0  # when the client was let in last to this part of the session
    claimed_us: int = 0  # when the client came to where it was last with this part; 0: it does not say
    senders: frozenset[str] | None = None  # brokers that may have sent something for it to the old one; None: all
    sent_us: int = 0  # when it was sent, by the old broker's clock: the message that it came in says so


@dataclass(frozen=True, slots=True)
class Signal:
    """PROBE, MARKER or DRAINED. `old` is the broker that the session leaves."""

    kind: int
    client: str
    number: int
    old: str = ""
    # Of a PROBE: filters of which the old broker does not know who has heard, and since how many microseconds before
    # the move they are wanted.
    unheard: tuple[tuple[str, int], ...] = ()


def encode_piece(piece: Piece) -> bytes:
    packer = Packer().u8(PIECE).text(piece.client).u64(piece.number).u8(piece.flags).text(piece.username)
    packer.u64(piece.taken_us).u64(piece.base).u64(piece.opened_us).u64(piece.clean_us).u32(piece.expiry_s).u64(
        piece.sequence
    )
    packer.u32(len(piece.grants))
    for grant in piece.grants:
        packer.blob(grant)
    packer.u32(len(piece.incoming))
    for packet_id in piece.incoming:
        packer.u16(packet_id)
    packer.blob(piece.seen).u32(len(piece.waiting))
    for item in piece.waiting:
        packer.u64(item.sequence).u8(item.flags).u8(item.state).u8(len(item.identifiers))
        for identifier in item.identifiers:
            packer.u32(identifier)
        packer.blob(records.encode_message(item.message, []))
    packer.u32(len(piece.untold))
    for topic_filter, age_us, peers in piece.untold:
        packer.text(topic_filter).u64(age_us).u32(len(peers))
        for peer in peers:
            packer.text(peer)
    packer.u64(piece.greeted_us)
    if piece.flags & MARKED:
        packer.u64(piece.claimed_us)
        for mark in piece.incoming.values():
            packer.u32(mark)
    if piece.senders is not None:
        packer.u32(len(piece.senders))
        for sender in sorted(piece.senders):
            packer.text(sender)
    return packer.done()


def encode_signal(signal: Signal) -> bytes:
    packer = Packer().u8(signal.kind).text(signal.client).u64(signal.number).text(signal.old)
    if signal.unheard:
        packer.u32(len(signal.unheard))
        for topic_filter, age_us in signal.unheard:
            packer.text(topic_filter).u64(age_us)
    return packer.done()


def decode_parcel(data: bytes) -> Piece | Signal:
    reader = Unpacker(data)
    kind = reader.u8()
    if kind != PIECE:
        signal = Signal(kind, reader.text(), reader.u64(), reader.text())
        if reader.at_end():
            return signal
        return replace(signal, unheard=tuple((reader.text(), reader.u64()) for _ in range(reader.u32())))
    piece = Piece(reader.text(), reader.u64(), reader.u8(), reader.text(), reader.u64(), reader.u64())
    piece.opened_us, piece.clean_us = reader.u64(), reader.u64()
    piece.expiry_s, piece.sequence = reader.u32(), reader.u64()
    piece.grants = [reader.blob() for _ in range(reader.u32())]
    piece.incoming = {reader.u16(): 0 for _ in range(reader.u32())}
    piece.seen = reader.blob()
    for _ in range(reader.u32()):
        sequence, flags, state = reader.u64(), reader.u8(), reader.u8()
        identifiers = tuple(reader.u32() for _ in range(reader.u8()))
        message = records.decode_message(reader.blob()).message
        piece.waiting.append(Waiting(sequence, flags, state, identifiers, message))
    for _ in range(reader.u32()):
        topic_filter, age_us = reader.text(), reader.u64()
        piece.untold.append((topic_filter, age_us, tuple(reader.text() for _ in range(reader.u32()))))
    piece.greeted_us = 0 if reader.at_end() else reader.u64()
    if piece.flags & MARKED:
        piece.claimed_us = reader.u64()
        piece.incoming = {packet_id: reader.u32() for packet_id in piece.incoming}
    if not reader.at_end():
        piece.senders = frozenset(reader.text() for _ in range(reader.u32()))
    return piece
