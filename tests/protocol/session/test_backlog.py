"""What is under way to a client, counted where it can be, against a plain list of packet identifiers."""

from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.protocol.session.backlog import Backlog, Entry, packet_id_of, sequence_of
from metromq.protocol.wire.packets import MQTT311, PUBACK, Ack
from tests.spec.world import World, pair

STEPS = st.lists(
    st.sampled_from(["pass", "pass", "pass some", "queue", "oldest", "oldest", "look"]) | st.integers(0, 5), max_size=40
)


@given(newest=st.integers(0, 200_000), packet_id=st.integers(1, 65_535))
def test_a_packet_identifier_has_a_number_also_if_the_count_was_set_back(newest: int, packet_id: int) -> None:
    """A session that moves on before all of it has come counts less than it has: one identifier gave -1, and the link
    on which that was told broke again and again."""
    sequence = sequence_of(packet_id, newest)
    assert packet_id_of(sequence) == packet_id
    assert sequence >= 1
    assert sequence <= newest or sequence <= 65_535
    assert sequence > newest - 65_535


@given(steps=STEPS, first=st.sampled_from([0, 65_530]))
@settings(max_examples=300)
def test_what_is_under_way_against_a_list(steps: list[str | int], first: int) -> None:
    backlog = Backlog(1)
    backlog.sequence = first
    twin: list[int] = []
    for step in steps:
        if step == "pass":
            assert backlog.next_is_free()
            twin.append(backlog.passes_on(1))
        elif step == "pass some":
            count = min(4, backlog.most_to_pass(1000))
            first_id = backlog.passes_on(count)
            twin += range(first_id, first_id + count)
        elif step == "queue":
            twin.append(backlog.next_packet_id())
            backlog.inflight[twin[-1]] = Entry(-1, 1, (), twin[-1], None)
        elif step == "look":
            assert list(backlog.inflight) == twin
        elif twin:
            packet_id = twin.pop(step if isinstance(step, int) and step < len(twin) else 0)
            if not backlog.confirms_passed(packet_id):
                del backlog.inflight[packet_id]
        assert backlog.under_way() == len(twin)
        assert not backlog.confirms_passed(packet_id_of(backlog.sequence + 1))
    assert list(backlog.inflight) == twin


def test_clients_may_confirm_in_any_order() -> None:
    world = World(journal=False)
    subscriber, publisher = pair(world, 1, MQTT311, MQTT311)
    for number in range(6):
        publisher.publish("t/x", b"%d" % number, 1)
    ids = [message.packet_id for message in subscriber.messages()]
    backlog = world.hub.sessions.by_client_id["s"].backlog
    assert len(set(ids)) == backlog.under_way() == 6
    for left, packet_id in zip(range(5, -1, -1), [ids[0], ids[3], ids[3] + 100, ids[1], ids[5], ids[2]], strict=True):
        subscriber.send(Ack(PUBACK, packet_id))
        assert backlog.under_way() == left + (left < 4)  # one identifier was never given
    assert list(backlog.inflight) == [ids[4]]
    subscriber.send(Ack(PUBACK, ids[4]))
    assert backlog.under_way() == 0


def test_a_session_keeps_one_subscription_and_many() -> None:
    world = World(journal=False)
    client = world.connect("c")
    session = world.hub.sessions.by_client_id["c"]
    for filters in (["a"], ["a", "b"], ["a", "b", "a"]):
        for filter in filters:
            client.subscribe(filter)
        assert sorted(session.grants) == sorted(set(filters))
    client.unsubscribe("a")
    assert list(session.grants) == ["b"]
    client.unsubscribe("b", "b")
    assert not session.grants
    client.subscribe("c")
    assert list(session.grants) == ["c"]


def test_subscriptions_that_are_alike_share_one_grant_also_when_they_are_changed() -> None:
    world = World(journal=False)
    client = world.connect("c")
    session = world.hub.sessions.by_client_id["c"]
    for qos in (0, 1):
        for filter in ("a", "b/+", "c"):
            client.subscribe(filter, qos=qos)
        (grant,) = set(session.grants.values())
        assert grant.qos == qos
