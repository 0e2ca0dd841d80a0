"""Limits, refusals and malformed input: each costs only the connection it came from."""

import pytest

from metromq.protocol import reasons
from metromq.protocol.session.access import Access, Peer
from metromq.protocol.session.hub_settings import HubSettings
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import (
    MQTT5,
    MQTT311,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Will,
)
from tests.spec.world import Client, Lists, World, bits

# --- limits and refusals ------------------------------------------------------------------------------------------


def test_3_2_2_3_connack_tells_the_servers_limits() -> None:
    """Section 3.2.2.3"""
    settings = HubSettings(
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
    world = World(HubSettings(max_qos=1, retain_available=False))
    for will, reason in (
        (Will("w", b"", 2), reasons.QOS_NOT_SUPPORTED),
        (Will("w", b"", 1, True), reasons.RETAIN_NOT_SUPPORTED),
    ):
        client = world.client()
        client.send(Connect("a", will=will))
        assert client.one(Connack).reason_code == reason
        assert client.closed


def test_too_many_connections() -> None:
    world = World(HubSettings(max_connections=1))
    first = world.connect("a")
    for version, code in ((MQTT5, reasons.SERVER_BUSY), (MQTT311, reasons.SERVER_UNAVAILABLE)):
        second = world.client()
        second.send(Connect("b", version))
        assert second.one(Connack).reason_code == code
        assert second.closed
    first.ping()


def test_connects_per_second() -> None:
    world = World(HubSettings(max_connects_per_s=2))
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


def test_3_9_2_1_reason_strings_never_make_a_packet_too_large() -> None:
    """[MQTT-3.9.2-1], [MQTT-3.14.2-3]: SUBACK and DISCONNECT go without them."""
    world = World(access=Lists())
    for limit, spoken in ((20, False), (1000, True)):
        client = world.connect("a", properties=bits(maximum_packet_size=limit))
        client.raw = b""
        client.send(Subscribe(1, [Subscription("hidden/x")]))
        suback = client.one(Suback)
        assert suback.reason_codes == [reasons.NOT_AUTHORIZED]
        assert (suback.properties.reason_string is not None) == spoken
        client.feed(b"\x00\x00")
        disconnect = client.one(Disconnect)
        assert disconnect.reason_code == reasons.MALFORMED_PACKET
        assert (disconnect.properties is not None and disconnect.properties.reason_string is not None) == spoken
        assert len(client.raw) <= 2 * limit


def test_4_7_3_the_longest_topic_and_the_null_character() -> None:
    """[MQTT-4.7.3-2], [MQTT-4.7.3-3]: 65535 bytes pass, U+0000 does not."""
    world = World()
    client = world.connect("a")
    topic = "ä" * 32_767 + "x"
    assert client.subscribe(topic, qos=1) == [1]
    client.publish(topic, b"x", 1)
    assert [packet.topic for packet in client.take() if isinstance(packet, Publish)] == [topic]
    client.feed(b"\x82\x08\x00\x01\x00\x00\x02a\x00\x00")
    assert client.disconnected() == reasons.MALFORMED_PACKET


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


@pytest.mark.parametrize("in_pieces", [False, True])
def test_strangers_may_send_less_than_clients(in_pieces: bool) -> None:
    """Thousands of connections that nobody knows would hold a packet of the largest size each."""
    world = World()
    largest = Connect("a", will=Will("t", bytes(60_000)))
    world.client().send(largest)
    stranger = world.client()
    data = encode(Connect("b", properties=bits(user=(("k", "v" * 60_000),) * 3)), MQTT5)
    stranger.feed(data[: 1000 if in_pieces else None])
    if not in_pieces:
        assert stranger.one(Connack).reason_code == reasons.PACKET_TOO_LARGE
    assert stranger.closed
    client = world.connect("c")
    client.send(Publish("t", bytes(500_000)))
    client.ping()
