"""MQTT 5 properties: which packet may carry which (section 2.2.2.2), their bytes, and the short cut for PUBLISH."""

from typing import Final, final

from metromq.errors import MalformedPacket, ProtocolViolation, UsageError
from metromq.protocol import reasons
from metromq.protocol.wire.packets import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    KIND_NAMES,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    Properties,
)
from metromq.protocol.wire.reader import PacketReader
from metromq.protocol.wire.values import binary, string, u16, u32, varint

WILL: Final = 0  # the will's own properties inside CONNECT; packet type 0 is otherwise unused

BYTE: Final = 0
FLAG: Final = 1  # a byte that may only be 0 or 1
U16: Final = 2
U32: Final = 3
VARINT: Final = 4
STRING: Final = 5
BINARY: Final = 6
PAIR: Final = 7


@final
class PropertyRule:
    """One property: its attribute in Properties, its data type, the packets it may stand in, its smallest value."""

    def __init__(self, name: str, kind: int, packets: tuple[int, ...], least: int = 0) -> None:
        self.name = name
        self.kind = kind
        self.least = least
        self.packets = 0  # one bit per packet type
        for packet in packets:
            self.packets |= 1 << packet


_MESSAGE: Final = (PUBLISH, WILL)
_ACKS: Final = (PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK)
_ALL: Final = (CONNECT, CONNACK, PUBLISH, WILL, *_ACKS, SUBSCRIBE, UNSUBSCRIBE, DISCONNECT, AUTH)

RULES: Final[dict[int, PropertyRule]] = {
    0x01: PropertyRule("payload_format", BYTE, _MESSAGE),
    0x02: PropertyRule("message_expiry_s", U32, _MESSAGE),
    0x03: PropertyRule("content_type", STRING, _MESSAGE),
    0x08: PropertyRule("response_topic", STRING, _MESSAGE),
    0x09: PropertyRule("correlation_data", BINARY, _MESSAGE),
    0x0B: PropertyRule("subscription_identifiers", VARINT, (PUBLISH, SUBSCRIBE), 1),
    0x11: PropertyRule("session_expiry_s", U32, (CONNECT, CONNACK, DISCONNECT)),
    0x12: PropertyRule("assigned_client_id", STRING, (CONNACK,)),
    0x13: PropertyRule("server_keepalive_s", U16, (CONNACK,)),
    0x15: PropertyRule("auth_method", STRING, (CONNECT, CONNACK, AUTH)),
    0x16: PropertyRule("auth_data", BINARY, (CONNECT, CONNACK, AUTH)),
    0x17: PropertyRule("request_problem_information", FLAG, (CONNECT,)),
    0x18: PropertyRule("will_delay_s", U32, (WILL,)),
    0x19: PropertyRule("request_response_information", FLAG, (CONNECT,)),
    0x1A: PropertyRule("response_information", STRING, (CONNACK,)),
    0x1C: PropertyRule("server_reference", STRING, (CONNACK, DISCONNECT)),
    0x1F: PropertyRule("reason_string", STRING, (CONNACK, *_ACKS, DISCONNECT, AUTH)),
    0x21: PropertyRule("receive_maximum", U16, (CONNECT, CONNACK), 1),
    0x22: PropertyRule("topic_alias_maximum", U16, (CONNECT, CONNACK)),
    0x23: PropertyRule("topic_alias", U16, (PUBLISH,), 1),
    0x24: PropertyRule("maximum_qos", BYTE, (CONNACK,)),
    0x25: PropertyRule("retain_available", FLAG, (CONNACK,)),
    0x26: PropertyRule("user", PAIR, _ALL),
    0x27: PropertyRule("maximum_packet_size", U32, (CONNECT, CONNACK), 1),
    0x28: PropertyRule("wildcard_available", FLAG, (CONNACK,)),
    0x29: PropertyRule("subscription_identifiers_available", FLAG, (CONNACK,)),
    0x2A: PropertyRule("shared_available", FLAG, (CONNACK,)),
}
_UNCHANGED: Final = (0x01, 0x03, 0x08, 0x09, 0x26)  # what a PUBLISH carries from end to end


def read_properties(reader: PacketReader, packet: int) -> Properties:
    """Reads the Property Length and the properties of a packet of type `packet` (WILL for the will's)."""
    size = reader.varint()
    start = reader.take(size)
    return _decode(reader.body, start, start + size, packet)


def decode_raw(properties: bytes) -> Properties:
    """The properties of a Publish or Will as values."""
    return _decode(properties, 0, len(properties), PUBLISH)


def encode_raw(properties: Properties) -> bytes:
    """The properties that a PUBLISH or will carries unchanged from end to end, as Publish.properties wants them."""
    parts: list[bytes] = []
    for identifier in _UNCHANGED:
        _encode_one(parts, identifier, RULES[identifier], properties)
    return b"".join(parts)


def encode_properties(properties: Properties | None, packet: int) -> bytes:
    """The properties of a packet of type `packet`, with their length before them."""
    if properties is None:
        return b"\0"
    parts: list[bytes] = []
    for identifier, rule in RULES.items():
        known = len(parts)
        _encode_one(parts, identifier, rule, properties)
        if len(parts) > known and not rule.packets & (1 << packet):
            raise UsageError(f"{_name(packet)} cannot carry the property {rule.name}; leave it None")
    encoded = b"".join(parts)
    return varint(len(encoded)) + encoded


def _encode_one(parts: list[bytes], identifier: int, rule: PropertyRule, properties: Properties) -> None:
    value: object = getattr(properties, rule.name)
    if value is None:
        return
    head = bytes([identifier])
    if isinstance(value, str):
        parts.append(head + string(value))
    elif isinstance(value, bytes):
        parts.append(head + binary(value))
    elif isinstance(value, int):
        parts.append(head + _number(rule, value))
    elif rule.kind == PAIR:
        for name, content in properties.user:
            parts.append(head + string(name) + string(content))
    else:
        for number in properties.subscription_identifiers:
            parts.append(head + varint(number))


def _number(rule: PropertyRule, value: int) -> bytes:
    if rule.kind == U16:
        return u16(value)
    if rule.kind == U32:
        return u32(value)
    if not 0 <= value <= 1:  # payload format, maximum QoS and all flags
        raise UsageError(f"property {rule.name} must be 0 or 1, not {value}")
    return b"\1" if value else b"\0"


def _decode(body: bytes, start: int, end: int, packet: int) -> Properties:
    properties = Properties()
    if start == end:
        return properties
    reader = PacketReader(body, start, end)
    bit = 1 << packet
    user: list[tuple[str, str]] = []
    identifiers: list[int] = []
    while reader.position < end:
        identifier = reader.varint()
        rule = RULES.get(identifier)
        if rule is None or not rule.packets & bit:
            raise MalformedPacket(f"property 0x{identifier:02X} is not allowed in {_name(packet)} (section 2.2.2.2)")
        if rule.kind == PAIR:
            user.append((reader.string(), reader.string()))
        elif rule.kind == VARINT:
            identifiers.append(_read_identifier(reader))
            if packet == SUBSCRIBE and len(identifiers) > 1:
                raise ProtocolViolation("Subscription Identifier stands twice in SUBSCRIBE (section 3.8.2.1.2)")
        elif getattr(properties, rule.name) is not None:
            raise ProtocolViolation(f"property {rule.name} stands twice in {_name(packet)} (section 2.2.2.2)")
        elif rule.kind == STRING:
            setattr(properties, rule.name, reader.string())
        elif rule.kind == BINARY:
            setattr(properties, rule.name, reader.binary())
        else:
            _read_number(reader, rule, properties)
    if user:
        properties.user = tuple(user)
    if identifiers:
        properties.subscription_identifiers = tuple(identifiers)
    check_response_topic(properties.response_topic)
    return properties


def _read_number(reader: PacketReader, rule: PropertyRule, properties: Properties) -> None:
    if rule.kind == U16:
        value = reader.u16()
    elif rule.kind == U32:
        value = reader.u32()
    else:
        value = reader.u8()
        if value > 1:
            raise ProtocolViolation(f"property {rule.name} must be 0 or 1, not {value} (section 2.2.2.2)")
    if value < rule.least:
        if rule.name == "topic_alias":
            raise ProtocolViolation("Topic Alias 0 is not permitted [MQTT-3.3.2-8]", reasons.TOPIC_ALIAS_INVALID)
        raise ProtocolViolation(f"property {rule.name} must not be {value} (section 2.2.2.2)")
    if rule.kind == FLAG:
        setattr(properties, rule.name, value == 1)
    else:
        setattr(properties, rule.name, value)


def _read_identifier(reader: PacketReader) -> int:
    value = reader.varint()
    if value == 0:
        raise ProtocolViolation("Subscription Identifier 0 is a Protocol Error (section 3.8.2.1.2)")
    return value


def check_response_topic(topic: str | None) -> None:
    if topic == "":
        raise ProtocolViolation("Response Topic is empty [MQTT-4.7.3-1]")
    if topic is not None and ("+" in topic or "#" in topic):
        raise ProtocolViolation("Response Topic holds wildcard characters [MQTT-3.3.2-14]")


def _name(packet: int) -> str:
    return "Will Properties" if packet == WILL else KIND_NAMES[packet]


@final
class PublishProperties:
    """What the properties of a PUBLISH or will say to this hop; `unchanged` goes on to the next as it is."""

    def __init__(self) -> None:
        self.unchanged = b""
        self.expiry_s = -1
        self.delay_s = 0
        self.topic_alias = 0
        self.identifiers: list[int] | None = None


def split_publish_properties(body: bytes, start: int, end: int, packet: int) -> PublishProperties:
    """Checks the properties of a PUBLISH (or WILL) and parts those for this hop from those that travel unchanged.

    It builds no Properties, because every PUBLISH of MQTT 5 with a property comes through here.
    """
    reader = PacketReader(body, start, end)
    result = PublishProperties()
    parts: list[bytes] | None = None  # of what travels unchanged, when it does not stand in one piece
    seen = 0  # one bit per identifier
    copied = start  # everything before is in `parts` if it belongs there
    while reader.position < end:
        begin = reader.position
        identifier = reader.u8()
        if identifier == 0x26:
            reader.string()
            reader.string()
            continue
        if identifier <= 0x26:
            if seen >> identifier & 1 and identifier != 0x0B:
                raise ProtocolViolation(
                    f"property {RULES[identifier].name} stands twice in {_name(packet)} (section 2.2.2.2)"
                )
            seen |= 1 << identifier
        if _skip_unchanged(reader, identifier):
            continue
        _read_for_this_hop(reader, identifier, packet, result)
        if begin > copied:
            if parts is None:
                parts = []
            parts.append(body[copied:begin])
        copied = reader.position
    if parts is None:
        result.unchanged = body[copied:end]
    else:
        parts.append(body[copied:end])
        result.unchanged = b"".join(parts)
    return result


def _skip_unchanged(reader: PacketReader, identifier: int) -> bool:
    """Checks one property that travels unchanged; False when it is not one."""
    if identifier == 0x01:
        if reader.u8() > 1:
            raise ProtocolViolation("property payload_format must be 0 or 1 (section 3.3.2.3.2)")
    elif identifier == 0x03:
        reader.string()
    elif identifier == 0x08:
        check_response_topic(reader.string())
    elif identifier == 0x09:
        reader.take(reader.u16())
    else:
        return False
    return True


def _read_for_this_hop(reader: PacketReader, identifier: int, packet: int, result: PublishProperties) -> None:
    if identifier == 0x02:
        result.expiry_s = reader.u32()
    elif identifier == 0x23 and packet == PUBLISH:
        result.topic_alias = reader.u16()
        if result.topic_alias == 0:
            raise ProtocolViolation("Topic Alias 0 is not permitted [MQTT-3.3.2-8]", reasons.TOPIC_ALIAS_INVALID)
    elif identifier == 0x0B and packet == PUBLISH:
        if result.identifiers is None:
            result.identifiers = []
        result.identifiers.append(_read_identifier(reader))
    elif identifier == 0x18 and packet == WILL:
        result.delay_s = reader.u32()
    else:
        raise MalformedPacket(f"property 0x{identifier:02X} is not allowed in {_name(packet)} (section 2.2.2.2)")
