"""The client's shell under pressure, against a server that the test scripts: floods, silence, broken connections."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from metromq.client import Client, ConnectionLost, Message, Messages, MqttError
from metromq.protocol.wire.decoding import Framer, decode
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import (
    MQTT5,
    PUBACK,
    PUBREC,
    Ack,
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
)
from tests.peers import play


class Peer:
    """The server's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self._framer = Framer(1 << 28)

    async def hear(self) -> Packet | None:
        """The client's next packet; None at the end."""
        while (frame := self._framer.next()) is None:
            data = await self._reader.read(1 << 16)
            if not data:
                return None
            self._framer.feed(data)
        return decode(*frame, MQTT5, True)

    async def say(self, *packets: Packet) -> None:
        self.writer.write(b"".join(encode(packet, MQTT5) for packet in packets))
        await self.writer.drain()

    async def welcome(self, session_present: bool = False, properties: Properties | None = None) -> None:
        assert isinstance(await self.hear(), Connect)
        await self.say(Connack(session_present, 0, properties or Properties()))


@contextlib.asynccontextmanager
async def scripted(script: Callable[[Peer], Awaitable[None]]) -> AsyncIterator[int]:
    """A server that plays `script` with every client; its port."""
    problems: list[Exception] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await script(Peer(reader, writer))
        except ConnectionError:
            pass
        except Exception as error:
            problems.append(error)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()
        assert problems == []


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_reading_pauses_while_the_application_is_busy() -> None:
    """The server cannot push more than the queue and the sockets' buffers hold; nothing is lost when we go on."""
    payload, count = b"x" * 10_000, 5_000
    said = 0

    async def script(peer: Peer) -> None:
        nonlocal said
        await peer.welcome()
        for number in range(count):
            await peer.say(Publish(f"t/{number}", payload))
            said += 1
        await peer.hear()

    async def story() -> None:
        async with scripted(script) as port, Client("127.0.0.1", port, max_queued_messages=10) as client:
            await until(lambda: len(client.messages) >= 10)
            last = -1
            while said != last:  # until the server is stuck
                last = said
                await asyncio.sleep(0.05)
            assert said < count
            assert len(client.messages) < 200
            for number in range(count):
                assert (await anext(client.messages)).topic == f"t/{number}"
            assert client.dropped == 0

    play(story())


def test_a_busy_application_still_gets_its_own_answers() -> None:
    """A handler that publishes at QoS 1 while the queue is full must not wait for a PUBACK that is never read."""
    count = 400

    async def script(peer: Peer) -> None:
        await peer.welcome()
        await peer.say(*(Publish("t", b"x" * 1000) for _ in range(count)))
        while (packet := await peer.hear()) is not None:
            if isinstance(packet, Publish):
                await peer.say(Ack(PUBACK, packet.packet_id))

    async def story() -> int:
        async with scripted(script) as port, Client("127.0.0.1", port, max_queued_messages=5) as client:
            answered = 0
            for _ in range(count - client.dropped):
                await anext(client.messages)
                await client.publish("answer", "y", qos=1)
                answered += 1
                if answered + client.dropped == count:
                    break
            return answered + client.dropped

    assert play(story()) == count


def test_qos_0_beyond_the_hard_limit_is_dropped_and_counted() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        assert isinstance(await peer.hear(), Subscribe)
        await peer.say(*(Publish("t", b"") for _ in range(100)), Suback(1, [0]))
        await peer.hear()

    async def story() -> tuple[int, int]:
        async with scripted(script) as port, Client("127.0.0.1", port, max_queued_messages=5) as client:
            await client.subscribe("t")
            return len(client.messages), client.dropped

    assert play(story()) == (50, 50)


def test_unacknowledged_messages_bound_the_queue() -> None:
    """QoS 1 and 2 are acknowledged when the application takes them, so a server keeps to our receive maximum."""
    heard: list[Packet] = []

    async def script(peer: Peer) -> None:
        await peer.welcome()
        await peer.say(Publish("t", b"1", 1, packet_id=1), Publish("t", b"2", 2, packet_id=2))
        while (packet := await peer.hear()) is not None:
            heard.append(packet)

    async def story() -> None:
        async with scripted(script) as port, Client("127.0.0.1", port, receive_maximum=2) as client:
            await until(lambda: len(client.messages) == 2)
            assert heard == []
            assert client.messages.take_nowait() is not None
            await until(lambda: heard == [Ack(PUBACK, 1)])
            assert client.messages.take_nowait() is not None
            await until(lambda: heard == [Ack(PUBACK, 1), Ack(PUBREC, 2)])
            assert client.messages.take_nowait() is None

    play(story())


def test_publishing_waits_for_a_server_that_does_not_read() -> None:
    reading = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.welcome()
        await reading.wait()
        while await peer.hear() is not None:
            pass

    async def story() -> None:
        sent = 0

        async def flood(client: Client) -> None:
            nonlocal sent
            for _ in range(2_000):
                await client.publish("t", b"x" * 10_000)
                sent += 1

        async with scripted(script) as port, Client("127.0.0.1", port) as client:
            task = asyncio.create_task(flood(client))
            last = -1
            while sent != last:
                last = sent
                await asyncio.sleep(0.05)
            assert sent < 2_000
            reading.set()
            await task
            assert sent == 2_000

    play(story())


def test_a_lost_connection_is_told_to_everyone_and_mended_by_the_next() -> None:
    heard: list[Packet] = []
    connections = 0

    async def script(peer: Peer) -> None:
        nonlocal connections
        connections += 1
        await peer.welcome(session_present=connections > 1)
        packet = await peer.hear()
        assert packet is not None
        heard.append(packet)
        if connections > 1:
            await peer.say(Ack(PUBACK, 1))
            await peer.hear()

    async def story() -> None:
        async with scripted(script) as port:
            client = Client("127.0.0.1", port, identifier="me", clean_start=False, session_expiry_s=100)
            async with client:
                waiting = asyncio.create_task(anext(client.messages))
                with pytest.raises(ConnectionLost):
                    await client.publish("t", "x", qos=1)
                with pytest.raises(ConnectionLost):
                    await waiting
                with pytest.raises(ConnectionLost):
                    await client.subscribe("t")
            async with client:
                assert client.session_present
                await until(lambda: len(heard) == 2)

    play(story())
    assert heard == [Publish("t", b"x", 1, packet_id=1), Publish("t", b"x", 1, False, True, 1)]


def test_disconnect_of_the_server() -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        await peer.say(Disconnect(0x9C, Properties(server_reference="other:1884")))
        assert await peer.hear() is None

    async def story() -> ConnectionLost:
        async with scripted(script) as port, Client("127.0.0.1", port) as client:
            with pytest.raises(ConnectionLost) as raised:
                async for _ in client.messages:
                    pass
            return raised.value

    error = play(story())
    assert (error.reason_code, error.server_reference) == (0x9C, "other:1884")


def test_a_server_that_never_answers() -> None:
    async def script(peer: Peer) -> None:
        while await peer.hear() is not None:
            pass

    async def connecting() -> None:
        async with scripted(script) as port, Client("127.0.0.1", port, timeout_s=0.05):
            pass

    async def welcoming(peer: Peer) -> None:
        await peer.welcome()
        await script(peer)

    async def subscribing() -> None:
        async with scripted(welcoming) as port, Client("127.0.0.1", port) as client:
            client._timeout_s = 0.05
            await client.subscribe("t")

    with pytest.raises(MqttError, match=r"no CONNACK .* within 0\.05 s"):
        play(connecting())
    with pytest.raises(MqttError, match=r"no answer to SUBSCRIBE within 0\.05 s"):
        play(subscribing())


def test_pings_keep_a_silent_connection() -> None:
    pings = 0

    async def script(peer: Peer) -> None:
        nonlocal pings
        await peer.welcome()
        while isinstance(await peer.hear(), Pingreq):
            pings += 1
            await peer.say(Pingresp())

    async def story() -> None:
        async with scripted(script) as port, Client("127.0.0.1", port, keepalive_s=1) as client:
            await until(lambda: pings >= 1)
            assert client.is_connected

    play(story())


def test_several_consumers_share_the_messages() -> None:
    async def story() -> list[bytes]:
        taken: list[Message] = []
        messages = Messages(taken.append)
        messages.begin()

        async def consume(count: int) -> list[bytes]:
            return [(await anext(messages)).payload for _ in range(count)]

        leaver = asyncio.create_task(consume(1))
        consumers = [asyncio.create_task(consume(10)) for _ in range(2)]
        await asyncio.sleep(0)  # all wait now, the leaver first
        for number in range(20):
            messages.put(Message("t", Publish("t", str(number).encode()), number))
        leaver.cancel()  # the first message woke it, and the others must not sleep on
        shares = await asyncio.gather(*consumers)
        assert len(taken) == 20
        messages.end(None)
        assert [message async for message in messages] == []
        return [payload for share in shares for payload in share]

    assert sorted(play(story()), key=int) == [str(number).encode() for number in range(20)]
