"""Authentication that is decided later: the client waits with its packets in order, and nothing happens before."""

import pytest

from metromq.protocol import reasons
from metromq.protocol.session.access import Access, AccessDecision, Later, Peer
from metromq.protocol.session.connection import Connection
from metromq.protocol.session.federation import Federation
from metromq.protocol.session.hub_settings import HubSettings
from metromq.protocol.session.network_connection import NetworkConnection
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import (
    MQTT5,
    MQTT31,
    MQTT311,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Will,
)
from tests.spec.world import VERSIONS, Client, World, bits


class Question(Later):
    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.abandonments: list[bool] = []

    def start(self, connection: NetworkConnection) -> None:
        assert isinstance(connection, Connection)
        self.connection = connection

    def abandoned(self, late: bool) -> None:
        self.abandonments.append(late)


class Slow(Access):
    """Decides nothing itself: every question is kept for the test to answer."""

    def __init__(self) -> None:
        self.questions: list[Question] = []
        self.exchanges: list[object] = []

    def connect(
        self, peer: Peer, client_id: str, username: str | None, password: bytes | None, method: str | None, data: bytes
    ) -> AccessDecision:
        question = Question()
        self.questions.append(question)
        decision = AccessDecision(reasons.UNSPECIFIED_ERROR)
        decision.later = question
        return decision

    def continued(self, exchange: object, data: bytes) -> AccessDecision:
        self.exchanges.append((exchange, data))
        return self.connect(Peer("", True), "", None, None, None, b"")


class SlowWorld(World):
    def __init__(self, settings: HubSettings | None = None) -> None:
        self.slow = Slow()
        super().__init__(settings, access=self.slow)

    def answer(self, decision: AccessDecision) -> None:
        """To the latest question."""
        connection = self.slow.questions[-1].connection
        assert connection is not None
        connection.decide(decision)
        self.settle()

    def asking(self, version: int = MQTT5, will: Will | None = None, method: str | None = None) -> Client:
        """A client that has sent CONNECT and waits."""
        client = self.client()
        properties = bits(auth_method=method) if method else bits()
        client.send(Connect("a", version, True, 0, None, None, will, properties))
        assert not client.take()
        assert not client.closed
        return client

    def inside(self) -> Client:
        client = self.asking(method="m")
        self.answer(AccessDecision(0, "", "ann"))
        assert client.one(Connack).reason_code == 0
        return client


def _auth(reason_code: int, data: bytes) -> Auth:
    return Auth(reason_code, bits(auth_method="m", auth_data=data))


def _more(data: bytes, exchange: object) -> AccessDecision:
    decision = AccessDecision(reasons.CONTINUE_AUTHENTICATION, "", "", data)
    decision.exchange = exchange
    return decision


# --- CONNECT ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_late_yes(version: int) -> None:
    world = SlowWorld()
    client = world.asking(version)
    world.advance(5)
    assert not world.hub.sessions.by_client_id
    world.answer(AccessDecision(0, "", "ann"))
    assert client.one(Connack).reason_code == 0
    assert world.hub.sessions.by_client_id["a"].username == "ann"
    client.ping()
    world.advance(100)
    client.ping()
    assert world.slow.questions[0].abandonments == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_late_no(version: int) -> None:
    world = SlowWorld()
    client = world.asking(version)
    client.feed(encode(Pingreq(), version))
    world.answer(AccessDecision(reasons.NOT_AUTHORIZED, "go away"))
    assert client.one(Connack).reason_code == reasons.NOT_AUTHORIZED
    assert client.closed
    assert not world.hub.sessions.by_client_id
    assert not world.hub.connections.open


def test_others_are_served_meanwhile() -> None:
    world = SlowWorld()
    waiting = world.asking()
    other = world.client()
    other.send(Connect("b"))
    world.answer(AccessDecision(0))
    other.one(Connack)
    other.ping()
    assert not waiting.take()


@pytest.mark.parametrize("piece_bytes", [1, 7, 1000])
def test_3_1_4_5_packets_behind_connect_wait_for_connack(piece_bytes: int) -> None:
    """[MQTT-3.1.4-5]: a client need not wait for CONNACK; what it sends is processed behind it, in order."""
    world = SlowWorld()
    client = world.client()
    packets: list[Packet] = [
        Connect("a"),
        Subscribe(1, [Subscription("t")]),
        Publish("t", b"one"),
        Publish("t", b"two" * 100),
        Pingreq(),
    ]
    data = b"".join(encode(packet, MQTT5) for packet in packets)
    for start in range(0, len(data) - 1, piece_bytes):
        client.feed(data[start : min(start + piece_bytes, len(data) - 1)])
    assert not client.take()
    world.answer(AccessDecision(0))
    connack, suback, *messages = client.take()
    assert isinstance(connack, Connack)
    assert isinstance(suback, Suback)
    assert [message.payload for message in messages if isinstance(message, Publish)] == [b"one", b"two" * 100]
    client.feed(data[-1:])
    client.one(Pingresp)


def test_a_second_connect_behind_the_first() -> None:
    """[MQTT-3.1.0-2]: found when its turn comes."""
    world = SlowWorld()
    client = world.asking()
    client.send(Connect("a"))
    assert not client.closed
    world.answer(AccessDecision(0))
    assert client.disconnected() == reasons.PROTOCOL_ERROR


def test_what_waits_is_bounded() -> None:
    world = SlowWorld(HubSettings(max_packet_size_bytes=1000))
    client = world.asking()
    packet = encode(Publish("t", b"x" * 400), MQTT5)
    client.feed(packet * 2)
    assert not client.closed
    client.feed(packet)
    assert client.closed
    assert not client.take()
    assert world.slow.questions[0].abandonments == [False]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_that_leaves_while_it_waits(version: int) -> None:
    """It was never connected: no CONNACK, no session, no will; a late answer changes nothing."""
    world = SlowWorld()
    client = world.asking(version, Will("t/will", b"gone"))
    watcher = world.client()
    watcher.send(Connect("watcher"))
    world.answer(AccessDecision(0))
    watcher.one(Connack)
    watcher.subscribe("t/#")
    client.drop()
    question = world.slow.questions[0]
    assert question.abandonments == [False]
    assert question.connection is not None
    question.connection.decide(AccessDecision(0))
    world.advance(1)
    assert not client.raw
    assert list(world.hub.sessions.by_client_id) == ["watcher"]
    assert len(world.hub.connections.open) == 1
    assert watcher.messages() == []


@pytest.mark.parametrize(("version", "code"), [(MQTT5, reasons.SERVER_UNAVAILABLE), (MQTT311, 3), (MQTT31, 3)])
def test_an_answer_that_takes_too_long(version: int, code: int) -> None:
    world = SlowWorld(HubSettings(connect_timeout_s=10))
    client = world.asking(version)
    client.feed(encode(Pingreq(), version))
    world.advance(9.9)
    assert not client.closed
    world.advance(0.2)
    client.one(Connack)
    assert client.raw[3] == code
    assert client.closed
    question = world.slow.questions[0]
    assert question.abandonments == [True]
    world.answer(AccessDecision(0))
    assert not world.hub.sessions.by_client_id


@pytest.mark.parametrize("at_once", [True, False])
def test_a_late_yes_and_then_the_session_is_looked_for_elsewhere(at_once: bool) -> None:
    class Elsewhere(Federation):
        def asks(self, connection: NetworkConnection, client_id: str, clean_start: bool, username: str) -> bool:
            if at_once:
                connection.proceed()
            return True

    world = SlowWorld()
    world.hub.federate(Elsewhere())
    client = world.asking()
    client.feed(encode(Pingreq(), MQTT5))
    client.feed(encode(Pingreq(), MQTT5)[:1])
    world.answer(AccessDecision(0))
    if not at_once:
        assert not client.take()
        client.connection.proceed()
        world.settle()
    assert [type(packet) for packet in client.take()] == [Connack, Pingresp]
    client.feed(encode(Pingreq(), MQTT5)[1:])
    client.one(Pingresp)


def test_a_stray_proceed_lets_nobody_in() -> None:
    world = SlowWorld()
    client = world.asking()
    client.connection.proceed()
    world.settle()
    assert not client.take()
    assert not world.hub.sessions.by_client_id


# --- AUTH ---------------------------------------------------------------------------------------------------------


def test_an_exchange_of_late_decisions() -> None:
    """[MQTT-4.12.0-2], [MQTT-4.12.0-3]"""
    world = SlowWorld()
    client = world.asking(method="m")
    world.answer(_more(b"who?", 1))
    assert client.one(Auth) == _auth(reasons.CONTINUE_AUTHENTICATION, b"who?")
    client.send(_auth(reasons.CONTINUE_AUTHENTICATION, b"ann"))
    assert not client.take()
    world.answer(_more(b"sure?", 2))
    assert client.one(Auth) == _auth(reasons.CONTINUE_AUTHENTICATION, b"sure?")
    client.send(_auth(reasons.CONTINUE_AUTHENTICATION, b"yes"))
    world.answer(AccessDecision(0, "", "ann", b"welcome"))
    connack = client.one(Connack)
    assert (connack.reason_code, connack.properties.auth_data) == (0, b"welcome")
    assert world.slow.exchanges == [(1, b"ann"), (2, b"yes")]
    client.ping()


def test_3_1_2_30_only_auth_may_wait_within_an_exchange() -> None:
    """[MQTT-3.1.2-30]: what waits is judged by what is then allowed."""
    world = SlowWorld()
    client = world.asking(method="m")
    client.send(Publish("t", b""))
    world.answer(_more(b"who?", 1))
    auth, connack = client.take()
    assert isinstance(auth, Auth)
    assert isinstance(connack, Connack)
    assert connack.reason_code == reasons.PROTOCOL_ERROR
    assert client.closed


def test_re_authentication_waits_and_keeps_the_order() -> None:
    world = SlowWorld()
    client = world.inside()
    client.subscribe("t")
    client.publish("t", b"0")
    assert client.payloads() == [b"0"]
    client.send(_auth(reasons.REAUTHENTICATE, b"again"))
    packet = encode(Publish("t", b"1"), MQTT5)
    assert not client.connection.express(packet)
    client.feed(packet)
    assert not client.take()
    world.answer(_more(b"sure?", 1))
    auth, message = client.take()
    assert auth == _auth(reasons.CONTINUE_AUTHENTICATION, b"sure?")
    assert isinstance(message, Publish)
    client.feed(encode(_auth(reasons.CONTINUE_AUTHENTICATION, b"yes"), MQTT5) + encode(Publish("t", b"2"), MQTT5))
    assert not client.take()
    world.answer(AccessDecision(0, "", "ann", b"welcome"))
    auth, message = client.take()
    assert auth == _auth(reasons.SUCCESS, b"welcome")
    assert isinstance(message, Publish)
    assert message.payload == b"2"
    assert client.connection.express(encode(Publish("t", b"3"), MQTT5))
    world.settle()
    assert client.payloads() == [b"3"]


def test_messages_still_arrive_during_re_authentication() -> None:
    world = SlowWorld()
    client = world.inside()
    client.subscribe("t")
    publisher = world.client()
    publisher.send(Connect("p"))
    world.answer(AccessDecision(0))
    client.send(_auth(reasons.REAUTHENTICATE, b"again"))
    publisher.publish("t", b"x")
    assert client.payloads() == [b"x"]


@pytest.mark.parametrize(
    ("decision", "reason"),
    [
        (AccessDecision(reasons.NOT_AUTHORIZED, "no"), reasons.NOT_AUTHORIZED),
        (AccessDecision(reasons.BAD_USER_NAME_OR_PASSWORD, "no"), reasons.NOT_AUTHORIZED),
        (AccessDecision(reasons.SERVER_UNAVAILABLE, "broken"), reasons.UNSPECIFIED_ERROR),
        (AccessDecision(0, "", "bob"), reasons.NOT_AUTHORIZED),
    ],
    ids=["no", "no reason for DISCONNECT", "broken", "another user"],
)
def test_4_12_1_2_a_late_no_ends_the_connection(decision: AccessDecision, reason: int) -> None:
    """[MQTT-4.12.1-2]: what waited is not processed."""
    world = SlowWorld()
    client = world.inside()
    client.subscribe("t")
    client.send(_auth(reasons.REAUTHENTICATE, b"again"))
    client.publish("t", b"never")
    world.answer(decision)
    disconnect = client.one(Disconnect)
    assert disconnect.reason_code == reason
    assert client.closed


def test_re_authentication_has_its_own_time() -> None:
    world = SlowWorld(HubSettings(connect_timeout_s=10))
    client = world.inside()
    world.advance(1000)
    client.send(_auth(reasons.REAUTHENTICATE, b"again"))
    world.advance(9.9)
    assert not client.closed
    world.advance(0.2)
    assert client.disconnected() == reasons.UNSPECIFIED_ERROR
    assert world.slow.questions[-1].abandonments == [True]


def test_a_connection_that_ends_during_re_authentication() -> None:
    """It was connected: its will is published, and one that is taken over is told so."""
    world = SlowWorld()
    watcher = world.client()
    watcher.send(Connect("watcher"))
    world.answer(AccessDecision(0))
    watcher.one(Connack)
    watcher.subscribe("t/#")
    client = world.asking(will=Will("t/will", b"gone"), method="m")
    world.answer(AccessDecision(0, "", "ann"))
    client.send(_auth(reasons.REAUTHENTICATE, b"again"))
    question = world.slow.questions[-1]
    newer = world.asking(method="m")
    world.answer(AccessDecision(0, "", "ann"))
    newer.one(Connack)
    assert client.disconnected() == reasons.SESSION_TAKEN_OVER
    assert question.abandonments == [False]
    assert watcher.payloads() == [b"gone"]


def test_what_waits_during_re_authentication_is_bounded() -> None:
    world = SlowWorld(HubSettings(max_packet_size_bytes=1000))
    client = world.inside()
    client.send(_auth(reasons.REAUTHENTICATE, b"again"))
    client.feed(encode(Publish("t", b"x" * 400), MQTT5) * 3)
    assert client.disconnected() == reasons.QUOTA_EXCEEDED
