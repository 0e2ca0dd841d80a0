"""Retained messages: which one is kept, who gets it, when it goes."""

import pytest

from metromq.protocol import reasons
from metromq.protocol.session.hub_settings import HubSettings
from metromq.protocol.wire.packets import MQTT311, Ack, Subscription, Will
from tests.spec.world import VERSIONS, Lists, World


@pytest.mark.parametrize("journal", [True, False])
@pytest.mark.parametrize("version", VERSIONS)
def test_3_3_1_5_the_newest_retained_message_is_kept(version: int, journal: bool) -> None:
    """[MQTT-3.3.1-5], [MQTT-3.3.1-8], [MQTT-3.3.1-9], [MQTT-3.3.1-12]: QoS of the message, RETAIN set."""
    world = World(journal=journal)
    publisher = world.connect("p", version)
    for payload, qos in ((b"1", 0), (b"2", 2), (b"3", 1)):
        publisher.deliver("t", payload, qos, retain=True)
    publisher.deliver("t", b"not retained", 1)
    for granted in (0, 1, 2):
        client = world.connect("a", version)
        client.subscribe("t", qos=granted)
        (message,) = client.messages()
        assert (message.payload, message.qos, message.retain, message.dup) == (b"3", min(1, granted), True, False)
        client.answer(message)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_3_3_1_6_an_empty_payload_removes_it(qos: int) -> None:
    """[MQTT-3.3.1-6], [MQTT-3.3.1-7]: and goes to subscribers as any message."""
    world = World()
    publisher, client = world.connect("p"), world.connect("a")
    publisher.deliver("t", b"x", qos, retain=True)
    client.subscribe("t")
    assert client.payloads() == [b"x"]
    publisher.deliver("t", b"", qos, retain=True)
    (message,) = client.messages()
    assert (message.payload, message.retain) == (b"", False)
    late = world.connect("b")
    late.subscribe("t")
    assert late.messages() == []
    assert len(world.hub.retained.messages) == 0


def test_3_3_1_9_retain_handling() -> None:
    """[MQTT-3.3.1-9], [MQTT-3.3.1-10], [MQTT-3.3.1-11]"""
    world = World()
    world.connect("p").publish("t", b"x", retain=True)
    for handling, first, again in ((0, 1, 1), (1, 1, 0), (2, 0, 0)):
        client = world.connect("a")
        for expected in (first, again):
            client.subscribe(Subscription("t", 0, retain_handling=handling))
            assert len(client.messages()) == expected, handling


def test_3_3_1_10_retain_handling_1_in_a_resumed_session() -> None:
    """[MQTT-3.3.1-10]: the subscription is there already."""
    world = World()
    world.connect("p").publish("t", b"x", retain=True)
    client = world.connect("a", expiry=100)
    client.subscribe(Subscription("t", 0, retain_handling=1))
    assert len(client.messages()) == 1
    client.drop()
    client = world.connect("a", clean=False, expiry=100)
    client.subscribe(Subscription("t", 0, retain_handling=1))
    assert client.messages() == []


@pytest.mark.parametrize("qos", [0, 1])
def test_3_3_1_12_retain_as_published(qos: int) -> None:
    """[MQTT-3.3.1-12], [MQTT-3.3.1-13]"""
    world = World()
    plain, kept = world.connect("a"), world.connect("b")
    plain.subscribe(Subscription("t", 1))
    kept.subscribe(Subscription("t", 1, retain_as_published=True))
    publisher = world.connect("p")
    for retain in (True, False):
        publisher.deliver("t", b"x", qos, retain)
    assert [m.retain for m in plain.messages()] == [False, False]
    assert [m.retain for m in kept.messages()] == [True, False]


def test_retained_messages_expire() -> None:
    """Section 3.3.2.3.3: and tell the remaining time."""
    world = World()
    publisher = world.connect("p")
    publisher.deliver("t", b"x", retain=True, expiry_s=10)
    world.advance(4)
    client = world.connect("a")
    client.subscribe("t")
    assert [m.expiry_s for m in client.messages()] == [6]
    world.advance(7)
    client.subscribe("t")
    assert client.messages() == []
    assert len(world.hub.retained.messages) == 0


def test_3_8_4_4_retained_messages_carry_the_identifier() -> None:
    """[MQTT-3.3.4-3]"""
    world = World()
    world.connect("p").deliver("t", b"x", 1, retain=True)
    client = world.connect("a")
    client.subscribe("t", qos=1, identifier=9)
    assert [m.identifiers for m in client.messages()] == [(9,)]


def test_retained_messages_have_a_limit() -> None:
    """A new topic beyond it is refused with 0x97; known topics go on."""
    world = World(HubSettings(max_retained_messages=1))
    client = world.connect("a")
    client.deliver("t", b"1", 1, retain=True)
    client.deliver("t", b"2", 1, retain=True)
    client.publish("u", b"1", 1, retain=True)
    assert client.one(Ack).reason_code == reasons.QUOTA_EXCEEDED
    client.deliver("u", b"", 1, retain=True)
    client.deliver("t", b"", 1, retain=True)
    client.deliver("u", b"1", 1, retain=True)


def test_retained_messages_have_a_limit_in_bytes() -> None:
    """What has no room is refused with 0x97, and the topic keeps what it had; a smaller value, or none, makes room."""
    world = World(HubSettings(max_retained_bytes=20_000))
    client, reader = world.connect("a"), world.connect("r")
    client.deliver("t", b"x" * 9_000, 1, retain=True)
    client.deliver("u", b"x" * 9_000, 2, retain=True)
    for topic, size in (("v", 1_000), ("t", 12_000)):
        for qos in (1, 2):
            client.publish(topic, b"y" * size, qos, retain=True)
            assert client.one(Ack).reason_code == reasons.QUOTA_EXCEEDED
    client.publish("v", b"y" * 1_000, 0, retain=True)
    assert world.hub.counters.refused == 5
    reader.subscribe("#")
    assert sorted(reader.payloads()) == [b"x" * 9_000] * 2
    client.deliver("t", b"x" * 100, 1, retain=True)
    client.deliver("v", b"y" * 1_000, 1, retain=True)
    for topic in ("t", "u", "v"):
        client.deliver(topic, b"", 1, retain=True)
    assert world.hub.retained.bytes == 0


def test_older_versions_keep_a_retained_message_that_has_no_room() -> None:
    """They know no refusal: the connection ends, and the client sends it again."""
    world = World(HubSettings(max_retained_bytes=1_000))
    client = world.connect("a", MQTT311)
    client.publish("t", b"x" * 2_000, 1, retain=True)
    assert client.connection.output.closing


def test_a_will_without_room_is_delivered_and_leaves_no_old_value() -> None:
    world = World(HubSettings(max_retained_bytes=1_000))
    reader = world.connect("r")
    reader.subscribe("t")
    world.connect("p").deliver("t", b"old", 1, retain=True)
    world.connect("w", will=Will("t", b"x" * 2_000, 0, True)).drop()
    assert reader.payloads() == [b"old", b"x" * 2_000]
    assert len(world.hub.retained.messages) == world.hub.retained.bytes == 0
    assert world.hub.counters.retained_dropped == 1


@pytest.mark.parametrize("snapshot", [True, False])
def test_retained_messages_survive_a_crash(snapshot: bool) -> None:
    """Section 4.1: retained messages are no part of a session; also those of `$` topics that clients use."""
    world = World()
    publisher = world.connect("p")
    for topic, payload, qos in (("a", b"1", 0), ("b", b"2", 1), ("c", b"3", 2), ("$x/y", b"4", 1), ("d", b"5", 1)):
        publisher.deliver(topic, payload, qos, retain=True)
    publisher.deliver("d", b"", 0, retain=True)
    if snapshot:
        world.take_snapshot()
    publisher.deliver("a", b"6", 1, retain=True)
    world.crash()
    client = world.connect("r")
    client.subscribe("#", "$x/#", qos=2)
    assert sorted((m.topic, m.payload, m.qos) for m in client.messages()) == [
        ("$x/y", b"4", 1),
        ("a", b"6", 1),
        ("b", b"2", 1),
        ("c", b"3", 2),
    ]


def test_permission_to_read_holds_for_retained_and_live_messages() -> None:
    world = World(access=Lists())
    client, publisher = world.connect("a"), world.connect("p")
    publisher.deliver("hidden/t", b"x", 1, retain=True)
    client.subscribe("#", qos=1)
    publisher.deliver("hidden/t", b"y", 0)
    publisher.deliver("hidden/t", b"z", 1)
    assert client.messages() == []
