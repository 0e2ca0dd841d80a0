"""CONNECT and CONNACK: who gets in, what is agreed on, how connections end."""

import pytest

from metromq.protocol.session.access import Access, Peer
from metromq.protocol.session.session import Session
from metromq.protocol.session.settings import Settings
from metromq.protocol.wire import reasons
from metromq.protocol.wire.encode import encode
from metromq.protocol.wire.packets import (
    MQTT5,
    MQTT31,
    MQTT311,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Publish,
    Subscribe,
    Subscription,
    Will,
)
from tests.spec.world import VERSIONS, Client, World, bits


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
    assert set(world.hub.sessions) == set(names)


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
    world = World()
    clients = [
        world.connect(name, clean=False, expiry=expiry)
        for name, expiry in (("zero", 0), ("ten", 10), ("never", 0xFFFFFFFF))
    ]
    world.advance(50)
    for client in clients:
        client.drop()
    assert set(world.hub.sessions) == {"ten", "never"}
    world.advance(9.5)
    assert set(world.hub.sessions) == {"ten", "never"}
    world.advance(1)
    assert set(world.hub.sessions) == {"never"}
    world.advance(10**9)
    assert set(world.hub.sessions) == {"never"}
    assert world.connect("never", clean=False, expiry=5).connack.session_present


def test_3_1_2_11_2_the_server_may_shorten_the_expiry_and_says_so() -> None:
    """Section 3.2.2.3.2"""
    world = World(Settings(max_session_expiry_s=60))
    client = world.connect("a", expiry=100)
    assert client.connack.properties.session_expiry_s == 60
    assert world.connect("b", expiry=50).connack.properties.session_expiry_s is None


def test_3_14_2_2_2_disconnect_may_change_the_expiry() -> None:
    """Section 3.14.2.2.2, [MQTT-3.1.2-23]"""
    world = World()
    client = world.connect("a", expiry=100)
    client.disconnect(expiry=0)
    assert "a" not in world.hub.sessions
    client = world.connect("b", expiry=1)
    client.disconnect(expiry=100)
    world.advance(50)
    assert "b" in world.hub.sessions


def test_3_14_2_2_2_an_expiry_of_zero_may_not_be_raised() -> None:
    client = World().connect("a", expiry=0)
    client.disconnect(expiry=10)
    assert client.disconnected() == reasons.PROTOCOL_ERROR


def test_3_14_2_2_2_an_expiry_that_the_server_cut_to_zero_is_no_breach_of_the_client() -> None:
    client = World(Settings(max_session_expiry_s=0)).connect("a", expiry=10)
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
    world = World(Settings(max_keepalive_s=20))
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


# --- limits and refusals ------------------------------------------------------------------------------------------


def test_3_2_2_3_connack_tells_the_servers_limits() -> None:
    """Section 3.2.2.3"""
    settings = Settings(
        max_qos=1, retain_available=False, receive_maximum=7, max_packet_size_bytes=999, max_topic_alias=3
    )
    properties = World(settings).connect().connack.properties
    assert properties.maximum_qos == 1
    assert properties.retain_available is False
    assert properties.receive_maximum == 7
    assert properties.maximum_packet_size == 999
    assert properties.topic_alias_maximum == 3
    plain = World().connect().connack.properties
    assert plain.maximum_qos is None
    assert plain.retain_available is None
    assert plain.wildcard_available is None
    assert plain.shared_available is None
    assert plain.subscription_identifiers_available is None


def test_3_2_2_12_a_will_beyond_the_limits_is_refused() -> None:
    """[MQTT-3.2.2-12], [MQTT-3.2.2-13]"""
    world = World(Settings(max_qos=1, retain_available=False))
    for will, reason in (
        (Will("w", b"", 2), reasons.QOS_NOT_SUPPORTED),
        (Will("w", b"", 1, True), reasons.RETAIN_NOT_SUPPORTED),
    ):
        client = world.client()
        client.send(Connect("a", will=will))
        assert client.one(Connack).reason_code == reason
        assert client.closed


def test_too_many_connections() -> None:
    world = World(Settings(max_connections=1))
    first = world.connect("a")
    for version, code in ((MQTT5, reasons.SERVER_BUSY), (MQTT311, reasons.SERVER_UNAVAILABLE)):
        second = world.client()
        second.send(Connect("b", version))
        assert second.one(Connack).reason_code == code
        assert second.closed
    first.ping()


def test_connects_per_second() -> None:
    world = World(Settings(max_connects_per_s=2))
    world.connect("a")
    world.connect("b")
    late = world.client()
    late.send(Connect("c"))
    assert late.one(Connack).reason_code == reasons.CONNECTION_RATE_EXCEEDED
    world.advance(1)
    world.connect("c")


def test_3_2_2_19_a_reason_string_never_makes_connack_too_large() -> None:
    """[MQTT-3.2.2-19], [MQTT-3.1.2-24]"""
    world = World(access=Access())
    for limit, spoken in ((8, False), (1000, True)):
        client = world.client(Peer("10.0.0.1:5", False))
        client.send(Connect("a", properties=bits(maximum_packet_size=limit)))
        answer = client.one(Connack)
        assert answer.reason_code == reasons.NOT_AUTHORIZED
        assert (answer.properties.reason_string is not None) == spoken
        assert len(client.raw) <= limit


def test_3_1_2_24_a_client_that_takes_less_than_connack_is_closed() -> None:
    """[MQTT-3.1.2-24]"""
    client = World().client()
    client.send(Connect("a", properties=bits(maximum_packet_size=5)))
    assert client.raw == b""
    assert client.closed


class Lists(Access):
    """Nobody publishes below `closed/` or reads below `hidden/`."""

    def unrestricted(self, session: Session) -> bool:
        return False

    def may_publish(self, session: Session, topic: str) -> bool:
        return not topic.startswith("closed/")

    def may_read(self, session: Session, topic: str) -> bool:
        return not topic.startswith("hidden/")

    def may_subscribe(self, session: Session, filter: str) -> bool:
        return not filter.startswith("hidden/")


@pytest.mark.parametrize("topic", ["closed/t", "$SYS/broker/version", "$metromq/x"])
def test_a_will_needs_the_rights_of_a_publication(topic: str) -> None:
    client = World(access=Lists()).client()
    client.send(Connect("a", will=Will(topic, b"")))
    assert client.one(Connack).reason_code == reasons.NOT_AUTHORIZED
    assert client.closed


def test_3_2_2_7_3_1_1_return_codes() -> None:
    """[MQTT-3.2.2-7]: the five refusals of 3.1.1, then the end."""
    world = World()
    client = world.client(Peer("10.0.0.1:5", False))
    client.send(Connect("a", MQTT311))
    assert client.raw == b"\x20\x02\x00\x05"
    assert client.closed


# --- violations ---------------------------------------------------------------------------------------------------

BAD_INPUT = {
    "reserved packet type": (b"\x00\x00", reasons.MALFORMED_PACKET),
    "flags of pingreq": (b"\xc1\x00", reasons.MALFORMED_PACKET),
    "five bytes of length": (b"\x30\xff\xff\xff\xff\x01", reasons.MALFORMED_PACKET),
    "length not shortest": (b"\x30\x85\x00\x00\x01aab", reasons.MALFORMED_PACKET),
    "too large": (b"\x30\xff\xff\xff\x7f", reasons.PACKET_TOO_LARGE),
    "qos 3": (b"\x36\x07\x00\x01a\x00\x01\x00x", reasons.MALFORMED_PACKET),
    "wildcard topic": (b"\x30\x05\x00\x01#\x00x", reasons.TOPIC_NAME_INVALID),
    "broken utf-8": (b"\x30\x05\x00\x01\xff\x00x", reasons.MALFORMED_PACKET),
    "null in topic": (b"\x30\x05\x00\x01\x00\x00x", reasons.MALFORMED_PACKET),
    "packet of the server": (b"\x20\x03\x00\x00\x00", reasons.PROTOCOL_ERROR),
    "auth without a method": (b"\xf0\x02\x18\x00", reasons.PROTOCOL_ERROR),
    "unknown alias": (b"\x30\x06\x00\x00\x03\x23\x00\x01", reasons.PROTOCOL_ERROR),
    "alias over the maximum": (b"\x30\x07\x00\x01a\x03\x23\xff\xff", reasons.TOPIC_ALIAS_INVALID),
    "subscribe without filters": (b"\x82\x03\x00\x01\x00", reasons.PROTOCOL_ERROR),
    "bad filter": (b"\x82\x07\x00\x01\x00\x00\x01+\x03", reasons.PROTOCOL_ERROR),
    "filter a#": (b"\x82\x08\x00\x01\x00\x00\x02a#\x00", reasons.TOPIC_FILTER_INVALID),
    "shared without a filter": (b"\x82\x0e\x00\x01\x00\x00\x08$share/g\x00", reasons.TOPIC_FILTER_INVALID),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_4_13_1_1_bad_input_closes_only_that_connection(name: str) -> None:
    """[MQTT-4.13.1-1]: whole and byte by byte, DISCONNECT names the reason."""
    data, reason = BAD_INPUT[name]
    for step in (len(data), 1):
        world = World()
        bystander = world.connect("b")
        bystander.subscribe("#")
        client = world.connect("a")
        for start in range(0, len(data), step):
            client.feed(data[start : start + step])
        assert client.disconnected() == reason
        assert bystander.take() == []
        bystander.publish("t", b"x")
        assert bystander.payloads() == [b"x"]


@pytest.mark.parametrize("name", BAD_INPUT)
def test_4_8_0_1_bad_input_closes_3_1_1_without_a_word(name: str) -> None:
    """[MQTT-4.8.0-1 of 3.1.1]: there is no DISCONNECT from the server."""
    world = World()
    client = world.connect("a", MQTT311)
    data = BAD_INPUT[name][0]
    client.feed(data if name not in MEANS_SOMETHING_ELSE else b"\x00\x00")
    assert client.closed
    assert client.take() == []


# Without properties these bytes are well-formed in 3.1.1.
MEANS_SOMETHING_ELSE = {"unknown alias", "alias over the maximum", "qos 3"}


def test_3_14_4_1_nothing_follows_a_disconnect() -> None:
    """[MQTT-3.14.4-1]"""
    world = World()
    client = world.connect("a")
    client.subscribe("t")
    publisher = world.connect("p")
    client.reading = False
    client.feed(b"\x00\x00")
    publisher.publish("t", b"x")
    publisher.publish("t", b"x", 1)
    client.reading = True
    client.collect()
    assert [type(packet) for packet in client.take()] == [Disconnect]


def test_1_5_5_1_packets_split_at_every_byte() -> None:
    """Section 1.5.5: any cut of the stream gives the same packets."""
    stream = b"".join(
        encode(packet, MQTT5)
        for packet in (
            Connect("a"),
            Subscribe(1, [Subscription("t", 0)]),
            Publish("t", b"x" * 200),
            Publish("t", b"y", 1, packet_id=2),
            Pingreq(),
            Publish("t", b"z"),
        )
    )
    expected = _answers(stream, len(stream))
    for cut in range(1, len(stream)):
        assert _answers(stream, cut) == expected
    world = World(journal=False)
    client = world.client()
    for index in range(len(stream)):
        client.feed(stream[index : index + 1])
    assert client.raw == expected


def _answers(stream: bytes, cut: int) -> bytes:
    client = Client(World(journal=False), Peer("10.0.0.1:5", True))
    client.feed(stream[:cut])
    client.feed(stream[cut:])
    return client.raw


def test_large_packets_come_in_many_pieces() -> None:
    world = World()
    client = world.connect("a")
    client.subscribe("t")
    payload = bytes(range(256)) * 2000
    data = encode(Publish("t", payload), MQTT5) + encode(Pingreq(), MQTT5)
    for start in range(0, len(data), 60_001):
        client.feed(data[start : start + 60_001])
    publish, ping = client.take()
    assert isinstance(publish, Publish)
    assert publish.payload == payload
    assert isinstance(ping, Pingresp)
