"""A refusal or a DISCONNECT may name another server (sections 3.2.2.3.16, 3.14.2.2.5 and 4.11)."""

import pytest

from metromq.protocol import reasons
from metromq.protocol.session.access import Access, AccessDecision, Peer
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import MQTT5, MQTT31, MQTT311, Auth, Connack, Connect, Disconnect
from tests.spec.world import Client, World, bits

THERE = "b10.example:1883"
CODES = (reasons.USE_ANOTHER_SERVER, reasons.SERVER_MOVED)


class Elsewhere(Access):
    """Sends everybody away who comes with a method, and everybody who authenticates again."""

    def __init__(self, code: int, text: str = "this broker is being emptied") -> None:
        self.decision = AccessDecision(code, text, server_reference=THERE)

    def connect(
        self, peer: Peer, client_id: str, username: str | None, password: bytes | None, method: str | None, data: bytes
    ) -> AccessDecision:
        return AccessDecision(0, "", "") if data == b"in" else self.decision


def refused(access: Access, version: int = MQTT5, maximum: int = 0) -> Client:
    client = World(access=access).client()
    properties = bits(maximum_packet_size=maximum) if maximum else bits()
    client.send(Connect("a", version, properties=properties))
    assert client.closed
    return client


@pytest.mark.parametrize("code", CODES)
def test_4_11_a_refusal_names_the_other_server(code: int) -> None:
    """[MQTT-3.2.2-7], [MQTT-3.2.2-8]: the decision on CONNECT carries the reference into CONNACK."""
    connack = refused(Elsewhere(code)).one(Connack)
    assert connack.reason_code == code
    assert connack.properties.server_reference == THERE
    assert connack.properties.reason_string == "this broker is being emptied"


@pytest.mark.parametrize("version", [MQTT31, MQTT311])
def test_4_11_older_versions_are_refused_without_a_word_of_it(version: int) -> None:
    """3.1.1 has no such property: return code 3, and the end."""
    assert refused(Elsewhere(reasons.USE_ANOTHER_SERVER), version).raw == b"\x20\x02\x00\x03"


def test_4_11_other_reasons_name_no_server() -> None:
    """The property belongs to 0x9C and 0x9D alone."""
    connack = refused(Elsewhere(reasons.NOT_AUTHORIZED)).one(Connack)
    assert connack.properties.server_reference is None


def test_3_2_2_19_the_reason_string_goes_before_the_reference() -> None:
    """[MQTT-3.2.2-19], [MQTT-3.1.2-24]: a small maximum packet size costs the text first, then the reference."""
    code = reasons.SERVER_MOVED
    short = len(encode(Connack(False, code, bits(server_reference=THERE)), MQTT5))
    fits = refused(Elsewhere(code), maximum=short).one(Connack)
    assert (fits.properties.reason_string, fits.properties.server_reference) == (None, THERE)
    bare = refused(Elsewhere(code), maximum=short - 1).one(Connack)
    assert bare == Connack(False, code, bits())


@pytest.mark.parametrize("code", CODES)
def test_4_11_a_disconnect_names_the_other_server(code: int) -> None:
    """[MQTT-3.14.2-1], [MQTT-3.14.4-1]: also a client that was let in can be sent on."""
    client = World().connect("a")
    client.connection.terminate(code, "please move", THERE)
    client.world.settle()
    disconnect = client.one(Disconnect)
    assert disconnect == Disconnect(code, bits(server_reference=THERE, reason_string="please move"))
    assert client.closed


def test_3_14_2_3_the_reference_stays_when_the_text_does_not_fit() -> None:
    """[MQTT-3.14.2-3]."""
    code = reasons.USE_ANOTHER_SERVER
    short = len(encode(Disconnect(code, bits(server_reference=THERE)), MQTT5))
    client = World().connect("a", properties=bits(maximum_packet_size=short))
    client.connection.terminate(code, "please move", THERE)
    client.world.settle()
    assert client.one(Disconnect) == Disconnect(code, bits(server_reference=THERE))


def test_4_11_older_versions_are_disconnected_without_a_word() -> None:
    client = World().connect("a", MQTT311)
    client.connection.terminate(reasons.USE_ANOTHER_SERVER, "please move", THERE)
    client.world.settle()
    assert client.closed
    assert not client.take()


def test_4_12_1_a_failed_reauthentication_may_name_it_too() -> None:
    """[MQTT-4.12.1-2]."""
    world = World(access=Elsewhere(reasons.SERVER_MOVED))
    client = world.client()
    client.send(Connect("a", properties=bits(auth_method="m", auth_data=b"in")))
    assert client.one(Connack).reason_code == 0
    client.send(Auth(reasons.REAUTHENTICATE, bits(auth_method="m", auth_data=b"again")))
    disconnect = client.one(Disconnect)
    assert disconnect.reason_code == reasons.SERVER_MOVED
    assert disconnect.properties is not None
    assert disconnect.properties.server_reference == THERE


def test_a_client_that_is_in_has_no_handshake_any_more() -> None:
    """It is let go, so that an idle client costs no more than it needs; authentication again makes a new one."""
    client = World().connect("a")
    assert client.connection.handshake is None
