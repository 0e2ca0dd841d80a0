"""The will: when it is published and when it is not."""

import pytest

from metromq.protocol import reasons
from metromq.protocol.wire.packets import MQTT5, MQTT31, MQTT311, Will
from metromq.protocol.wire.properties import decode_raw, encode_raw
from tests.spec.world import VERSIONS, Client, World, bits

WILL = Will("will/a", b"gone", 0)


def _watched() -> tuple[World, Client]:
    world = World()
    watcher = world.connect("watcher")
    watcher.subscribe("will/#", qos=2)
    return world, watcher


@pytest.mark.parametrize("version", VERSIONS)
def test_3_1_2_8_a_lost_connection_publishes_the_will(version: int) -> None:
    """[MQTT-3.1.2-8]"""
    world, watcher = _watched()
    client = world.connect("a", version, will=WILL)
    assert watcher.messages() == []
    client.drop()
    assert watcher.payloads() == [b"gone"]


@pytest.mark.parametrize("version", VERSIONS)
def test_3_14_4_3_a_normal_disconnect_removes_the_will(version: int) -> None:
    """[MQTT-3.1.2-10], [MQTT-3.14.4-3]"""
    world, watcher = _watched()
    world.connect("a", version, will=WILL).disconnect()
    world.advance(1000)
    assert watcher.messages() == []


@pytest.mark.parametrize("reason", [reasons.DISCONNECT_WITH_WILL, reasons.UNSPECIFIED_ERROR, reasons.PACKET_TOO_LARGE])
def test_3_14_4_3_any_other_disconnect_leaves_the_will(reason: int) -> None:
    """[MQTT-3.14.4-3]: only 0x00 discards it."""
    world, watcher = _watched()
    world.connect("a", will=WILL).disconnect(reason)
    assert watcher.payloads() == [b"gone"]


def test_3_1_2_5_a_violation_publishes_the_will() -> None:
    """Section 3.1.2.5: also when the server closes for a protocol error."""
    world, watcher = _watched()
    world.connect("a", will=WILL).feed(b"\x00\x00")
    assert watcher.payloads() == [b"gone"]


def test_3_1_2_5_a_keepalive_timeout_publishes_the_will() -> None:
    world, watcher = _watched()
    world.connect("a", will=WILL, keepalive=10)
    world.advance(16)
    assert watcher.payloads() == [b"gone"]


@pytest.mark.parametrize("version", [MQTT31, MQTT311, MQTT5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_3_1_2_9_the_wills_qos_and_retain(version: int, qos: int) -> None:
    """[MQTT-3.1.2-14], [MQTT-3.1.2-15]"""
    world, watcher = _watched()
    world.connect("a", version, will=Will("will/a", b"gone", qos, True)).drop()
    (message,) = watcher.messages()
    assert (message.qos, message.retain) == (qos, False)
    late = world.connect("late")
    late.subscribe("will/#", qos=2)
    (message,) = late.messages()
    assert (message.qos, message.retain) == (qos, True)


def test_3_1_2_14_a_will_without_retain_leaves_nothing() -> None:
    """[MQTT-3.1.2-14]"""
    world, _ = _watched()
    world.connect("a", will=WILL).drop()
    late = world.connect("late")
    late.subscribe("will/#")
    assert late.messages() == []


def test_3_1_3_9_will_delay() -> None:
    """[MQTT-3.1.3-9]: not before the delay, and not at all when the client comes back in time."""
    world, watcher = _watched()
    will = Will("will/a", b"gone", 0, delay_s=5)
    client = world.connect("a", expiry=100, will=will)
    client.drop()
    world.advance(4)
    assert watcher.messages() == []
    client = world.connect("a", clean=False, expiry=100, will=will)
    world.advance(4)
    client.drop()
    world.advance(4.9)
    assert watcher.messages() == []
    world.advance(0.2)
    assert watcher.payloads() == [b"gone"]
    world.advance(1000)
    assert watcher.messages() == []


def test_3_1_3_2_2_the_end_of_the_session_comes_before_the_delay() -> None:
    """Section 3.1.3.2.2: whichever happens first."""
    world, watcher = _watched()
    world.connect("a", expiry=3, will=Will("will/a", b"gone", 0, delay_s=50)).drop()
    world.advance(2)
    assert watcher.messages() == []
    world.advance(1.1)
    assert watcher.payloads() == [b"gone"]
    world.connect("b", expiry=0, will=Will("will/b", b"b", 0, delay_s=50)).drop()
    assert watcher.payloads() == [b"b"]


def test_3_1_4_3_takeover_and_the_will() -> None:
    """Section 3.1.4, comment: without delay it is published; with one only if the session ends."""
    world, watcher = _watched()
    world.connect("a", expiry=100, will=WILL)
    world.connect("a", clean=False, expiry=100)
    assert watcher.payloads() == [b"gone"]
    delayed = Will("will/a", b"late", 0, delay_s=50)
    world.connect("b", expiry=100, will=delayed)
    world.connect("b", clean=False, expiry=100)
    assert watcher.messages() == []
    world.connect("c", expiry=100, will=delayed)
    world.connect("c", clean=True, expiry=100)
    assert watcher.payloads() == [b"late"]


def test_3_1_3_2_the_will_carries_its_properties() -> None:
    """Section 3.1.3.2, [MQTT-3.1.3-10]: user properties keep their order."""
    world, watcher = _watched()
    carried = bits(
        payload_format=1,
        content_type="text/plain",
        response_topic="r",
        correlation_data=b"\x00c",
        user=(("b", "1"), ("a", "2"), ("b", "3")),
    )
    will = Will("will/a", b"gone", 1, expiry_s=60, properties=encode_raw(carried))
    world.connect("a", will=will).drop()
    (message,) = watcher.messages()
    assert decode_raw(message.properties) == carried
    assert message.expiry_s == 60


def test_a_will_survives_a_crash_of_the_broker() -> None:
    """Section 3.1.2.5: a server that fails may publish wills after its restart."""
    world, _ = _watched()
    world.connect("now", will=Will("will/now", b"now", 1, True))
    world.connect("later", expiry=100, will=Will("will/later", b"later", 1, True, delay_s=20))
    world.connect("bye", will=Will("will/bye", b"bye", 1, True)).disconnect()
    world.crash()
    world.advance(1)
    reader = world.connect("reader")
    reader.subscribe("will/#")
    assert reader.payloads() == [b"now"]
    world.advance(20)
    assert reader.payloads() == [b"later"]
    world.crash()
    world.advance(200)
    reader = world.connect("reader")
    reader.subscribe("will/#")
    assert sorted(reader.payloads()) == [b"later", b"now"]
