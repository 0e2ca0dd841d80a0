"""Brokers on a real ensemble that the test starts: lost leaders, lost sessions, all servers away, strangers."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from metromq.broker import Broker
from metromq.city_file import validate_city
from metromq.client import Client
from metromq.config import Config, Listener
from metromq.control import ensemble
from metromq.control.processes import Supervisor
from metromq.federation import explain_step
from metromq.federation.city import City, ZooKeeperSettings, grid_city
from metromq.federation.coordination.zookeeper import ZooKeeperCoordinator
from tests.peers import play

pytest.importorskip("kazoo")
pytestmark = [
    pytest.mark.skipif(not all(jar.exists() for jar in ensemble.JARS), reason="needs the Debian package zookeeper"),
    pytest.mark.timeout(240),
]
PATIENCE_S = 60.0


async def until(is_so: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"never: {what}") from None


@asynccontextmanager
async def servers(data: Path, count: int) -> AsyncIterator[tuple[tuple[str, ...], Supervisor]]:
    addresses = tuple(f"127.0.0.1:{port}" for port in ensemble.free_ports(count))
    supervisor = Supervisor(ensemble.server_programs(addresses, data), lambda text: None)
    await supervisor.start(lambda keeper: None)
    try:
        yield addresses, supervisor
    finally:
        await supervisor.stop()


def city_on(addresses: tuple[str, ...], routing: str, settings: ZooKeeperSettings | None = None) -> City:
    city = grid_city(routing, count=3, hello_interval_ms=200)
    zookeeper = replace(settings or ZooKeeperSettings(session_timeout_ms=1500), servers=addresses)
    ports = iter(ensemble.free_ports(3))
    brokers = tuple(replace(one, listen=f"127.0.0.1:{next(ports)}") for one in city.brokers)
    return validate_city(replace(city, brokers=brokers, coordination="zookeeper", zookeeper=zookeeper))


@asynccontextmanager
async def running(city: City, name: str) -> AsyncIterator[Broker]:
    listener = Listener(host="127.0.0.1", port=city.broker(name).port)
    config = Config(name=name, listeners=(listener,), durability="memory")
    async with Broker(config, city=city) as broker:
        yield broker


def coordinator(broker: Broker) -> ZooKeeperCoordinator:
    assert broker.member is not None
    found = broker.member.host.node.coordinator
    assert isinstance(found, ZooKeeperCoordinator)
    return found


def alive(broker: Broker) -> tuple[str, ...]:
    return coordinator(broker).alive(int(broker.hub.clock.now * 1_000_000))


def reasons(broker: Broker, topic: str) -> tuple[str, ...]:
    assert broker.member is not None
    return explain_step(broker.member.host.node, topic, subscribers=0).reasons


def leads_to(publisher: Broker, subscriber: Broker, topic: str) -> bool:
    """Whether the publisher's broker would send the message to the subscriber's."""
    assert publisher.member is not None
    hops = explain_step(publisher.member.host.node, topic).hops
    return any(subscriber.config.name in (hop.peer, *hop.targets) for hop in hops)


async def heard(publisher: Broker, subscriber: Broker, topic: str, payload: bytes) -> bool:
    async with Client("127.0.0.1", subscriber.port) as getter:
        await getter.subscribe(topic, qos=1)
        await until(lambda: leads_to(publisher, subscriber, topic), f"{topic} is wanted")
        async with Client("127.0.0.1", publisher.port) as sender:
            await sender.publish(topic, payload, qos=1)
        async with asyncio.timeout(PATIENCE_S):
            return bool((await anext(getter.messages)).payload == payload)


def test_a_city_on_three_servers(tmp_path: Path) -> None:
    play(_a_city_on_three_servers(tmp_path), 200)


async def _a_city_on_three_servers(tmp_path: Path) -> None:
    async with servers(tmp_path, 3) as (addresses, supervisor):
        city = city_on(addresses, "geographic")
        async with running(city, "b00") as one, running(city, "b11") as two:
            async with running(city, "b22"):
                for broker in (one, two):
                    await until(lambda: len(coordinator(broker)._sessions) == 3, "three members")  # noqa: B023
                assert await heard(one, two, "1/1/x", b"first")
            # A member leaves the ensemble: another takes its area over.
            await until(lambda: "b22" not in alive(one), "b22 is missed")
            assert one.member is not None
            assert two.member is not None
            node, other = one.member.host.node, two.member.host.node
            await until(lambda: node.table.owner("2/2") in ("b00", "b11"), "its area is taken over")
            # Each hears it from the ensemble, in its own time.
            await until(lambda: other.table.owner("2/2") == node.table.owner("2/2"), "all have heard of it")
            # The leader of the ensemble dies: the others go on.
            lead = await _leader(addresses)
            _kill(supervisor, lead)
            assert await heard(one, two, "2/2/x", b"second")
            # All servers away: known routes are used, nobody is missed.
            for name in list(supervisor.keepers):
                _pause(supervisor, name)
            await until(lambda: not coordinator(one).is_connected, "the ensemble is missed")
            assert await heard(one, two, "1/1/y", b"third")
            assert alive(one) == ("b00", "b11")
            assert "ensemble is away" in one._reporter.status().problem
            assert any("does not reach the ZooKeeper ensemble" in reason for reason in reasons(one, "1/1/y"))
            for name in list(supervisor.keepers):
                _resume(supervisor, name)
            await until(lambda: coordinator(one).is_connected, "the ensemble is back")
            # The servers may have ended sessions while they stood still: members come again in their own time.
            await until(lambda: alive(one) == alive(two) == ("b00", "b11"), "both are members")
            await until(lambda: not one._reporter.status().problem, "nothing is wrong any more")
            assert not any("ZooKeeper" in reason for reason in reasons(one, "1/1/y"))
            # And it catches up: a member that comes back claims its home.
            async with running(city, "b22"):
                await until(lambda: node.table.owner("2/2") == "b22", "home is claimed back")


def test_clusters_of_the_overlay_on_one_server(tmp_path: Path) -> None:
    play(_clusters_of_the_overlay_on_one_server(tmp_path), 200)


async def _clusters_of_the_overlay_on_one_server(tmp_path: Path) -> None:
    async with servers(tmp_path, 1) as (addresses, _):
        city = city_on(addresses, "overlay")
        async with running(city, "b00") as one, running(city, "b11") as two, running(city, "b22") as three:
            assert await heard(one, three, "bus/7", b"first")
            assert await heard(two, three, "bus/7", b"second")
            for broker in (one, two, three):
                book = coordinator(broker).book
                await until(lambda: book.owner("publisher", "b11/bus/7") == "b11", "the facts are known")  # noqa: B023
            # An expired session is renewed, and nothing is forgotten.
            assert one.member is not None
            client = one.member._shim._client  # type: ignore[union-attr]
            session = client.client_id
            await asyncio.to_thread(_expire, addresses[0], session)
            await until(lambda: coordinator(one).is_connected and client.client_id != session, "a new session")
            await until(lambda: "b00" in coordinator(two)._sessions, "it is a member again")
            assert await heard(one, three, "bus/7", b"third")


def test_only_who_knows_the_password_reads_a_citys_znodes(tmp_path: Path) -> None:
    play(_only_who_knows_the_password_reads_a_citys_znodes(tmp_path), 200)


async def _only_who_knows_the_password_reads_a_citys_znodes(tmp_path: Path) -> None:
    from kazoo.client import KazooClient
    from kazoo.exceptions import NoAuthError

    async with servers(tmp_path, 1) as (addresses, _):
        closed = ZooKeeperSettings(session_timeout_ms=1500, user="city", password="a long password", chroot="/x/tokyo")
        city = city_on(addresses, "geographic", closed)
        async with running(city, "b00") as one:
            await until(lambda: coordinator(one).is_connected, "let in")
            stranger = KazooClient(addresses[0])
            await asyncio.to_thread(stranger.start)
            try:
                with pytest.raises(NoAuthError):
                    await asyncio.to_thread(stranger.get_children, "/x/tokyo/facts")
                with pytest.raises(NoAuthError):
                    await asyncio.to_thread(stranger.create, "/x/tokyo/members/mallory", b"")
                await asyncio.to_thread(stranger.create, "/x/osaka", b"")  # other cities have room beside it
            finally:
                await asyncio.to_thread(stranger.stop)
                await asyncio.to_thread(stranger.close)


def _expire(server: str, session: tuple[int, bytes]) -> None:
    """Whoever knows a session's number and password can end it."""
    from kazoo.client import KazooClient

    other = KazooClient(server, client_id=session)
    other.start()
    other.stop()
    other.close()


async def _leader(addresses: tuple[str, ...]) -> str:
    """Who leads; a busy machine may have them elect another just now."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            for number, address in enumerate(addresses, 1):
                host, _, port = address.rpartition(":")
                if "Mode: leader" in await ensemble.asked(host, int(port)):
                    return f"zookeeper-{number}"
            await asyncio.sleep(0.1)


def _kill(supervisor: Supervisor, name: str) -> None:
    _signal(supervisor, name, signal.SIGKILL)


def _pause(supervisor: Supervisor, name: str) -> None:
    _signal(supervisor, name, signal.SIGSTOP)


def _resume(supervisor: Supervisor, name: str) -> None:
    _signal(supervisor, name, signal.SIGCONT)


def _signal(supervisor: Supervisor, name: str, number: int) -> None:
    """To the shell and its server; one that was killed before may not have started again, and has no majority alone."""
    pid = supervisor.keepers[name].pid
    with contextlib.suppress(ProcessLookupError):
        if pid:
            os.killpg(os.getpgid(pid), number)
