"""PUBLISH both ways: quality of service, order and flow control."""

import pytest

from metromq.protocol import reasons
from metromq.protocol.session.hub_settings import HubSettings
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import (
    MQTT5,
    MQTT311,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Ack,
    Connack,
    Connect,
    Publish,
)
from tests.spec.world import VERSIONS, Lists, World, bits, pair

JOURNALS = [True, False]


# --- quality of service -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("journal", JOURNALS)
@pytest.mark.parametrize("to_version", VERSIONS)
@pytest.mark.parametrize("from_version", VERSIONS)
@pytest.mark.parametrize("sent", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_3_8_4_8_qos_is_the_lower_of_both(
    sent: int, granted: int, from_version: int, to_version: int, journal: bool
) -> None:
    """[MQTT-3.8.4-8], [MQTT-4.3.1-1], [MQTT-4.3.2-1..5], [MQTT-4.3.3-1..13]: whole exchanges, all versions."""
    world = World(journal=journal)
    subscriber, publisher = pair(world, granted, to_version, from_version)
    for payload in (b"1", b"2", b"3"):
        publisher.deliver("t/x", payload, sent)
    messages = subscriber.messages()
    assert [message.payload for message in messages] == [b"1", b"2", b"3"]
    for message in messages:
        assert (message.topic, message.qos, message.dup, message.retain) == ("t/x", min(sent, granted), False, False)
        subscriber.answer(message)
    assert subscriber.take() == []
    session = world.hub.sessions.by_client_id["s"]
    assert not session.backlog.inflight
    assert not session.backlog.queue
    assert len({message.packet_id for message in messages}) == (3 if min(sent, granted) else 1)


def test_4_3_2_4_puback_comes_after_the_commit() -> None:
    """[MQTT-4.3.2-4]: the server owns the message when it confirms it, so the journal must have it."""
    world = World()
    subscriber, publisher = pair(world, 1)
    world.auto_commit = False
    publisher.publish("t/x", b"1", 1)
    assert publisher.take() == []
    assert subscriber.take() == []
    world.commit()
    assert publisher.one(Ack).kind == PUBACK
    assert subscriber.payloads() == [b"1"]


def test_4_3_3_8_pubrec_and_pubcomp_come_after_the_commit() -> None:
    """[MQTT-4.3.3-8], [MQTT-4.3.3-11]"""
    world = World()
    publisher = world.connect("p", expiry=100)
    world.auto_commit = False
    packet_id = publisher.publish("t/x", b"1", 2)
    assert publisher.take() == []
    world.commit()
    assert publisher.one(Ack) == Ack(PUBREC, packet_id, reasons.NO_MATCHING_SUBSCRIBERS)
    publisher.send(Ack(PUBREL, packet_id))
    assert publisher.take() == []
    world.commit()
    assert publisher.one(Ack) == Ack(PUBCOMP, packet_id)


def test_4_3_3_4_pubrel_to_a_subscriber_waits_for_the_journal() -> None:
    """[MQTT-4.3.3-4], [MQTT-4.3.3-6]: or a crash could send the message a second time as new."""
    world = World()
    subscriber = world.connect("s", expiry=100)
    subscriber.subscribe("t", qos=2)
    world.connect("p").deliver("t", b"x", 2)
    (message,) = subscriber.messages()
    world.auto_commit = False
    subscriber.send(Ack(PUBREC, message.packet_id))
    assert subscriber.take() == []
    world.commit()
    assert subscriber.one(Ack) == Ack(PUBREL, message.packet_id)


@pytest.mark.parametrize("journal", JOURNALS)
def test_4_3_3_10_a_repeated_qos_2_publish_is_delivered_once(journal: bool) -> None:
    """[MQTT-4.3.3-10]: until PUBREL the same packet identifier is the same message."""
    world = World(journal=journal)
    subscriber, publisher = pair(world, 2)
    publisher.publish("t/x", b"1", 2, packet_id=7)
    assert publisher.one(Ack).kind == PUBREC
    publisher.send(Publish("t/x", b"1", 2, False, True, 7))
    assert publisher.one(Ack) == Ack(PUBREC, 7)
    assert subscriber.payloads() == [b"1"]
    publisher.send(Ack(PUBREL, 7))
    assert publisher.one(Ack) == Ack(PUBCOMP, 7)
    publisher.publish("t/x", b"2", 2, packet_id=7)  # [MQTT-4.3.3-12]: now a new message
    assert subscriber.payloads() == [b"2"]


def test_4_3_3_10_a_repeat_after_reconnecting_is_delivered_once() -> None:
    """[MQTT-4.3.3-10], [MQTT-4.4.0-1]"""
    world = World()
    subscriber = world.connect("s")
    subscriber.subscribe("t", qos=2)
    publisher = world.connect("p", expiry=100)
    publisher.publish("t", b"1", 2, packet_id=7)
    publisher.drop()
    publisher = world.connect("p", clean=False, expiry=100)
    publisher.send(Publish("t", b"1", 2, False, True, 7))
    assert publisher.one(Ack) == Ack(PUBREC, 7)
    assert subscriber.payloads() == [b"1"]


@pytest.mark.parametrize("crashes", [False, True])
def test_4_3_3_10_another_message_of_a_client_that_lost_its_session_is_not_a_repeat(crashes: bool) -> None:
    """It goes on with the session that the broker has, and counts from one again: nothing is taken for another."""
    world = World()
    publisher = world.connect("p", expiry=100)
    publisher.publish("t", b"1", 2, packet_id=7)
    publisher.drop()
    if crashes:
        world.crash()
    subscriber = world.connect("s")
    subscriber.subscribe("t", qos=2)
    publisher = world.connect("p", clean=False, expiry=100)
    publisher.publish("t", b"1", 2, packet_id=7)  # the same, though without DUP
    assert publisher.one(Ack) == Ack(PUBREC, 7)
    assert subscriber.payloads() == []
    publisher.publish("t", b"2", 2, packet_id=7)
    assert publisher.one(Ack) == Ack(PUBREC, 7)
    assert subscriber.payloads() == [b"2"]
    publisher.send(Publish("t", b"3", 2, False, True, 7))  # with DUP
    assert publisher.one(Ack) == Ack(PUBREC, 7)
    assert subscriber.payloads() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_4_3_3_11_pubrel_for_an_unknown_packet_is_answered(version: int) -> None:
    """Section 3.7.2.1: PUBCOMP with 0x92 in MQTT 5."""
    client = World().connect("a", version)
    client.send(Ack(PUBREL, 9))
    answer = client.one(Ack)
    assert (answer.kind, answer.packet_id) == (PUBCOMP, 9)
    assert answer.reason_code == (reasons.PACKET_IDENTIFIER_NOT_FOUND if version == MQTT5 else 0)


def test_3_6_2_1_pubrec_for_an_unknown_packet_is_answered() -> None:
    """Section 3.6.2.1: PUBREL with 0x92."""
    client = World().connect("a")
    client.send(Ack(PUBREC, 9))
    assert client.one(Ack) == Ack(PUBREL, 9, reasons.PACKET_IDENTIFIER_NOT_FOUND)
    client.send(Ack(PUBACK, 9))
    client.send(Ack(PUBCOMP, 9))
    assert client.take() == []


def test_4_4_0_2_pubrec_with_an_error_ends_the_exchange() -> None:
    """[MQTT-4.4.0-2]: no PUBREL, nothing is sent again, and the packet identifier is free."""
    world = World()
    subscriber, publisher = pair(world, 2)
    publisher.deliver("t/x", b"1", 2)
    (message,) = subscriber.messages()
    subscriber.send(Ack(PUBREC, message.packet_id, reasons.QUOTA_EXCEEDED))
    assert subscriber.take() == []
    assert not world.hub.sessions.by_client_id["s"].backlog.inflight


def test_4_3_3_pubcomp_before_pubrel_changes_nothing() -> None:
    world = World()
    subscriber, publisher = pair(world, 2)
    publisher.deliver("t/x", b"1", 2)
    (message,) = subscriber.messages()
    subscriber.send(Ack(PUBCOMP, message.packet_id))
    assert world.hub.sessions.by_client_id["s"].backlog.inflight
    subscriber.answer(message)
    assert not world.hub.sessions.by_client_id["s"].backlog.inflight


@pytest.mark.parametrize(("qos", "kind"), [(1, PUBREC), (1, PUBCOMP), (2, PUBACK)])
def test_4_3_an_acknowledgement_of_the_wrong_kind_is_a_protocol_error(qos: int, kind: int) -> None:
    world = World()
    subscriber, publisher = pair(world, qos)
    publisher.deliver("t/x", b"1", qos)
    (message,) = subscriber.messages()
    subscriber.send(Ack(kind, message.packet_id))
    assert subscriber.disconnected() == reasons.PROTOCOL_ERROR


def test_3_4_2_1_no_matching_subscribers() -> None:
    """Section 3.4.2.1, 3.5.2.1: 0x10 when nobody gets it."""
    publisher = World().connect("p")
    publisher.publish("t", b"", 1)
    assert publisher.one(Ack).reason_code == reasons.NO_MATCHING_SUBSCRIBERS
    publisher.publish("t", b"", 2)
    assert publisher.one(Ack).reason_code == reasons.NO_MATCHING_SUBSCRIBERS


def test_3_3_1_3_dup_is_not_passed_on() -> None:
    """[MQTT-3.3.1-3]"""
    world = World()
    subscriber, publisher = pair(world, 1)
    publisher.send(Publish("t/x", b"", 1, False, True, 5))
    (message,) = subscriber.messages()
    assert not message.dup


@pytest.mark.parametrize("version", [MQTT311, MQTT5])
@pytest.mark.parametrize("journal", JOURNALS)
def test_4_4_0_1_unacknowledged_messages_are_sent_again(version: int, journal: bool) -> None:
    """[MQTT-4.4.0-1], [MQTT-3.3.1-1], [MQTT-4.6.0-1]: in order, with DUP, and PUBREL for those that are received."""
    world = World(journal=journal)
    subscriber = world.connect("s", version, clean=False, expiry=100)
    subscriber.subscribe("t", qos=2)
    publisher = world.connect("p")
    for number, qos in enumerate((1, 2, 2, 1, 2)):
        publisher.deliver("t", b"%d" % number, qos)
    messages = subscriber.messages()
    subscriber.answer(messages[0])
    subscriber.send(Ack(PUBREC, messages[1].packet_id))
    subscriber.take()
    subscriber.drop()
    publisher.deliver("t", b"5", 1)
    subscriber = world.client()
    subscriber.send(Connect("s", version, False, properties=bits(session_expiry_s=100)))
    connack, release, *rest = subscriber.take()
    assert isinstance(connack, Connack)
    assert release == Ack(PUBREL, messages[1].packet_id)
    again = [packet for packet in rest if isinstance(packet, Publish)]
    assert [message.payload for message in again] == [b"2", b"3", b"4", b"5"]
    assert [message.dup for message in again] == [True, True, True, False]
    assert [message.packet_id for message in again[:3]] == [message.packet_id for message in messages[2:]]


def test_4_4_0_1_nothing_is_sent_again_on_the_same_connection() -> None:
    """[MQTT-4.4.0-1]: only after a reconnect."""
    world = World()
    subscriber, publisher = pair(world, 1)
    publisher.deliver("t/x", b"", 1)
    assert len(subscriber.messages()) == 1
    world.advance(10_000)
    assert subscriber.messages() == []


def test_2_2_1_4_identifiers_under_way_are_not_given_again() -> None:
    """[MQTT-2.2.1-4], [MQTT-4.3.2-1], [MQTT-4.3.3-1]: also when the numbers start anew after 65535."""
    world = World()
    subscriber, publisher = pair(world, 1)
    session = world.hub.sessions.by_client_id["s"]
    session.backlog.sequence = 65_530
    publisher.deliver("t/x", b"stuck", 1)
    (stuck,) = subscriber.messages()
    session.backlog.sequence += 65_530
    used: list[int] = []
    for number in range(20):
        publisher.deliver("t/x", b"%d" % number, 1)
        for message in subscriber.messages():
            assert message.packet_id not in (0, stuck.packet_id)
            used.append(message.packet_id)
            subscriber.answer(message)
    assert used
    subscriber.send(Ack(PUBACK, stuck.packet_id))
    rest = subscriber.messages()
    while rest:
        used.append(rest[0].packet_id)
        subscriber.answer(rest[0])
        rest = rest[1:] + subscriber.messages()
    assert len(used) == 20
    assert min(used) >= 1
    assert max(used) <= 65_535


@pytest.mark.parametrize("qos", [1, 2])
def test_4_3_2_5_after_the_last_acknowledgement_an_identifier_is_new(qos: int) -> None:
    """[MQTT-4.3.2-5], [MQTT-4.3.3-9], [MQTT-4.3.3-12]: whatever DUP says."""
    world = World(access=Lists())
    subscriber, publisher = pair(world, 2)
    for payload in (b"1", b"2"):
        publisher.send(Publish("t/x", payload, qos, False, True, 7))
        if qos == 2:
            publisher.send(Ack(PUBREL, 7))
    publisher.take()
    publisher.send(Publish("closed/t", b"no", qos, False, False, 7))
    publisher.send(Publish("t/x", b"3", qos, False, False, 7))
    assert subscriber.payloads() == [b"1", b"2", b"3"]


def test_4_3_3_13_the_exchange_goes_on_though_the_message_has_expired() -> None:
    """[MQTT-4.3.3-13]"""
    world = World()
    subscriber, publisher = pair(world, 2)
    publisher.deliver("t/x", b"", 2, expiry_s=0)
    assert subscriber.messages() == []


def test_3_3_4_10_a_full_window_delays_nothing_else() -> None:
    """[MQTT-3.3.4-10], [MQTT-4.9.0-3]"""
    world = World()
    subscriber = world.connect("s", properties=bits(receive_maximum=1))
    subscriber.subscribe("t", qos=1)
    publisher = world.connect("p")
    for _ in range(3):
        publisher.deliver("t", b"", 1)
    assert len(subscriber.messages()) == 1
    subscriber.ping()
    assert subscriber.subscribe("u") == [0]
    assert subscriber.unsubscribe("u") == [0]
    subscriber.deliver("v", b"", 2)


# --- order --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("journal", JOURNALS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_4_6_0_5_order_is_kept(qos: int, journal: bool) -> None:
    """[MQTT-4.6.0-5], [MQTT-4.6.0-6]: per topic and QoS, through window and queue."""
    world = World(HubSettings(max_inflight=3, memory_entries=4, memory_bytes=10**6), journal=journal)
    subscriber, publisher = pair(world, qos)
    for number in range(50):
        publisher.deliver("t/x", b"%d" % number, qos)
    got: list[bytes] = []
    while messages := subscriber.messages():
        assert len(messages) <= 3 or qos == 0
        for message in messages:
            got.append(message.payload)
            if qos == 1:
                subscriber.connection.receive(encode(Ack(PUBACK, message.packet_id), MQTT5))
            elif qos == 2:
                subscriber.connection.receive(encode(Ack(PUBREC, message.packet_id), MQTT5))
        world.settle()
        if qos == 2:
            for release in [packet for packet in subscriber.take() if isinstance(packet, Ack)]:
                subscriber.connection.receive(encode(Ack(PUBCOMP, release.packet_id), MQTT5))
            world.settle()
    assert got == [b"%d" % number for number in range(50)]


def test_4_6_0_2_acknowledgements_follow_the_order_of_the_messages() -> None:
    """[MQTT-4.6.0-2], [MQTT-4.6.0-3]: a refusal does not overtake."""
    world = World(access=Lists())
    publisher = world.connect("p")
    world.auto_commit = False
    for packet_id, topic in enumerate(("t", "closed/t", "t"), 1):
        publisher.publish(topic, b"", 1, packet_id=packet_id)
    world.commit()
    acks = publisher.take()
    assert [ack.packet_id for ack in acks if isinstance(ack, Ack)] == [1, 2, 3]


def test_4_6_0_2_acknowledgements_keep_their_order_when_the_disk_is_full() -> None:
    world = World()
    publisher = world.connect("p")
    world.auto_commit = False
    for packet_id in range(1, 4):
        publisher.publish("t", b"", 1, packet_id=packet_id)
    world.disk_full()
    acks = [ack for ack in publisher.take() if isinstance(ack, Ack)]
    assert [(ack.packet_id, ack.reason_code) for ack in acks] == [(n, reasons.QUOTA_EXCEEDED) for n in (1, 2, 3)]


# --- flow control -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
def test_3_3_4_9_the_clients_receive_maximum(qos: int) -> None:
    """[MQTT-3.3.4-9], [MQTT-4.9.0-1], [MQTT-4.9.0-2]: no more than it takes; QoS 0 passes."""
    world = World()
    subscriber = world.connect("s", properties=bits(receive_maximum=2))
    subscriber.subscribe("t", qos=2)
    publisher = world.connect("p")
    for number in range(5):
        publisher.deliver("t", b"%d" % number, qos)
    publisher.deliver("t", b"zero", 0)
    messages = subscriber.messages()
    assert [message.payload for message in messages] == [b"0", b"1", b"zero"]
    subscriber.answer(messages[0])
    assert subscriber.payloads() == [b"2"]
    subscriber.send(Ack(PUBREC if qos == 2 else PUBACK, messages[1].packet_id))
    if qos == 2:  # PUBREC does not free the place, PUBCOMP does
        assert subscriber.one(Ack).kind == PUBREL
        subscriber.send(Ack(PUBCOMP, messages[1].packet_id))
    assert subscriber.payloads() == [b"3"]


def test_3_3_4_7_the_servers_receive_maximum() -> None:
    """[MQTT-3.3.4-7]: DISCONNECT with 0x93 for one message too many."""
    world = World(HubSettings(receive_maximum=2))
    world.auto_commit = False
    client = world.client()
    client.send(Connect("p"))
    world.commit()
    client.take()
    for packet_id in (1, 2):
        client.publish("t", b"", 1, packet_id=packet_id)
    assert not client.closed
    world.commit()
    for packet_id in (3, 4):
        client.publish("t", b"", 1, packet_id=packet_id)
    assert not client.closed
    client.publish("t", b"", 1, packet_id=5)
    assert client.disconnected() == reasons.RECEIVE_MAXIMUM_EXCEEDED


def test_4_9_qos_2_counts_until_pubcomp() -> None:
    """Section 4.9"""
    world = World(HubSettings(receive_maximum=2))
    client = world.connect("p")
    client.publish("t", b"", 2, packet_id=1)
    client.publish("t", b"", 2, packet_id=2)
    client.publish("t", b"", 2, packet_id=2)  # a repeat does not count
    assert not client.closed
    client.send(Ack(PUBREL, 1))
    client.publish("t", b"", 2, packet_id=3)
    assert not client.closed
    client.publish("t", b"", 2, packet_id=4)
    assert client.disconnected() == reasons.RECEIVE_MAXIMUM_EXCEEDED
