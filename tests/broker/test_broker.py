"""A whole broker in this process: slow readers, full disks, restarts, and nothing left behind."""

import asyncio
import errno
import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from metromq.broker import Broker
from metromq.config import Config, JournalConfig, Limits, Listener, Metrics
from metromq.errors import ConfigError
from metromq.protocol.wire.packets import (
    MQTT5,
    MQTT311,
    PUBACK,
    Ack,
    Connect,
    Disconnect,
    Properties,
    Publish,
    Will,
)
from tests.broker.wire_client import WireClient, wire_client
from tests.peers import play

LASTING = Properties(session_expiry_s=1000)


def _config(directory: Path, **changes: object) -> Config:
    settings: dict[str, object] = {
        "data_dir": directory / "data",
        "listeners": (Listener(port=0),),
        "limits": Limits(max_outgoing_bytes=100_000, max_total_outgoing_bytes=1_000_000, max_connects_per_s=0),
        **changes,
    }
    return Config(**settings)  # type: ignore[arg-type]


async def _until(condition: Callable[[], bool]) -> None:
    """The test's own deadline ends what never comes true."""
    while not condition():
        await asyncio.sleep(0.01)


# --- slow readers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["memory", "os", "fsync"])
def test_a_reader_that_stalls_costs_a_bounded_amount(tmp_path: Path, durability: str) -> None:
    """10 MB of QoS 0 for someone who does not read: dropped and counted, while another reader gets everything."""

    async def story() -> None:
        async with (
            Broker(_config(tmp_path, durability=durability)) as broker,
            wire_client(broker.port, Connect("stalled"), 4096) as stalled,
            wire_client(broker.port, Connect("other")) as other,
            wire_client(broker.port, Connect("publisher")) as publisher,
        ):
            await stalled.subscribe("t", 1)
            await other.subscribe("t", 1)
            most_held = 0
            for number in range(500):
                publisher.send(*[Publish("t", b"%d" % number + b"x" * 1000) for _ in range(20)])
                await publisher.writer.drain()
                for message in await other.messages(20):
                    assert message.payload.startswith(b"%d" % number)
                most_held = max(most_held, broker.cycle.held_bytes)
            output = broker.hub.sessions.by_client_id["stalled"].output
            assert output is not None
            assert output.dropped > 1000
            assert broker.hub.counters.dropped == output.dropped
            assert most_held < 400_000  # the limit and what one turn adds
            assert output.waiting_bytes < 400_000

    play(story())


def test_qos_1_waits_in_the_journal_for_a_reader_that_stalls(tmp_path: Path) -> None:
    async def story() -> None:
        async with Broker(_config(tmp_path)) as broker:
            connect = Connect("stalled", clean_start=False, properties=LASTING)
            async with (
                wire_client(broker.port, connect, 4096) as stalled,
                wire_client(broker.port, Connect("publisher")) as publisher,
            ):
                await stalled.subscribe("t", 1)
                await _publish_all(publisher, range(1, 1501))
                session = broker.hub.sessions.by_client_id["stalled"]
                assert session.backlog.waiting() > 1000
                assert session.backlog.queued_bytes < 2_000_000
                got = []
                for _ in range(1500):
                    message = await stalled.expect(Publish)
                    got.append(int(message.payload[:5]))
                    stalled.send(Ack(PUBACK, message.packet_id))
                assert got == list(range(1, 1501))

    play(story())


async def _publish_all(publisher: WireClient, numbers: range) -> None:
    for number in numbers:
        publisher.send(Publish("t", b"%05d" % number + b"x" * 2000, 1, packet_id=number))
        if number % 100 == 0 or number == numbers[-1]:
            await publisher.writer.drain()
    for number in numbers:
        ack = await publisher.expect(Ack)
        assert (ack.packet_id, ack.reason_code) == (number, 0)


def test_one_publisher_that_is_too_fast_is_slowed_not_cut(tmp_path: Path) -> None:
    """A reader that reads in its own time gets most of what back-pressure can save; the connection lives."""

    async def story() -> None:
        async with (
            Broker(_config(tmp_path, durability="memory")) as broker,
            wire_client(broker.port, Connect("reader")) as reader,
            wire_client(broker.port, Connect("publisher")) as publisher,
        ):
            await reader.subscribe("t", 1)
            publisher.send(*[Publish("t", b"x" * 1000) for _ in range(2000)])
            publisher.send(Publish("t", b"last", 1, packet_id=1))
            seen = 0
            while (await reader.expect(Publish)).payload != b"last":
                seen += 1
            assert seen > 1000

    play(story())


# --- full disks ---------------------------------------------------------------------------------------------------


def test_too_little_room_refuses_qos_1_and_serves_the_rest(tmp_path: Path) -> None:
    config = _config(tmp_path, journal=JournalConfig(min_free_bytes=1 << 60))

    async def story() -> None:
        async with (
            Broker(config) as broker,
            wire_client(broker.port, Connect("reader")) as reader,
            wire_client(broker.port, Connect("publisher")) as publisher,
            wire_client(broker.port, Connect("old", MQTT311)) as old,
        ):
            await reader.subscribe("t", 1)
            publisher.send(Publish("t", b"1", 1, packet_id=1), Publish("t", b"0"))
            assert (await publisher.expect(Ack)).reason_code == 0x97
            assert [message.payload for message in await reader.messages(1)] == [b"0"]
            old.send(Publish("t", b"1", 1, packet_id=1))
            assert await old.next() is None

    play(story())


def test_a_disk_that_runs_full_loses_nothing_confirmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENOSPC in the middle: 0x97 for what had no room, service for the rest, and all goes on when there is room."""
    real = os.pwrite
    broken = threading.Event()

    def pwrite(fd: int, data: bytes, offset: int) -> int:
        if broken.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)

    async def publish(publisher: WireClient, packet_id: int, payload: bytes) -> int:
        publisher.send(Publish("t", payload, 1, packet_id=packet_id))
        return (await publisher.expect(Ack)).reason_code

    async def story() -> None:
        lasting = Connect("s", clean_start=False, properties=LASTING)
        async with Broker(_config(tmp_path)) as broker:
            async with wire_client(broker.port, lasting) as reader:
                await reader.subscribe("t", 1)
            async with (
                wire_client(broker.port, Connect("p")) as publisher,
                wire_client(broker.port, Connect("zero")) as zero,
            ):
                await zero.subscribe("t", 0)
                assert await publish(publisher, 1, b"before") == 0
                broken.set()
                assert await publish(publisher, 2, b"refused") == 0x97
                publisher.send(Publish("t", b"zero"))
                seen = [(await zero.expect(Publish)).payload for _ in range(2)]
                while seen[-1] != b"zero":
                    seen.append((await zero.expect(Publish)).payload)
                broken.clear()
                assert await publish(publisher, 3, b"after") == 0
        async with Broker(_config(tmp_path)) as broker, wire_client(broker.port, lasting) as reader:
            assert [message.payload for message in await reader.messages(2)] == [b"before", b"after"]

    play(story())


def test_a_disk_that_breaks_confirms_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """EIO stops the journal for good: QoS 1 is refused, QoS 0 goes on, and a restart has what was confirmed."""
    real = os.pwrite
    broken = threading.Event()

    def pwrite(fd: int, data: bytes, offset: int) -> int:
        if broken.is_set():
            raise OSError(errno.EIO, "Input/output error")
        return real(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)

    async def story() -> None:
        async with (
            Broker(_config(tmp_path)) as broker,
            wire_client(broker.port, Connect("p")) as publisher,
            wire_client(broker.port, Connect("zero")) as zero,
        ):
            await zero.subscribe("z", 0)
            publisher.send(Publish("t", b"kept", 1, True, packet_id=1))
            assert (await publisher.expect(Ack)).reason_code in (0, 0x10)
            broken.set()
            for number in range(2, 5):
                publisher.send(Publish("t", b"lost", 1, packet_id=number), Publish("z", b"zero"))
                assert (await publisher.expect(Ack)).reason_code == 0x97
                assert [message.payload for message in await zero.messages(1)] == [b"zero"]
        broken.clear()
        async with Broker(_config(tmp_path)) as broker, wire_client(broker.port, Connect("r")) as reader:
            await reader.subscribe("t", 1)
            assert [message.payload for message in await reader.messages(1)] == [b"kept"]

    play(story())


# --- start, stop, restart -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["os", "fsync"])
def test_a_restart_keeps_sessions_retained_messages_and_queues(tmp_path: Path, durability: str) -> None:
    async def story() -> None:
        lasting = Connect("s", clean_start=False, properties=LASTING)
        config = _config(tmp_path, durability=durability)
        async with Broker(config) as broker:
            async with wire_client(broker.port, lasting) as reader:
                await reader.subscribe("t", 1)
            async with wire_client(broker.port, Connect("p")) as publisher:
                for number in range(1, 6):
                    publisher.send(Publish("t", b"%d" % number, 1, True, packet_id=number))
                    await publisher.expect(Ack)
        for _ in range(2):  # the second start reads the snapshot of the first stop
            async with Broker(config) as broker, wire_client(broker.port, Connect("r")) as reader:
                await reader.subscribe("#", 0)
                assert [message.payload for message in await reader.messages(1)] == [b"5"]
        async with Broker(config) as broker, wire_client(broker.port, lasting) as reader:
            assert [message.payload for message in await reader.messages(5)] == [b"1", b"2", b"3", b"4", b"5"]

    play(story())


def test_stopping_confirms_what_came_and_says_goodbye(tmp_path: Path) -> None:
    async def story() -> None:
        broker = Broker(_config(tmp_path, durability="fsync"))
        async with (
            broker,
            wire_client(broker.port, Connect("p", will=Will("w", b"gone", 1, True))) as publisher,
            wire_client(broker.port, Connect("old", MQTT311)) as old,
        ):
            publisher.send(*[Publish("t", b"x", 1, packet_id=number) for number in range(1, 51)])
            await _until(lambda: broker.hub.counters.messages_received == 50)
            await broker.stop()
            for number in range(1, 51):
                assert (await publisher.expect(Ack)).packet_id == number
            assert (await publisher.expect(Disconnect)).reason_code == 0x8B
            assert await publisher.next() is None
            assert await old.next() is None
        async with Broker(_config(tmp_path)) as again, wire_client(again.port, Connect("r")) as reader:
            await reader.subscribe("w", 1)
            assert [message.payload for message in await reader.messages(1)] == [b"gone"]

    play(story())


def test_stopping_does_not_wait_for_ever_for_a_reader_that_stalls(tmp_path: Path) -> None:
    async def story() -> None:
        broker = Broker(_config(tmp_path, durability="memory"))
        async with (
            broker,
            wire_client(broker.port, Connect("stalled"), 4096) as stalled,
            wire_client(broker.port, Connect("p")) as publisher,
        ):
            await stalled.subscribe("t", 0)
            publisher.send(*[Publish("t", b"x" * 1000) for _ in range(5000)])
            await _until(lambda: broker.hub.counters.messages_received == 5000)
        assert not broker.hub.connections.open

    play(story())


@pytest.mark.parametrize("durability", ["memory", "os", "fsync"])
def test_nothing_is_left_behind(tmp_path: Path, durability: str) -> None:
    """No thread, task, open file or socket outlives the block."""
    config = _config(
        tmp_path,
        durability=durability,
        listeners=(Listener(port=0), Listener("ws", port=0)),
        metrics=Metrics(port=0),
        sys_interval_s=0.01,
    )

    async def story() -> None:
        tasks = len(asyncio.all_tasks())
        for _ in range(3):
            async with Broker(config) as broker, wire_client(broker.port, Connect("a")) as client:
                await client.subscribe("t", 1)
                client.send(Publish("t", b"x", 1, packet_id=1))
                await client.next()
        await _until(lambda: len(asyncio.all_tasks()) == tasks)

    process = psutil.Process()
    play(story())
    gc.collect()
    files, threads, sockets = process.num_fds(), threading.active_count(), len(process.net_connections())
    play(story())
    gc.collect()
    assert process.num_fds() <= files
    assert threading.active_count() <= threads
    assert len(process.net_connections()) <= sockets


def test_a_port_that_is_taken_is_named_and_everything_is_released(tmp_path: Path) -> None:
    async def story() -> None:
        async with Broker(_config(tmp_path, durability="memory")) as broker:
            taken = _config(tmp_path, listeners=(Listener(port=0), Listener(port=broker.port)))
            with pytest.raises(ConfigError, match=str(broker.port)):
                async with Broker(taken):
                    pass
        async with Broker(_config(tmp_path)):  # the journal's lock is free again
            pass

    play(story())


def test_keepalive_and_the_time_to_connect_on_a_real_clock(tmp_path: Path) -> None:
    config = _config(tmp_path, durability="memory", limits=Limits(connect_timeout_s=0.1))

    async def story() -> None:
        async with Broker(config) as broker, wire_client(broker.port, Connect("a", MQTT5, True, 1)) as client:
            assert (await client.expect(Disconnect)).reason_code == 0x8D
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            assert await reader.read() == b""
            writer.close()

    play(story())
