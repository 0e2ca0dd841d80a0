"""Large buffers are used again, and connections that end free themselves."""

import asyncio
import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
from websockets.server import ServerProtocol

from metromq.broker import Broker
from metromq.broker.memory import FEW_CLIENTS, GONE_CLIENTS, Garbage
from metromq.broker.stream import StreamWriter
from metromq.broker.write_cycle import WriteCycle
from metromq.config import Config, Listener
from metromq.protocol.session.access import Access
from metromq.protocol.session.hub import Hub
from metromq.protocol.session.hub_settings import HubSettings
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import MQTT311, Connect, Subscribe, Subscription
from tests.peers import play

PROGRAM = """
import resource, sys
from metromq.broker.memory import keep_buffers

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        bytearray(2 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if not keep_buffers():
    sys.exit("this C library has no mallopt")
faults()
print(faults())
"""


def test_buffers_are_used_again() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    if "no mallopt" in done.stderr and not os.environ.get("CI"):
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 50 * 512 / 2  # 512 pages each, if each were new


class NoNetwork:
    """A transport that is never written to."""

    def get_extra_info(self, name: str) -> object:
        return ("127.0.0.1", 1) if name == "peername" else object()

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        pass

    def abort(self) -> None:
        pass


def test_a_connection_that_ends_leaves_nothing_for_the_collector() -> None:
    """It would not be found for long: what is old is out of its sight."""
    loop = asyncio.new_event_loop()
    hub = Hub(HubSettings())
    turns = WriteCycle(hub, loop, 1 << 20)
    gc.collect()
    gc.disable()
    try:
        for number in range(20):
            writer = StreamWriter(turns, Access(), True, False)
            writer.connection_made(NoNetwork())  # type: ignore[arg-type]
            turns.now()
            writer.connection.receive(encode(Connect(f"c{number}", MQTT311, keepalive_s=60), MQTT311))
            writer.connection.receive(encode(Subscribe(1, [Subscription("a/+", 1), Subscription("b", 0)]), MQTT311))
            turns.flush()
            hub.routes.find(b"a/b")
            hub.routes.find(b"b")
            writer.connection_lost(None)
        del writer
        loop.run_until_complete(asyncio.sleep(0))  # what the turns have left to do
        for later in (100.0, 200.0):  # then nobody looks at a connection any more
            hub.at(hub.clock.now + later, 0)
            hub.tick()
        assert not hub.sessions.by_client_id
        assert gc.collect() == 0
    finally:
        gc.enable()
        loop.close()


class Circle:
    def __init__(self) -> None:
        self.self = self


UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Protocol: mqtt\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
)
STRANGERS = {
    "leaves after the upgrade": (UPGRADE + b"\r\n",),
    "sends what is no frame": (UPGRADE + b"\r\n", b"\xff\xff\xff\xff"),
    "comes from another page": (UPGRADE + b"Origin: http://elsewhere\r\n\r\n",),
    "asks for a page": (b"GET //[ HTTP/1.1\r\nHost: x\r\n\r\n",),
    "speaks MQTT": (b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x0a\r\n\r\n",),
    "stops in the middle": (b"GET / HT",),
}


@pytest.mark.parametrize("what", STRANGERS)
def test_a_websocket_that_ends_leaves_nothing_for_the_collector(what: str, tmp_path: Path) -> None:
    async def come(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for data in STRANGERS[what]:
            writer.write(data)
            if data.endswith(b"\r\n\r\n"):
                await reader.read(1000)
        writer.close()
        await writer.wait_closed()

    async def story() -> None:
        config = Config(data_dir=tmp_path, durability="memory", listeners=(Listener("ws", port=0),))
        async with Broker(config) as broker:
            for _ in range(5):
                await come(broker.port)
            while any(isinstance(one, ServerProtocol) for one in gc.get_objects()):
                await asyncio.sleep(0.01)  # until the test's time is up

    gc.collect()
    gc.disable()
    try:
        play(story())
    finally:
        gc.enable()


def test_a_look_at_everything_is_taken_only_where_it_is_short() -> None:
    garbage = Garbage()
    try:
        garbage.collect(10 * FEW_CLIENTS, 0)
        assert gc.get_freeze_count()
        circle = Circle()
        seen = weakref.ref(circle)
        gc.freeze()
        del circle
        garbage.collect(10 * FEW_CLIENTS, 100 * GONE_CLIENTS)
        assert seen() is not None, "with 20,000 clients it would stop the broker for 70 ms"
        garbage.collect(1, 100 * GONE_CLIENTS)
        assert seen() is None
    finally:
        gc.unfreeze()


def test_where_little_is_new_nothing_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle process would wake up for it four times a second."""
    garbage, looks = Garbage(), [0]

    def count() -> None:
        looks[0] += 1

    monkeypatch.setattr(gc, "collect", count)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(gc, "get_count", lambda: (500, 0, 0))
    for _ in range(3):
        garbage.collect(10, 0)
    assert looks[0] == 1  # the first time: all that the start has made
    monkeypatch.setattr(gc, "get_count", lambda: (20, 1, 0))
    garbage.collect(10, 0)
    assert looks[0] == 2
