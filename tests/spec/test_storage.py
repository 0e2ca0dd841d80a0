"""What waits and where: queues in memory and journal, slow readers, full disks, and sessions across restarts."""

import pytest

from metromq.protocol import reasons
from metromq.protocol.session.hub_recovery import Snapshot
from metromq.protocol.session.hub_settings import HubSettings
from metromq.protocol.session.session import RouteTarget, Session
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
    Subscribe,
    Subscription,
)
from tests.spec.world import Client, World, bits


def _resume(world: World, name: str, **properties: object) -> tuple[Client, list[Publish]]:
    client = world.client()
    client.send(Connect(name, clean_start=False, properties=bits(session_expiry_s=1000, **properties)))
    connack, *rest = client.take()
    assert isinstance(connack, Connack)
    assert connack.session_present
    return client, [packet for packet in rest if isinstance(packet, Publish)]


def _drain(client: Client, first: list[Publish]) -> list[Publish]:
    """Answers everything until nothing more comes."""
    got: list[Publish] = []
    waiting = first
    while waiting:
        message = waiting.pop(0)
        got.append(message)
        if message.qos:
            client.send(Ack(PUBACK, message.packet_id))
        waiting += client.messages()
    return got


# --- snapshots ----------------------------------------------------------------------------------------------------


def test_a_snapshot_stands_still_while_the_hub_goes_on() -> None:
    world = World(HubSettings(memory_entries=5, max_inflight=3))
    client = world.connect("s", expiry=1000)
    client.subscribe("t/#", qos=2, identifier=3)
    publisher = world.connect("p", expiry=1000)
    for number in range(120):
        publisher.publish(f"r/{number}", b"kept", 1, retain=True)
    for number in range(12):
        publisher.publish(f"t/{number}", b"%d" % number, 2)
    image = Snapshot(world.hub)
    packed = b"".join(image.pieces())
    assert packed == b"".join(Snapshot(world.hub).pieces())
    for message in client.messages():
        client.send(Ack(PUBREC, message.packet_id))
    client.subscribe("u")
    publisher.publish("r/7", b"", 1, retain=True)
    publisher.publish("r/8", b"changed", 1, retain=True)
    publisher.send(Publish("t/x", b"held", 2, packet_id=77))
    client.drop()
    publisher.drop()
    assert b"".join(image.pieces()) == packed
    assert b"".join(Snapshot(world.hub).pieces()) != packed


# --- queues -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("snapshot_at", [None, 0, 20, 50])
def test_4_5_0_1_an_offline_session_gets_everything_in_order(crash: bool, snapshot_at: int | None) -> None:
    """[MQTT-4.5.0-1]: few in memory, the rest in the journal, with their own identifiers and options."""
    world = World(HubSettings(memory_entries=5, max_inflight=3))
    client = world.connect("s", expiry=1000)
    client.subscribe("t/#", qos=1, identifier=3)
    client.drop()
    publisher = world.connect("p")
    for number in range(50):
        if number == snapshot_at:
            world.take_snapshot()
        publisher.deliver(f"t/{number}", b"%d" % number, 1)
    if snapshot_at == 50:
        world.take_snapshot()
    session = world.hub.sessions.by_client_id["s"]
    assert (len(session.backlog.queue), session.backlog.spilled) == (5, 45)
    if crash:
        world.crash()
    client, first = _resume(world, "s")
    assert len(first) == 3
    got = _drain(client, first)
    assert [(m.topic, m.payload, m.identifiers) for m in got] == [(f"t/{n}", b"%d" % n, (3,)) for n in range(50)]
    assert len({m.packet_id for m in got}) == 50
    session = world.hub.sessions.by_client_id["s"]
    assert (session.backlog.waiting(), session.backlog.queued_bytes, session.backlog.spilled_bytes) == (0, 0, 0)


def test_memory_of_a_queue_is_bounded_by_bytes_too() -> None:
    """A few large messages wait in the journal just as many small ones."""
    world = World(HubSettings(memory_bytes=10_000))
    client = world.connect("s", expiry=1000)
    client.subscribe("t", qos=1)
    client.drop()
    publisher = world.connect("p")
    for number in range(30):
        publisher.deliver("t", bytes([number]) * 4000, 1)
    session = world.hub.sessions.by_client_id["s"]
    assert session.backlog.queued_bytes < 15_000
    client, first = _resume(world, "s", receive_maximum=2)
    assert [m.payload[0] for m in _drain(client, first)] == list(range(30))


def test_topics_count_for_the_bytes_of_a_queue() -> None:
    """A thousand of 65 kB waited in memory where a megabyte may."""
    world = World(HubSettings(memory_bytes=10_000, max_queued_bytes=60_000))
    client = world.connect("s", expiry=1000)
    client.subscribe("t/#", qos=1)
    client.drop()
    publisher = world.connect("p")
    for number in range(30):
        publisher.deliver(f"t/{number}/".ljust(4000, "x"), b"", 1)
    backlog = world.hub.sessions.by_client_id["s"].backlog
    assert backlog.queued_bytes < 15_000
    assert (len(backlog.queue), backlog.spilled, world.hub.counters.dropped) == (3, 12, 15)
    _, messages = _resume(world, "s")
    assert [m.topic.split("/")[1] for m in messages] == [str(number) for number in range(15)]
    assert (backlog.queued_bytes, backlog.spilled_bytes) == (0, 0)


@pytest.mark.parametrize("journal", [True, False])
def test_a_full_queue_drops_the_newest_and_counts(journal: bool) -> None:
    world = World(HubSettings(max_queued_messages=3), journal=journal)
    client = world.connect("s", expiry=1000)
    client.subscribe("t", qos=1)
    client.drop()
    publisher = world.connect("p")
    for number in range(5):
        publisher.deliver("t", b"%d" % number, 1)
    _, messages = _resume(world, "s")
    assert [m.payload for m in messages] == [b"0", b"1", b"2"]
    assert world.hub.counters.dropped == 2


def test_queued_bytes_have_a_limit_that_counts_the_journal() -> None:
    world = World(HubSettings(max_queued_bytes=10_000, memory_bytes=2_000))
    client = world.connect("s", expiry=1000)
    client.subscribe("t", qos=1)
    client.drop()
    publisher = world.connect("p")
    for number in range(20):
        publisher.deliver("t", bytes([number]) * 800, 1)
    _, messages = _resume(world, "s")
    assert len(messages) == 10


@pytest.mark.parametrize("memory_entries", [1, 2, 3, 4, 1000])
@pytest.mark.parametrize("crash", [False, True])
def test_several_copies_of_one_message_wait_together(memory_entries: int, crash: bool) -> None:
    """A session in two groups and with a plain subscription gets three copies, wherever they waited."""
    world = World(HubSettings(memory_entries=memory_entries))
    client = world.connect("s", expiry=1000)
    client.subscribe("$share/g/t", "$share/h/t", "t", qos=1)
    client.drop()
    publisher = world.connect("p")
    for number in range(5):
        publisher.deliver("t", b"%d" % number, 1)
    if crash:
        world.crash()
    client, first = _resume(world, "s", receive_maximum=2)
    assert [m.payload for m in _drain(client, first)] == [b"%d" % (number // 3) for number in range(15)]
    session = world.hub.sessions.by_client_id["s"]
    assert (session.backlog.waiting(), session.backlog.queued_bytes, session.backlog.spilled_bytes) == (0, 0, 0)


def test_more_receivers_and_identifiers_than_a_record_holds() -> None:
    """Records count receivers in two bytes and identifiers in one; nobody may be left out for that."""
    world = World()
    client = world.connect("many", expiry=1000)
    for number in range(1, 301):
        client.subscribe("t/" + "/".join("+" if number >> bit & 1 else str(bit) for bit in range(9)), identifier=number)
    topic = "t/" + "/".join(str(bit) for bit in range(9))
    publisher = world.connect("p")
    publisher.deliver(topic, b"x", 0)
    (message,) = client.messages()
    assert sorted(message.identifiers) == list(range(1, 301))
    client.subscribe("t/#", qos=1)
    publisher.deliver(topic, b"y", 1)
    assert client.payloads() == [b"y"]
    sessions = 70_000
    route = world.hub.routes.find(b"u")
    for number in range(sessions):
        session = Session(1000 + number, f"s{number}")
        session.backlog.durable = True
        target = RouteTarget(session)
        target.qos = 1
        route.targets.append(target)
    publisher.deliver("u", b"z", 1)
    assert sum(len(target.session.backlog.queue) for target in route.targets) == sessions


def test_qos_0_is_not_kept_for_the_absent() -> None:
    """Section 4.1, [MQTT-4.3.1-1]"""
    world = World()
    client = world.connect("s", expiry=1000)
    client.subscribe("t", qos=2)
    client.drop()
    world.connect("p").deliver("t", b"x", 0)
    assert _resume(world, "s")[1] == []


# --- slow readers -------------------------------------------------------------------------------------------------


def test_a_stalled_reader_is_bounded_and_stalls_nobody() -> None:
    """QoS 0 is dropped and counted past the limit; QoS 1 waits in the journal; others go on."""
    world = World(HubSettings(max_outgoing_bytes=20_000, memory_entries=10))
    stalled, other = world.connect("stalled", expiry=1000), world.connect("other")
    for client in (stalled, other):
        client.subscribe("t", qos=1)
    stalled.reading = False
    publisher = world.connect("p")
    lost = 0
    for number in range(300):
        publisher.deliver("t", b"%04d" % number + b"x" * 500, number % 2)
        for message in other.messages():
            lost += message.payload[:4] != b"%04d" % number
            other.answer(message)
    assert lost == 0
    connection, session = stalled.connection, world.hub.sessions.by_client_id["stalled"]
    assert connection.output.waiting_bytes < 22_000
    assert session.backlog.queued_bytes < 10 * 800
    assert connection.output.dropped > 50
    assert world.hub.counters.dropped == connection.output.dropped
    assert world.hub.delivery.take_slow() is connection.output
    stalled.reading = True
    world.deliver()
    connection.drained()
    stalled.collect()
    got = [int(message.payload[:4]) for message in _drain(stalled, stalled.messages()) if message.qos]
    assert got == list(range(1, 300, 2))
    publisher.deliver("t", b"9999", 0)
    assert stalled.payloads() == [b"9999"]  # no longer stalled


def test_queued_messages_go_on_when_the_output_has_drained_without_an_acknowledgement() -> None:
    """A burst of QoS 0 must not leave a QoS 1 message behind for ever."""
    world = World(HubSettings(max_outgoing_bytes=4_000))
    client = world.connect("s")
    client.subscribe("t", qos=1)
    publisher = world.connect("p")
    burst = b"".join(encode(Publish("t", b"x" * 500), MQTT5) for _ in range(6))
    publisher.feed(burst + encode(Publish("t", b"one", 1, packet_id=1), MQTT5))
    assert client.payloads()[-1] == b"one"


def test_a_publisher_on_the_long_way_feels_a_slow_reader_too() -> None:
    world = World(HubSettings(max_outgoing_bytes=4_000))
    client = world.connect("s")
    client.subscribe(Subscription("t", 0, no_local=True))
    client.reading = False
    publisher = world.connect("p")
    for _ in range(5):
        publisher.publish("t", b"x" * 500)
    assert world.hub.delivery.take_slow() is client.connection.output


# --- full disks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
def test_a_full_disk_refuses_with_0x97(qos: int) -> None:
    """Section 3.4.2.1, 3.5.2.1: Quota exceeded; QoS 0 and what is stored are served on."""
    world = World()
    client, publisher = world.connect("s"), world.connect("p")
    client.subscribe("t", qos=2)
    assert world.log is not None
    world.log.is_full = True
    publisher.publish("t", b"no", qos)
    ack = publisher.one(Ack)
    assert (ack.kind, ack.reason_code) == (PUBACK if qos == 1 else PUBREC, reasons.QUOTA_EXCEEDED)
    assert client.messages() == []
    publisher.publish("t", b"zero", 0)
    assert client.payloads() == [b"zero"]
    world.log.is_full = False
    publisher.deliver("t", b"yes", qos)
    assert client.payloads() == [b"yes"]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_full_disk_closes_older_clients_so_that_they_keep_their_message(qos: int) -> None:
    world = World()
    publisher = world.connect("p", MQTT311)
    assert world.log is not None
    world.log.is_full = True
    publisher.publish("t", b"no", qos)
    assert publisher.closed
    assert publisher.take() == []


def test_a_write_that_finds_no_room_undoes_its_messages() -> None:
    """Nobody gets what the publisher is told was refused, and queues and identifiers stay whole."""
    world = World(HubSettings(memory_entries=2))
    client = world.connect("s", expiry=1000)
    client.subscribe("t", qos=2)
    publisher, old = world.connect("p", expiry=1000), world.connect("old", MQTT311)
    publisher.deliver("t", b"kept", 1)
    world.auto_commit = False
    for number in range(5):
        publisher.publish("t", b"%d" % number, 1 + number % 2)
    old.publish("t", b"old", 1)
    world.disk_full()
    acks = [packet for packet in publisher.take() if isinstance(packet, Ack)]
    assert [ack.reason_code for ack in acks] == [reasons.QUOTA_EXCEEDED] * 5
    assert old.closed
    world.auto_commit = True
    assert client.payloads() == [b"kept"]
    assert world.hub.sessions.by_client_id["s"].backlog.waiting() == 0
    assert not world.hub.sessions.by_client_id["p"].incoming
    publisher.publish("t", b"again", 2, packet_id=3)  # the refused identifier is free
    assert publisher.one(Ack) == Ack(PUBREC, 3)
    (again,) = client.messages()
    assert again.payload == b"again"
    client.answer(again)
    world.crash()
    client, messages = _resume(world, "s")
    assert [m.payload for m in messages] == [b"kept"]
    publisher = world.connect("q")
    publisher.deliver("t", b"after", 1)
    assert client.payloads() == [b"after"]


def test_a_refusal_right_after_a_failed_write_does_not_wait() -> None:
    """There is nothing left to be committed, so nothing to wait for."""
    world = World()
    publisher = world.connect("p")
    world.auto_commit = False
    publisher.publish("t", b"", 1)
    world.disk_full()
    assert publisher.one(Ack).reason_code == reasons.QUOTA_EXCEEDED
    assert world.log is not None
    world.log.is_full = True
    publisher.publish("t", b"", 1)
    assert publisher.one(Ack).reason_code == reasons.QUOTA_EXCEEDED
    publisher.send(Ack(PUBREL, 9))
    assert publisher.one(Ack).kind == PUBCOMP
    world.log.is_full = False
    publisher.publish("t", b"", 1)
    assert publisher.take() == []
    world.commit()
    assert publisher.one(Ack).reason_code == reasons.NO_MATCHING_SUBSCRIBERS


def test_a_full_disk_ends_a_subscriber_that_waits_for_its_suback() -> None:
    world = World()
    client = world.connect("s", expiry=1000)
    world.auto_commit = False
    client.send(Subscribe(1, [Subscription("t", 1)]))
    world.disk_full()
    world.settle()
    assert client.disconnected() == reasons.QUOTA_EXCEEDED


# --- restarts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("snapshot", [False, True])
def test_4_1_0_1_inflight_state_survives_a_crash(snapshot: bool) -> None:
    """[MQTT-4.1.0-1], [MQTT-4.4.0-1]: same identifiers, DUP, and PUBREL where PUBREC had come."""
    world = World()
    client = world.connect("s", expiry=1000)
    client.subscribe("t", qos=2)
    publisher = world.connect("p")
    for number in range(4):
        publisher.deliver("t", b"%d" % number, 2)
    messages = client.messages()
    client.answer(messages[0])
    client.send(Ack(PUBREC, messages[1].packet_id))
    if snapshot:
        world.take_snapshot()
    world.crash()
    client = world.client()
    client.send(Connect("s", clean_start=False, properties=bits(session_expiry_s=1000)))
    _, release, *again = client.take()
    assert release == Ack(PUBREL, messages[1].packet_id)
    assert [(m.payload, m.packet_id, m.dup) for m in again if isinstance(m, Publish)] == [
        (b"2", messages[2].packet_id, True),
        (b"3", messages[3].packet_id, True),
    ]


@pytest.mark.parametrize("snapshot", [False, True])
def test_4_3_3_10_a_publishers_identifiers_survive_a_crash(snapshot: bool) -> None:
    """[MQTT-4.3.3-10]: a repeat after the crash is still a repeat."""
    world = World()
    client = world.connect("s", expiry=1000)
    client.subscribe("t", qos=2)
    publisher = world.connect("p", expiry=1000)
    publisher.publish("t", b"1", 2, packet_id=1)
    publisher.publish("t", b"2", 2, packet_id=2)
    publisher.send(Ack(PUBREL, 1))
    if snapshot:
        world.take_snapshot()
    world.crash()
    publisher = world.connect("p", clean=False, expiry=1000)
    publisher.send(Publish("t", b"2", 2, False, True, 2))
    assert publisher.one(Ack) == Ack(PUBREC, 2)
    publisher.send(Ack(PUBREL, 2))
    assert publisher.one(Ack) == Ack(PUBCOMP, 2)
    publisher.send(Ack(PUBREL, 1))
    assert publisher.one(Ack).reason_code == reasons.PACKET_IDENTIFIER_NOT_FOUND
    assert [m.payload for m in _resume(world, "s")[1]] == [b"1", b"2"]


def test_session_expiry_goes_on_over_a_restart() -> None:
    """Section 3.1.2.11.2: from the disconnection, or from the restart if the client was there."""
    world = World()
    world.connect("gone", expiry=100).drop()
    world.connect("here", expiry=100)
    world.advance(60)
    world.crash()
    world.advance(50)
    assert set(world.hub.sessions.by_client_id) == {"here"}
    world.advance(51)
    assert not world.hub.sessions.by_client_id
    world.crash()
    assert not world.hub.sessions.by_client_id


def test_3_1_2_4_a_crash_does_not_bring_back_a_discarded_session() -> None:
    """[MQTT-3.1.2-4]: CONNACK of a clean start waits until the journal has forgotten the old session."""
    world = World()
    old = world.connect("a", expiry=1000)
    old.subscribe("t", qos=1)
    old.drop()
    world.auto_commit = False
    client = world.client()
    client.send(Connect("a", clean_start=True, properties=bits(session_expiry_s=1000)))
    client.publish("t", b"early")  # a client need not wait for CONNACK
    assert client.take() == []
    world.commit()
    connack = client.one(Connack)
    assert not connack.session_present
    world.crash()
    world.auto_commit = True
    assert "a" not in world.hub.sessions.by_client_id or not world.hub.sessions.by_client_id["a"].grants


def test_3_1_2_4_a_clean_start_that_waits_can_be_taken_over() -> None:
    world = World()
    world.connect("a", expiry=1000)
    world.auto_commit = False
    first, second = world.client(), world.client()
    for client in (first, second):
        client.send(Connect("a", clean_start=True, properties=bits(session_expiry_s=1000)))
    world.auto_commit = True
    world.settle()
    assert first.closed
    assert first.take() == []
    assert second.one(Connack).reason_code == 0
    second.ping()
    assert not world.hub.sessions.erasing


def test_a_lost_client_leaves_nothing_behind() -> None:
    world = World()
    for number in range(20):
        client = world.connect(f"c{number}", MQTT5 if number % 2 else MQTT311)
        client.subscribe("t/+", f"u/{number}", "$share/g/t", qos=1)
        client.publish("t/x", b"", 1)
        client.drop()
    hub = world.hub
    assert not hub.sessions.by_client_id
    assert not hub.sessions.detached
    assert not hub.connections.open
    assert hub.routes.count == 0
    assert len(hub.routes.tree) == 0
    assert len(hub.routes.shares) == 0
    assert not hub.commits.waiting
