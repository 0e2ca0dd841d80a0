"""Decodes packets: a first byte and a body in, a value of wire.packets or a documented error out."""

from typing import Final

from metromq.errors import MalformedPacket, ProtocolViolation
from metromq.protocol import reasons
from metromq.protocol.topics.names import split_shared, validate_filter
from metromq.protocol.wire.connect import decode_connack, decode_connect
from metromq.protocol.wire.framer import Framer as Framer
from metromq.protocol.wire.packets import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    KIND_NAMES,
    MQTT5,
    MQTT31,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    Ack,
    Auth,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from metromq.protocol.wire.properties import read_properties, split_publish_properties
from metromq.protocol.wire.reader import PacketReader, text

# The clause that reserves the flags of one packet, besides the one for all of them.
_FLAG_CLAUSES: Final[list[str]] = [""] * 16
_FLAG_CLAUSES[PUBREL] = " [MQTT-3.6.1-1]"
_FLAG_CLAUSES[SUBSCRIBE] = " [MQTT-3.8.1-1]"
_FLAG_CLAUSES[UNSUBSCRIBE] = " [MQTT-3.10.1-1]"
_FLAG_CLAUSES[DISCONNECT] = " [MQTT-3.14.1-1]"
_FLAG_CLAUSES[AUTH] = " [MQTT-3.15.1-1]"


def decode(first_byte: int, body: bytes, version: int, server: bool = True) -> Packet:
    """Decodes one packet; `server` says that we are the server, so only what a client may send is accepted."""
    kind = first_byte >> 4
    if kind == PUBLISH:
        return decode_publish(first_byte, body, version, server)
    flags = first_byte & 0x0F
    if flags != (2 if kind in (PUBREL, SUBSCRIBE, UNSUBSCRIBE) else 0):
        _check_old_flags(kind, flags, version)
    if PUBACK <= kind <= PUBCOMP:
        return _decode_ack(kind, body, version)
    return _decode_from_client(kind, body, version) if server else _decode_from_server(kind, body, version)


def _check_old_flags(kind: int, flags: int, version: int) -> None:
    # MQTT 3.1 sets DUP on a repeated PUBREL, SUBSCRIBE or UNSUBSCRIBE; later versions reserve the bit.
    if version == MQTT31 and flags == 0x0A and (kind in (PUBREL, SUBSCRIBE, UNSUBSCRIBE)):
        return
    raise MalformedPacket(f"reserved flags of {KIND_NAMES[kind]} are 0x{flags:X} [MQTT-2.1.3-1]{_FLAG_CLAUSES[kind]}")


def _decode_from_client(kind: int, body: bytes, version: int) -> Packet:
    if kind == SUBSCRIBE:
        return _decode_subscribe(body, version)
    if kind == UNSUBSCRIBE:
        return _decode_unsubscribe(body, version)
    if kind == PINGREQ:
        _check_empty(kind, body)
        return Pingreq()
    if kind == CONNECT:
        return decode_connect(body)
    if kind == DISCONNECT:
        return _decode_disconnect(body, version, True)
    if kind == AUTH and version == MQTT5:
        return _decode_auth(body, True)
    raise _unexpected(kind, "client")


def _decode_from_server(kind: int, body: bytes, version: int) -> Packet:
    if kind == SUBACK:
        return _decode_suback(body, version)
    if kind == UNSUBACK:
        return _decode_unsuback(body, version)
    if kind == PINGRESP:
        _check_empty(kind, body)
        return Pingresp()
    if kind == CONNACK:
        return decode_connack(body, version)
    if kind == DISCONNECT and version == MQTT5:
        return _decode_disconnect(body, version, False)
    if kind == AUTH and version == MQTT5:
        return _decode_auth(body, False)
    raise _unexpected(kind, "server")


def _unexpected(kind: int, sender: str) -> MalformedPacket | ProtocolViolation:
    if kind == 0:
        return MalformedPacket("packet type 0 is reserved (section 2.1.2)")
    return ProtocolViolation(f"a {sender} must not send {KIND_NAMES[kind]} in this version of MQTT (section 2.1.2)")


def _check_empty(kind: int, body: bytes) -> None:
    if body:
        raise MalformedPacket(f"{KIND_NAMES[kind]} has a body of {len(body)} bytes; it must have none")


def decode_publish(first_byte: int, body: bytes, version: int, server: bool = True) -> Publish:
    qos = (first_byte >> 1) & 3
    dup = first_byte & 0x08 != 0
    if qos == 3:
        raise MalformedPacket("PUBLISH with both QoS bits set [MQTT-3.3.1-4]")
    if dup and qos == 0:
        raise MalformedPacket("PUBLISH of QoS 0 with the DUP flag [MQTT-3.3.1-2]")
    size = len(body)
    position = 2 + ((body[0] << 8) | body[1]) if size >= 2 else 2
    if position > size:
        raise MalformedPacket("PUBLISH ends inside its topic name")
    topic = text(body[2:position])
    if "+" in topic or "#" in topic:
        raise ProtocolViolation("topic name of PUBLISH holds wildcards [MQTT-3.3.2-2]", reasons.TOPIC_NAME_INVALID)
    packet_id = 0
    if qos:
        if position + 2 > size:
            raise MalformedPacket("PUBLISH ends before its packet identifier")
        packet_id = (body[position] << 8) | body[position + 1]
        position += 2
        if packet_id == 0:
            raise ProtocolViolation("PUBLISH with packet identifier 0 [MQTT-2.2.1-3]")
    retain = first_byte & 0x01 != 0
    if version == MQTT5:
        if position >= size:
            raise MalformedPacket("PUBLISH ends before its property length")
        if body[position]:
            return _with_properties(Publish(topic, b"", qos, retain, dup, packet_id), body, position, server)
        position += 1
    if not topic:
        raise ProtocolViolation("PUBLISH with neither topic name nor topic alias (section 3.3.2.1) [MQTT-4.7.3-1]")
    return Publish(topic, body[position:], qos, retain, dup, packet_id)


def _with_properties(packet: Publish, body: bytes, position: int, server: bool) -> Publish:
    """Reads the properties and the payload of a PUBLISH whose Property Length stands at `position`."""
    size = body[position]
    start = position + 1
    end = start + size
    if size >= 0x80 or end > len(body):
        reader = PacketReader(body, position)
        size = reader.varint()
        start = reader.take(size)
        end = start + size
    properties = split_publish_properties(body, start, end, PUBLISH)
    if server and properties.identifiers:
        raise ProtocolViolation("PUBLISH of a client with a Subscription Identifier [MQTT-3.3.4-6]")
    if not packet.topic and not properties.topic_alias:
        raise ProtocolViolation("PUBLISH with neither topic name nor topic alias (section 3.3.2.1) [MQTT-4.7.3-1]")
    packet.properties = properties.unchanged
    packet.expiry_s = properties.expiry_s
    packet.topic_alias = properties.topic_alias
    if properties.identifiers is not None:
        packet.identifiers = tuple(properties.identifiers)
    packet.payload = body[end:]
    return packet


def _decode_ack(kind: int, body: bytes, version: int) -> Ack:
    size = len(body)
    if size < 2 or (size > 2 and version != MQTT5):
        raise MalformedPacket(f"{KIND_NAMES[kind]} has a body of {size} bytes; two are its packet identifier")
    packet_id = (body[0] << 8) | body[1]
    if packet_id == 0:
        raise ProtocolViolation(f"{KIND_NAMES[kind]} with packet identifier 0 [MQTT-2.2.1-3]")
    if size == 2:
        return Ack(kind, packet_id)
    reason = body[2]
    known = reasons.IN_PUBACK if kind in (PUBACK, PUBREC) else reasons.IN_PUBREL
    if reason not in known:
        raise ProtocolViolation(f"reason code 0x{reason:02X} is not one of {KIND_NAMES[kind]}'s [MQTT-3.{kind}.2-1]")
    if size == 3:
        return Ack(kind, packet_id, reason)
    reader = PacketReader(body, 3)
    properties = read_properties(reader, kind)
    reader.finish()
    return Ack(kind, packet_id, reason, properties)


def _read_packet_id(reader: PacketReader, kind: int) -> int:
    packet_id = reader.u16()
    if packet_id == 0:
        raise ProtocolViolation(f"{KIND_NAMES[kind]} with packet identifier 0 [MQTT-2.2.1-3]")
    return packet_id


def _decode_subscribe(body: bytes, version: int) -> Subscribe:
    reader = PacketReader(body)
    packet_id = _read_packet_id(reader, SUBSCRIBE)
    properties = read_properties(reader, SUBSCRIBE) if version == MQTT5 else Properties()
    identifier = 0
    if properties.subscription_identifiers:
        identifier = properties.subscription_identifiers[0]
        properties.subscription_identifiers = ()
    subscriptions: list[Subscription] = []
    while reader.position < reader.end:
        name = reader.string()
        options = reader.u8()
        subscriptions.append(_subscription(name, options, version))
    if not subscriptions:
        raise ProtocolViolation("SUBSCRIBE without a topic filter [MQTT-3.8.3-2]")
    return Subscribe(packet_id, subscriptions, identifier, properties)


def _subscription(name: str, options: int, version: int) -> Subscription:
    validate_filter(name)
    qos = options & 3
    if options & (0xC0 if version == MQTT5 else 0xFC):
        raise MalformedPacket("reserved bits of the subscription options are set [MQTT-3.8.3-5]")
    if qos == 3:
        raise ProtocolViolation("subscription with QoS 3 (section 3.8.3.1)")
    retain_handling = (options >> 4) & 3
    if retain_handling == 3:
        raise ProtocolViolation("subscription with Retain Handling 3 (section 3.8.3.1)")
    no_local = options & 0x04 != 0
    if version == MQTT5:
        group, _ = split_shared(name)
        if group and no_local:
            raise ProtocolViolation("No Local on a shared subscription [MQTT-3.8.3-4]")
    return Subscription(name, qos, no_local, options & 0x08 != 0, retain_handling)


def _decode_unsubscribe(body: bytes, version: int) -> Unsubscribe:
    reader = PacketReader(body)
    packet_id = _read_packet_id(reader, UNSUBSCRIBE)
    properties = read_properties(reader, UNSUBSCRIBE) if version == MQTT5 else Properties()
    filters: list[str] = []
    while reader.position < reader.end:
        name = reader.string()
        validate_filter(name)
        filters.append(name)
    if not filters:
        raise ProtocolViolation("UNSUBSCRIBE without a topic filter [MQTT-3.10.3-2]")
    return Unsubscribe(packet_id, filters, properties)


def _decode_suback(body: bytes, version: int) -> Suback:
    reader = PacketReader(body)
    packet_id = _read_packet_id(reader, SUBACK)
    properties = read_properties(reader, SUBACK) if version == MQTT5 else Properties()
    codes = list(reader.rest())
    for code in codes:
        if code not in reasons.IN_SUBACK or (version != MQTT5 and code > 2 and code != 0x80):
            raise ProtocolViolation(f"reason code 0x{code:02X} is not one of SUBACK's [MQTT-3.9.3-2]")
    if not codes:
        raise MalformedPacket("SUBACK without a reason code [MQTT-3.9.3-1]")
    return Suback(packet_id, codes, properties)


def _decode_unsuback(body: bytes, version: int) -> Unsuback:
    reader = PacketReader(body)
    packet_id = _read_packet_id(reader, UNSUBACK)
    if version != MQTT5:
        reader.finish()
        return Unsuback(packet_id)
    properties = read_properties(reader, UNSUBACK)
    codes = list(reader.rest())
    for code in codes:
        if code not in reasons.IN_UNSUBACK:
            raise ProtocolViolation(f"reason code 0x{code:02X} is not one of UNSUBACK's [MQTT-3.11.3-2]")
    if not codes:
        raise MalformedPacket("UNSUBACK without a reason code [MQTT-3.11.3-1]")
    return Unsuback(packet_id, codes, properties)


def _decode_disconnect(body: bytes, version: int, server: bool) -> Disconnect:
    if version != MQTT5:
        _check_empty(DISCONNECT, body)
    if not body:
        return Disconnect()
    reader = PacketReader(body)
    reason = reader.u8()
    known = reasons.IN_DISCONNECT_OF_CLIENT if server else reasons.IN_DISCONNECT_OF_SERVER
    if reason not in known:
        raise ProtocolViolation(f"reason code 0x{reason:02X} is not one of DISCONNECT's [MQTT-3.14.2-1]")
    if reader.position == reader.end:
        return Disconnect(reason)
    properties = read_properties(reader, DISCONNECT)
    reader.finish()
    if server and properties.server_reference is not None:
        raise ProtocolViolation("Server Reference in the DISCONNECT of a client (section 3.14.2.2.5)")
    if not server and properties.session_expiry_s is not None:
        raise ProtocolViolation("Session Expiry Interval in the DISCONNECT of a server [MQTT-3.14.2-2]")
    return Disconnect(reason, properties)


def _decode_auth(body: bytes, server: bool) -> Auth:
    reason = 0
    properties = Properties()
    if body:
        reader = PacketReader(body)
        reason = reader.u8()
        properties = read_properties(reader, AUTH)
        reader.finish()
    if reason not in (reasons.IN_AUTH_OF_CLIENT if server else reasons.IN_AUTH_OF_SERVER):
        raise ProtocolViolation(f"reason code 0x{reason:02X} is not one the sender may use in AUTH [MQTT-3.15.2-1]")
    if body and properties.auth_method is None:
        raise ProtocolViolation("AUTH without an Authentication Method (section 3.15.2.2.2)")
    return Auth(reason, properties)
