"""Encodes packets: a value of wire.packets in, the bytes of one whole packet out."""

from typing import Final

from metromq.errors import UsageError
from metromq.protocol.reasons import SUCCESS, UNSPECIFIED_ERROR, connack_code_311
from metromq.protocol.wire import packets
from metromq.protocol.wire.packets import MQTT5, MQTT31, Packet, Properties, Will
from metromq.protocol.wire.properties import encode_properties
from metromq.protocol.wire.values import BYTES, binary, string, u16, u32
from metromq.protocol.wire.values import varint as varint

# By packet type: the first byte of PUBACK, PUBREC, PUBREL, PUBCOMP, and the same with the length of the shortest form.
_ACK_FIRST: Final[list[bytes]] = [b"", b"", b"", b"", b"\x40", b"\x50", b"\x62", b"\x70"]
_ACK_SHORT: Final[list[bytes]] = [b"", b"", b"", b"", b"\x40\x02", b"\x50\x02", b"\x62\x02", b"\x70\x02"]
_PINGREQ: Final = b"\xc0\x00"
_PINGRESP: Final = b"\xd0\x00"


def encode(packet: Packet, version: int) -> bytes:
    """The bytes of any packet. CONNECT carries its own version; properties are left out before MQTT 5."""
    if isinstance(packet, packets.Publish):
        return encode_publish(
            version,
            packet.topic.encode("utf-8"),
            packet.payload,
            packet.qos,
            packet.retain,
            packet.dup,
            packet.packet_id,
            packet.properties,
            packet.expiry_s,
            packet.topic_alias,
            packet.identifiers,
        )
    if isinstance(packet, packets.Ack):
        if packet.properties is None or version != MQTT5:
            return encode_ack(packet.kind, packet.packet_id, packet.reason_code, version)
        body = u16(packet.packet_id) + BYTES[packet.reason_code] + encode_properties(packet.properties, packet.kind)
        return _ACK_FIRST[packet.kind] + varint(len(body)) + body
    if isinstance(packet, packets.Pingreq):
        return _PINGREQ
    if isinstance(packet, packets.Pingresp):
        return _PINGRESP
    if isinstance(packet, packets.Connect):
        return _connect(packet)
    if isinstance(packet, packets.Connack):
        return _connack(packet, version)
    if isinstance(packet, packets.Disconnect):
        return _disconnect(packet, version)
    if isinstance(packet, packets.Auth):
        return _auth(packet, version)
    return _subscribing(packet, version)


def encode_publish(
    version: int,
    topic: bytes,
    payload: bytes,
    qos: int,
    retain: bool,
    dup: bool,
    packet_id: int,
    properties: bytes = b"",
    expiry_s: int = -1,
    topic_alias: int = 0,
    identifiers: tuple[int, ...] = (),
) -> bytes:
    """A PUBLISH from its parts; `properties` are the encoded ones that travel unchanged."""
    first = 0x30 | qos << 1
    if retain:
        first |= 1
    if dup:
        first |= 8
    topic_size = len(topic)
    if topic_size > 0xFFFF:
        raise UsageError(f"topic name of {topic_size} bytes is longer than 65535 [MQTT-4.7.3-3]")
    size = 2 + topic_size + len(payload)
    parts = [BYTES[first], b"", BYTES[topic_size >> 8], BYTES[topic_size & 0xFF], topic]
    if qos:
        if not 0 < packet_id <= 0xFFFF:
            raise UsageError(f"PUBLISH of QoS {qos} needs a packet identifier from 1 to 65535, not {packet_id}")
        parts.append(BYTES[packet_id >> 8])
        parts.append(BYTES[packet_id & 0xFF])
        size += 2
    if version == MQTT5:
        if expiry_s >= 0 or topic_alias or identifiers:
            properties += _for_next_hop(expiry_s, topic_alias, identifiers)
        properties_size = len(properties)
        size += properties_size
        if properties_size < 0x80:
            size += 1
            parts.append(BYTES[properties_size])
        else:
            length = varint(properties_size)
            size += len(length)
            parts.append(length)
        if properties_size:
            parts.append(properties)
    parts.append(payload)
    parts[1] = BYTES[size] if size < 0x80 else varint(size)
    return b"".join(parts)


def _for_next_hop(expiry_s: int, topic_alias: int, identifiers: tuple[int, ...]) -> bytes:
    encoded = b""
    if expiry_s >= 0:
        encoded = b"\x02" + u32(expiry_s)
    if topic_alias:
        encoded += b"\x23" + u16(topic_alias)
    for identifier in identifiers:
        encoded += b"\x0b" + varint(identifier)
    return encoded


def encode_ack(kind: int, packet_id: int, reason_code: int, version: int) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP without properties."""
    if not 0 < packet_id <= 0xFFFF:
        raise UsageError(f"{packets.KIND_NAMES[kind]} needs a packet identifier from 1 to 65535, not {packet_id}")
    if reason_code == SUCCESS or version != MQTT5:
        return _ACK_SHORT[kind] + BYTES[packet_id >> 8] + BYTES[packet_id & 0xFF]
    return b"".join([_ACK_FIRST[kind], b"\x03", BYTES[packet_id >> 8], BYTES[packet_id & 0xFF], BYTES[reason_code]])


def _packet(first: int, body: bytes) -> bytes:
    return BYTES[first] + varint(len(body)) + body


def _properties(properties: Properties | None, kind: int, version: int) -> bytes:
    return encode_properties(properties, kind) if version == MQTT5 else b""


def _connect(packet: packets.Connect) -> bytes:
    version = packet.version
    will = packet.will
    flags = 0x02 if packet.clean_start else 0
    if will is not None:
        flags |= 0x04 | will.qos << 3 | (0x20 if will.retain else 0)
    if packet.username is not None:
        flags |= 0x80
    if packet.password is not None:
        if packet.username is None and version != MQTT5:
            raise UsageError("a password without a user name needs MQTT 5 [MQTT-3.1.2-22 of 3.1.1]")
        flags |= 0x40
    parts = [
        string("MQIsdp" if version == MQTT31 else "MQTT"),
        bytes([version, flags]),
        u16(packet.keepalive_s),
        _properties(packet.properties, packets.CONNECT, version),
        string(packet.client_id),
    ]
    if will is not None:
        parts.append(_will(will, version))
    if packet.username is not None:
        parts.append(string(packet.username))
    if packet.password is not None:
        parts.append(binary(packet.password))
    return _packet(0x10, b"".join(parts))


def _will(will: Will, version: int) -> bytes:
    head = b""
    if version == MQTT5:
        properties = will.properties
        if will.delay_s:
            properties += b"\x18" + u32(will.delay_s)
        if will.expiry_s >= 0:
            properties += b"\x02" + u32(will.expiry_s)
        head = varint(len(properties)) + properties
    return head + string(will.topic) + binary(will.payload)


def _connack(packet: packets.Connack, version: int) -> bytes:
    reason = packet.reason_code if version == MQTT5 else connack_code_311(packet.reason_code)
    # MQTT 3.1 has no session present flag: its byte is reserved.
    present = 1 if packet.session_present and version != MQTT31 else 0
    return _packet(0x20, bytes([present, reason]) + _properties(packet.properties, packets.CONNACK, version))


def _disconnect(packet: packets.Disconnect, version: int) -> bytes:
    if version != MQTT5 or (packet.reason_code == SUCCESS and packet.properties is None):
        return b"\xe0\x00"
    body = bytes([packet.reason_code])
    if packet.properties is not None:
        body += encode_properties(packet.properties, packets.DISCONNECT)
    return _packet(0xE0, body)


def _auth(packet: packets.Auth, version: int) -> bytes:
    if version != MQTT5:
        raise UsageError("AUTH exists only in MQTT 5")
    properties = encode_properties(packet.properties, packets.AUTH)
    if packet.reason_code == SUCCESS and properties == b"\0":
        return b"\xf0\x00"
    return _packet(0xF0, bytes([packet.reason_code]) + properties)


def _subscribing(
    packet: packets.Subscribe | packets.Suback | packets.Unsubscribe | packets.Unsuback, version: int
) -> bytes:
    """SUBSCRIBE, UNSUBSCRIBE and their answers: packet identifier, properties, a list."""
    head = u16(packet.packet_id)
    if isinstance(packet, packets.Subscribe):
        return _packet(0x82, head + _subscribe_properties(packet, version) + _subscriptions(packet, version))
    if isinstance(packet, packets.Unsubscribe):
        parts = [head, _properties(packet.properties, packets.UNSUBSCRIBE, version)]
        for name in packet.filters:
            parts.append(string(name))
        return _packet(0xA2, b"".join(parts))
    if isinstance(packet, packets.Suback):
        codes = packet.reason_codes
        if version != MQTT5:
            codes = [UNSPECIFIED_ERROR if code > UNSPECIFIED_ERROR else code for code in codes]
        return _packet(0x90, head + _properties(packet.properties, packets.SUBACK, version) + bytes(codes))
    if version != MQTT5:
        return _packet(0xB0, head)
    return _packet(0xB0, head + encode_properties(packet.properties, packets.UNSUBACK) + bytes(packet.reason_codes))


def _subscribe_properties(packet: packets.Subscribe, version: int) -> bytes:
    if version != MQTT5:
        return b""
    encoded = encode_properties(packet.properties, packets.SUBSCRIBE)
    if not packet.identifier:
        return encoded
    if packet.properties.subscription_identifiers:
        raise UsageError("give the subscription identifier of SUBSCRIBE as `identifier`, not in its properties")
    encoded = encoded[1:] if len(encoded) <= 0x80 else encoded[2:] if len(encoded) <= 0x4001 else encoded[3:]
    encoded = b"\x0b" + varint(packet.identifier) + encoded
    return varint(len(encoded)) + encoded


def _subscriptions(packet: packets.Subscribe, version: int) -> bytes:
    parts: list[bytes] = []
    for subscription in packet.subscriptions:
        options = subscription.qos
        if version == MQTT5:
            options |= 4 if subscription.no_local else 0
            options |= 8 if subscription.retain_as_published else 0
            options |= subscription.retain_handling << 4
        parts.append(string(subscription.filter) + bytes([options]))
    return b"".join(parts)
