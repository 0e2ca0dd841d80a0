"""CONNECT and CONNACK on the wire (sections 3.1 and 3.2), byte for byte."""

import pytest

from metromq.errors import UsageError
from metromq.protocol.reasons import NAMES, connack_code_311
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import MQTT31, MQTT311, Connack, Connect, Properties, Will
from tests.spec.cases import OLD, Bad, Good, bad, good

OFFER = Properties(
    session_expiry_s=10,
    auth_method="m",
    auth_data=b"\x01",
    request_problem_information=False,
    request_response_information=True,
    receive_maximum=20,
    topic_alias_maximum=10,
    user=(("k", "v"), ("k", "w")),
    maximum_packet_size=65536,
)
OFFER_HEX = "2a 110000000a 1500016d 16000101 1700 1901 210014 22000a 2600016b000176 2600016b000177 2700010000"
WILL_HEX = "0c 0101 1800000005 020000001e 000174 000170"
ANSWER = Properties(
    session_expiry_s=10,
    assigned_client_id="a",
    server_keepalive_s=30,
    auth_method="m",
    auth_data=b"d",
    response_information="r",
    server_reference="s",
    reason_string="w",
    receive_maximum=20,
    topic_alias_maximum=10,
    maximum_qos=1,
    retain_available=True,
    user=(("k", "v"),),
    maximum_packet_size=65536,
    wildcard_available=True,
    subscription_identifiers_available=False,
    shared_available=True,
)
ANSWER_HEX = (
    "3c 110000000a 12000161 13001e 1500016d 16000164 1a000172 1c000173 1f000177 210014 22000a"
    " 2401 2501 2600016b000176 2700010000 2801 2900 2a01"
)


def connect(flags: str, payload: str, version: str = "05", properties: str = "00", name: str = "00044d515454") -> str:
    """A CONNECT as hex; the fixed header is worked out."""
    body = name + version + flags + "003c" + (properties if version == "05" else "") + payload
    return f"10{len(bytes.fromhex(body)):02x}" + body


@good(
    Good("least of MQTT 5", "100d 00044d515454 05 02 0000 00 0000", Connect("")),
    Good("least of 3.1.1", "100c 00044d515454 04 02 0000 0000", Connect("", MQTT311), OLD),
    Good("3.1 calls itself MQIsdp", "1011 00064d5149736470 03 02 000a 0003616263", Connect("abc", MQTT31, True, 10)),
    Good(
        "3.1 client identifier longer than 23",
        "1026 00064d5149736470 03 02 000a 0018" + "61" * 24,
        Connect("a" * 24, MQTT31, True, 10),
    ),
    Good(
        "every property and field",
        connect("ee", f"0003646576 {WILL_HEX} 000175 000170", properties=OFFER_HEX),
        Connect("dev", 5, True, 60, "u", b"p", Will("t", b"p", 1, True, 5, 30, b"\x01\x01"), OFFER),
    ),
    Good(
        "user name and password of 3.1.1",
        connect("c0", "000161 000175 00020070", "04"),
        Connect("a", MQTT311, False, 60, "u", b"\x00p"),
        OLD,
    ),
    Good(
        "will of 3.1.1",
        connect("36", "000161 000174 0000", "04"),
        Connect("a", MQTT311, True, 60, will=Will("t", b"", 2, True)),
        OLD,
    ),
    Good("password alone, new in MQTT 5", connect("42", "000161 000170"), Connect("a", 5, True, 60, None, b"p")),
)
def test_connect(case: Good) -> None:
    case.check()


@good(
    Good(
        "3.1 may set the flags and leave the fields out",
        "1010 00064d5149736470 03 c2 000a 00026162",
        Connect("ab", MQTT31, True, 10),
        one_way=True,
    ),
    Good(
        "3.1 does not reserve bit 0 of the flags",
        "1010 00064d5149736470 03 03 000a 00026162",
        Connect("ab", MQTT31, True, 10),
        one_way=True,
    ),
)
def test_connect_of_old_devices(case: Good) -> None:
    case.check()


@bad(
    Bad("[MQTT-2.1.3-1]", "flags of the fixed header", "110d00044d51545405020000000000", 0x81),
    Bad("[MQTT-3.1.2-1]", "protocol name", connect("02", "0000", name="00044d515455"), 0x84),
    Bad("[MQTT-3.1.2-1]", "3.1 name with version 4", connect("02", "0000", "04", name="00064d5149736470"), 0x84),
    Bad("[MQTT-3.1.2-2]", "version 6", connect("02", "0000", "06"), 0x84),
    Bad("[MQTT-3.1.2-2]", "bridge bit of mosquitto", connect("02", "0000", "84"), 0x84),
    Bad("[MQTT-3.1.2-3]", "reserved flag", connect("03", "0000"), 0x81),
    Bad("[MQTT-3.1.2-11]", "will QoS without will", connect("0a", "0000"), 0x81),
    Bad("[MQTT-3.1.2-12]", "will QoS 3", connect("1e", "0000 00 000174 0000"), 0x81),
    Bad("[MQTT-3.1.2-13]", "will retain without will", connect("22", "0000"), 0x81),
    Bad("[MQTT-3.1.2-22", "password alone in 3.1.1", connect("42", "000161 000170", "04"), 0x81, OLD),
    Bad("[MQTT-3.1.3-8]", "empty id without clean session", connect("00", "0000", "04"), 0x85, OLD),
    Bad("[MQTT-3.1.3-8]", "empty id in 3.1", "100e 00064d5149736470 03 02 000a 0000", 0x85, MQTT31),
    Bad("[MQTT-1.5.4-1]", "client id is not UTF-8", connect("02", "0001ff"), 0x81),
    Bad("[MQTT-1.5.4-1]", "user name is a surrogate", connect("82", "0000 0003eda080"), 0x81),
    Bad("[MQTT-1.5.4-2]", "client id with U+0000", connect("02", "00026100"), 0x81),
    Bad("[MQTT-4.7.0-1]", "will topic with wildcard", connect("06", "0000 00 00012b 0000"), 0x90),
    Bad("[MQTT-4.7.3-1]", "will topic is empty", connect("06", "0000 00 0000 0000"), 0x90),
    Bad("[MQTT-3.3.2-14]", "will with wildcard response topic", connect("06", "0000 04 0800012b 000174 0000"), 0x82),
    Bad("left over", "bytes after the payload", connect("02", "0000 00"), 0x81),
    Bad("ends early", "user name missing", connect("82", "0000"), 0x81),
    Bad("ends early", "nothing at all", "1000", 0x81),
    Bad("3.1.2.11.10", "authentication data alone", connect("02", "0000", properties="04 16000101"), 0x82),
    Bad("2.2.2.2", "receive maximum 0", connect("02", "0000", properties="03 210000"), 0x82),
    Bad("2.2.2.2", "maximum packet size 0", connect("02", "0000", properties="05 2700000000"), 0x82),
    Bad("2.2.2.2", "request problem information 2", connect("02", "0000", properties="02 1702"), 0x82),
    Bad("2.2.2.2", "session expiry twice", connect("02", "0000", properties="0a 1100000001 1100000001"), 0x82),
    Bad("2.2.2.2", "will delay outside the will", connect("02", "0000", properties="05 1800000001"), 0x81),
    Bad("2.2.2.2", "session expiry inside the will", connect("06", "0000 05 1100000001 000174 0000"), 0x81),
    Bad("2.2.2.2", "topic alias inside the will", connect("06", "0000 03 230001 000174 0000"), 0x81),
    Bad("2.2.2.2", "will delay twice", connect("06", "0000 0a 1800000001 1800000002 000174 0000"), 0x82),
    Bad("2.1.2", "a server that sends CONNECT", connect("02", "0000"), 0x82, server=False),
)
def test_connect_refused(case: Bad) -> None:
    case.check()


@good(
    Good("least of MQTT 5", "2003 00 00 00", Connack(), server=False),
    Good("session present", "2003 01 00 00", Connack(True), server=False),
    Good("every property", f"203f 01 00 {ANSWER_HEX}", Connack(True, 0, ANSWER), server=False),
    Good("refused", "2003 00 87 00", Connack(False, 0x87), server=False),
    Good("3.1.1", "2002 01 00", Connack(True), OLD, server=False),
    Good("3.1 does not use the flags", "2002 ff 00", Connack(), MQTT31, server=False, one_way=True),
    Good("3.1.1 version", "2002 00 01", Connack(False, 0x84), OLD, server=False),
    Good("3.1.1 identifier", "2002 00 02", Connack(False, 0x85), OLD, server=False),
    Good("3.1.1 unavailable", "2002 00 03", Connack(False, 0x88), OLD, server=False),
    Good("3.1.1 user name", "2002 00 04", Connack(False, 0x86), OLD, server=False),
    Good("3.1.1 not authorized", "2002 00 05", Connack(False, 0x87), OLD, server=False),
)
def test_connack(case: Good) -> None:
    case.check()


@bad(
    Bad("[MQTT-3.2.2-1]", "reserved flags", "2003 02 00 00", 0x81, server=False),
    Bad("[MQTT-3.2.2-6]", "session present and refused", "2003 01 87 00", 0x82, server=False),
    Bad("[MQTT-3.2.2-8]", "reason code of another packet", "2003 00 8d 00", 0x82, server=False),
    Bad("3.2.2.3", "reserved return code", "2002 00 06", 0x82, OLD, server=False),
    Bad("left over", "properties in 3.1.1", "2003 00 00 00", 0x81, OLD, server=False),
    Bad("2.2.2.2", "maximum QoS 2", "2005 00 00 02 2402", 0x82, server=False),
    Bad("2.2.2.2", "will delay", "2008 00 00 05 1800000001", 0x81, server=False),
    Bad("2.1.2", "a client that sends CONNACK", "2003 00 00 00", 0x82),
)
def test_connack_refused(case: Bad) -> None:
    case.check()


def test_connack_31_has_no_session_present_flag() -> None:
    assert encode(Connack(True), MQTT31) == bytes.fromhex("20020000")


def test_every_reason_has_a_return_code_of_311() -> None:
    """[MQTT-3.2.2-8]: a refusal never turns into an acceptance."""
    for reason in NAMES:
        if reason >= 0x80:
            assert 1 <= connack_code_311(reason) <= 5
    assert [connack_code_311(code) for code in (0, 0x84, 0x85, 0x88, 0x86, 0x87)] == [0, 1, 2, 3, 4, 5]


def test_password_alone_is_our_own_mistake_before_mqtt_5() -> None:
    with pytest.raises(UsageError, match=r"MQTT-3\.1\.2-22"):
        encode(Connect("a", MQTT311, password=b"x"), MQTT311)
