"""What a member of a shared subscription leaves when its session ends (section 4.8.2)."""

import pytest

from metromq.protocol import reasons
from metromq.protocol.session.hub_settings import HubSettings
from metromq.protocol.wire.packets import PUBACK, PUBREC, Ack, Connect, Publish
from tests.spec.world import Client, World, bits

SHARED = "$share/g/t/+"


def _member(world: World, name: str, qos: int = 1, expiry: int = 0, window: int = 100) -> Client:
    member = world.connect(name, properties=bits(session_expiry_s=expiry, receive_maximum=window))
    assert member.subscribe(SHARED, qos=qos) == [qos]
    return member


def _publish(world: World, count: int, qos: int, first: int = 0) -> list[bytes]:
    publisher = world.connect(f"p{first}")
    sent = [b"%d" % number for number in range(first, first + count)]
    for payload in sent:
        publisher.deliver("t/x", payload, qos)
    return sent


def _ends_by_clean_start(world: World, member: Client) -> None:
    member.drop()
    world.connect("a")


def _ends_by_expiry(world: World, member: Client) -> None:
    member.drop()
    world.advance(101)


def _ends_by_goodbye(_: World, member: Client) -> None:
    member.disconnect(expiry=0)


def _ends_by_takeover(world: World, _: Client) -> None:
    world.connect("a")


ENDS = [_ends_by_clean_start, _ends_by_expiry, _ends_by_goodbye, _ends_by_takeover]


@pytest.mark.parametrize("journal", [True, False])
@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("qos", [1, 2])
def test_4_8_2_what_a_member_did_not_confirm_goes_to_another(qos: int, ends: object, journal: bool) -> None:
    """Section 4.8.2: at QoS 1 also what was sent; at QoS 2 what was sent goes to nobody else [MQTT-4.8.2-5]."""
    world = World(journal=journal)
    first = _member(world, "a", 2, expiry=100, window=3)
    sent = _publish(world, 8, qos)
    seen = first.payloads()
    assert seen == sent[:3]  # the others wait for the window
    second = _member(world, "b", 2)
    assert callable(ends)
    ends(world, first)
    world.advance(1)
    assert second.payloads() == (sent if qos == 1 else sent[3:])
    assert world.hub.sessions.estates.count() == 0


@pytest.mark.parametrize("journal", [True, False])
def test_4_8_2_a_session_without_expiry_ends_with_its_connection(journal: bool) -> None:
    world = World(journal=journal)
    first = _member(world, "a")
    sent = _publish(world, 3, 1)
    second = _member(world, "b")
    confirmed = first.messages()[0]
    first.answer(confirmed)
    first.drop()
    assert second.payloads() == sent[1:]
    world.advance(1)
    assert second.payloads() == []


def test_4_8_2_6_what_a_member_refused_stays_refused() -> None:
    """[MQTT-4.8.2-6]: also when its session ends."""
    world = World()
    first = _member(world, "a", 2)
    _publish(world, 2, 2)
    one, other = first.messages()
    first.send(Ack(PUBREC, one.packet_id, reasons.UNSPECIFIED_ERROR))
    first.send(Ack(PUBREC, other.packet_id))
    second = _member(world, "b", 2)
    first.drop()
    assert second.messages() == []


def test_4_8_2_the_last_member_takes_it_along() -> None:
    """Section 4.8.2: with the last session the shared subscription is gone, and what was not delivered."""
    world = World()
    first = _member(world, "a")
    _publish(world, 3, 1)
    first.drop()
    assert _member(world, "b").messages() == []
    assert world.hub.sessions.estates.count() == 0


def test_4_8_2_only_what_came_by_the_group_goes_on() -> None:
    """Copies of own subscriptions and of other groups, by which the same message came, are not this group's."""
    world = World()
    first = world.connect("a")
    first.subscribe(SHARED, "$share/h/t/x", "t/#", qos=1)
    sent = _publish(world, 2, 1)
    assert len(first.messages()) == 6
    second, third = world.connect("b"), world.connect("c")
    second.subscribe(SHARED, qos=1)
    third.subscribe("$share/h/t/x", qos=1)
    first.drop()
    assert second.payloads() == sent
    assert third.payloads() == sent


def test_3_10_4_who_unsubscribes_keeps_what_was_on_its_way() -> None:
    """[MQTT-3.10.4-3]; if the session then ends, other members get it."""
    world = World()
    first = _member(world, "a", window=1)
    second = _member(world, "b")
    sent = _publish(world, 1, 1)
    holder, other = (first, second) if first.inbox else (second, first)
    assert holder.payloads() == sent
    assert holder.unsubscribe(SHARED) == [0]
    assert other.messages() == []
    holder.drop()
    assert other.payloads() == sent


def test_4_8_2_who_is_chosen_next_may_read_it() -> None:
    """A session that is away is chosen if nobody is there, and what it must not read goes to nobody."""
    world = World()
    first = _member(world, "a")
    waiting = _member(world, "b", expiry=1000)
    waiting.drop()
    sent = _publish(world, 2, 1)
    first.drop()
    back = world.client()
    back.send(Connect("b", clean_start=False, properties=bits(session_expiry_s=1000)))
    assert [packet.payload for packet in back.take() if isinstance(packet, Publish)] == sent


def test_4_8_2_expired_messages_go_to_nobody() -> None:
    """[MQTT-3.3.2-5]"""
    world = World()
    first = _member(world, "a", expiry=100, window=1)
    publisher = world.connect("p")
    for number in range(3):
        publisher.deliver("t/x", b"%d" % number, 1, expiry_s=5)
    first.drop()
    second = _member(world, "b", 1)
    world.advance(101)
    assert second.messages() == []


# --- long queues, crashes and full disks ------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
def test_4_8_2_a_long_queue_goes_on_in_portions(qos: int) -> None:
    """Others need not wait while it does, and the journal may hold the most of it."""
    world = World(HubSettings(memory_entries=10))
    first = _member(world, "a", 2, expiry=100)
    first.drop()
    sent = _publish(world, 1_500, qos)
    second = _member(world, "b", 2)
    world.now += 101
    world.hub.at(world.now, world.wall_us())
    world.hub.tick()
    assert 0 < world.hub.sessions.by_client_id["b"].backlog.unsettled() < 1_500
    got: list[bytes] = []
    for _ in range(40):
        world.advance(0.5)
        for message in second.messages():
            got.append(message.payload)
            second.answer(message)
    assert got == sent
    assert world.hub.sessions.estates.count() == 0


@pytest.mark.parametrize("with_snapshot", [True, False])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("kept", [0, 1, 2, 3, 5, 8, 100])
def test_a_crash_while_it_goes_on_loses_nothing(qos: int, kept: int, with_snapshot: bool) -> None:
    """Whatever of the last moments the disk has: every message once, and the session does not come back."""
    world = World()
    first = _member(world, "a", 2, expiry=100)
    second = _member(world, "b", 2, expiry=1000)
    first.drop()
    second.drop()
    publisher = world.connect("p")
    for number in range(4):
        publisher.deliver("t/x", b"%d" % number, qos)
    if with_snapshot:
        world.take_snapshot()
    world.auto_commit = False
    world.now += 101
    world.hub.at(world.now, world.wall_us())
    world.hub.tick()
    world.crash(kept)
    world.auto_commit = True
    for _ in range(3):
        world.advance(1)
    assert "a" not in world.hub.sessions.by_client_id
    back = world.client()
    back.send(Connect("b", clean_start=False, properties=bits(session_expiry_s=1000)))
    got = [packet.payload for packet in back.take() if isinstance(packet, Publish)]
    assert sorted(got) == [b"0", b"1", b"2", b"3"]
    assert world.hub.sessions.estates.count() == 0


def test_a_full_disk_does_not_lose_it() -> None:
    """What could not be written for the other member waits, and goes on when there is room."""
    world = World()
    first = _member(world, "a", expiry=100)
    sent = _publish(world, 3, 1)
    assert first.payloads() == sent
    second = _member(world, "b")
    world.auto_commit = False
    first.disconnect(expiry=0)
    world.disk_full()
    assert second.messages() == []
    world.auto_commit = True
    assert world.log is not None
    world.log.is_full = True
    world.advance(1)
    assert second.messages() == []
    world.log.is_full = False
    world.advance(1)
    assert second.payloads() == sent
    assert world.hub.sessions.estates.count() == 0


def test_a_clean_start_does_not_bring_the_old_session_back() -> None:
    """[MQTT-3.1.2-4]: CONNACK waits for the journal, also while messages go on to another member."""
    world = World()
    first = _member(world, "a", expiry=100)
    second = _member(world, "b", expiry=100)
    first.drop()
    second.drop()
    sent = _publish(world, 4, 1)
    again = world.connect("a", expiry=100)
    assert not again.connack.session_present
    world.crash()
    client = world.client()
    client.send(Connect("a", clean_start=False, properties=bits(session_expiry_s=100)))
    assert [packet for packet in client.take() if isinstance(packet, Publish)] == []
    back = world.client()
    back.send(Connect("b", clean_start=False, properties=bits(session_expiry_s=100)))
    messages = [packet for packet in back.take() if isinstance(packet, Publish)]
    assert sorted(message.payload for message in messages) == sent
    back.send(Ack(PUBACK, messages[0].packet_id))
