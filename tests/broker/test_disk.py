"""The broker and its disk: full, then free again; damaged, refused, then accepted."""

import asyncio
import errno
import os
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from metromq.broker import Broker
from metromq.client import Client
from metromq.config import Config, Durability, JournalConfig, Listener
from metromq.errors import JournalDamaged, MqttError

FULL = 0x97


def config(directory: Path, durability: Durability = "os") -> Config:
    return Config(
        listeners=(Listener(port=0),),
        data_dir=directory,
        durability=durability,
        journal=JournalConfig(min_free_bytes=1, segment_bytes=1 << 16),
    )


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            await story()

    asyncio.run(main())


def keeper(port: int) -> Client:
    """A subscriber whose session outlives it."""
    return Client("127.0.0.1", port, identifier="keeper", clean_start=False, session_expiry_s=3600)


async def refused(client: Client, qos: int) -> None:
    with pytest.raises(MqttError) as caught:
        await client.publish("disk/full", b"refused", qos=qos)
    assert caught.value.reason_code == FULL


async def payloads(client: Client, count: int) -> list[bytes]:
    found: list[bytes] = []
    async for message in client.messages:
        found.append(bytes(message.payload))
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize("durability", ["os", "fsync"])
def test_little_room_refuses_qos_1_and_2_and_serves_the_rest(
    tmp_path: Path, durability: Durability, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with Broker(config(tmp_path, durability)) as broker, Client("127.0.0.1", broker.port) as client:
            await client.subscribe("disk/#", qos=2)
            with monkeypatch.context() as patch:
                nothing = os.statvfs_result([1, 1, 10, 0, 0, 1, 1, 1, 0, 255])
                patch.setattr(os, "statvfs", lambda path: nothing)
                await until_refused(client)
                await refused(client, 1)
                await refused(client, 2)
                await client.publish("disk/qos0", b"served", qos=0)
                while await payloads(client, 1) != [b"served"]:
                    pass
            assert await client.publish("disk/free", b"again", qos=1) == 0

    run(story)


async def until_refused(client: Client) -> None:
    """The journal asks the file system only now and then."""
    for _ in range(1000):
        try:
            await client.publish("disk/filling", b"x", qos=1)
        except MqttError:
            return
    raise AssertionError("a full disk was never noticed")


@pytest.mark.parametrize("durability", ["os", "fsync"])
def test_a_write_that_fails_is_refused_and_leaves_no_trace(
    tmp_path: Path, durability: Durability, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(fd: int, data: bytes, position: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def story() -> None:
        async with Broker(config(tmp_path, durability)) as broker:
            async with keeper(broker.port) as client:
                await client.subscribe("disk/#", qos=2)
            async with Client("127.0.0.1", broker.port, identifier="sender", session_expiry_s=100) as client:
                await client.publish("disk/1", b"before", qos=1)
                with monkeypatch.context() as patch:
                    patch.setattr(os, "pwrite", no_room)
                    await refused(client, 1)
                    await refused(client, 2)
                    await asyncio.gather(*(refused(client, 1 + count % 2) for count in range(20)))
                await client.publish("disk/2", b"after", qos=2)
            async with keeper(broker.port) as client:
                assert await payloads(client, 2) == [b"before", b"after"]
                await client.publish("disk/3", b"last", qos=1)
        async with Broker(config(tmp_path, durability)) as broker, keeper(broker.port) as client:
            assert client.session_present
            assert await payloads(client, 1) == [b"last"]

    run(story)


async def fill(directory: Path, bodies: list[bytes]) -> None:
    """All of them wait for the keeper."""
    async with Broker(config(directory)) as broker:
        async with keeper(broker.port) as client:
            await client.subscribe("disk/#", qos=1)
        async with Client("127.0.0.1", broker.port) as client:
            await asyncio.gather(*(client.publish("disk/x", body, qos=1) for body in bodies))


def harm(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def test_damage_is_named_and_accepting_it_loses_only_that(tmp_path: Path) -> None:
    bodies = [b"%04d" % number + bytes(1000) for number in range(300)]

    async def refuse() -> None:
        with pytest.raises(JournalDamaged, match=damaged.name):
            async with Broker(config(tmp_path)):
                pass

    async def accept() -> None:
        async with Broker(config(tmp_path), accept_damage=True) as broker, keeper(broker.port) as client:
            assert client.session_present
            async with Client("127.0.0.1", broker.port) as sender:
                await sender.publish("disk/x", b"the end", qos=1)
            found: list[bytes] = []
            while b"the end" not in found:
                found += await payloads(client, 1)
            assert 150 < len(found) < 300
            assert [body for body in [*bodies, b"the end"] if body in found] == found

    run(partial(fill, tmp_path, bodies))
    for snapshot in (tmp_path / "journal").glob("*.snap"):
        snapshot.unlink()  # as after a crash: with the snapshot the damaged part would not be needed to start
    damaged = sorted((tmp_path / "journal").glob("*.seg"))[1]
    harm(damaged)
    run(refuse)
    run(accept)


@pytest.mark.parametrize("count", [300, 2500])
def test_messages_that_are_lost_before_a_snapshot_are_skipped_by_their_receiver(tmp_path: Path, count: int) -> None:
    """The snapshot says that they wait, in memory or only in the journal; the journal says that they are gone."""
    bodies = [b"%04d" % number + bytes(1000) for number in range(count)]

    async def receive() -> None:
        async with Broker(config(tmp_path), accept_damage=True) as broker, keeper(broker.port) as client:
            found: list[bytes] = []
            while bodies[-1] not in found:
                found += await payloads(client, 1)
            assert [body for body in bodies if body in found] == found
            assert len(found) < count
            waiting = broker.hub.sessions.by_client_id["keeper"]
            assert (waiting.backlog.spilled, len(waiting.backlog.queue)) == (0, 0)

    run(partial(fill, tmp_path, bodies))
    for damaged in sorted((tmp_path / "journal").glob("*.seg"))[1:-2:5]:
        harm(damaged)
    run(receive)


def test_one_snapshot_is_under_way_and_the_next_waits_for_it(tmp_path: Path) -> None:
    """On a slow disk they queued up, and a broker that was asked to stop wrote them all, one after the other."""
    allowed = threading.Event()

    async def story() -> None:
        journal = JournalConfig(min_free_bytes=1, segment_bytes=1 << 16, snapshot_bytes=1 << 16)
        async with Broker(replace(config(tmp_path), journal=journal)) as broker:
            storage = broker._keeper
            assert storage is not None
            storage._snapshots.submit(allowed.wait, 30)  # the disk is busy
            async with Client("127.0.0.1", broker.port) as client:
                for number in range(10):
                    await client.publish(f"t/{number}", bytes(70_000), qos=1, retain=True)
                    storage.tick(False)
            assert storage._snapshots._work_queue.qsize() == 1
            allowed.set()
            while storage._snapshot_job is not None:
                await asyncio.sleep(0.01)
            assert len(list((tmp_path / "journal").glob("*.snap"))) == 1

    run(story)
