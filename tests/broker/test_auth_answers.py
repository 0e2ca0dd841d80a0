"""A live broker whose authenticator takes its time: one client waits, everybody else is served."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from metromq.broker import Broker, logs
from metromq.broker.auth import (
    Accept,
    Continue,
    Credentials,
    Decision,
    FileAuthenticator,
    Refuse,
    ScramServer,
    ScramStore,
)
from metromq.broker.auth.passwords import hash_argon2
from metromq.client import Client
from metromq.config import Auth as AuthConfig
from metromq.config import Config, Listener
from metromq.errors import ConnectRefused
from metromq.protocol import reasons
from metromq.protocol.scram import ScramClient, derive_keys
from metromq.protocol.wire.packets import (
    MQTT5,
    MQTT311,
    Auth,
    Connack,
    Connect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Will,
)
from tests.broker.wire_client import WireClient, wire_client
from tests.peers import play


class Gate:
    """Lets everybody in at once except `slow`, who waits until the test opens."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.open = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.answer: Decision = Accept("ann")

    async def connect(self, request: Credentials) -> Decision:
        if request.client_id != "slow":
            return Accept(None)
        self.asked.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return self.answer

    async def auth(self, state: object, data: bytes) -> Decision:
        raise NotImplementedError


class Just:
    """Answers whatever a function makes of the request."""

    def __init__(self, answer: Callable[[], Decision | Awaitable[Decision]]) -> None:
        self._answer = answer

    def connect(self, request: Credentials) -> Decision | Awaitable[Decision]:
        return self._answer()

    def auth(self, state: object, data: bytes) -> Decision | Awaitable[Decision]:
        return self._answer()


Kind = Literal["tcp", "ws"]


def _config(kind: Kind = "tcp") -> Config:
    return Config(durability="memory", listeners=(Listener(kind, port=0),), sys_interval_s=0)


@asynccontextmanager
async def _dialled(port: int, *packets: Packet, version: int = MQTT5) -> AsyncIterator[WireClient]:
    """A connection over which these packets were sent and nothing was read."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    client = WireClient(reader, writer, version)
    client.send(*packets)
    try:
        yield client
    finally:
        writer.close()


@pytest.fixture
def errors(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, object]]]:
    """What is logged as an error."""
    logged: list[tuple[str, dict[str, object]]] = []
    monkeypatch.setattr(logs, "error", lambda what, **fields: logged.append((what, fields)))
    return logged


def test_one_client_waits_and_another_is_served() -> None:
    async def story() -> None:
        gate = Gate()
        behind = (Subscribe(1, [Subscription("t")]), Publish("t", b"early"))
        async with Broker(_config(), gate) as broker, _dialled(broker.port, Connect("slow"), *behind) as slow:
            await gate.asked.wait()
            async with wire_client(broker.port, Connect("quick")) as quick:
                await quick.subscribe("t", 0)
                quick.send(Publish("t", b"mine"))
                assert [one.payload for one in await quick.messages(1)] == [b"mine"]
                assert list(broker.hub.sessions.by_client_id) == ["quick"]
                gate.open.set()
                assert (await slow.expect(Connack)).reason_code == 0
                await slow.expect(Suback)
                assert [one.payload for one in await slow.messages(1)] == [b"early"]
                assert [one.payload for one in await quick.messages(1)] == [b"early"]
            assert broker.hub.sessions.by_client_id["slow"].username == "ann"
            slow.send(Pingreq())
            await slow.expect(Pingresp)
            assert not broker.access.answers.awaited

    play(story())


def test_a_late_no() -> None:
    async def story() -> None:
        gate = Gate()
        gate.answer = Refuse(reasons.BANNED, "not you")
        async with Broker(_config(), gate) as broker, _dialled(broker.port, Connect("slow")) as slow:
            await gate.asked.wait()
            gate.open.set()
            connack = await slow.expect(Connack)
            assert (connack.reason_code, connack.properties.reason_string) == (reasons.BANNED, "not you")
            assert await slow.next() is None
            assert not broker.hub.sessions.by_client_id

    play(story())


@pytest.mark.parametrize("kind", ["tcp", "ws"])
def test_an_exchange_and_its_repetition(kind: Kind) -> None:
    """SCRAM whose store is asked asynchronously, then proved again on the open connection."""

    class Elsewhere:
        def __init__(self) -> None:
            store = ScramStore({"alice": derive_keys("pencil", b"salt")}, b"secret")
            self.files = FileAuthenticator(scram=ScramServer(store))
            self.asked = 0

        async def connect(self, request: Credentials) -> Decision:
            await asyncio.sleep(0)
            self.asked += 1
            decision = self.files.connect(request)
            return await decision if isinstance(decision, Awaitable) else decision

        async def auth(self, state: object, data: bytes) -> Decision:
            await asyncio.sleep(0)
            self.asked += 1
            return self.files.auth(state, data)

    async def story() -> None:
        authenticator = Elsewhere()
        proof = ScramClient("alice", "pencil", "nonce")
        transport: Literal["tcp", "websocket"] = "websocket" if kind == "ws" else "tcp"
        async with Broker(_config(kind), authenticator) as broker:
            async with Client("127.0.0.1", broker.port, transport=transport, authentication=proof) as client:
                await client.subscribe("t")
                await client.reauthenticate()
                await client.publish("t", "x", qos=1)
                assert (await anext(client.messages)).payload == b"x"
            assert authenticator.asked == 4

    play(story())


# --- what goes wrong ----------------------------------------------------------------------------------------------


def _raises() -> Decision:
    raise LookupError("no directory")


async def _raises_later() -> Decision:
    await asyncio.sleep(0)
    raise LookupError("no directory")


async def _gives_up() -> Decision:
    raise asyncio.CancelledError


def _nothing() -> Decision:
    return None  # type: ignore[return-value]


async def _nothing_later() -> Decision:
    return None  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (_raises, "LookupError: no directory"),
        (_raises_later, "LookupError: no directory"),
        (_gives_up, "CancelledError: cancelled"),
        (_nothing, "TypeError: NoneType is not Accept, Refuse, Continue or awaitable"),
        (_nothing_later, "TypeError: NoneType is not Accept, Refuse, Continue or awaitable"),
    ],
)
@pytest.mark.parametrize("version", [MQTT5, MQTT311])
def test_an_authenticator_that_fails(
    answer: Callable[[], Decision | Awaitable[Decision]],
    problem: str,
    version: int,
    errors: list[tuple[str, dict[str, object]]],
) -> None:
    """0x88, which 3.1.1 calls 3, and a line in the log; the broker goes on."""

    async def story() -> None:
        async with Broker(_config(), Just(answer)) as broker:
            for _ in range(2):
                async with _dialled(broker.port, Connect("c", version), version=version) as client:
                    assert (await client.expect(Connack)).reason_code == reasons.SERVER_UNAVAILABLE
                    assert await client.next() is None
            assert not broker.hub.sessions.by_client_id
            assert not broker.access.answers.awaited

    play(story())
    assert errors == [("the authenticator failed", {"client": "c", "problem": problem})] * 2


@pytest.mark.parametrize("answer", [_raises, _raises_later])
def test_an_authenticator_that_fails_within_an_exchange(
    answer: Callable[[], Decision | Awaitable[Decision]], errors: list[tuple[str, dict[str, object]]]
) -> None:
    class Asks(Just):
        def connect(self, request: Credentials) -> Decision:
            return Continue(b"who?", None)

    async def story() -> None:
        connect = Connect("c", properties=Properties(auth_method="m"))
        async with Broker(_config(), Asks(answer)) as broker, _dialled(broker.port, connect) as client:
            await client.expect(Auth)
            client.send(Auth(reasons.CONTINUE_AUTHENTICATION, Properties(auth_method="m", auth_data=b"me")))
            assert (await client.expect(Connack)).reason_code == reasons.SERVER_UNAVAILABLE
            assert await client.next() is None

    play(story())
    assert errors == [("the authenticator failed", {"client": "c", "problem": "LookupError: no directory"})]


def test_an_answer_that_takes_too_long(errors: list[tuple[str, dict[str, object]]]) -> None:
    async def story() -> None:
        gate = Gate()
        loop = asyncio.get_running_loop()
        async with Broker(_config(), gate) as broker, _dialled(broker.port, Connect("slow")) as slow:
            await gate.asked.wait()
            broker.cycle.clock = lambda: loop.time() + broker.config.limits.connect_timeout_s
            assert (await slow.expect(Connack)).reason_code == reasons.SERVER_UNAVAILABLE
            assert await slow.next() is None
            await gate.cancelled.wait()
            assert not broker.hub.sessions.by_client_id

    play(story())
    assert errors == [("the authenticator did not answer in time", {"client": "slow"})]


@pytest.mark.parametrize("kind", ["tcp", "ws"])
def test_a_client_that_leaves_while_it_waits(kind: Kind, errors: list[tuple[str, dict[str, object]]]) -> None:
    async def story() -> None:
        gate = Gate()
        async with Broker(_config(kind), gate) as broker:
            if kind == "tcp":
                async with _dialled(broker.port, Connect("slow", will=Will("t", b"gone", retain=True))):
                    await gate.asked.wait()
            else:
                client = Client("127.0.0.1", broker.port, identifier="slow", transport="websocket")
                entering = asyncio.create_task(client.__aenter__())
                await gate.asked.wait()
                entering.cancel()
                with suppress(asyncio.CancelledError):
                    await entering
            await gate.cancelled.wait()
            while broker.hub.connections.open or broker.access.answers.awaited:
                await asyncio.sleep(0.01)
            assert not broker.hub.sessions.by_client_id
            assert not broker.hub.retained.messages

    play(story())
    assert not errors


def test_a_broker_that_stops_meanwhile(errors: list[tuple[str, dict[str, object]]]) -> None:
    """The question is cancelled, the client gets no CONNACK, no task is left."""

    async def story() -> None:
        gate = Gate()
        async with Broker(_config(), gate) as broker, _dialled(broker.port, Connect("slow")) as slow:
            await gate.asked.wait()
            await broker.stop()
            assert gate.cancelled.is_set()
            assert await slow.next() is None
            assert not broker.access.answers.awaited
        assert asyncio.all_tasks() == {asyncio.current_task()}

    play(story())
    assert not errors


def test_an_authenticator_that_does_not_let_go() -> None:
    """Its answer comes after its client has left: nobody is let in."""

    async def story() -> None:
        asked, cancelled, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def stubborn() -> Decision:
            asked.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                await go_on.wait()
            return Accept("ann")

        async with Broker(_config(), Just(stubborn)) as broker:
            async with _dialled(broker.port, Connect("c")):
                await asked.wait()
            await cancelled.wait()
            go_on.set()
            while broker.access.answers.awaited:
                await asyncio.sleep(0.01)
            assert not broker.hub.sessions.by_client_id

    play(story())


def test_a_password_file_of_a_newer_mosquitto(tmp_path: Path) -> None:
    """Its hashes take so long that they are checked in a thread."""
    file = tmp_path / "passwords"
    file.write_text(f"ann:{hash_argon2(b'secret', b'0123456789ab')}\n")

    async def story() -> None:
        config = replace(_config(), auth=AuthConfig(password_file=file))
        async with Broker(config) as broker:
            async with Client("127.0.0.1", broker.port, username="ann", password="secret") as client:
                await client.publish("t", b"x", qos=1)
                assert {session.username for session in broker.hub.sessions.by_client_id.values()} == {"ann"}
            for username in ("ann", "nobody"):
                with pytest.raises(ConnectRefused) as refused:
                    async with Client("127.0.0.1", broker.port, username=username, password="wrong"):
                        pass
                assert refused.value.reason_code == reasons.BAD_USER_NAME_OR_PASSWORD

    play(story())
