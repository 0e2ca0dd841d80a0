"""Enhanced authentication: AUTH before CONNACK and again later (section 4.12)."""

import pytest

from metromq.protocol import reasons
from metromq.protocol.session.access import Access, AccessDecision, Peer
from metromq.protocol.wire.packets import Auth, Connack, Connect, Disconnect, Publish
from tests.spec.world import Client, World, bits


class Riddle(Access):
    """Asks twice; `user:NAME` then `yes` lets NAME in."""

    def connect(
        self, peer: Peer, client_id: str, username: str | None, password: bytes | None, method: str | None, data: bytes
    ) -> AccessDecision:
        if method is None:
            return super().connect(peer, client_id, username, password, method, data)
        if method != "riddle":
            return AccessDecision(reasons.BAD_AUTHENTICATION_METHOD, "only riddles")
        return self._ask(data)

    def continued(self, exchange: object, data: bytes) -> AccessDecision:
        if exchange == "":
            return self._ask(data)
        if data != b"yes":
            return AccessDecision(reasons.BAD_USER_NAME_OR_PASSWORD, "wrong")
        return AccessDecision(0, "", str(exchange), b"welcome")

    def _ask(self, data: bytes) -> AccessDecision:
        decision = AccessDecision(reasons.CONTINUE_AUTHENTICATION, "", "", b"sure?" if data else b"who?")
        decision.exchange = data.decode()
        return decision


def _auth(reason_code: int, data: bytes, method: str = "riddle") -> Auth:
    return Auth(reason_code, bits(auth_method=method, auth_data=data))


def _inside(world: World, name: bytes = b"ann") -> Client:
    client = world.client()
    client.send(Connect("a", properties=bits(auth_method="riddle")))
    assert client.one(Auth) == _auth(reasons.CONTINUE_AUTHENTICATION, b"who?")
    client.send(_auth(reasons.CONTINUE_AUTHENTICATION, name))
    assert client.one(Auth) == _auth(reasons.CONTINUE_AUTHENTICATION, b"sure?")
    client.send(_auth(reasons.CONTINUE_AUTHENTICATION, b"yes"))
    return client


def test_4_12_0_an_exchange_ends_with_connack() -> None:
    """[MQTT-4.12.0-2], [MQTT-4.12.0-3], [MQTT-4.12.0-5]: the method is in every AUTH and in CONNACK."""
    world = World(access=Riddle())
    client = _inside(world)
    connack = client.one(Connack)
    assert (connack.reason_code, connack.properties.auth_method, connack.properties.auth_data) == (
        0,
        "riddle",
        b"welcome",
    )
    assert world.hub.sessions.by_client_id["a"].username == "ann"
    client.ping()


def test_4_12_0_1_an_unknown_method() -> None:
    """[MQTT-4.12.0-1]: CONNACK with 0x8C."""
    for access in (Riddle(), Access()):
        client = World(access=access).client()
        client.send(Connect("a", properties=bits(auth_method="other")))
        assert client.one(Connack).reason_code == reasons.BAD_AUTHENTICATION_METHOD
        assert client.closed


def test_4_12_0_4_a_failed_exchange() -> None:
    """[MQTT-4.12.0-4]: CONNACK with an error, then the end; no session is made."""
    world = World(access=Riddle())
    client = world.client()
    client.send(Connect("a", properties=bits(auth_method="riddle", auth_data=b"ann")))
    client.one(Auth)
    client.send(_auth(reasons.CONTINUE_AUTHENTICATION, b"no"))
    answer = client.one(Connack)
    assert (answer.reason_code, answer.properties.reason_string) == (reasons.BAD_USER_NAME_OR_PASSWORD, "wrong")
    assert client.closed
    assert not world.hub.sessions.by_client_id


def test_4_12_0_6_no_auth_without_a_method() -> None:
    """[MQTT-4.12.0-6], [MQTT-4.12.0-7]"""
    client = World(access=Riddle()).connect("a")
    client.send(_auth(reasons.REAUTHENTICATE, b"ann"))
    assert client.disconnected() == reasons.PROTOCOL_ERROR


def test_3_1_2_30_only_auth_or_disconnect_before_connack() -> None:
    """[MQTT-3.1.2-30]"""
    for packet, answered in ((Publish("t", b""), True), (Disconnect(), False)):
        client = World(access=Riddle()).client()
        client.send(Connect("a", properties=bits(auth_method="riddle")))
        client.one(Auth)
        client.send(packet)
        assert client.closed
        assert [type(one) for one in client.take()] == ([Connack] if answered else [])


def test_4_12_0_5_the_method_stays_the_same() -> None:
    """[MQTT-4.12.0-5]"""
    client = World(access=Riddle()).client()
    client.send(Connect("a", properties=bits(auth_method="riddle")))
    client.one(Auth)
    client.send(_auth(reasons.CONTINUE_AUTHENTICATION, b"ann", "other"))
    assert client.one(Connack).reason_code == reasons.PROTOCOL_ERROR
    assert client.closed


def test_4_12_1_re_authentication() -> None:
    """[MQTT-4.12.1-1], section 4.12.1: an open connection goes on meanwhile and afterwards."""
    world = World(access=Riddle())
    client = _inside(world)
    client.take()
    client.subscribe("t")
    client.send(_auth(reasons.REAUTHENTICATE, b"ann"))
    assert client.one(Auth).reason_code == reasons.CONTINUE_AUTHENTICATION
    client.publish("t", b"x")
    assert client.payloads() == [b"x"]
    client.send(_auth(reasons.CONTINUE_AUTHENTICATION, b"yes"))
    assert client.one(Auth) == _auth(reasons.SUCCESS, b"welcome")
    client.ping()


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (_auth(reasons.REAUTHENTICATE, b"ann"), _auth(reasons.CONTINUE_AUTHENTICATION, b"no"), reasons.NOT_AUTHORIZED),
        (_auth(reasons.REAUTHENTICATE, b"bob"), _auth(reasons.CONTINUE_AUTHENTICATION, b"yes"), reasons.NOT_AUTHORIZED),
        (_auth(reasons.REAUTHENTICATE, b"ann", "other"), None, reasons.PROTOCOL_ERROR),
        (_auth(reasons.CONTINUE_AUTHENTICATION, b"ann"), None, reasons.PROTOCOL_ERROR),
    ],
    ids=["wrong answer", "another user", "another method", "no exchange"],
)
def test_4_12_1_2_a_failed_re_authentication_ends_the_connection(first: Auth, second: Auth | None, reason: int) -> None:
    """[MQTT-4.12.1-2]: with a reason that DISCONNECT may carry."""
    client = _inside(World(access=Riddle()))
    client.take()
    client.send(first)
    if second is not None:
        client.send(second)
    assert client.disconnected() == reason


def test_an_exchange_must_end_in_time() -> None:
    world = World(access=Riddle())
    client = world.client()
    client.send(Connect("a", properties=bits(auth_method="riddle")))
    world.advance(11)
    world.settle()
    assert client.closed
