"""SUBSCRIBE and UNSUBSCRIBE, and what topic filters match."""

import pytest

from metromq.protocol import reasons
from metromq.protocol.session.hub_settings import HubSettings
from metromq.protocol.wire.packets import (
    MQTT5,
    MQTT311,
    Connack,
    Connect,
    Packet,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from tests.spec.world import VERSIONS, Lists, World, bits

# --- SUBSCRIBE ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_3_8_4_1_suback_has_a_code_for_each_filter(version: int) -> None:
    """[MQTT-3.8.4-1], [MQTT-3.8.4-2], [MQTT-3.8.4-6], [MQTT-3.9.3-1]: same identifier, same order."""
    world = World(access=Lists())
    client = world.connect("a", version)
    wanted = [Subscription("t", 0), Subscription("u", 1), Subscription("hidden/x", 1), Subscription("v", 2)]
    client.send(Subscribe(77, wanted))
    answer = client.one(Suback)
    assert answer.packet_id == 77
    assert answer.reason_codes == [0, 1, reasons.NOT_AUTHORIZED if version == MQTT5 else 0x80, 2]
    assert answer.properties.reason_string == ("Not authorized" if version == MQTT5 else None)


def test_3_8_4_1_suback_comes_after_the_commit() -> None:
    """The subscription of a lasting session must outlive a crash once it is confirmed."""
    world = World()
    client = world.connect("a", expiry=100)
    world.auto_commit = False
    client.send(Subscribe(1, [Subscription("t", 1)]))
    assert client.take() == []
    world.commit()
    client.one(Suback)
    client.send(Unsubscribe(2, ["t"]))
    assert client.take() == []
    world.commit()
    client.one(Unsuback)


def test_subscriptions_have_a_limit() -> None:
    world = World(HubSettings(max_subscriptions_per_client=2))
    client = world.connect("a")
    assert client.subscribe("a", "b", "c") == [0, 0, reasons.QUOTA_EXCEEDED]
    assert client.subscribe("a", qos=1) == [1]  # replacing one is no new one
    old = world.connect("b", MQTT311)
    assert old.subscribe("a", "b", "c") == [0, 0, 0x80]


@pytest.mark.parametrize("qos", [0, 1])
def test_3_8_4_3_an_equal_filter_replaces_the_subscription(qos: int) -> None:
    """[MQTT-3.8.4-3]: options and identifier are the new ones, and there is one message."""
    world = World()
    client, publisher = world.connect("a"), world.connect("p")
    client.subscribe("t", qos=2, identifier=5)
    publisher.deliver("t", b"1", qos)
    client.subscribe("t", qos=0, identifier=6)
    publisher.deliver("t", b"2", qos)
    client.subscribe("t", qos=1)
    publisher.deliver("t", b"3", qos)
    assert [(m.payload, m.qos, m.identifiers) for m in client.messages()] == [
        (b"1", qos, (5,)),
        (b"2", 0, (6,)),
        (b"3", qos, ()),
    ]
    assert world.hub.routes.count == 1


def test_3_8_4_5_several_filters_are_as_several_packets() -> None:
    """[MQTT-3.8.4-5]"""
    world = World()
    client = world.connect("a")
    client.subscribe(Subscription("a", 0), Subscription("b", 1), Subscription("a", 2))
    publisher = world.connect("p")
    publisher.deliver("a", b"", 2)
    publisher.deliver("b", b"", 2)
    assert [(m.topic, m.qos) for m in client.messages()] == [("a", 2), ("b", 1)]


@pytest.mark.parametrize("version", VERSIONS)
def test_3_10_4_unsubscribe(version: int) -> None:
    """[MQTT-3.10.4-1..6], [MQTT-3.11.3-1]: compared letter by letter, always answered."""
    world = World()
    client, publisher = world.connect("a", version), world.connect("p")
    client.subscribe("t/+", "t/x")
    client.send(Unsubscribe(9, ["t/+", "t/y", "t/X"]))
    answer = client.one(Unsuback)
    assert answer.packet_id == 9
    assert answer.reason_codes == ([0, 0x11, 0x11] if version == MQTT5 else [])
    publisher.publish("t/x", b"1")
    publisher.publish("t/y", b"2")
    assert client.payloads() == [b"1"]
    client.unsubscribe("t/x")
    publisher.publish("t/x", b"3")
    assert client.payloads() == []


def test_3_10_4_3_deliveries_that_began_go_on_after_unsubscribe() -> None:
    """[MQTT-3.10.4-3]"""
    world = World()
    client = world.connect("a", properties=bits(receive_maximum=1))
    client.subscribe("t", qos=2)
    publisher = world.connect("p")
    publisher.deliver("t", b"1", 2)
    publisher.deliver("t", b"2", 1)
    (first,) = client.messages()
    client.unsubscribe("t")
    client.answer(first)
    assert client.payloads() == [b"2"]


# --- filters ------------------------------------------------------------------------------------------------------

MATCHES = [
    (
        "sport/tennis/#",
        ["sport/tennis", "sport/tennis/x", "sport/tennis/x/y"],
        ["sport", "sport/tennisx", "Sport/tennis"],
    ),
    ("#", ["a", "a/b", "/", "/a"], ["$b/x", "$a"]),
    ("+", ["a", "b"], ["/a", "a/", "a/b", "$a"]),
    ("+/+", ["/a", "a/b", "a/"], ["a", "$a/b"]),
    ("/+", ["/a", "/"], ["a", "a/b", "//"]),
    ("a/+/c", ["a/b/c", "a//c"], ["a/b/d", "a/b/c/d", "a/c"]),
    ("$a/#", ["$a", "$a/b"], ["a", "$b"]),
    ("$a/+", ["$a/b"], ["$a", "$a/b/c"]),
    ("+/monitor", ["a/monitor"], ["$a/monitor"]),
    ("ünï/✓", ["ünï/✓"], ["uni/✓"]),
]


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("case", MATCHES, ids=[case[0] for case in MATCHES])
def test_4_7_filters(case: tuple[str, list[str], list[str]], qos: int) -> None:
    """[MQTT-4.7.1-1..2], [MQTT-4.7.2-1], [MQTT-4.7.3-4], [MQTT-3.3.2-3]: live and retained."""
    filter, hits, misses = case
    world = World()
    client, publisher = world.connect("a"), world.connect("p")
    client.subscribe(filter, qos=qos)
    for topic in [*misses, *hits]:
        publisher.deliver(topic, b"x", qos)
        publisher.deliver(topic, b"y", qos, retain=True)
    assert [m.topic for m in client.messages()] == [topic for topic in hits for _ in range(2)]
    late = world.connect("b")
    late.subscribe(filter, qos=qos)
    assert sorted(m.topic for m in late.messages()) == sorted(hits)


@pytest.mark.parametrize("snapshot", [True, False])
def test_subscriptions_survive_a_crash(snapshot: bool) -> None:
    """[MQTT-4.1.0-1]: with all their options, and those given up stay given up."""
    world = World()
    client = world.connect("a", expiry=1000)
    client.subscribe(Subscription("t", 2, True, True, 1), identifier=7)
    client.subscribe("$share/g/s", qos=1)
    client.subscribe("gone", qos=1)
    client.unsubscribe("gone")
    world.connect("short").subscribe("t")
    if snapshot:
        world.take_snapshot()
    world.crash()
    assert set(world.hub.sessions.by_client_id) == {"a"}
    publisher = world.connect("p")
    publisher.deliver("t", b"1", 2, retain=True)
    publisher.deliver("s", b"2", 2)
    publisher.deliver("gone", b"3", 1)
    back = world.client()
    back.send(Connect("a", clean_start=False, properties=bits(session_expiry_s=100)))
    packets: list[Packet] = back.take()
    assert isinstance(packets[0], Connack)
    assert packets[0].session_present
    found = [(m.payload, m.qos, m.retain, m.identifiers) for m in packets[1:] if isinstance(m, Publish)]
    assert found == [(b"1", 2, True, (7,)), (b"2", 1, False, ())]
    back.deliver("t", b"own", 0)
    assert back.take() == []


@pytest.mark.parametrize(("version", "refusal"), [(MQTT5, reasons.QUOTA_EXCEEDED), (MQTT311, 0x80)])
def test_filters_are_counted_by_what_they_hold(version: int, refusal: int) -> None:
    """Ten thousand filters of 60 kB each were 600 MB of one client."""
    world = World(HubSettings(max_filter_bytes_per_client=100_000))
    client = world.connect("a", version)
    long = [f"{number}" + "x" * 40_000 for number in range(3)]
    client.send(Subscribe(1, [Subscription(filter) for filter in [*long, long[0], "short"]]))
    assert client.one(Suback).reason_codes == [0, 0, refusal, 0, 0]
    client.send(Unsubscribe(2, [long[0]]))
    client.one(Unsuback)
    client.send(Subscribe(3, [Subscription(long[2])]))
    assert client.one(Suback).reason_codes == [0]
