"""Shared subscriptions: one member of each group gets each message (section 4.8.2)."""

import pytest

from metromq.protocol import reasons
from metromq.protocol.wire.packets import (
    PUBREC,
    Ack,
    Connect,
    Publish,
    Subscribe,
    Subscription,
)
from tests.spec.world import Client, Lists, World, bits


def _group(world: World, *names: str, qos: int = 1, expiry: int = 0) -> list[Client]:
    members = [world.connect(name, expiry=expiry) for name in names]
    for member in members:
        assert member.subscribe("$share/g/t/+", qos=qos) == [qos]
    return members


@pytest.mark.parametrize("journal", [True, False])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_4_8_2_one_member_gets_each_message(qos: int, journal: bool) -> None:
    """Section 4.8.2: other groups and plain subscriptions get their own copy; the work is spread."""
    world = World(journal=journal)
    members = _group(world, "a", "b", "c", qos=2)
    other, plain = world.connect("o"), world.connect("x")
    other.subscribe("$share/h/t/+", qos=2)
    plain.subscribe("t/+", qos=2)
    publisher = world.connect("p")
    for number in range(9):
        publisher.deliver("t/x", b"%d" % number, qos)
    everything = [b"%d" % number for number in range(9)]
    got = [member.payloads() for member in members]
    assert sorted(got[0] + got[1] + got[2]) == everything
    assert [len(one) for one in got] == [3, 3, 3]
    assert other.payloads() == everything
    assert plain.payloads() == everything


def test_4_8_2_members_of_two_groups_and_both_kinds() -> None:
    """Section 4.8.2: a client in two groups, and with a plain subscription, gets a copy of each."""
    world = World()
    client = world.connect("a")
    client.subscribe("$share/g/t", "$share/h/t", "t", qos=1)
    world.connect("p").deliver("t", b"x", 1)
    assert client.payloads() == [b"x", b"x", b"x"]


def test_4_8_2_offline_members() -> None:
    """Section 4.8.2: connected members come first; when all are away a lasting session keeps the message."""
    world = World()
    first, second = _group(world, "a", "b", expiry=100)
    publisher = world.connect("p")
    first.drop()
    for number in range(4):
        publisher.deliver("t/x", b"%d" % number, 1)
    assert second.payloads() == [b"0", b"1", b"2", b"3"]
    second.drop()
    publisher.deliver("t/x", b"4", 1)
    publisher.deliver("t/x", b"5", 1)
    kept: list[bytes] = []
    for name in ("a", "b"):
        client = world.client()
        client.send(Connect(name, clean_start=False, properties=bits(session_expiry_s=100)))
        kept += [packet.payload for packet in client.take() if isinstance(packet, Publish) and not packet.dup]
    assert sorted(kept) == [b"4", b"5"]


def test_4_8_2_4_a_member_that_leaves_gets_the_rest_when_it_is_back() -> None:
    """[MQTT-4.8.2-4]: a delivery of QoS 2 that began is finished with the same member."""
    world = World()
    first, second = _group(world, "a", "b", qos=2, expiry=100)
    publisher = world.connect("p")
    publisher.deliver("t/x", b"1", 2)
    chosen, name = (first, "a") if first.inbox else (second, "b")
    other = second if chosen is first else first
    (message,) = chosen.messages()
    chosen.drop()
    assert other.messages() == []
    back = world.client()
    back.send(Connect(name, clean_start=False, properties=bits(session_expiry_s=100)))
    _, again = back.take()
    assert isinstance(again, Publish)
    assert (again.payload, again.dup, again.packet_id) == (b"1", True, message.packet_id)


def test_4_8_2_5_no_other_member_gets_what_a_session_took_with_it() -> None:
    """[MQTT-4.8.2-5]: QoS 2 that was sent to a session that ends goes to nobody else."""
    world = World()
    members = _group(world, "a", "b", qos=2)
    world.connect("p").deliver("t/x", b"1", 2)
    chosen = next(member for member in members if member.inbox)
    chosen.drop()
    assert all(member.messages() == [] for member in members if member is not chosen)


def test_4_8_2_3_each_member_has_its_own_qos() -> None:
    """[MQTT-4.8.2-3]"""
    world = World()
    members = [world.connect(name) for name in "abc"]
    for qos, member in enumerate(members):
        assert member.subscribe("$share/g/t", qos=qos) == [qos]
    publisher = world.connect("p")
    for _ in range(6):
        publisher.deliver("t", b"", 2)
    for qos, member in enumerate(members):
        assert {message.qos for message in member.messages()} == {qos}


def test_4_8_2_6_a_refusal_is_not_offered_to_another_member() -> None:
    """[MQTT-4.8.2-6]"""
    world = World()
    members = _group(world, "a", "b", qos=2)
    world.connect("p").deliver("t/x", b"1", 2)
    chosen = next(member for member in members if member.inbox)
    (message,) = chosen.messages()
    chosen.send(Ack(PUBREC, message.packet_id, reasons.UNSPECIFIED_ERROR))
    assert all(member.messages() == [] for member in members)


def test_4_8_2_a_member_that_may_not_read_is_passed_over() -> None:
    class Some(Lists):
        def may_read(self, session: object, topic: str) -> bool:
            return getattr(session, "client_id", "") != "a"

    world = World(access=Some())
    first, second = _group(world, "a", "b")
    publisher = world.connect("p")
    for number in range(4):
        publisher.deliver("t/x", b"%d" % number, number % 2)
    assert first.messages() == []
    assert len(second.messages()) == 4


def test_4_8_2_a_busy_member_is_spared() -> None:
    """A member whose window is full waits; the others go on."""
    world = World()
    slow = world.connect("slow", properties=bits(receive_maximum=1))
    slow.subscribe("$share/g/t", qos=1)
    quick = world.connect("quick")
    quick.subscribe("$share/g/t", qos=1)
    publisher = world.connect("p")
    for number in range(10):
        publisher.deliver("t", b"%d" % number, 1)
        for message in quick.messages():
            quick.answer(message)
    assert len(slow.messages()) == 1
    assert world.hub.sessions.by_client_id["slow"].backlog.waiting() == 1


def test_3_8_4_shared_subscriptions_get_no_retained_messages() -> None:
    """Section 4.8.2, [MQTT-3.3.1-9]"""
    world = World()
    world.connect("p").deliver("t/x", b"x", 1, retain=True)
    (member,) = _group(world, "a")
    assert member.messages() == []


def test_3_8_3_4_no_local_and_sharing_exclude_each_other() -> None:
    """[MQTT-3.8.3-4]"""
    client = World().connect("a")
    client.send(Subscribe(1, [Subscription("$share/g/t", 0, no_local=True)]))
    assert client.disconnected() == reasons.PROTOCOL_ERROR


def test_4_8_2_unsubscribing_needs_the_full_name() -> None:
    """[MQTT-3.10.4-1]: `$share/g/t` and `t` are two subscriptions; an empty group is gone."""
    world = World()
    client = world.connect("a")
    client.subscribe("$share/g/t", "t")
    assert client.unsubscribe("$share/h/t", "$share/g/t") == [0x11, 0]
    world.connect("p").publish("t", b"x")
    assert client.payloads() == [b"x"]
    assert len(world.hub.routes.shares) == 0


def test_identifiers_of_shared_subscriptions() -> None:
    """[MQTT-3.3.4-3]"""
    world = World()
    client = world.connect("a")
    client.subscribe("$share/g/t", qos=1, identifier=4)
    publisher = world.connect("p")
    publisher.deliver("t", b"", 0)
    publisher.deliver("t", b"", 1)
    assert [m.identifiers for m in client.messages()] == [(4,), (4,)]
