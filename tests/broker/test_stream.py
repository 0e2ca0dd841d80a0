"""The door over TCP and TLS: a slow reader gets everything whole and in order, straight or through the transport."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
import uvloop

from metromq.broker import Broker
from metromq.config import Config, Listener
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import MQTT311, Connect, Disconnect, Pingreq, Publish, Subscribe, Subscription
from tests.certificates import make_certificates

Runner = Callable[[Coroutine[None, None, None]], None]
RUNNERS: list[Runner] = [asyncio.run, uvloop.run]
WAIT_S = 30.0
MESSAGES = [encode(Publish("t", b"%06d" % number * 60), MQTT311) for number in range(2000)]  # 730 kB, below the limit


async def _enter(
    port: int, name: str, tls: ssl.SSLContext | None = None, filter: str = ""
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    writer.write(encode(Connect(name, MQTT311), MQTT311))
    assert await asyncio.wait_for(reader.readexactly(4), WAIT_S) == b"\x20\x02\x00\x00"
    if filter:
        writer.write(encode(Subscribe(1, [Subscription(filter)]), MQTT311))
        assert (await asyncio.wait_for(reader.readexactly(5), WAIT_S))[0] == 0x90
    return reader, writer


async def _slow_reader(listener: Listener, tls: ssl.SSLContext | None) -> None:
    async with Broker(Config(listeners=(listener,), durability="memory")) as broker:
        reader, writer = await _enter(broker.port, "slow", tls, "t")
        other, publisher = await _enter(broker.port, "p", tls)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        for start in range(0, len(MESSAGES), 100):
            publisher.write(b"".join(MESSAGES[start : start + 100]))
            await publisher.drain()
        publisher.write(encode(Pingreq(), MQTT311))
        await asyncio.wait_for(other.readexactly(2), WAIT_S)  # the broker has taken them all
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        wanted = b"".join(MESSAGES)
        assert await asyncio.wait_for(reader.readexactly(len(wanted)), WAIT_S) == wanted
        writer.write(encode(Pingreq(), MQTT311))
        assert await asyncio.wait_for(reader.readexactly(2), WAIT_S) == b"\xd0\x00"
        for one in (writer, publisher):
            one.write(encode(Disconnect(), MQTT311))
        assert await asyncio.wait_for(reader.read(1), WAIT_S) == b""
        assert broker.hub.counters.dropped == 0


@pytest.mark.parametrize("run", RUNNERS)
def test_a_slow_reader_gets_everything_in_order(run: Runner) -> None:
    run(_slow_reader(Listener(port=0), None))


@pytest.mark.parametrize("run", RUNNERS)
def test_nothing_passes_beside_tls(run: Runner, tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    listener = Listener("tls", port=0, cert_file=made.server.cert, key_file=made.server.key)
    run(_slow_reader(listener, ssl.create_default_context(cafile=str(made.ca))))
