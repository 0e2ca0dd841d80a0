"""Batches: many messages in the payload of one PUBLISH between brokers.

The names of brokers and shared subscriptions that occur in a batch stand once in its head; entries refer to them by
number. Expiry travels as the time that is left, so brokers need no common clock for it.
"""

import struct
from typing import Final, final

from metromq.errors import MalformedPacket
from metromq.federation.stages import FINAL, HOP_LIMIT, RELAY
from metromq.protocol.session import KIND_LINK, Message

VERSION: Final = 2
CHECK: Final = 1  # may have come by another way before: look it up
SYNC: Final = 2  # a retained message that is passed on later, not a publication
PASSED: Final = 32  # for shared subscriptions whose members had left: whoever they were meant for gives them on
_RETAIN: Final = 4
_ROUTE: Final = 8  # served brokers or shared subscriptions follow
_EXPIRES: Final = 16
_QOS_SHIFT: Final = 6
_KEPT: Final = CHECK | SYNC | PASSED

_HEAD: Final = struct.Struct("<BHI")  # version, names, entries
_ENTRY: Final = struct.Struct("<BBBHQqQHHII")
_ROUTE_HEAD: Final = struct.Struct("<HHH")
_U16: Final = struct.Struct("<H")
_U64: Final = struct.Struct("<Q")


@final
class LinkMessage:
    """A message on its way between two brokers."""

    def __init__(
        self,
        message: Message,
        stage: int,
        sequence: int = 0,
        flags: int = 0,
        served: tuple[str, ...] = (),
        shares: tuple[str, ...] = (),
        shares_done: tuple[str, ...] = (),
        limit: int = HOP_LIMIT,
        targets: tuple[str, ...] = (),
    ) -> None:
        self.message = message  # its origin is always named here, and origin_offset is -1 at QoS 0
        self.stage = stage
        self.sequence = sequence  # offset in the sender's journal; grows along a link; 0 at QoS 0
        self.flags = flags  # CHECK, SYNC, PASSED
        self.served = served  # brokers that have it or will get it from someone else
        self.shares = shares  # shared subscriptions that the receiver must serve
        self.shares_done = shares_done  # shared subscriptions that someone else has served
        self.limit = limit  # how many more links it may cross from the receiver
        self.targets = targets  # of a relay: the brokers that it brings the message to; none: whoever wants it


def is_internal(entry: LinkMessage) -> bool:
    """Whether brokers talk about themselves: parts of sessions and the like are not counted as messages."""
    return entry.message.topic.startswith("$metromq/")


def encode_batch(entries: list[LinkMessage], now_us: int, own_name: str = "") -> bytes:
    """A message without an origin is our own: it has `own_name`, and its offset in our journal."""
    names: dict[str, int] = {}
    parts: list[bytes] = [b""]
    for entry in entries:
        message = entry.message
        topic = message.topic.encode()
        publisher = message.publisher.encode()
        flags = entry.flags | message.qos << _QOS_SHIFT
        if message.retain:
            flags |= _RETAIN
        if message.expires_at_us:
            flags |= _EXPIRES
        if entry.served or entry.shares or entry.shares_done or entry.targets:
            flags |= _ROUTE
        parts.append(
            _ENTRY.pack(
                flags,
                entry.stage,
                entry.limit,
                _number(names, message.origin or own_name),
                entry.sequence,
                message.origin_offset if message.origin else message.offset,
                message.time_us,
                len(topic),
                len(publisher),
                len(message.properties),
                len(message.payload),
            )
        )
        if flags & _EXPIRES:
            parts.append(_U64.pack(max(message.expires_at_us - now_us, 0)))
        if flags & _ROUTE:
            parts.append(_ROUTE_HEAD.pack(len(entry.served), len(entry.shares), len(entry.shares_done)))
            if entry.stage == RELAY:
                parts.append(_U16.pack(len(entry.targets)))
            for name in entry.served + entry.shares + entry.shares_done + entry.targets:
                parts.append(_U16.pack(_number(names, name)))
        parts.append(topic)
        parts.append(publisher)
        parts.append(message.properties)
        parts.append(message.payload)
    head = [_HEAD.pack(VERSION, len(names), len(entries))]
    for name in names:
        text = name.encode()
        head.append(_U16.pack(len(text)))
        head.append(text)
    parts[0] = b"".join(head)
    return b"".join(parts)


def _number(names: dict[str, int], name: str) -> int:
    known = names.get(name, -1)
    if known < 0:
        known = len(names)
        names[name] = known
    return known


def decode_batch(data: bytes, now_us: int) -> list[LinkMessage]:
    try:
        return _decode_batch(data, now_us)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedPacket(f"a batch of a link cannot be decoded: {error}") from error


def _decode_batch(data: bytes, now_us: int) -> list[LinkMessage]:
    version, name_count, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise MalformedPacket(f"batch of version {version}, not {VERSION}: do all brokers run the same release?")
    position = _HEAD.size
    names: list[str] = []
    for _ in range(name_count):
        (size,) = _U16.unpack_from(data, position)
        names.append(data[position + 2 : position + 2 + size].decode())
        position += 2 + size
    entries: list[LinkMessage] = []
    for _ in range(count):
        entry, position = _decode_entry(data, position, names, now_us)
        entries.append(entry)
    if position != len(data):
        raise MalformedPacket("a batch of a link is longer or shorter than its entries")
    return entries


def _decode_entry(data: bytes, position: int, names: list[str], now_us: int) -> tuple[LinkMessage, int]:
    head = _ENTRY.unpack_from(data, position)
    flags, stage, limit, origin, sequence, offset, time_us, n_topic, n_publisher, n_properties, n_payload = head
    if stage > FINAL or flags >> _QOS_SHIFT > 2:
        raise MalformedPacket(f"a batch of a link holds a message of stage {stage} and QoS {flags >> _QOS_SHIFT}")
    position += _ENTRY.size
    expires_us = 0
    if flags & _EXPIRES:
        expires_us = now_us + _U64.unpack_from(data, position)[0]
        position += 8
    entry = LinkMessage(_NOTHING, stage, sequence, flags & _KEPT, limit=limit)
    if flags & _ROUTE:
        n_served, n_shares, n_done = _ROUTE_HEAD.unpack_from(data, position)
        position += _ROUTE_HEAD.size
        n_targets = 0
        if stage == RELAY:
            (n_targets,) = _U16.unpack_from(data, position)
            position += 2
        listed: list[str] = []
        for _ in range(n_served + n_shares + n_done + n_targets):
            listed.append(names[_U16.unpack_from(data, position)[0]])
            position += 2
        entry.served = tuple(listed[:n_served])
        entry.shares = tuple(listed[n_served : n_served + n_shares])
        entry.shares_done = tuple(listed[n_served + n_shares : n_served + n_shares + n_done])
        entry.targets = tuple(listed[n_served + n_shares + n_done :])
    topic_end = position + n_topic
    publisher_end = topic_end + n_publisher
    properties_end = publisher_end + n_properties
    end = properties_end + n_payload
    entry.message = Message(
        data[position:topic_end].decode(),
        data[properties_end:end],
        flags >> _QOS_SHIFT,
        bool(flags & _RETAIN),
        data[publisher_end:properties_end],
        expires_us,
        time_us,
        data[topic_end:publisher_end].decode() if n_publisher else "",
        KIND_LINK,
        names[origin],
        offset,
    )
    return entry, end


_NOTHING: Final = Message("", b"")
