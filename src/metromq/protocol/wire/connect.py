"""Decodes CONNECT and CONNACK, the two packets that open a connection."""

from metromq.errors import MalformedPacket, ProtocolViolation
from metromq.protocol import reasons
from metromq.protocol.topics.names import validate_topic
from metromq.protocol.wire.packets import CONNACK, CONNECT, MQTT5, MQTT31, MQTT311, Connack, Connect, Properties, Will
from metromq.protocol.wire.properties import WILL, read_properties, split_publish_properties
from metromq.protocol.wire.reader import PacketReader


def decode_connect(body: bytes) -> Connect:
    reader = PacketReader(body)
    version = _read_version(reader)
    flags = reader.u8()
    _check_flags(flags, version)
    keepalive_s = reader.u16()
    properties = Properties()
    if version == MQTT5:
        properties = read_properties(reader, CONNECT)
        if properties.auth_data is not None and properties.auth_method is None:
            raise ProtocolViolation("Authentication Data without Authentication Method (section 3.1.2.11.10)")
    client_id = reader.string()
    clean_start = bool(flags & 0x02)
    will = _read_will(reader, flags, version) if flags & 0x04 else None
    username: str | None = None
    password: bytes | None = None
    # MQTT 3.1 lets a device set the flag and leave the field out: the Remaining Length takes precedence.
    optional = version == MQTT31
    if flags & 0x80 and not (optional and reader.position == reader.end):
        username = reader.string()
    if flags & 0x40 and not (optional and reader.position == reader.end):
        password = reader.binary()
    reader.finish()
    # Checked last: a packet that is not even well-formed gets no answer about its client identifier.
    if not client_id and (version == MQTT31 or (version == MQTT311 and not clean_start)):
        raise ProtocolViolation(
            "empty client identifier without clean session [MQTT-3.1.3-8]", reasons.CLIENT_IDENTIFIER_NOT_VALID
        )
    return Connect(client_id, version, clean_start, keepalive_s, username, password, will, properties)


def _read_version(reader: PacketReader) -> int:
    name = reader.string()
    version = reader.u8()
    if name == "MQTT" and (version in (MQTT311, MQTT5)):
        return version
    if name == "MQIsdp" and version == MQTT31:
        return version
    raise ProtocolViolation(
        f"protocol {name[:16]!r} version {version} is not MQTT 3.1, 3.1.1 or 5.0 [MQTT-3.1.2-1] [MQTT-3.1.2-2]",
        reasons.UNSUPPORTED_PROTOCOL_VERSION,
    )


def _check_flags(flags: int, version: int) -> None:
    if flags & 0x01 and version != MQTT31:  # 3.1 calls the bit unused, later versions reserve it
        raise MalformedPacket("reserved bit of the CONNECT flags is set [MQTT-3.1.2-3]")
    if not flags & 0x04:
        if flags & 0x18:
            raise MalformedPacket("Will QoS without a will [MQTT-3.1.2-11]")
        if flags & 0x20:
            raise MalformedPacket("Will Retain without a will [MQTT-3.1.2-13]")
    if flags & 0x18 == 0x18:
        raise MalformedPacket("Will QoS is 3 [MQTT-3.1.2-12]")
    if flags & 0xC0 == 0x40 and version != MQTT5:
        raise MalformedPacket("password without user name, which needs MQTT 5 [MQTT-3.1.2-22 of 3.1.1]")


def _read_will(reader: PacketReader, flags: int, version: int) -> Will:
    unchanged = b""
    delay_s = 0
    expiry_s = -1
    if version == MQTT5:
        size = reader.varint()
        start = reader.take(size)
        if size:
            properties = split_publish_properties(reader.body, start, start + size, WILL)
            unchanged = properties.unchanged
            delay_s = properties.delay_s
            expiry_s = properties.expiry_s
    topic = reader.string()
    validate_topic(topic)
    payload = reader.binary()
    return Will(topic, payload, (flags >> 3) & 3, bool(flags & 0x20), delay_s, expiry_s, unchanged)


def decode_connack(body: bytes, version: int) -> Connack:
    reader = PacketReader(body)
    flags = reader.u8()
    if version == MQTT31:
        flags = 0  # 3.1 has no session present flag and does not use the byte
    if flags & 0xFE:
        raise MalformedPacket("reserved bits of the CONNACK flags are set [MQTT-3.2.2-1]")
    reason = reader.u8()
    properties = Properties()
    if version == MQTT5:
        if reason not in reasons.IN_CONNACK:
            raise ProtocolViolation(f"reason code 0x{reason:02X} is not one of CONNACK's [MQTT-3.2.2-8]")
        properties = read_properties(reader, CONNACK)
    else:
        code = reason
        reason = reasons.reason_of_connack_311(code)
        if reason < 0:
            raise ProtocolViolation(f"CONNACK return code {code} is reserved (section 3.2.2.3 of 3.1.1)")
    reader.finish()
    if flags and reason:
        raise ProtocolViolation("session present in a CONNACK that refuses the connection [MQTT-3.2.2-6]")
    return Connack(flags == 1, reason, properties)
