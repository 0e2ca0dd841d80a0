"""PUBLISH and its four acknowledgements on the wire (sections 3.3 to 3.7), byte for byte."""

from metromq.protocol.wire.packets import MQTT31, PUBACK, PUBCOMP, PUBREC, PUBREL, Ack, Properties, Publish
from tests.spec.cases import OLD, Bad, Good, bad, good

WHY = Properties(reason_string="r", user=(("k", "v"),))
WHY_HEX = "0b 1f000172 2600016b000176"
UNCHANGED = bytes.fromhex("0101 03000163 08000172 09000264ff 2600016b000176 2600016b000175")
UNCHANGED_HEX = UNCHANGED.hex()


@good(
    Good("QoS 0", "3008 0003612f62 00 7879", Publish("a/b", b"xy")),
    Good("QoS 0 of 3.1.1", "3007 0003612f62 7879", Publish("a/b", b"xy"), OLD),
    Good("empty payload", "3004 000161 00", Publish("a", b"")),
    Good("retain", "3104 000161 00", Publish("a", b"", retain=True)),
    Good("QoS 1", "3206 000161 0007 00", Publish("a", b"", 1, packet_id=7)),
    Good("QoS 2 again", "3c06 000161 ffff 00", Publish("a", b"", 2, dup=True, packet_id=0xFFFF)),
    Good("QoS 1 of 3.1.1", "3205 000161 0007", Publish("a", b"", 1, packet_id=7), OLD),
    Good("two bytes of length", "30cb01 000161" + "62" * 200, Publish("a", b"b" * 200), OLD),
    Good("three bytes of length", "30838001 000161" + "62" * 16384, Publish("a", b"b" * 16384), OLD),
    Good("byte order mark is kept [MQTT-1.5.4-3]", "3006 0004efbbbf61", Publish("\ufeffa", b""), OLD),
    Good("alias in place of a topic", "3006 0000 03 230005", Publish("", b"", topic_alias=5)),
    Good("expiry at once", "3009 000161 05 0200000000", Publish("a", b"", expiry_s=0)),
    Good(
        "every property that a server may send",
        f"302f 000161 2a {UNCHANGED_HEX} 020000001e 230005 0b01 0b8001 78",
        Publish("a", b"x", properties=UNCHANGED, expiry_s=30, topic_alias=5, identifiers=(1, 128)),
        server=False,
    ),
    Good(
        "every property that a client may send",
        f"342c 000161 0102 25 {UNCHANGED_HEX} 020000001e 230005 78",
        Publish("a", b"x", 2, packet_id=0x102, properties=UNCHANGED, expiry_s=30, topic_alias=5),
    ),
    Good(
        "more than 127 bytes of properties",
        "308c01 000161 8701 260001610081" + "62" * 129,
        Publish("a", b"", properties=bytes.fromhex("260001610081" + "62" * 129)),
    ),
)
def test_publish(case: Good) -> None:
    case.check()


@good(
    Good(
        "the hop's own properties between the others [MQTT-3.3.2-17] [MQTT-3.3.2-18]",
        "3018 000161 13 2600016b000176 0200000001 2600016b000175 78",
        Publish("a", b"x", properties=bytes.fromhex("2600016b000176 2600016b000175"), expiry_s=1),
        one_way=True,
    ),
    Good(
        "the hop's own properties first",
        "3019 000161 13 230001 0200000001 03000163 0100 2600000000 7879",
        Publish("a", b"xy", properties=bytes.fromhex("03000163 0100 2600000000"), expiry_s=1, topic_alias=1),
        one_way=True,
    ),
)
def test_publish_keeps_what_travels_unchanged(case: Good) -> None:
    case.check()


@bad(
    Bad("[MQTT-3.3.1-4]", "QoS 3", "3606 000161 0007 00", 0x81),
    Bad("[MQTT-3.3.1-4]", "QoS 3 in 3.1.1", "3605 000161 0007", 0x81, OLD),
    Bad("[MQTT-3.3.1-2]", "DUP with QoS 0", "3804 000161 00", 0x81),
    Bad("[MQTT-3.3.2-2]", "topic with +", "3004 00012b 00", 0x90),
    Bad("[MQTT-3.3.2-2]", "topic with #", "3005 0003612f23", 0x90, OLD),
    Bad("[MQTT-4.7.3-1]", "no topic in 3.1.1", "3003 0000 78", 0x82, OLD),
    Bad("3.3.2.1", "no topic and no alias", "3003 0000 00", 0x82),
    Bad("3.3.2.1", "no topic, other properties", "3005 0000 02 0101", 0x82),
    Bad("[MQTT-3.3.2-8]", "topic alias 0", "3007 000161 03 230000", 0x94),
    Bad("[MQTT-2.2.1-3]", "packet identifier 0", "3206 000161 0000 00", 0x82),
    Bad("[MQTT-2.2.1-3]", "packet identifier 0 in 3.1.1", "3405 000161 0000", 0x82, OLD),
    Bad("[MQTT-3.3.4-6]", "subscription identifier from a client", "3006 000161 02 0b01", 0x82),
    Bad("3.8.2.1.2", "subscription identifier 0", "3006 000161 02 0b00", 0x82, server=False),
    Bad("[MQTT-3.3.2-14]", "response topic with wildcard", "3008 000161 04 08000123", 0x82),
    Bad("[MQTT-4.7.3-1]", "empty response topic", "3007 000161 03 080000", 0x82),
    Bad("[MQTT-1.5.4-1]", "topic is overlong UTF-8", "3004 0002c0af", 0x81, OLD),
    Bad("[MQTT-1.5.4-1]", "topic is a surrogate", "3005 0003edbfbf", 0x81, OLD),
    Bad("[MQTT-1.5.4-1]", "topic is beyond Unicode", "3006 0004f4908080", 0x81, OLD),
    Bad("[MQTT-1.5.4-2]", "topic with U+0000", "3004 00026100", 0x81, OLD),
    Bad("[MQTT-1.5.4-1]", "content type is not UTF-8", "3008 000161 04 030001ff", 0x81),
    Bad("[MQTT-1.5.4-1]", "user property is not UTF-8", "300a 000161 06 260001ff0000", 0x81),
    Bad("[MQTT-1.5.4-2]", "user property with U+0000", "300b 000161 07 2600016b000100", 0x81),
    Bad("[MQTT-1.5.4-2]", "response topic with U+0000", "3008 000161 04 08000100", 0x81),
    Bad("[MQTT-1.5.5-1]", "property length of 5 bytes", "3008 000161 8080808001", 0x81),
    Bad("[MQTT-1.5.5-1]", "property length not at its shortest", "3005 000161 8000", 0x81),
    Bad("3.3.2.3.2", "payload format 2", "3006 000161 02 0102", 0x82),
    Bad("2.2.2.2", "payload format twice", "3008 000161 04 0101 0101", 0x82),
    Bad("2.2.2.2", "expiry twice", "300e 000161 0a 0200000001 0200000001", 0x82),
    Bad("2.2.2.2", "topic alias twice", "300a 000161 06 230001 230001", 0x82),
    Bad("2.2.2.2", "will delay", "3009 000161 05 1800000001", 0x81),
    Bad("2.2.2.2", "unknown property", "3006 000161 02 7f00", 0x81),
    Bad("2.2.2.2", "receive maximum", "3007 000161 03 210001", 0x81),
    Bad("ends", "topic cut off", "3003 000261", 0x81),
    Bad("ends", "topic length cut off", "3001 00", 0x81),
    Bad("ends", "nothing at all", "3000", 0x81),
    Bad("ends", "packet identifier cut off", "3204 000161 00", 0x81),
    Bad("ends", "property length missing", "3003 000161", 0x81),
    Bad("ends early", "properties cut off", "3005 000161 02 01", 0x81),
    Bad("ends early", "property reaches into the payload", "3006 000161 01 0101", 0x81),
    Bad("ends early", "correlation data too long", "3008 000161 04 09000261", 0x81),
)
def test_publish_refused(case: Bad) -> None:
    case.check()


@good(
    Good("PUBACK", "4002 0007", Ack(PUBACK, 7)),
    Good("PUBREC", "5002 0007", Ack(PUBREC, 7)),
    Good("PUBREL", "6202 0007", Ack(PUBREL, 7)),
    Good("PUBCOMP", "7002 0007", Ack(PUBCOMP, 7)),
    Good("PUBACK of 3.1.1", "4002 0102", Ack(PUBACK, 0x102), OLD),
    Good("PUBREL of 3.1.1", "6202 0102", Ack(PUBREL, 0x102), OLD),
    Good("PUBACK with reason", "4003 0007 97", Ack(PUBACK, 7, 0x97)),
    Good("PUBREC with reason", "5003 0007 10", Ack(PUBREC, 7, 0x10)),
    Good("PUBREL with reason", "6203 0007 92", Ack(PUBREL, 7, 0x92)),
    Good("PUBCOMP with reason", "7003 0007 92", Ack(PUBCOMP, 7, 0x92)),
    Good("PUBACK with properties", f"400f 0007 87 {WHY_HEX}", Ack(PUBACK, 7, 0x87, WHY)),
    Good("PUBREC with properties", f"500f 0007 00 {WHY_HEX}", Ack(PUBREC, 7, 0, WHY)),
    Good("PUBREL with properties", f"620f 0007 92 {WHY_HEX}", Ack(PUBREL, 7, 0x92, WHY)),
    Good("PUBCOMP with properties", f"700f 0007 92 {WHY_HEX}", Ack(PUBCOMP, 7, 0x92, WHY)),
    Good("success said at length", "4003 0007 00", Ack(PUBACK, 7), one_way=True),
    Good("no properties said at length", "4004 0007 00 00", Ack(PUBACK, 7, 0, Properties())),
    Good("PUBREL repeated in 3.1", "6a02 0007", Ack(PUBREL, 7), MQTT31, one_way=True),
    Good("from a server", "4002 0007", Ack(PUBACK, 7), server=False),
)
def test_acknowledgements(case: Good) -> None:
    case.check()


@bad(
    Bad("[MQTT-2.1.3-1]", "flags of PUBACK", "4202 0007", 0x81),
    Bad("[MQTT-3.6.1-1]", "flags of PUBREL", "6002 0007", 0x81),
    Bad("[MQTT-3.6.1-1]", "repeated PUBREL of 3.1.1", "6a02 0007", 0x81, OLD),
    Bad("[MQTT-2.2.1-3]", "packet identifier 0", "4002 0000", 0x82),
    Bad("[MQTT-3.4.2-1]", "reason of PUBACK", "4003 0007 92", 0x82),
    Bad("[MQTT-3.5.2-1]", "reason of PUBREC", "5003 0007 01", 0x82),
    Bad("[MQTT-3.6.2-1]", "reason of PUBREL", "6203 0007 10", 0x82),
    Bad("[MQTT-3.7.2-1]", "reason of PUBCOMP", "7003 0007 80", 0x82),
    Bad("bytes", "one byte", "4001 00", 0x81),
    Bad("bytes", "reason in 3.1.1", "4003 0007 00", 0x81, OLD),
    Bad("2.2.2.2", "server reference", "4008 0007 00 04 1c000173", 0x81),
    Bad("2.2.2.2", "reason string twice", "400c 0007 00 08 1f000173 1f000173", 0x82),
    Bad("left over", "bytes after the properties", "4005 0007 00 00 00", 0x81),
)
def test_acknowledgements_refused(case: Bad) -> None:
    case.check()
