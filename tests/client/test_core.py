"""The client's core on a virtual clock: every exchange packet by packet, the server played by the test."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.client.core.client_core import ClientCore
from metromq.client.core.effects import Closed, Deliver, Effect, Failed, Opened, Send, Settled
from metromq.client.core.messages import Message, Will, publish_packet
from metromq.client.core.options import ClientOptions
from metromq.errors import ConnectionLost, ConnectRefused, MqttError, UsageError
from metromq.protocol.scram import ScramClient
from metromq.protocol.wire.decoding import Framer, decode
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import (
    MQTT5,
    MQTT31,
    MQTT311,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)

VERSIONS = [MQTT31, MQTT311, MQTT5]


class Story:
    """A core, a clock that only the test moves, and the packets that went to the server."""

    def __init__(self, version: int = MQTT5, **options: object) -> None:
        self.version = version
        self.core = ClientCore(ClientOptions("me", version, **options))  # type: ignore[arg-type]
        self.now = 100.0
        self.messages: list[Message] = []
        self.others: list[Effect] = []
        self.sent: list[Packet] = []

    def did(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                framer = Framer(1 << 28)
                framer.feed(effect.data)
                frame = framer.next()
                assert frame is not None
                self.sent.append(decode(*frame, self.version, True))
            elif isinstance(effect, Deliver):
                self.messages.append(effect.message)
            else:
                self.others.append(effect)

    def says(self, *packets: Packet) -> None:
        self.did(self.core.receive(b"".join(encode(packet, self.version) for packet in packets), self.now))

    def take_sent(self) -> list[Packet]:
        sent, self.sent = self.sent, []
        return sent

    def take_others(self) -> list[Effect]:
        others, self.others = self.others, []
        return others

    def open(self, session_present: bool = False, properties: Properties | None = None) -> "Story":
        self.others, self.sent = [], []
        self.did(self.core.connect(self.now))
        self.says(Connack(session_present, 0, properties or Properties()))
        assert isinstance(self.others.pop(0), Opened)
        self.connect = self.sent.pop(0)
        return self

    def publish(self, topic: str, qos: int, retain: bool = False, properties: Properties | None = None) -> int:
        token, effects = self.core.publish(publish_packet(topic, b"x", qos, retain, properties), self.now)
        self.did(effects)
        return token

    def lost(self) -> None:
        self.did(self.core.lost(ConnectionLost("gone")))


def test_connect_says_what_the_options_say() -> None:
    will = Will("w", "gone", 1, True, Properties(will_delay_s=5, message_expiry_s=7, content_type="t"))
    story = Story(
        clean_start=False,
        session_expiry_s=60,
        keepalive_s=30,
        username="u",
        password=b"p",
        will=will,
        receive_maximum=7,
        topic_alias_maximum=3,
        max_packet_size_bytes=1000,
        properties=Properties(user=(("a", "b"),)),
    ).open()
    connect = story.connect
    assert isinstance(connect, Connect)
    assert (connect.client_id, connect.clean_start, connect.keepalive_s) == ("me", False, 30)
    assert (connect.username, connect.password) == ("u", b"p")
    assert connect.will == will.packet()
    assert (connect.will.delay_s, connect.will.expiry_s) == (5, 7) if connect.will else False
    assert connect.properties == Properties(
        session_expiry_s=60, receive_maximum=7, topic_alias_maximum=3, maximum_packet_size=1000, user=(("a", "b"),)
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_connack_refusal(version: int) -> None:
    story = Story(version)
    story.did(story.core.connect(0))
    story.says(Connack(False, 0x87))
    [closed] = story.others
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, ConnectRefused)
    assert closed.error.reason_code == 0x87
    assert not story.core.is_open


def test_connack_with_server_reference_and_reason() -> None:
    story = Story()
    story.did(story.core.connect(0))
    story.says(Connack(False, 0x9C, Properties(server_reference="other:1883", reason_string="go there")))
    [closed] = story.others
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert closed.error.server_reference == "other:1883"
    assert "Use another server (0x9C): go there" in str(closed.error)


def test_assigned_identifier() -> None:
    story = Story().open(properties=Properties(assigned_client_id="auto-1"))
    assert story.core.identifier == "auto-1"


@pytest.mark.parametrize("version", VERSIONS)
def test_publish_at_each_qos(version: int) -> None:
    story = Story(version).open()
    assert story.publish("a", 0) == 0
    one, two = story.publish("a", 1), story.publish("a", 2)
    assert story.take_sent() == [
        Publish("a", b"x"),
        Publish("a", b"x", 1, packet_id=1),
        Publish("a", b"x", 2, packet_id=2),
    ]
    story.says(Ack(PUBREC, 2))
    assert story.take_sent() == [Ack(PUBREL, 2)]
    story.says(Ack(PUBACK, 1), Ack(PUBCOMP, 2))
    assert story.others == [Settled(one, (0,), None), Settled(two, (0,), None)]


def test_refused_publishes_carry_the_reason() -> None:
    story = Story().open()
    one, two = story.publish("a", 1), story.publish("a", 2)
    story.says(Ack(PUBACK, 1, 0x87), Ack(PUBREC, 2, 0x97))
    assert story.others == [Settled(one, (0x87,), None), Settled(two, (0x97,), None)]
    assert not story.core.awaits_answers


def test_window_is_the_servers_receive_maximum() -> None:
    """[MQTT-3.3.4-7]"""
    story = Story(max_inflight=10).open(properties=Properties(receive_maximum=2))
    tokens = [story.publish(f"t{number}", 1 + number % 2) for number in range(5)]
    assert [packet.topic for packet in story.take_sent() if isinstance(packet, Publish)] == ["t0", "t1"]
    story.says(Ack(PUBREC, 2))
    assert story.take_sent() == [Ack(PUBREL, 2)]  # the window opens only with PUBCOMP
    story.says(Ack(PUBACK, 1), Ack(PUBCOMP, 2))
    assert [packet.topic for packet in story.take_sent() if isinstance(packet, Publish)] == ["t2", "t3"]
    assert [effect.token for effect in story.others if isinstance(effect, Settled)] == tokens[:2]


def test_session_resumes_with_dup_in_order() -> None:
    """[MQTT-4.4.0-1] [MQTT-3.3.1-1]"""
    story = Story(clean_start=False, session_expiry_s=100).open(
        properties=Properties(receive_maximum=3, topic_alias_maximum=9)
    )
    tokens = [
        story.publish("one", 1, properties=Properties(topic_alias=1)),
        story.publish("two", 2),
        story.publish("three", 2),
        story.publish("four", 1),
    ]
    story.says(Ack(PUBREC, 2))
    story.take_sent()
    story.lost()
    failed = story.take_others()
    assert [effect.token for effect in failed if isinstance(effect, Failed)] == tokens
    assert isinstance(failed[-1], Closed)
    story.open(session_present=True, properties=Properties(receive_maximum=2))
    assert story.take_sent() == [Ack(PUBREL, 2), Publish("one", b"x", 1, False, True, 1)]
    story.says(Ack(PUBCOMP, 2))
    assert story.take_sent() == [Publish("three", b"x", 2, False, True, 3)]
    story.says(Ack(PUBACK, 1))
    assert story.take_sent() == [Publish("four", b"x", 1, False, False, 4)]
    story.says(Ack(PUBREC, 3), Ack(PUBCOMP, 3), Ack(PUBACK, 4))
    assert story.take_others() == []  # nobody waits for these any more
    assert not story.core.awaits_answers


def test_identifiers_of_a_resumed_session_are_not_reused() -> None:
    """[MQTT-2.2.1-3]"""
    story = Story(clean_start=False).open(properties=Properties(receive_maximum=1))
    story.publish("one", 1)
    story.publish("two", 1)
    story.lost()
    story.open(session_present=True, properties=Properties(receive_maximum=1))
    story.did(story.core.subscribe([Subscription("x")], 0, Properties(), story.now)[1])
    sent = story.take_sent()
    assert isinstance(sent[-1], Subscribe)
    assert sent[-1].packet_id == 2
    story.says(Ack(PUBACK, 1))
    [again] = [packet for packet in story.take_sent() if isinstance(packet, Publish)]
    assert (again.topic, again.packet_id) == ("two", 3)


def test_a_new_session_forgets() -> None:
    """[MQTT-3.2.2-5]"""
    story = Story(clean_start=False).open()
    story.publish("one", 1)
    story.says(Publish("in", b"y", 2, packet_id=9))
    story.lost()
    story.take_sent()
    story.open(session_present=False)
    assert story.take_sent() == []
    assert not story.core.awaits_answers
    story.did(story.core.taken(story.messages[0], story.now))
    assert story.take_sent() == []  # the server knows nothing of it


@pytest.mark.parametrize("version", VERSIONS)
def test_received_messages_are_acknowledged_when_taken(version: int) -> None:
    story = Story(version).open()
    story.says(Publish("a", b"0"), Publish("a", b"1", 1, packet_id=1), Publish("a", b"2", 2, packet_id=2))
    assert [message.payload for message in story.messages] == [b"0", b"1", b"2"]
    assert story.take_sent() == []
    for message in story.messages:
        story.did(story.core.taken(message, story.now))
    assert story.take_sent() == [Ack(PUBACK, 1), Ack(PUBREC, 2)]
    story.did(story.core.taken(story.messages[1], story.now))
    assert story.take_sent() == []  # once is enough
    story.says(Ack(PUBREL, 2))
    assert story.take_sent() == [Ack(PUBCOMP, 2)]


def test_qos_2_is_delivered_once() -> None:
    """[MQTT-4.3.3-10]"""
    story = Story(clean_start=False).open()
    story.says(Publish("a", b"1", 2, packet_id=1), Publish("a", b"1", 2, dup=True, packet_id=1))
    assert len(story.messages) == 1
    story.did(story.core.taken(story.messages[0], story.now))
    assert story.take_sent() == [Ack(PUBREC, 1)]
    story.lost()
    story.open(session_present=True)
    story.says(Publish("a", b"1", 2, dup=True, packet_id=1))
    assert len(story.messages) == 1
    assert story.take_sent() == [Ack(PUBREC, 1)]
    story.says(Ack(PUBREL, 1))
    assert story.take_sent() == [Ack(PUBCOMP, 1)]
    story.says(Publish("a", b"2", 2, packet_id=1))
    assert [message.payload for message in story.messages] == [b"1", b"2"]


def test_qos_2_that_is_taken_without_a_connection_is_acknowledged_when_it_comes_again() -> None:
    story = Story(clean_start=False).open()
    story.says(Publish("a", b"1", 2, packet_id=1))
    story.lost()
    story.did(story.core.taken(story.messages[0], story.now))
    story.open(session_present=True)
    story.says(Publish("a", b"1", 2, dup=True, packet_id=1))
    assert len(story.messages) == 1
    assert story.take_sent() == [Ack(PUBREC, 1)]


def test_a_qos_1_message_of_the_last_connection_is_not_acknowledged_on_the_next() -> None:
    story = Story(clean_start=False).open()
    story.says(Publish("a", b"old", 1, packet_id=1))
    story.lost()
    story.open(session_present=True)
    story.did(story.core.taken(story.messages[0], story.now))
    assert story.take_sent() == []
    story.says(Publish("b", b"new", 1, packet_id=1))
    story.did(story.core.taken(story.messages[0], story.now))
    assert story.take_sent() == []
    story.did(story.core.taken(story.messages[1], story.now))
    assert story.take_sent() == [Ack(PUBACK, 1)]


def test_unknown_acknowledgements() -> None:
    story = Story().open()
    story.says(Ack(PUBREL, 5), Ack(PUBREC, 6), Ack(PUBACK, 7), Ack(PUBCOMP, 8))
    assert story.take_sent() == [Ack(PUBCOMP, 5, 0x92), Ack(PUBREL, 6, 0x92)]
    assert story.core.is_open


@pytest.mark.parametrize("version", VERSIONS)
def test_subscribe_and_unsubscribe(version: int) -> None:
    story = Story(version).open()
    token, effects = story.core.subscribe([Subscription("a", 1), Subscription("b", 2)], 0, Properties(), story.now)
    story.did(effects)
    assert story.take_sent() == [Subscribe(1, [Subscription("a", 1), Subscription("b", 2)])]
    story.says(Suback(1, [1, 0x80]))
    [settled] = story.take_others()
    assert isinstance(settled, Settled)
    assert (settled.token, settled.reason_codes) == (token, (1, 0x80))
    token, effects = story.core.unsubscribe(["a", "b"], Properties(), story.now)
    story.did(effects)
    assert story.take_sent() == [Unsubscribe(2, ["a", "b"])]
    story.says(Unsuback(2, [0, 0] if version == MQTT5 else []))
    [settled] = story.take_others()
    assert isinstance(settled, Settled)
    assert (settled.token, settled.reason_codes) == (token, (0, 0))


def test_topic_aliases_of_the_server() -> None:
    story = Story(topic_alias_maximum=2).open()
    story.says(Publish("a/b", b"1", topic_alias=1), Publish("", b"2", topic_alias=1), Publish("c", b"3", topic_alias=1))
    story.says(Publish("", b"4", topic_alias=1))
    assert [(message.topic, message.payload) for message in story.messages] == [
        ("a/b", b"1"),
        ("a/b", b"2"),
        ("c", b"3"),
        ("c", b"4"),
    ]


@pytest.mark.parametrize(
    ("packets", "reason"),
    [
        ([Publish("", b"", topic_alias=1)], 0x94),
        ([Publish("a", b"", topic_alias=3)], 0x94),
        ([Publish("a", b"", 1, packet_id=number) for number in (1, 2, 3)], 0x93),
        ([Connack()], 0x82),
        ([Suback(9, [0])], 0x82),
        ([Auth(0x18, Properties(auth_method="X"))], 0x82),
    ],
)
def test_a_server_that_breaks_the_rules(packets: list[Packet], reason: int) -> None:
    story = Story(topic_alias_maximum=2, receive_maximum=2).open()
    story.says(*packets)
    [closed] = story.others
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, ConnectionLost)
    assert closed.error.reason_code == reason
    assert story.take_sent() == [Disconnect(reason)]
    assert not story.core.is_open


def test_wrong_acknowledgement_for_the_qos() -> None:
    story = Story().open()
    story.publish("a", 1)
    story.says(Ack(PUBREC, 1))
    assert any(isinstance(effect, Closed) and effect.error for effect in story.others)


@pytest.mark.parametrize("version", [MQTT311, MQTT5])
def test_session_present_after_a_clean_start(version: int) -> None:
    """[MQTT-3.2.2-2]"""
    story = Story(version, clean_start=True)
    story.did(story.core.connect(0))
    story.says(Connack(True))
    [closed] = story.others
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, ConnectionLost)


def test_packets_before_connack() -> None:
    """[MQTT-3.2.0-1]"""
    story = Story()
    story.did(story.core.connect(0))
    story.says(Publish("a", b""))
    assert any(isinstance(effect, Closed) and effect.error for effect in story.others)
    assert story.messages == []


def test_disconnect_of_the_server_tells_why_and_where_to() -> None:
    story = Story().open()
    token = story.publish("a", 1)
    story.says(Disconnect(0x9D, Properties(server_reference="b.example", reason_string="moved")))
    failed, closed = story.others
    assert isinstance(failed, Failed)
    assert failed.token == token
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, ConnectionLost)
    assert (closed.error.reason_code, closed.error.server_reference) == (0x9D, "b.example")
    assert "moved" in str(closed.error)


def test_our_disconnect() -> None:
    story = Story().open()
    story.did(story.core.disconnect(story.now, 0x04, Properties(session_expiry_s=0)))
    assert story.take_sent()[-1] == Disconnect(0x04, Properties(session_expiry_s=0))
    assert story.others == [Closed(None)]
    assert story.core.disconnect(story.now) == []


def test_keepalive_pings_in_silence() -> None:
    """[MQTT-3.1.2-20]"""
    story = Story(keepalive_s=60).open(properties=Properties(server_keepalive_s=10))  # [MQTT-3.1.2-21]
    assert story.core.deadline() == 110
    story.now = 109.9
    assert story.core.tick(story.now) == []
    story.now = 110.0
    story.did(story.core.tick(story.now))
    assert story.take_sent() == [Pingreq()]
    assert story.core.deadline() == 115
    story.now = 114.0
    story.says(Pingresp())
    assert story.core.deadline() == 120
    story.now = 120.0
    story.did(story.core.tick(story.now))
    story.now = 125.0
    story.did(story.core.tick(story.now))
    [closed] = story.others
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, ConnectionLost)
    assert "PINGREQ" in str(closed.error)
    assert story.core.deadline() is None


def test_publishing_alone_still_notices_a_dead_server() -> None:
    story = Story(keepalive_s=10).open()
    for _ in range(10):
        story.now += 1
        story.publish("a", 0)
    assert story.core.deadline() == 110
    story.did(story.core.tick(story.now))
    assert story.take_sent()[-1] == Pingreq()


def test_while_we_do_not_read_silence_says_nothing() -> None:
    story = Story(keepalive_s=10).open()
    for _ in range(5):
        story.now += 10
        story.did(story.core.tick(story.now, reading=False))
    assert story.core.is_open
    assert Pingreq() in story.sent


def test_no_keepalive_no_deadline() -> None:
    assert Story(keepalive_s=0).open().core.deadline() is None


@pytest.mark.parametrize(
    ("properties", "qos", "retain", "said", "reason"),
    [
        (Properties(maximum_qos=1), 2, False, None, 0x9B),
        (Properties(retain_available=False), 0, True, None, 0x9A),
        (Properties(maximum_packet_size=20), 0, False, Properties(content_type="x" * 20), 0x95),
        (Properties(topic_alias_maximum=1), 0, False, Properties(topic_alias=2), 0x94),
    ],
)
def test_what_the_server_does_not_take_is_not_sent(
    properties: Properties, qos: int, retain: bool, said: Properties | None, reason: int
) -> None:
    story = Story().open(properties=properties)
    with pytest.raises(MqttError) as raised:
        story.publish("a", qos, retain, said)
    assert raised.value.reason_code == reason
    assert story.take_sent() == []


def test_a_packet_as_large_as_the_server_takes_is_sent() -> None:
    story = Story().open(properties=Properties(maximum_packet_size=9))
    story.publish("a", 1)
    assert story.take_sent() == [Publish("a", b"x", 1, packet_id=1)]


def test_misuse() -> None:
    story = Story()
    with pytest.raises(ConnectionLost):
        story.publish("a", 0)
    with pytest.raises(ConnectionLost):
        story.core.subscribe([Subscription("a")], 0, Properties(), 0)
    story.open()
    wrong: list[Callable[[], object]] = [
        lambda: story.publish("a/#", 0),
        lambda: story.publish("", 0),
        lambda: story.publish("a", 3),
        lambda: story.publish("a", 0, properties=Properties(subscription_identifiers=(1,))),
        lambda: story.publish("", 1, properties=Properties(topic_alias=1)),
        lambda: story.core.subscribe([], 0, Properties(), 0),
        lambda: story.core.subscribe([Subscription("a#")], 0, Properties(), 0),
        lambda: story.core.unsubscribe([], Properties(), 0),
        lambda: story.core.unsubscribe(["+a"], Properties(), 0),
        lambda: story.core.reauthenticate(0),
    ]
    for attempt in wrong:
        with pytest.raises(UsageError):
            attempt()


def test_enhanced_authentication_and_again() -> None:
    """Section 4.12, with the messages of RFC 7677."""
    from tests.protocol.test_scram import CLIENT_FINAL, CLIENT_NONCE, SERVER_FINAL, SERVER_FIRST

    story = Story(authentication=ScramClient("user", "pencil", CLIENT_NONCE))
    story.did(story.core.connect(0))
    [connect] = story.take_sent()
    assert isinstance(connect, Connect)
    assert connect.properties.auth_method == "SCRAM-SHA-256"
    challenge = Auth(0x18, Properties(auth_method="SCRAM-SHA-256", auth_data=SERVER_FIRST))
    story.says(challenge)
    assert story.take_sent() == [Auth(0x18, Properties(auth_method="SCRAM-SHA-256", auth_data=CLIENT_FINAL))]
    story.says(Connack(False, 0, Properties(auth_method="SCRAM-SHA-256", auth_data=SERVER_FINAL)))
    assert isinstance(story.take_others()[0], Opened)

    token, effects = story.core.reauthenticate(1)
    story.did(effects)
    [again] = story.take_sent()
    assert isinstance(again, Auth)
    assert again.reason_code == 0x19
    assert story.core.awaits_answers
    story.says(challenge, Auth(0, Properties(auth_method="SCRAM-SHA-256", auth_data=SERVER_FINAL)))
    [settled] = story.take_others()
    assert isinstance(settled, Settled)
    assert settled.token == token


def test_a_server_that_cannot_prove_itself_is_left() -> None:
    story = Story(authentication=ScramClient("user", "pencil", "abc"))
    story.did(story.core.connect(0))
    story.says(Connack(False, 0, Properties(auth_method="SCRAM-SHA-256", auth_data=b"v=AAAA")))
    [closed] = story.others
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert not story.core.is_open


SERVER_PACKETS = st.sampled_from(
    [
        Publish("a", b"1"),
        Publish("a", b"2", 1, packet_id=1),
        Publish("a", b"3", 2, packet_id=2),
        Ack(PUBACK, 1),
        Ack(PUBREC, 2),
        Ack(PUBREL, 2),
        Ack(PUBCOMP, 2),
        Ack(PUBACK, 3, 0x97),
        Suback(4, [0]),
        Unsuback(5, [0]),
        Pingresp(),
        Disconnect(0x8B),
        Auth(0),
        Connack(),
    ]
)


@settings(deadline=None, max_examples=150)
@given(st.lists(SERVER_PACKETS, max_size=12), st.integers(1, 7))
def test_pieces_of_any_size_make_no_difference(packets: list[Packet], size: int) -> None:
    """Whole and in pieces the same bytes have the same effects, and nothing raises."""

    def story() -> Story:
        opened = Story(receive_maximum=3).open()
        opened.publish("p", 1)
        opened.publish("q", 2)
        return opened

    data = b"".join(encode(packet, MQTT5) for packet in packets)
    whole, pieces = story(), story()
    whole.did(whole.core.receive(data, whole.now))
    for start in range(0, len(data), size):
        pieces.did(pieces.core.receive(data[start : start + size], pieces.now))
    assert whole.sent == pieces.sent
    assert [message.payload for message in whole.messages] == [message.payload for message in pieces.messages]
    assert [str(effect) for effect in whole.others] == [str(effect) for effect in pieces.others]


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=60), st.booleans())
def test_bytes_of_any_kind_never_raise(data: bytes, opened: bool) -> None:
    story = Story()
    if opened:
        story.open()
    else:
        story.did(story.core.connect(0))
    story.did(story.core.receive(data, story.now))
