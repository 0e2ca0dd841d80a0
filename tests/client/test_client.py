"""The asyncio client against real servers: both transports, all versions, every QoS, sessions, wills, errors."""

import asyncio
import secrets
import ssl
from pathlib import Path
from typing import Literal

import pytest

from metromq.client import (
    MQTT5,
    MQTT31,
    MQTT311,
    Client,
    ConnectionLost,
    Message,
    MqttError,
    Properties,
    Subscription,
    Topic,
    Will,
)
from metromq.errors import UsageError
from tests.certificates import Certificates
from tests.client.conftest import TCP, TLS, WEBSOCKET
from tests.peers import Server, free_ports, play

VERSIONS = [MQTT31, MQTT311, MQTT5]


def unique(name: str) -> str:
    """A topic or identifier that no other test uses: the servers live through the whole session."""
    return f"{name}-{secrets.token_hex(4)}"


async def take(client: Client, count: int) -> list[Message]:
    return [await anext(client.messages) for _ in range(count)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transport", ["tcp", "websocket"])
def test_every_qos_both_ways(server: Server, version: int, transport: Literal["tcp", "websocket"]) -> None:
    async def story() -> list[tuple[str, bytes, int]]:
        topic = unique("every")
        port = server.ports[WEBSOCKET if transport == "websocket" else TCP]
        async with Client("127.0.0.1", port, version=version, identifier=unique("c"), transport=transport) as client:
            assert client.is_connected
            assert await client.subscribe(f"{topic}/#", qos=2) == (2,)
            for qos in (0, 1, 2):
                await client.publish(f"{topic}/{qos}", f"hello {qos}", qos=qos)
            messages = await take(client, 3)
            assert await client.unsubscribe(f"{topic}/#") == (0,)
        assert not client.is_connected
        return [(message.topic.removeprefix(topic), message.payload, message.qos) for message in messages]

    assert play(story()) == [("/0", b"hello 0", 0), ("/1", b"hello 1", 1), ("/2", b"hello 2", 2)]


def test_properties_travel(server: Server) -> None:
    sent = Properties(
        payload_format=1,
        message_expiry_s=1000,
        content_type="text/plain",
        response_topic="answers",
        correlation_data=b"\x00\x01",
        user=(("a", "1"), ("a", "2")),
    )

    async def story() -> Properties:
        topic = unique("properties")
        async with Client("127.0.0.1", server.port) as client:
            await client.subscribe(Subscription(topic, 1), identifier=7)
            await client.publish(topic, b"x", 1, properties=sent)
            [message] = await take(client, 1)
            return message.properties

    got = play(story())
    assert got.message_expiry_s is not None
    assert 990 <= got.message_expiry_s <= 1000
    got.message_expiry_s = 1000
    sent.subscription_identifiers = (7,)
    assert got == sent


def test_subscribe_forms(server: Server) -> None:
    async def story() -> None:
        name = unique("forms")
        async with Client("127.0.0.1", server.port) as client:
            assert await client.subscribe([(f"{name}/a", 0), (f"{name}/b", 2)]) == (0, 2)
            assert await client.subscribe([f"{name}/c", Subscription(f"{name}/d", 2)], qos=1) == (1, 2)
            await client.subscribe(f"{name}/local", no_local=True)
            await client.publish(f"{name}/local", "own")
            await client.publish(f"{name}/a", 42)
            [message] = await take(client, 1)
            assert (message.topic, message.payload) == (f"{name}/a", b"42")
            assert await client.unsubscribe([f"{name}/a", f"{name}/nothing"]) == (0, 0x11)

    play(story())


def test_retained_message_and_its_flag(server: Server) -> None:
    async def story() -> None:
        topic = unique("retained")
        async with Client("127.0.0.1", server.port) as client:
            await client.publish(topic, "kept", 1, retain=True)
            await client.subscribe(topic)
            [message] = await take(client, 1)
            assert (message.payload, message.retain) == (b"kept", True)
            await client.publish(topic, None, 1, retain=True)
            [message] = await take(client, 1)
            assert (message.payload, message.retain) == (b"", False)

    play(story())


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_many_concurrent_publishes_arrive_once_and_in_order(server: Server, qos: int) -> None:
    count = 300

    async def story() -> list[bytes]:
        topic = unique("many")
        async with Client("127.0.0.1", server.port) as reader, Client("127.0.0.1", server.port) as writer:
            await reader.subscribe(topic, qos=qos)
            await asyncio.gather(*(writer.publish(topic, number, qos) for number in range(count)))
            return [message.payload for message in await take(reader, count)]

    assert play(story()) == [str(number).encode() for number in range(count)]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_survives_its_connection(server: Server, version: int) -> None:
    async def story() -> None:
        topic, identifier = unique("session"), unique("s")
        client = Client(
            "127.0.0.1",
            server.port,
            identifier=identifier,
            version=version,
            clean_start=False,
            session_expiry_s=600 if version == MQTT5 else None,
        )
        async with client:
            assert not client.session_present
            await client.subscribe(topic, qos=2)
        async with Client("127.0.0.1", server.port) as other:
            await other.publish(topic, "while away 1", 1)
            await other.publish(topic, "while away 2", 2)
        async with client:
            assert client.session_present or version == MQTT31  # 3.1 has no flag for it
            assert [message.payload for message in await take(client, 2)] == [b"while away 1", b"while away 2"]
        async with Client("127.0.0.1", server.port, identifier=identifier, version=version):
            pass  # a clean start: leaves nothing behind

    play(story())


def test_will_after_disconnect_with_will(server: Server) -> None:
    async def story() -> Message:
        topic = unique("will")
        will = Will(topic, "gone", 1, False, Properties(content_type="will"))
        async with Client("127.0.0.1", server.port) as watcher:
            await watcher.subscribe(topic, qos=1)
            client = Client("127.0.0.1", server.port, will=will)
            await client.connect()
            await client.disconnect(0x04)
            async with Client("127.0.0.1", server.port, will=will):
                pass  # an ordinary goodbye publishes nothing
            await watcher.publish(topic, "last", 1)
            first, last = await take(watcher, 2)
            assert last.payload == b"last"
            return first

    message = play(story())
    assert (message.payload, message.qos, message.properties.content_type) == (b"gone", 1, "will")


def test_takeover_is_told(server: Server) -> None:
    async def story() -> None:
        identifier = unique("taken")
        first = Client("127.0.0.1", server.port, identifier=identifier)
        async with first, Client("127.0.0.1", server.port, identifier=identifier):
            with pytest.raises(ConnectionLost) as raised:
                await anext(first.messages)
            assert raised.value.reason_code == (0x8E if server.name == "metromq" else None)  # mosquitto just closes
            with pytest.raises(ConnectionLost):
                await first.publish("a", "x")

    play(story())


def test_server_assigns_an_identifier(server: Server) -> None:
    async def story() -> None:
        async with Client("127.0.0.1", server.port) as client:
            assert client.identifier
            assert client.connack.properties.assigned_client_id == client.identifier

    play(story())


def test_tls_with_a_client_certificate(server: Server, certificates: Certificates) -> None:
    context = ssl.create_default_context(cafile=certificates.ca)

    async def refused() -> None:
        async with Client("127.0.0.1", server.ports[TLS], tls=context):
            pass

    async def story() -> bytes:
        topic = unique("tls")
        async with Client("127.0.0.1", server.ports[TLS], tls=context) as client:
            await client.subscribe(topic)
            await client.publish(topic, "secret")
            return (await take(client, 1))[0].payload

    with pytest.raises(MqttError):
        play(refused())
    context.load_cert_chain(certificates.client.cert, certificates.client.key)
    assert play(story()) == b"secret"


def test_tls_checks_the_server(server: Server, tmp_path: Path) -> None:
    async def story() -> None:
        async with Client("127.0.0.1", server.ports[TLS], tls=ssl.create_default_context()):
            pass

    with pytest.raises(MqttError, match=r"cannot connect to 127\.0\.0\.1"):
        play(story())


def test_nobody_there() -> None:
    async def story() -> None:
        async with Client("127.0.0.1", free_ports(1)[0]):
            pass

    with pytest.raises(MqttError, match="cannot connect"):
        play(story())


def test_misuse(server: Server) -> None:
    async def story() -> None:
        client = Client("127.0.0.1", server.port)
        with pytest.raises(ConnectionLost, match="not connected"):
            await client.publish("a", "b")
        with pytest.raises(UsageError):
            _ = client.connack
        async with client:
            with pytest.raises(UsageError, match="already connected"):
                await client.connect()
            with pytest.raises(UsageError, match="wildcards"):
                await client.publish("a/#", "b")
        await client.disconnect()
        assert [message async for message in client.messages] == []

    play(story())


def test_topic() -> None:
    topic = Topic("city/7/air")
    assert topic == "city/7/air"
    assert topic.value == "city/7/air"
    assert topic.matches("city/+/air")
    assert topic.matches("$share/group/city/#")
    assert not topic.matches("city/+")
    assert not Topic("$SYS/x").matches("#")
