"""CONNECT and CONNACK: who gets in, what is agreed on, how sessions live."""

import pytest

from metromq.protocol import reasons
from metromq.protocol.session.access import Peer
from metromq.protocol.session.hub_settings import HubSettings
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import (
    MQTT5,
    MQTT31,
    MQTT311,
    Connack,
    Connect,
    Pingreq,
    Pingresp,
    Publish,
)
from tests.spec.world import VERSIONS, World, bits


@pytest.mark.parametrize("version", VERSIONS)
def test_3_1_4_1_a_valid_connect_is_accepted(version: int) -> None:
    """[MQTT-3.1.4-5] CONNACK with 0x00 comes first and once."""
    client = World().connect("a", version)
    assert client.connack == Connack(False, 0, client.connack.properties)
    client.ping()


@pytest.mark.parametrize("version", VERSIONS)
def test_3_1_0_1_the_first_packet_must_be_connect(version: int) -> None:
    """[MQTT-3.1.0-1]"""
    client = World().client()
    client.send(Pingreq(), version)
    assert client.closed
    assert client.take() == []


def test_3_1_0_1_a_first_packet_that_never_ends_is_refused_at_its_header() -> None:
    """[MQTT-3.1.0-1]: nothing else is stored for a stranger."""
    client = World().client()
    client.feed(b"\x30\xff\x7f")
    assert client.closed


@pytest.mark.parametrize("version", VERSIONS)
def test_3_1_0_2_a_second_connect_ends_the_connection(version: int) -> None:
    """[MQTT-3.1.0-2]"""
    client = World().connect("a", version)
    client.send(Connect("a", version))
    assert client.closed
    if version == MQTT5:
        assert client.disconnected() == reasons.PROTOCOL_ERROR
    else:
        assert client.take() == []


def test_3_1_2_2_an_unknown_version_is_answered_in_the_clients_terms() -> None:
    """[MQTT-3.1.2-2]: 0x84 for newer ones, return code 1 for older ones."""
    newer = World().client()
    newer.feed(b"\x10\x0d\x00\x04MQTT\x06\x02\x00\x00\x00\x00\x00")
    answer = newer.one(Connack)
    assert answer.reason_code == reasons.UNSUPPORTED_PROTOCOL_VERSION
    assert newer.closed
    older = World().client()
    older.version = MQTT311
    older.feed(b"\x10\x0c\x00\x04MQTT\x02\x02\x00\x00\x00\x00")
    assert older.raw == b"\x20\x02\x00\x01"
    assert older.closed


def test_3_1_2_3_the_reserved_flag_closes() -> None:
    """[MQTT-3.1.2-3]"""
    client = World().client()
    client.feed(b"\x10\x0d\x00\x04MQTT\x05\x03\x00\x00\x00\x00\x00")
    assert client.one(Connack).reason_code == reasons.MALFORMED_PACKET
    assert client.closed


def test_3_1_3_6_an_empty_client_identifier_gets_one() -> None:
    """[MQTT-3.1.3-6], [MQTT-3.1.3-7], [MQTT-3.2.2-16]: unique, and named in CONNACK."""
    world = World()
    first, second = world.connect(""), world.connect("")
    names = [one.connack.properties.assigned_client_id for one in (first, second)]
    assert all(names)
    assert names[0] != names[1]
    assert set(world.hub.sessions.by_client_id) == set(names)


def test_3_1_3_8_an_empty_client_identifier_needs_a_clean_session_in_3_1_1() -> None:
    """[MQTT-3.1.3-8 of 3.1.1]: return code 2."""
    world = World()
    world.connect("", MQTT311)
    client = world.client()
    client.send(Connect("", MQTT311, False))
    assert client.raw == b"\x20\x02\x00\x02"
    assert client.closed


def test_3_1_has_no_empty_client_identifier() -> None:
    client = World().client()
    client.send(Connect("", MQTT31, True))
    assert client.raw == b"\x20\x02\x00\x02"
    assert client.closed


def test_3_1_3_8_reserved_client_identifiers_are_refused() -> None:
    """[MQTT-3.1.3-8]: 0x85."""
    client = World().client()
    client.send(Connect("$link/a"))
    assert client.one(Connack).reason_code == reasons.CLIENT_IDENTIFIER_NOT_VALID
    assert client.closed


def test_3_1_3_5_client_identifiers_may_be_long_and_strange() -> None:
    """[MQTT-3.1.3-5]: more than the 23 letters that every server must take."""
    for name in ("x" * 23, "x" * 65535, "Ünï+cödé/#"):
        world = World()
        client = world.connect(name, properties=bits(request_response_information=True))
        topic = client.connack.properties.response_information
        assert topic is not None
        assert client.subscribe(topic) == [0]
        client.publish(topic, b"x")
        assert client.payloads() == [b"x"]


def test_3_1_4_6_nothing_is_processed_after_a_refused_connect() -> None:
    """[MQTT-3.1.4-2], [MQTT-3.1.4-6], [MQTT-3.14.0-1], [MQTT-3.2.2-6]: one CONNACK, no DISCONNECT."""
    world = World()
    reader = world.connect("r")
    reader.subscribe("#")
    client = world.client(Peer("10.0.0.1:5", False))
    client.feed(encode(Connect("a"), MQTT5) + encode(Publish("t", b"x"), MQTT5))
    answer = client.one(Connack)
    assert (answer.reason_code, answer.session_present) == (reasons.NOT_AUTHORIZED, False)
    assert reader.messages() == []
    assert set(world.hub.sessions.by_client_id) == {"r"}


def test_3_1_4_what_comes_with_connect_is_processed_behind_it() -> None:
    """Section 3.1.4: a client need not wait for CONNACK, which comes first all the same [MQTT-3.2.0-1]."""
    client = World().client()
    client.feed(encode(Connect("a"), MQTT5) + encode(Pingreq(), MQTT5))
    assert [type(packet) for packet in client.take()] == [Connack, Pingresp]


# --- sessions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [MQTT311, MQTT5])
def test_3_1_2_4_clean_start_discards_the_session(version: int) -> None:
    """[MQTT-3.1.2-4], [MQTT-3.2.2-2]"""
    world = World()
    client = world.connect("a", version, clean=False, expiry=100)
    client.subscribe("t")
    client.drop()
    again = world.connect("a", version, clean=True, expiry=100)
    assert not again.connack.session_present
    world.connect("p").publish("t", b"x")
    assert again.payloads() == []


@pytest.mark.parametrize("version", [MQTT31, MQTT311, MQTT5])
def test_3_1_2_5_a_session_is_resumed(version: int) -> None:
    """[MQTT-3.1.2-5], [MQTT-3.2.2-3]; 3.1 has no session present flag."""
    world = World()
    client = world.connect("a", version, clean=False, expiry=100)
    assert not client.connack.session_present
    client.subscribe("t", qos=1)
    client.drop()
    world.connect("p").deliver("t", b"x", 1)
    again = world.client()
    again.send(Connect("a", version, False, properties=bits(session_expiry_s=100)))
    connack, message = again.take()
    assert isinstance(connack, Connack)
    assert connack.session_present == (version != MQTT31)
    assert isinstance(message, Publish)
    assert message.payload == b"x"


def test_3_1_2_6_no_session_no_session_present() -> None:
    """[MQTT-3.1.2-6], [MQTT-3.2.2-2]"""
    assert not World().connect("a", clean=False).connack.session_present


def test_3_1_2_11_2_session_expiry_counts_from_the_disconnection() -> None:
    """Section 3.1.2.11.2: 0 ends with the connection, n after n seconds, 0xFFFFFFFF never."""
    world = World(HubSettings(max_session_expiry_s=0xFFFFFFFF))  # a month unless configured
    clients = [
        world.connect(name, clean=False, expiry=expiry)
        for name, expiry in (("zero", 0), ("ten", 10), ("never", 0xFFFFFFFF))
    ]
    world.advance(50)
    for client in clients:
        client.drop()
    assert set(world.hub.sessions.by_client_id) == {"ten", "never"}
    world.advance(9.5)
    assert set(world.hub.sessions.by_client_id) == {"ten", "never"}
    world.advance(1)
    assert set(world.hub.sessions.by_client_id) == {"never"}
    world.advance(10**9)
    assert set(world.hub.sessions.by_client_id) == {"never"}
    assert world.connect("never", clean=False, expiry=5).connack.session_present


def test_3_1_2_11_2_the_server_may_shorten_the_expiry_and_says_so() -> None:
    """Section 3.2.2.3.2"""
    world = World(HubSettings(max_session_expiry_s=60))
    client = world.connect("a", expiry=100)
    assert client.connack.properties.session_expiry_s == 60
    assert world.connect("b", expiry=50).connack.properties.session_expiry_s is None


def test_3_14_2_2_2_disconnect_may_change_the_expiry() -> None:
    """Section 3.14.2.2.2, [MQTT-3.1.2-23]"""
    world = World()
    client = world.connect("a", expiry=100)
    client.disconnect(expiry=0)
    assert "a" not in world.hub.sessions.by_client_id
    client = world.connect("b", expiry=1)
    client.disconnect(expiry=100)
    world.advance(50)
    assert "b" in world.hub.sessions.by_client_id


def test_3_14_2_2_2_an_expiry_of_zero_may_not_be_raised() -> None:
    client = World().connect("a", expiry=0)
    client.disconnect(expiry=10)
    assert client.disconnected() == reasons.PROTOCOL_ERROR


def test_3_14_2_2_2_an_expiry_that_the_server_cut_to_zero_is_no_breach_of_the_client() -> None:
    client = World(HubSettings(max_session_expiry_s=0)).connect("a", expiry=10)
    client.disconnect(expiry=10)
    assert client.closed
    assert client.take() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_3_1_4_3_takeover(version: int) -> None:
    """[MQTT-3.1.4-3]: the older connection ends, with 0x8E in MQTT 5."""
    world = World()
    first = world.connect("a", version)
    second = world.connect("a", version)
    assert first.closed
    if version == MQTT5:
        assert first.disconnected() == reasons.SESSION_TAKEN_OVER
    second.ping()


def test_3_1_4_3_takeover_keeps_a_session_that_lives_on() -> None:
    world = World()
    first = world.connect("a", clean=False, expiry=10)
    first.subscribe("t")
    second = world.connect("a", clean=False, expiry=10)
    assert second.connack.session_present
    second.publish("t", b"x")
    assert second.payloads() == [b"x"]
    assert first.closed


# --- keepalive ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_3_1_2_22_silence_for_one_and_a_half_keepalives_ends_the_connection(version: int) -> None:
    """[MQTT-3.1.2-22], [MQTT-3.1.2-24 of 3.1.1]"""
    world = World()
    client = world.connect("a", version, keepalive=10)
    world.advance(14.9)
    client.ping()
    world.advance(14.9)
    assert not client.closed
    world.advance(0.2)
    assert client.closed
    if version == MQTT5:
        assert client.disconnected() == reasons.KEEP_ALIVE_TIMEOUT


def test_3_1_2_10_keepalive_zero_is_none() -> None:
    world = World()
    client = world.connect("a")
    world.advance(10**7)
    client.ping()


def test_3_1_2_21_server_keepalive() -> None:
    """[MQTT-3.1.2-21], [MQTT-3.2.2-21]: what the server says counts."""
    world = World(HubSettings(max_keepalive_s=20))
    for asked, said in ((0, 20), (60, 20), (20, None), (10, None)):
        client = world.connect("a", keepalive=asked)
        assert client.connack.properties.server_keepalive_s == said
        world.advance((said or asked) * 1.5 + 0.1)
        assert client.disconnected() == reasons.KEEP_ALIVE_TIMEOUT


def test_3_1_4_a_connection_without_connect_is_closed() -> None:
    """Section 3.1.4: in reasonable time."""
    world = World()
    client = world.client()
    world.advance(11)
    world.settle()
    assert client.closed


def test_3_12_4_1_pingreq_is_answered() -> None:
    """[MQTT-3.12.4-1]"""
    client = World().connect()
    client.send(Pingreq())
    assert client.one(Pingresp) == Pingresp()
