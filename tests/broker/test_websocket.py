"""The WebSocket door (section 6): frames are a stream, text is refused, the subprotocol is `mqtt`."""

import asyncio
import ssl
import urllib.request
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, NegotiationError
from websockets.typing import Subprotocol

from metromq.broker import Broker
from metromq.config import Config, Limits, Listener, Metrics
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import MQTT5, Connect, Disconnect, Pingreq, Publish, Subscribe, Subscription
from tests.certificates import make_certificates
from tests.peers import play

MQTT = Subprotocol("mqtt")


def _config(directory: Path) -> Config:
    return Config(
        data_dir=directory,
        durability="memory",
        listeners=(Listener("ws", port=0),),
        limits=Limits(max_outgoing_bytes=50_000, max_total_outgoing_bytes=500_000),
        metrics=Metrics(port=0),
    )


def test_6_0_0_2_packets_need_not_follow_frames(tmp_path: Path) -> None:
    """[MQTT-6.0.0-2]: many packets in a frame, and one packet in many."""

    async def story() -> None:
        async with (
            Broker(_config(tmp_path)) as broker,
            connect(f"ws://127.0.0.1:{broker.port}/", subprotocols=[MQTT]) as socket,
        ):
            assert socket.subprotocol == MQTT  # [MQTT-6.0.0-4]
            packets = (Connect("a"), Subscribe(1, [Subscription("t")]), Publish("t", b"x"), Pingreq())
            data = b"".join(encode(packet, MQTT5) for packet in packets)
            await socket.send(data[:5])
            for index in range(5, 20):
                await socket.send(data[index : index + 1])
            await socket.send(data[20:])
            got = b""
            while not got.endswith(b"\xd0\x00"):
                frame = await socket.recv()
                assert isinstance(frame, bytes)  # [MQTT-6.0.0-1]
                got += frame
            assert encode(Publish("t", b"x"), MQTT5) in got

    play(story())


def test_6_0_0_1_text_frames_close(tmp_path: Path) -> None:
    """[MQTT-6.0.0-1]"""

    async def story() -> None:
        async with (
            Broker(_config(tmp_path)) as broker,
            connect(f"ws://127.0.0.1:{broker.port}/", subprotocols=[MQTT]) as socket,
        ):
            await socket.send("hello")
            with pytest.raises(ConnectionClosed):
                await socket.recv()

    play(story())


def test_6_0_0_3_the_subprotocol_is_required(tmp_path: Path) -> None:
    """[MQTT-6.0.0-3]"""

    async def story() -> None:
        async with Broker(_config(tmp_path)) as broker:
            with pytest.raises((InvalidStatus, NegotiationError)):
                async with connect(f"ws://127.0.0.1:{broker.port}/", subprotocols=[Subprotocol("chat")]):
                    pass

    play(story())


def test_a_reader_that_stalls_and_the_end(tmp_path: Path) -> None:
    """Output is bounded here too; others get DISCONNECT when the broker stops."""

    async def story() -> None:
        async with Broker(_config(tmp_path)) as broker:
            url = f"ws://127.0.0.1:{broker.port}/"
            async with (
                connect(url, subprotocols=[MQTT], max_queue=1, close_timeout=0.1) as stalled,
                connect(url, subprotocols=[MQTT]) as other,
            ):
                for socket, name in ((stalled, "stalled"), (other, "other")):
                    await socket.send(encode(Connect(name), MQTT5))
                    await socket.recv()
                await stalled.send(encode(Subscribe(1, [Subscription("t")]), MQTT5))
                await stalled.recv()
                batch = encode(Publish("t", b"x" * 1000), MQTT5) * 100
                for _ in range(150):
                    await other.send(batch)
                await other.send(encode(Pingreq(), MQTT5))
                assert await other.recv() == b"\xd0\x00"
                output = broker.hub.sessions.by_client_id["stalled"].output
                assert output is not None
                assert output.dropped > 100
                assert output.waiting_bytes < 500_000
                stopping = asyncio.create_task(broker.stop())
                goodbye = await other.recv()
                assert isinstance(goodbye, bytes)
                assert goodbye[0] == encode(Disconnect(0x8B), MQTT5)[0]
                await stopping

    play(story())


def test_metrics_and_health(tmp_path: Path) -> None:
    async def story() -> None:
        async with Broker(_config(tmp_path)) as broker:
            base = f"http://127.0.0.1:{broker.metrics_port}"
            assert "ok" in await asyncio.to_thread(_get, f"{base}/healthz")
            assert "metromq" in await asyncio.to_thread(_get, f"{base}/metrics")

    play(story())


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_wss(run: Callable[[Coroutine[None, None, None]], None], tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    listener = Listener("wss", port=0, cert_file=made.server.cert, key_file=made.server.key)

    async def story() -> None:
        tls = ssl.create_default_context(cafile=str(made.ca))
        async with (
            Broker(replace(_config(tmp_path), listeners=(listener,))) as broker,
            connect(f"wss://localhost:{broker.port}/", ssl=tls, subprotocols=[MQTT]) as socket,
        ):
            await socket.send(encode(Connect("a"), MQTT5))
            assert (await asyncio.wait_for(socket.recv(), 30))[0] == 0x20
            assert broker.hub.connections.newcomers.count == 0

    run(story())
