"""What a message carries: properties, aliases, expiry, sizes, identifiers; and what is refused."""

import pytest

from metromq.protocol import reasons
from metromq.protocol.session.hub_settings import HubSettings
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import (
    MQTT5,
    MQTT311,
    Ack,
    Connect,
    Publish,
    Subscription,
)
from metromq.protocol.wire.properties import decode_raw, encode_raw
from tests.spec.world import VERSIONS, Lists, World, bits, pair

# --- what is refused ----------------------------------------------------------------------------------------------


def test_3_2_2_11_qos_over_the_maximum() -> None:
    """[MQTT-3.2.2-11]: DISCONNECT with 0x9B; subscriptions get what there is."""
    world = World(HubSettings(max_qos=1))
    client = world.connect("a")
    assert client.subscribe("t", qos=2) == [1]
    client.publish("t", b"", 2)
    assert client.disconnected() == reasons.QOS_NOT_SUPPORTED


def test_3_2_2_14_retain_not_available() -> None:
    """[MQTT-3.2.2-14]"""
    client = World(HubSettings(retain_available=False)).connect("a")
    client.publish("t", b"x", retain=True)
    assert client.disconnected() == reasons.RETAIN_NOT_SUPPORTED


@pytest.mark.parametrize("topic", ["closed/t", "$SYS/broker/version", "$metromq/x"])
@pytest.mark.parametrize("version", VERSIONS)
def test_3_3_5_2_messages_without_permission(topic: str, version: int) -> None:
    """[MQTT-3.3.5-2]: 0x87 in MQTT 5, a plain acknowledgement before; nobody gets them at any QoS."""
    world = World(access=Lists())
    reader = world.connect("r")
    reader.subscribe(topic, qos=2)
    client = world.connect("a", version)
    for qos in (0, 1, 2):
        packet_id = client.publish(topic, b"x", qos)
        if qos:
            ack = client.one(Ack)
            assert ack.packet_id == packet_id
            assert ack.reason_code == (reasons.NOT_AUTHORIZED if version == MQTT5 else 0)
    assert reader.messages() == []
    assert world.hub.counters.refused == 3


def test_the_short_way_does_not_open_reserved_topics() -> None:
    """A route that the broker itself has used is no permission."""
    world = World()
    reader = world.connect("r")
    reader.subscribe("$SYS/#")
    world.hub.routes.find(b"$SYS/broker/version")
    world.connect("a").publish("$SYS/broker/version", b"forged")
    assert reader.messages() == []


def test_3_4_2_2_reason_strings_and_request_problem_information() -> None:
    """[MQTT-3.1.2-29], [MQTT-3.4.2-2]: a refusal says why, if the client wants to know and takes so much."""
    world = World(access=Lists())
    for wanted, expected in ((None, "Not authorized"), (False, None)):
        client = world.connect("a", properties=bits(request_problem_information=wanted))
        for qos in (1, 2):
            client.publish("closed/t", b"", qos)
            ack = client.one(Ack)
            assert (ack.properties.reason_string if ack.properties else None) == expected
    client = world.connect("a", properties=bits(maximum_packet_size=20))
    client.publish("closed/t", b"", 1)
    assert client.one(Ack).properties is None


def test_4_7_3_too_many_levels() -> None:
    client = World(HubSettings(max_topic_levels=3)).connect("a")
    client.publish("a/b/c", b"")
    assert client.subscribe("a/b/c/d") == [reasons.TOPIC_FILTER_INVALID]
    client.publish("a/b/c/d", b"")
    assert client.disconnected() == reasons.TOPIC_NAME_INVALID


# --- properties ---------------------------------------------------------------------------------------------------


def test_3_3_2_properties_travel_unchanged() -> None:
    """[MQTT-3.3.2-4], [MQTT-3.3.2-15..20]: payload format, content type, response topic, correlation data, user."""
    carried = bits(
        payload_format=1,
        content_type="a/b",
        response_topic="reply/here",
        correlation_data=b"\x00\xff",
        user=(("z", "1"), ("a", "2"), ("z", "3")),
    )
    world = World()
    subscriber, publisher = pair(world, 2)
    for qos in (0, 1, 2):
        publisher.send(Publish("t/x", b"", qos, packet_id=qos, properties=encode_raw(carried)))
        (message,) = subscriber.messages()
        assert decode_raw(message.properties) == carried


def test_4_10_request_and_response() -> None:
    """Section 4.10: response information, response topic and correlation data bring an answer back."""
    world = World()
    requester = world.connect("asks", properties=bits(request_response_information=True))
    topic = requester.connack.properties.response_information
    assert topic == "response/asks"
    requester.subscribe(topic)
    responder = world.connect("answers")
    responder.subscribe("service")
    assert responder.connack.properties.response_information is None  # [MQTT-3.1.2-28]
    request = encode_raw(bits(response_topic=topic, correlation_data=b"42"))
    requester.send(Publish("service", b"?", properties=request))
    (asked,) = responder.messages()
    said = decode_raw(asked.properties)
    assert said.response_topic == topic
    responder.send(Publish(topic, b"!", properties=encode_raw(bits(correlation_data=said.correlation_data))))
    (answer,) = requester.messages()
    assert answer.payload == b"!"
    assert decode_raw(answer.properties).correlation_data == b"42"


@pytest.mark.parametrize("qos", [0, 1])
def test_3_3_2_6_message_expiry_counts_the_waiting_time(qos: int) -> None:
    """[MQTT-3.3.2-5], [MQTT-3.3.2-6]"""
    world = World()
    subscriber = world.connect("s", clean=False, expiry=1000)
    subscriber.subscribe("t", qos=1)
    publisher = world.connect("p")
    publisher.deliver("t", b"now", qos, expiry_s=10)
    assert [message.expiry_s for message in subscriber.messages()] == [10]
    if qos == 0:
        return
    subscriber.drop()
    publisher.deliver("t", b"short", 1, expiry_s=3)
    publisher.deliver("t", b"long", 1, expiry_s=60)
    publisher.deliver("t", b"ever", 1)
    world.advance(5)
    subscriber = world.client()
    subscriber.send(Connect("s", clean_start=False, properties=bits(session_expiry_s=1000)))
    messages = [packet for packet in subscriber.take() if isinstance(packet, Publish)]
    assert [(message.payload, message.expiry_s) for message in messages] == [
        (b"now", 5),  # its delivery had begun: it goes on
        (b"long", 55),
        (b"ever", -1),
    ]
    assert world.hub.counters.expired == 1


def test_4_3_3_7_a_delivery_that_began_is_finished_though_expired() -> None:
    """[MQTT-4.3.3-7], [MQTT-4.4.0-1]: [MQTT-3.3.2-5] speaks of deliveries that have not begun."""
    world = World()
    subscriber = world.connect("s", clean=False, expiry=1000)
    subscriber.subscribe("t", qos=2)
    world.connect("p").deliver("t", b"x", 2, expiry_s=3)
    (first,) = subscriber.messages()
    subscriber.drop()
    world.advance(10)
    subscriber = world.client()
    subscriber.send(Connect("s", clean_start=False, properties=bits(session_expiry_s=1000)))
    _, again = subscriber.take()
    assert isinstance(again, Publish)
    assert (again.dup, again.packet_id, again.expiry_s) == (True, first.packet_id, 0)


def test_message_expiry_holds_for_3_1_1_subscribers_too() -> None:
    world = World()
    subscriber = world.connect("s", MQTT311, clean=False)
    subscriber.subscribe("t", qos=1)
    subscriber.drop()
    publisher = world.connect("p")
    publisher.deliver("t", b"old", 1, expiry_s=3)
    publisher.deliver("t", b"new", 1)
    world.advance(5)
    subscriber = world.client()
    subscriber.send(Connect("s", MQTT311, False))
    assert [packet.payload for packet in subscriber.take() if isinstance(packet, Publish)] == [b"new"]


# --- aliases ------------------------------------------------------------------------------------------------------


def test_3_3_2_7_topic_aliases_from_the_client() -> None:
    """[MQTT-3.3.2-12], [MQTT-3.1.2-27]: set, used, set anew, each side its own."""
    world = World()
    subscriber, publisher = pair(world, 1)
    for topic, alias, payload in (("t/a", 1, b"1"), ("", 1, b"2"), ("t/b", 1, b"3"), ("", 1, b"4"), ("t/a", 2, b"5")):
        publisher.send(Publish(topic, payload, topic_alias=alias))
    got = subscriber.messages()
    assert [(message.topic, message.payload) for message in got] == [
        ("t/a", b"1"),
        ("t/a", b"2"),
        ("t/b", b"3"),
        ("t/b", b"4"),
        ("t/a", b"5"),
    ]
    assert not any(message.topic_alias for message in got)  # the subscriber allowed none [MQTT-3.1.2-27]


def test_3_3_2_7_aliases_do_not_outlive_the_connection() -> None:
    """[MQTT-3.3.2-7]"""
    world = World()
    first = world.connect("a", expiry=100)
    first.send(Publish("t", b"", topic_alias=1))
    first.drop()
    second = world.connect("a", clean=False, expiry=100)
    second.send(Publish("", b"", topic_alias=1))
    assert second.disconnected() == reasons.PROTOCOL_ERROR


@pytest.mark.parametrize("alias", [0, 65])
def test_3_3_2_9_alias_out_of_range(alias: int) -> None:
    """[MQTT-3.3.2-8], [MQTT-3.3.2-9]"""
    client = World().connect("a")
    client.feed(b"\x30\x07\x00\x01t\x03\x23\x00" + bytes([alias]))
    assert client.disconnected() == reasons.TOPIC_ALIAS_INVALID


def test_3_1_2_26_topic_aliases_to_the_client() -> None:
    """[MQTT-3.1.2-26], [MQTT-3.3.2-11]: no more than it allows, and each known before it is used alone."""
    world = World()
    subscriber = world.connect("s", properties=bits(topic_alias_maximum=2))
    subscriber.subscribe("#", qos=1)
    publisher = world.connect("p")
    topics = ["a", "b", "c", "a", "b", "c", "a"]
    known: dict[int, str] = {}
    read: list[str] = []
    for number, topic in enumerate(topics):
        publisher.deliver(topic, b"x" * number, number % 2, expiry_s=100)
    for message in subscriber.messages():
        assert message.topic_alias <= 2
        if message.topic and message.topic_alias:
            known[message.topic_alias] = message.topic
        read.append(message.topic or known[message.topic_alias])
    assert read == topics
    assert len(known) == 2


# --- sizes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("alias_maximum", [0, 10])
def test_3_1_2_25_messages_too_large_for_the_client_are_dropped(qos: int, alias_maximum: int) -> None:
    """[MQTT-3.1.2-24], [MQTT-3.1.2-25]: the others arrive, also through share groups and with aliases."""
    world = World()
    limits = bits(maximum_packet_size=50, topic_alias_maximum=alias_maximum)
    subscriber = world.connect("s", clean=False, expiry=100, properties=limits)
    subscriber.subscribe("t", qos=2)
    subscriber.raw = b""
    publisher = world.connect("p", MQTT311)
    sizes = [1, 60, 40, 45, 47, 60, 1, 1]
    for size in sizes:
        publisher.deliver("t", b"x" * size, qos)
    got = subscriber.messages()
    overhead = 6 if qos == 0 else 8
    assert len(got) >= 4
    assert all(len(message.payload) + overhead <= 50 for message in got)
    assert [len(m.payload) for m in got] == [n for n in sizes if n in {len(m.payload) for m in got}]
    if not alias_maximum:
        assert {len(message.payload) for message in got} == {n for n in sizes if n + overhead <= 50}
    subscriber.drop()
    world.crash()
    assert world.hub.sessions.by_client_id["s"].backlog.waiting() == (len(got) if qos else 0)


def test_3_1_2_25_a_message_of_exactly_the_maximum_arrives() -> None:
    """[MQTT-3.1.2-24]: the limit counts whole packets, in the subscriber's version."""
    for version in (MQTT311, MQTT5):
        for payload in (b"x" * 119, b"x" * 120, b"x" * 121, b"x" * 122, b"x" * 123):
            for limit in range(120, 135):
                world = World()
                subscriber = world.connect("s", properties=bits(maximum_packet_size=limit))
                subscriber.subscribe("t")
                publisher = world.connect("p", version)
                size = len(encode(Publish("t", payload), MQTT5))
                publisher.publish("t", payload)
                publisher.publish("t", payload)
                assert len(subscriber.messages()) == (2 if size <= limit else 0), (version, payload, limit)


def test_3_2_2_15_packets_over_the_servers_maximum() -> None:
    """[MQTT-3.2.2-15]: DISCONNECT with 0x95."""
    client = World(HubSettings(max_packet_size_bytes=100)).connect("a")
    client.feed(encode(Publish("t", b"x" * 95), MQTT5)[:100])
    assert not client.closed or client.inbox
    other = World(HubSettings(max_packet_size_bytes=100)).connect("a")
    other.publish("t", b"x" * 94)
    assert not other.closed
    other.publish("t", b"x" * 95)
    assert other.disconnected() == reasons.PACKET_TOO_LARGE


# --- no local, overlapping subscriptions --------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_3_8_3_3_no_local(qos: int) -> None:
    """[MQTT-3.8.3-3]"""
    world = World()
    client, other = world.connect("a"), world.connect("b")
    for one in (client, other):
        one.subscribe(Subscription("t", 2, no_local=True))
    client.publish("t", b"x", qos, packet_id=5 if qos else 0)
    assert [packet for packet in client.take() if isinstance(packet, Publish)] == []
    assert other.payloads() == [b"x"]
    client.subscribe(Subscription("+", 1))  # an overlapping one without the option still gets it
    client.publish("t", b"y", qos, packet_id=6 if qos else 0)
    assert [packet.payload for packet in client.take() if isinstance(packet, Publish)] == [b"y"]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_3_3_4_2_overlapping_subscriptions_are_one_message(qos: int) -> None:
    """[MQTT-3.3.4-2..5]: at the highest QoS, with every matching identifier."""
    world = World()
    client = world.connect("a")
    client.subscribe("t/x", qos=0, identifier=1)
    client.subscribe("t/+", qos=1, identifier=2)
    client.subscribe("#", qos=2, identifier=268_435_455)
    client.subscribe("t/#", qos=0)
    client.subscribe("other", qos=2, identifier=9)
    world.connect("p").deliver("t/x", b"", qos)
    (message,) = client.messages()
    assert message.qos == qos
    assert sorted(message.identifiers) == [1, 2, 268_435_455]


def test_3_3_4_6_a_client_sends_no_identifiers() -> None:
    """[MQTT-3.3.4-6]"""
    client = World().connect("a")
    client.send(Publish("t", b"", identifiers=(1,)))
    assert client.disconnected() == reasons.PROTOCOL_ERROR
