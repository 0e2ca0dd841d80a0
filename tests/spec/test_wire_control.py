"""PINGREQ, PINGRESP, DISCONNECT, AUTH and reserved packets on the wire (sections 3.12 to 3.15), byte for byte."""

import pytest

from metromq.errors import UsageError
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import MQTT5, MQTT311, Auth, Disconnect, Pingreq, Pingresp, Properties
from tests.spec.cases import OLD, Bad, Good, bad, good

METHOD = Properties(auth_method="m")
FULL_AUTH = Properties(auth_method="m", auth_data=b"d", reason_string="r", user=(("k", "v"),))


@good(
    Good("PINGREQ", "c000", Pingreq()),
    Good("PINGREQ of 3.1.1", "c000", Pingreq(), OLD),
    Good("PINGRESP", "d000", Pingresp(), server=False),
    Good("DISCONNECT", "e000", Disconnect()),
    Good("DISCONNECT of 3.1.1", "e000", Disconnect(), OLD),
    Good("DISCONNECT success said at length", "e001 00", Disconnect(), one_way=True),
    Good("DISCONNECT with will", "e001 04", Disconnect(0x04)),
    Good(
        "DISCONNECT of a client with properties",
        "e012 00 10 110000000a 1f000172 2600016b000176",
        Disconnect(0, Properties(session_expiry_s=10, reason_string="r", user=(("k", "v"),))),
    ),
    Good(
        "DISCONNECT of a server with properties",
        "e00a 9c 08 1c000173 1f000172",
        Disconnect(0x9C, Properties(server_reference="s", reason_string="r")),
        server=False,
    ),
    Good("DISCONNECT of a server", "e001 8e", Disconnect(0x8E), server=False),
    Good("AUTH of a client", "f006 18 04 1500016d", Auth(0x18, METHOD)),
    Good("AUTH again", "f006 19 04 1500016d", Auth(0x19, METHOD)),
    Good(
        "AUTH of a server", "f015 18 13 1500016d 16000164 1f000172 2600016b000176", Auth(0x18, FULL_AUTH), server=False
    ),
    Good("AUTH success", "f006 00 04 1500016d", Auth(0, METHOD), server=False),
    Good("AUTH success without a body", "f000", Auth(), server=False),
)
def test_control(case: Good) -> None:
    case.check()


@bad(
    Bad("[MQTT-2.1.3-1]", "flags of PINGREQ", "c100", 0x81),
    Bad("bytes", "PINGREQ with a body", "c001 00", 0x81),
    Bad("bytes", "PINGRESP with a body", "d001 00", 0x81, server=False),
    Bad("2.1.2", "PINGRESP from a client", "d000", 0x82),
    Bad("2.1.2", "PINGREQ from a server", "c000", 0x82, server=False),
    Bad("[MQTT-3.14.1-1]", "flags of DISCONNECT", "e200", 0x81),
    Bad("[MQTT-3.14.2-1]", "server's reason from a client", "e001 8e", 0x82),
    Bad("[MQTT-3.14.2-1]", "client's reason from a server", "e001 04", 0x82, server=False),
    Bad("[MQTT-3.14.2-1]", "unknown reason", "e001 ff", 0x82),
    Bad("[MQTT-3.14.2-2]", "session expiry from a server", "e007 80 05 110000000a", 0x82, server=False),
    Bad("3.14.2.2.5", "server reference from a client", "e006 80 04 1c000173", 0x82),
    Bad("bytes", "DISCONNECT with a body in 3.1.1", "e001 00", 0x81, OLD),
    Bad("2.1.2", "DISCONNECT from a server of 3.1.1", "e000", 0x82, OLD, server=False),
    Bad("left over", "bytes after the properties of DISCONNECT", "e003 00 00 00", 0x81),
    Bad("[MQTT-3.15.1-1]", "flags of AUTH", "f106 18 04 1500016d", 0x81),
    Bad("[MQTT-3.15.2-1]", "success from a client", "f006 00 04 1500016d", 0x82),
    Bad("[MQTT-3.15.2-1]", "success without a body from a client", "f000", 0x82),
    Bad("[MQTT-3.15.2-1]", "re-authenticate from a server", "f006 19 04 1500016d", 0x82, server=False),
    Bad("[MQTT-3.15.2-1]", "unknown reason of AUTH", "f006 20 04 1500016d", 0x82),
    Bad("3.15.2.2.2", "AUTH without method", "f002 18 00", 0x82),
    Bad("ends early", "AUTH without property length", "f001 18", 0x81),
    Bad("2.1.2", "AUTH in 3.1.1", "f006 18 04 1500016d", 0x82, OLD),
    Bad("2.1.2", "AUTH from a server of 3.1.1", "f006 18 04 1500016d", 0x82, OLD, server=False),
    Bad("2.1.2", "packet type 0", "0000", 0x81),
    Bad("2.1.2", "packet type 0 from a server", "0000", 0x81, server=False),
)
def test_control_refused(case: Bad) -> None:
    case.check()


def test_disconnect_says_nothing_more_before_mqtt_5() -> None:
    assert encode(Disconnect(0x8E, Properties(reason_string="r")), MQTT311) == b"\xe0\x00"


def test_auth_before_mqtt_5_is_our_own_mistake() -> None:
    with pytest.raises(UsageError, match="MQTT 5"):
        encode(Auth(0x18, METHOD), MQTT311)


def test_property_in_the_wrong_packet_is_our_own_mistake() -> None:
    with pytest.raises(UsageError, match="receive_maximum"):
        encode(Disconnect(0, Properties(receive_maximum=3)), MQTT5)
