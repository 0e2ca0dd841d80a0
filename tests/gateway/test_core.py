"""A proxy's client without a network: what goes where, how answers are joined, and what a lost broker leaves behind."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metromq.errors import ProtocolViolation
from metromq.gateway.core import ProxyCore
from metromq.gateway.effects import CloseClient, CloseWay, Effect, OpenWay, ToClient, ToWay, merged
from metromq.gateway.packet_ids import PacketIds
from metromq.gateway.table import CENTRAL, DelegationTable
from metromq.gateway.tunnel import FrameReader, pack
from metromq.protocol.wire import (
    MQTT5,
    MQTT311,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Ack,
    Connack,
    Framer,
    Packet,
    Properties,
    Publish,
    Subscription,
    decode,
    encode,
    packets,
)

TABLE = {"near/#": "e1", "near/deep/#": "e2"}


def read(data: bytes, version: int, server: bool) -> list[Packet]:
    framer = Framer(1 << 20)
    framer.feed(data)
    found: list[Packet] = []
    while (one := framer.next()) is not None:
        found.append(decode(*one, version, server))
    return found


class Client:
    """A core that has been let in, and what came of each event."""

    def __init__(
        self,
        version: int = MQTT5,
        table: DelegationTable | None = None,
        clean: bool = True,
        present: bool = False,
        first: Iterable[Packet] = (),
        ids: PacketIds | None = None,
        **asked: int,
    ) -> None:
        self.version = version
        known = ids if ids is not None else PacketIds()
        self.core = ProxyCore(table or DelegationTable(TABLE), lambda client_id: known)
        connect = packets.Connect("c", version, clean, 60, properties=Properties(**asked))  # type: ignore[arg-type]
        self.first = self.core.from_client(b"".join(encode(packet, version) for packet in (connect, *first)))
        self.let_in = self.way(CENTRAL, Connack(session_present=present))

    def says(self, packet: Packet) -> list[Effect]:
        return self.core.from_client(encode(packet, self.version))

    def way(self, name: str, packet: Packet) -> list[Effect]:
        return self.core.from_way(name, encode(packet, self.version))

    def told(self, effects: list[Effect]) -> list[Packet]:
        data = b"".join(effect.data for effect in effects if isinstance(effect, ToClient))
        return read(data, self.version, False)

    def sent(self, effects: list[Effect], name: str) -> list[Packet]:
        data = b"".join(effect.data for effect in effects if isinstance(effect, ToWay) and effect.way == name)
        return read(data, self.version, True)

    def opened(self, name: str) -> None:
        self.says(Publish({"e1": "near/x", "e2": "near/deep/x"}[name], b""))
        self.way(name, Connack())


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_frames_come_out_as_they_went_in_whatever_pieces_the_network_makes(size: int) -> None:
    frames = [(1, b"abc"), (65_535, b""), (7, bytes(range(256)))]
    data = b"".join(pack(*frame) for frame in frames)
    reader = FrameReader()
    assert [frame for at in range(0, len(data), size) for frame in reader.feed(data[at : at + size])] == frames
    with pytest.raises(ProtocolViolation):
        list(FrameReader().feed(b"\0\1\xff\xff\xff\xff"))


def test_the_narrowest_filter_decides() -> None:
    table = DelegationTable(TABLE)
    assert [table.of_topic(topic) for topic in ("near/a", "near/deep/a", "far")] == ["e1", "e2", CENTRAL]
    assert table.of_filter("near/+") == ("e1",)
    assert table.of_filter("$share/g/near/deep/+") == ("e2",)
    assert table.of_filter("#") == (CENTRAL,), "a city's brokers tell each other"
    assert DelegationTable(TABLE, True).of_filter("#") == (CENTRAL, "e2", "e1")


@pytest.mark.parametrize(("wide", "narrow", "topic"), [("a/+", "a/b", "a/b"), ("a/#", "a", "a"), ("+/#", "a/#", "a/b")])
def test_the_narrower_of_filters_with_as_many_levels_decides_whichever_is_told_first(
    wide: str, narrow: str, topic: str
) -> None:
    both = ({wide: "e1", narrow: "e2"}, {narrow: "e2", wide: "e1"})
    assert [DelegationTable(table).of_topic(topic) for table in both] == ["e2", "e2"]


def test_the_client_enters_at_the_central_broker_with_its_own_connect() -> None:
    made = Client()
    assert made.first[0] == OpenWay(CENTRAL)
    assert made.sent(made.first, CENTRAL) == [packets.Connect("c", MQTT5, True, 60)]
    assert made.told(made.let_in) == [Connack()]
    with pytest.raises(ProtocolViolation):
        ProxyCore(DelegationTable({}), lambda client_id: PacketIds()).from_client(b"\xc0\x00")


def test_the_way_to_an_edge_broker_is_opened_when_it_is_needed_and_packets_wait_for_it() -> None:
    made = Client()
    effects = made.says(Publish("near/x", b"1", 1, packet_id=5))
    assert effects[0] == OpenWay("e1")
    (connect,) = made.sent(effects, "e1")
    assert isinstance(connect, packets.Connect)
    assert (connect.client_id, connect.will, connect.keepalive_s) == ("c@e1", None, 0)
    assert made.sent(made.way("e1", Connack()), "e1") == [Publish("near/x", b"1", 1, packet_id=5)]
    assert made.told(made.way("e1", Ack(PUBACK, 5))) == [Ack(PUBACK, 5)]


def test_clients_without_a_name_do_not_share_a_session() -> None:
    core = ProxyCore(DelegationTable(TABLE), lambda client_id: PacketIds())
    core.from_client(encode(packets.Connect("", MQTT311), MQTT311))
    core.from_way(CENTRAL, encode(Connack(), MQTT311))
    opened = [
        effect for effect in core.from_client(encode(Publish("near/x", b""), MQTT311)) if isinstance(effect, ToWay)
    ]
    (connect,) = read(opened[0].data, MQTT311, True)
    assert isinstance(connect, packets.Connect)
    assert connect.client_id == ""


@pytest.mark.parametrize("version", [MQTT311, MQTT5])
def test_what_can_go_as_it_is_goes_as_it_is(version: int) -> None:
    made = Client(version)
    made.opened("e1")
    for retain in (False, True):
        packet = Publish("near/ü", bytes(300), 0, retain)
        assert made.says(packet) == [ToWay("e1", encode(packet, version))]
        assert made.way("e1", packet) == [ToClient(encode(packet, version))]


MIXED = st.lists(
    st.one_of(
        st.builds(Publish, st.sampled_from(["near/a", "near/deep/b", "far", "ü"]), st.binary(max_size=200)),
        st.builds(Publish, st.just("near/a"), st.just(bytes(70_000))),
        st.builds(lambda n: Publish("near/a", b"x", 1, packet_id=n), st.integers(1, 9)),
        st.just(packets.Pingreq()),
    ),
    max_size=30,
)


@pytest.mark.parametrize("version", [MQTT311, MQTT5])
@given(sent=MIXED, cuts=st.lists(st.integers(1, 3000), min_size=1, max_size=20))
def test_whatever_pieces_packets_come_in_each_goes_its_way_in_order(
    version: int, sent: list[Packet], cuts: list[int]
) -> None:
    """Against the table, packet by packet: the fast way may not take another road than the slow one."""
    made = Client(version)
    for edge in ("e1", "e2"):
        made.opened(edge)
    data = b"".join(encode(packet, version) for packet in sent)
    effects: list[Effect] = []
    at, number = 0, 0
    while at < len(data):
        size = cuts[number % len(cuts)]
        effects += made.core.from_client(data[at : at + size])
        at, number = at + size, number + 1
    for way in (CENTRAL, "e1", "e2"):
        table = DelegationTable(TABLE)
        mine = [one for one in sent if (table.of_topic(one.topic) if isinstance(one, Publish) else CENTRAL) == way]
        assert made.sent(effects, way) == mine
    back = [one for one in sent if not isinstance(one, packets.Pingreq)]
    data = b"".join(encode(packet, version) for packet in back)
    effects = []
    at = 0
    while at < len(data):
        effects += made.core.from_way("e1", data[at : at + cuts[0]])
        at += cuts[0]
    told = made.told(effects)
    assert [one.payload for one in told if isinstance(one, Publish)] == [
        one.payload for one in back if isinstance(one, Publish)
    ]


def test_effects_are_merged_and_keep_their_order() -> None:
    effects: list[Effect] = [
        ToClient(b"1"),
        ToClient(b"2"),
        ToWay("a", b"3"),
        ToWay("b", b"4"),
        ToWay("b", b"5"),
        CloseClient(),
    ]
    assert merged([*effects, ToClient(b"6")]) == [
        *(ToClient(b"12"), ToWay("a", b"3"), ToWay("b", b"45"), CloseClient(), ToClient(b"6"))
    ]


def test_a_session_that_was_kept_asks_every_edge_broker_for_what_waits() -> None:
    assert [effect.way for effect in Client(clean=False).let_in if isinstance(effect, OpenWay)] == ["e1", "e2"]


def test_a_session_that_was_kept_asks_those_too_that_had_filters_and_leaves_where_it_never_was() -> None:
    made = Client(clean=False, table=DelegationTable({"near/#": "e1"}, others=("e1", "e2", "e3")), present=True)
    assert [effect.way for effect in made.let_in if isinstance(effect, OpenWay)] == ["e1", "e2", "e3"]
    assert made.way("e2", Connack(session_present=True)) == []
    left = made.way("e3", Connack())
    assert made.sent(left, "e3") == [packets.Disconnect(properties=Properties(session_expiry_s=0))]
    assert left[-1] == CloseWay("e3")
    (waited,) = made.told(made.way("e2", Publish("near/x", b"waited", 1, packet_id=3)))
    assert isinstance(waited, Publish)
    assert waited.payload == b"waited"
    assert made.way("e1", Connack()) == [], "it has a filter, and will be needed"


def test_a_visitor_of_3_1_1_leaves_nothing_behind_either() -> None:
    """Its session ends with its connection only where it was a clean one: it comes once more, with such a one."""
    table = DelegationTable({"near/#": "e1"}, others=("e2",))
    for is_needed in (False, True):
        made = Client(MQTT311, table, clean=False, present=True)
        again = made.way("e2", Connack())
        assert again[:2] == [CloseWay("e2"), OpenWay("e2")]
        (connect,) = made.sent(again, "e2")
        assert isinstance(connect, packets.Connect)
        assert connect.clean_start
        asked = packets.Subscribe(9, [Subscription("new/a", 1)])
        if is_needed:
            made.core.table = DelegationTable({"new/#": "e2"})
            assert made.says(asked) == []
        left = made.way("e2", Connack())
        assert made.sent(left, "e2")[0] == packets.Disconnect()
        assert (left[-1] == CloseWay("e2")) == (not is_needed)
        assert made.sent(made.way("e2", Connack()), "e2") == ([asked] if is_needed else [])


def test_a_session_that_begins_anew_and_will_be_kept_leaves_nothing_older_anywhere() -> None:
    table = DelegationTable({"near/#": "e1"}, others=("e1", "e2"))
    made = Client(table=table, session_expiry_s=60)
    for name in ("e1", "e2"):
        (connect,) = made.sent(made.let_in, name)
        assert isinstance(connect, packets.Connect)
        assert connect.clean_start
    assert made.way("e2", Connack())[-1] == CloseWay("e2")
    assert [type(effect) for effect in Client(table=table).let_in] == [ToClient], "it will not be kept"


def test_who_does_not_wait_for_its_connack_enters_once_everywhere_and_nothing_it_said_is_forgotten() -> None:
    made = Client(clean=False, first=[packets.Subscribe(9, [Subscription("near/a", 1)])])
    assert [effect.way for effect in made.first if isinstance(effect, OpenWay)] == [CENTRAL]
    assert [effect.way for effect in made.let_in if isinstance(effect, OpenWay)] == ["e1", "e2"]
    (asked,) = made.sent(made.way("e1", Connack()), "e1")
    assert isinstance(asked, packets.Subscribe)
    assert [one.filter for one in asked.subscriptions] == ["near/a"]
    made.core.way_lost("e1")
    assert made.sent(made.way("e1", Connack()), "e1") == [asked]


def test_who_subscribes_again_by_another_table_gets_no_second_copies() -> None:
    made = Client()
    made.says(packets.Subscribe(8, [Subscription("near/a", 1), Subscription("near/b", 1)]))
    made.way("e1", Connack())
    made.way("e1", packets.Suback(8, [1, 1]))
    made.core.table = DelegationTable({"near/#": "e2"})
    made.says(packets.Subscribe(9, [Subscription("near/a", 1)]))
    made.way("e2", Connack())
    done = made.way("e2", packets.Suback(9, [1]))
    assert made.told(done) == [packets.Suback(9, [1])]
    (left,) = made.sent(done, "e1")
    assert isinstance(left, packets.Unsubscribe)
    assert left.filters == ["near/a"]
    assert made.told(made.way("e1", packets.Unsuback(left.packet_id, [0]))) == [], "the client has not asked for it"
    assert made.sent(made.core.way_lost("e1"), CENTRAL) != [], "near/b was still there"


def test_of_a_session_that_was_kept_nobody_knows_where_a_subscription_was() -> None:
    made = Client(clean=False, table=DelegationTable({"near/#": "e1"}, others=("e2",)), present=True)
    made.way("e1", Connack(session_present=True))
    made.way("e2", Connack(session_present=True))
    made.says(packets.Subscribe(9, [Subscription("near/a", 1)]))
    done = made.way("e1", packets.Suback(9, [1]))
    for name in (CENTRAL, "e2"):
        (left,) = made.sent(done, name)
        assert isinstance(left, packets.Unsubscribe)
    made.core.way_lost("e2")
    made.core.way_lost("e1")
    (asked,) = made.sent(made.way("e1", Connack(session_present=True)), "e1")
    assert isinstance(asked, packets.Subscribe)
    assert made.way("e1", packets.Suback(asked.packet_id, [1])) == [], "where it is now it stays"


def test_a_release_that_nobody_remembers_goes_everywhere_and_is_answered_once() -> None:
    """Else a broker would take the next message with that identifier for a repeat."""
    made = Client(clean=False)
    made.way("e1", Connack(session_present=True))
    effects = made.says(Ack(PUBREL, 5))
    assert [made.sent(effects, name) for name in (CENTRAL, "e1")] == [[Ack(PUBREL, 5)]] * 2
    assert made.told(made.way(CENTRAL, Ack(PUBCOMP, 5, 0x92))) == []
    assert made.told(made.way("e1", Ack(PUBCOMP, 5))) == []
    assert made.told(made.core.way_lost("e2")) == [Ack(PUBCOMP, 5)]


def test_a_client_that_does_not_read_gets_no_more_qos_0_messages() -> None:
    made = Client()
    made.opened("e1")
    data = b"".join(encode(packet, MQTT5) for packet in (Publish("a", b"0"), Publish("a", b"1", 1, packet_id=1)))
    (told,) = made.told(made.core.from_way("e1", data, True))
    assert isinstance(told, Publish)
    assert told.payload == b"1"


def test_a_topic_alias_means_the_same_whichever_broker_gets_the_message() -> None:
    made = Client()
    made.opened("e1")
    named = made.says(Publish("near/x", b"1", topic_alias=3))
    short = made.says(Publish("", b"2", topic_alias=3))
    assert made.sent(named, "e1") == [Publish("near/x", b"1")]
    assert made.sent(short, "e1") == [Publish("near/x", b"2")]


def test_qos_2_goes_the_whole_way_to_the_same_broker() -> None:
    made = Client()
    made.opened("e1")
    made.says(Publish("near/x", b"1", 2, packet_id=5))
    made.way("e1", Ack(PUBREC, 5))
    made.core.table = DelegationTable({})  # it is returned meanwhile
    assert made.sent(made.says(Ack(PUBREL, 5)), "e1") == [Ack(PUBREL, 5)]
    assert made.told(made.way("e1", Ack(PUBCOMP, 5))) == [Ack(PUBCOMP, 5)]


@pytest.mark.parametrize("version", [MQTT311, MQTT5])
def test_a_subscribe_is_split_and_its_answers_are_joined_in_their_places(version: int) -> None:
    made = Client(version)
    wanted = [Subscription("near/a", 2), Subscription("far", 1), Subscription("near/deep/b", 0)]
    effects = made.says(packets.Subscribe(9, wanted))
    for name in ("e1", "e2"):
        effects += made.way(name, Connack())
    parts = {name: made.sent(effects, name)[-1] for name in (CENTRAL, "e1", "e2")}
    assert [one.filter for part in parts.values() for one in part.subscriptions] == ["far", "near/a", "near/deep/b"]  # type: ignore[union-attr]
    assert made.told(made.way("e2", packets.Suback(9, [0]))) == []
    assert made.told(made.way(CENTRAL, packets.Suback(9, [1]))) == []
    assert made.told(made.way("e1", packets.Suback(9, [2]))) == [packets.Suback(9, [2, 1, 0])]


def test_of_a_wildcard_at_several_brokers_the_worst_answer_counts() -> None:
    made = Client(table=DelegationTable(TABLE, True))
    made.opened("e1")
    made.opened("e2")
    made.says(packets.Subscribe(9, [Subscription("#", 2)]))
    made.way("e1", packets.Suback(9, [2]))
    made.way("e2", packets.Suback(9, [1]))
    assert made.told(made.way(CENTRAL, packets.Suback(9, [2]))) == [packets.Suback(9, [1])]
    made.says(packets.Unsubscribe(10, ["#"]))
    for name in ("e1", "e2"):
        assert made.told(made.way(name, packets.Unsuback(10, [0x11]))) == []
    assert made.told(made.way(CENTRAL, packets.Unsuback(10, [0]))) == [packets.Unsuback(10, [0])]


def test_deliveries_of_several_brokers_have_numbers_of_their_own() -> None:
    made = Client()
    made.opened("e1")
    delivered = [made.told(made.way(name, Publish("t", b"", 1, packet_id=1)))[0] for name in (CENTRAL, "e1")]
    numbers = [packet.packet_id for packet in delivered if isinstance(packet, Publish)]
    assert len(set(numbers)) == 2
    assert made.sent(made.says(Ack(PUBACK, numbers[1])), "e1") == [Ack(PUBACK, 1)]
    assert made.sent(made.says(Ack(PUBACK, numbers[0])), CENTRAL) == [Ack(PUBACK, 1)]


def test_another_proxy_releases_what_the_first_one_delivered() -> None:
    """It knows nothing of that one; a client shows a QoS 2 message when it is released under its identifier."""
    first, second = Client(clean=False), Client(clean=False, present=True)
    for made in (first, second):
        made.way("e1", Connack(session_present=True))
    first.way("e1", Publish("near/x", b"1", 1, packet_id=3))
    (delivered,) = first.told(first.way("e1", Publish("near/x", b"2", 2, packet_id=4)))
    assert isinstance(delivered, Publish)
    first.says(Ack(PUBREC, delivered.packet_id))
    assert second.told(second.way("e1", Ack(PUBREL, 4))) == [Ack(PUBREL, delivered.packet_id)]


def test_a_client_never_has_more_under_way_than_it_allows() -> None:
    made = Client(receive_maximum=1)
    made.opened("e1")
    assert made.told(made.way(CENTRAL, Publish("t", b"1", 1, packet_id=1))) != []
    assert made.told(made.way("e1", Publish("t", b"2", 1, packet_id=1))) == []
    (held,) = made.told(made.says(Ack(PUBACK, 1)))
    assert isinstance(held, Publish)
    assert held.payload == b"2"


def test_when_an_edge_broker_is_lost_its_subscriptions_and_messages_are_the_central_brokers() -> None:
    made = Client()
    made.opened("e1")
    made.says(packets.Subscribe(9, [Subscription("near/a", 1)]))
    made.way("e1", packets.Suback(9, [1]))
    made.says(packets.Subscribe(10, [Subscription("near/b", 2)]))  # not answered yet
    made.says(Publish("near/x", b"1", 1, packet_id=5))
    effects = made.core.way_lost("e1")
    asked = made.sent(effects, CENTRAL)
    assert [one.subscriptions[0].filter for one in asked if isinstance(one, packets.Subscribe)] == ["near/b", "near/a"]
    assert asked[-1] == Publish("near/x", b"1", 1, packet_id=5)
    numbers = [one.packet_id for one in asked if isinstance(one, packets.Subscribe)]
    assert len({*numbers, 5, 9, 10}) == 5, "the proxy's own numbers clash with none of the client's"
    assert made.told(made.way(CENTRAL, packets.Suback(numbers[0], [2]))) == [packets.Suback(10, [2])]
    assert made.told(made.way(CENTRAL, packets.Suback(numbers[1], [1]))) == [], "that one was the proxy's"
    assert made.sent(made.says(Publish("near/y", b"2")), CENTRAL) == [Publish("near/y", b"2")]


def kept_and_lost(ids: PacketIds | None = None) -> tuple[Client, list[Effect]]:
    """One with a session that is kept, and whose edge broker is lost."""
    made = Client(ids=ids, session_expiry_s=60)
    made.opened("e1")
    made.says(packets.Subscribe(9, [Subscription("near/a", 2)], 7))
    made.way("e1", packets.Suback(9, [2]))
    return made, made.core.way_lost("e1")


def test_a_session_that_is_kept_goes_on_at_the_central_broker_under_the_same_name() -> None:
    """The city adds what waits at the edge broker when that one is back, and knows what came meanwhile."""
    made, lost = kept_and_lost()
    assert lost[:2] == [CloseWay("e1"), OpenWay("e1", is_stand_in=True)]
    (connect,) = made.sent(lost, "e1")
    assert isinstance(connect, packets.Connect)
    assert (connect.client_id, connect.clean_start) == ("c@e1", False)
    asked = made.says(packets.Subscribe(10, [Subscription("near/b", 1)]))
    assert asked == [], "it waits to be let in, too"
    again, new = made.sent(made.way("e1", Connack()), "e1")
    assert again == packets.Subscribe(again.packet_id, [Subscription("near/a", 2, retain_handling=2)], 7)  # type: ignore[union-attr]
    assert new == packets.Subscribe(10, [Subscription("near/b", 1)])
    assert made.told(made.way("e1", packets.Suback(again.packet_id, [2]))) == [], "that one was the proxy's"
    assert made.told(made.way("e1", packets.Suback(10, [1]))) == [packets.Suback(10, [1])]
    sent = made.sent(made.says(Publish("near/x", b"1", 1, packet_id=5)), CENTRAL)
    assert sent == [Publish("near/x", b"1", 1, packet_id=5)], "who publishes need not wait"
    assert made.core.way_lost("e1") == [CloseWay("e1"), CloseWay(CENTRAL), CloseWay("e2"), CloseClient()]


def test_a_stand_in_begins_anew_only_where_the_edge_broker_has_not() -> None:
    made = Client(session_expiry_s=60)
    (connect,) = made.sent(made.core.way_lost("e1"), "e1")
    assert isinstance(connect, packets.Connect)
    assert connect.clean_start, "what is older at the edge broker must end"


def test_who_may_not_enter_twice_at_the_central_broker_is_subscribed_there_in_its_own_session() -> None:
    made, _ = kept_and_lost()
    (asked,) = made.sent(made.way("e1", Connack(reason_code=0x87)), CENTRAL)
    assert isinstance(asked, packets.Subscribe)
    assert [one.filter for one in asked.subscriptions] == ["near/a"]


@pytest.mark.parametrize("present", [False, True])
def test_deliveries_under_way_go_on_with_their_session_and_with_no_other(present: bool) -> None:
    made = Client(clean=False, present=True)
    made.way("e1", Connack(session_present=True))
    (delivered,) = made.told(made.way("e1", Publish("near/x", b"1", 2, packet_id=1)))
    assert isinstance(delivered, Publish)
    made.core.way_lost("e1")
    made.says(Ack(PUBREC, delivered.packet_id))
    entered = made.sent(made.way("e1", Connack(session_present=present)), "e1")
    assert entered == ([Ack(PUBREC, 1)] if present else [])
    (other,) = made.told(made.way("e1", Publish("near/x", b"2", 2, packet_id=1)))
    assert isinstance(other, Publish)
    assert (other.packet_id == delivered.packet_id) == present, "the client may still hold the first"


def test_what_was_given_up_while_the_edge_broker_was_lost_is_given_up_there_when_the_client_comes_again() -> None:
    ids = PacketIds()
    first, _ = kept_and_lost(ids)
    first.way("e1", Connack())
    first.says(packets.Unsubscribe(11, ["near/a", "near/b"]))
    first.says(packets.Subscribe(12, [Subscription("near/b", 1)]))
    again = Client(ids=ids, clean=False, present=True)
    (left,) = again.sent(again.way("e1", Connack(session_present=True)), "e1")
    assert isinstance(left, packets.Unsubscribe)
    assert left.filters == ["near/a"]


def test_what_waits_for_an_edge_broker_that_does_not_come_goes_to_the_central_one_at_qos_0_too() -> None:
    made = Client()
    made.says(Publish("near/x", b"0"))
    made.says(Publish("near/x", b"1", 1, packet_id=5))
    expected = [Publish("near/x", b"0"), Publish("near/x", b"1", 1, packet_id=5)]
    assert made.sent(made.core.way_lost("e1"), CENTRAL) == expected


def test_without_the_central_broker_the_client_must_come_again() -> None:
    made = Client()
    made.opened("e1")
    assert made.core.way_lost(CENTRAL) == [CloseWay(CENTRAL), CloseWay("e1"), CloseClient()]


def test_one_qos_0_message_and_goodbye_before_the_edge_broker_has_answered() -> None:
    made = Client()
    made.says(Publish("near/x", b"0"))
    assert made.sent(made.says(packets.Disconnect()), CENTRAL) == [Publish("near/x", b"0"), packets.Disconnect()]


def test_a_goodbye_is_said_to_everybody() -> None:
    made = Client()
    made.opened("e1")
    effects = made.says(packets.Disconnect())
    assert [made.sent(effects, name) for name in (CENTRAL, "e1")] == [[packets.Disconnect()]] * 2
    assert effects[-1] == CloseClient()


@given(st.lists(st.tuples(st.sampled_from((CENTRAL, "e1", "e2")), st.integers(1, 6), st.booleans()), max_size=60))
def test_no_two_deliveries_under_way_have_the_same_number(events: list[tuple[str, int, bool]]) -> None:
    ids, under_way = PacketIds(), dict[tuple[str, int], int]()
    for way, number, is_done in events:
        if is_done and (way, number) in under_way:
            ids.done(under_way.pop((way, number)))
        elif not is_done:
            mine = ids.of(way, number)
            assert under_way.setdefault((way, number), mine) == mine, "a repeat keeps its number"
            assert list(under_way.values()).count(mine) == 1
            assert ids.owner(mine) == (way, number)
