"""Coordination workers as processes on a real ensemble: they answer, die with requests unanswered, and lose none."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from metromq.broker import Broker
from metromq.client import Client
from metromq.control import ensemble, keep_city
from metromq.control.data_directory import worker_works
from metromq.federation.city import City
from tests.broker.peers.test_ensemble import PATIENCE_S, city_on, coordinator, heard, running, servers, until
from tests.peers import play

pytest.importorskip("kazoo")
from kazoo.client import KazooClient

pytestmark = [
    pytest.mark.skipif(not all(jar.exists() for jar in ensemble.JARS), reason="needs the Debian package zookeeper"),
    pytest.mark.timeout(240),
]
TREE = {"CoordWorkers", "PublishSubscribeBrokers", "Topics"}  # of the paper


@asynccontextmanager
async def working(data: Path, name: str) -> AsyncIterator[asyncio.subprocess.Process]:
    command = (sys.executable, "-m", "metromq.cli.main", "coordinate", "--until-eof", "--data", str(data))
    process = await asyncio.create_subprocess_exec(*command, "--name", name, stdin=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not await worker_works(data / name, process.pid):
                assert process.returncode is None
                await asyncio.sleep(0.05)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def watching(address: str) -> AsyncIterator[KazooClient]:
    client = KazooClient(address)
    await asyncio.to_thread(client.start)
    try:
        yield client
    finally:
        await asyncio.to_thread(client.stop)
        await asyncio.to_thread(client.close)


def assigned_to(kazoo: KazooClient, city: City, broker: str) -> str:
    path = f"/metromq/{city.name}/PublishSubscribeBrokers/{broker}"
    return str(kazoo.get(path)[0].decode()) if kazoo.exists(path) else ""


def deciding(broker: Broker) -> str:
    """As the broker says in its status."""
    return coordinator(broker).worker


def waiting(kazoo: KazooClient, city: City, worker: str) -> list[tuple[str, str, list[object]]]:
    """What brokers have asked a worker: their names, the numbers and the asks of the requests."""
    place = f"/metromq/{city.name}/CoordWorkers/{worker}/BrokerRequests"
    return [tuple(json.loads(kazoo.get(f"{place}/{name}")[0])) for name in kazoo.get_children(place)]


def asks(kazoo: KazooClient, city: City, worker: str) -> int:
    return sum(len(request[2]) for request in waiting(kazoo, city, worker))


async def publish(broker: Broker, *topics: str) -> None:
    async with Client("127.0.0.1", broker.port) as sender:
        for topic in topics:
            await sender.publish(topic, b"x", qos=1)


async def decided(brokers: tuple[Broker, ...], kind: str, key: str, value: str) -> None:
    for broker in brokers:
        book = coordinator(broker).book
        await until(lambda: book.get(kind, key).value == value, f"{kind} {key} is {value}")  # noqa: B023


def test_a_worker_that_dies_loses_no_request(tmp_path: Path) -> None:
    play(_a_worker_that_dies_loses_no_request(tmp_path), 200)


async def _a_worker_that_dies_loses_no_request(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        addresses, _ = await stack.enter_async_context(servers(tmp_path, 1))
        city = city_on(addresses, "overlay")
        city = replace(city, overlay=replace(city.overlay, workers=2))
        keep_city(tmp_path, city)
        workers = {name: await stack.enter_async_context(working(tmp_path, name)) for name in ("w1", "w2")}
        names = ("b00", "b11", "b22")
        one, two, three = brokers = tuple([await stack.enter_async_context(running(city, name)) for name in names])
        kazoo = await stack.enter_async_context(watching(addresses[0]))
        root = f"/metromq/{city.name}"

        def worker_of(name: str) -> str:
            return assigned_to(kazoo, city, name)

        await until(lambda: {worker_of(name) for name in names} == set(workers), "both workers have brokers")
        await until(
            lambda: all(deciding(broker) == worker_of(name) for broker, name in zip(brokers, names, strict=True)),
            "brokers know who decides",
        )
        assert {coordinator(broker).workers for broker in brokers} == {("w1", "w2")}, "the first one leads"
        await _a_pending_subscription_is_answered(city, brokers)
        assert set(kazoo.get_children(root)) >= TREE

        # The worker of a broker stops answering; a request waits for it; it dies, and the other answers.
        victim = worker_of("b00")
        workers[victim].send_signal(signal.SIGSTOP)
        topics = [f"new/{number}" for number in range(20)]
        await publish(one, *topics)
        await until(lambda: "b00" in [request[0] for request in waiting(kazoo, city, victim)], "the request waits")
        workers[victim].kill()
        for topic in topics:
            await decided(brokers, "publisher", f"b00/{topic}", "b00")
        assert worker_of("b00") != victim
        await until(lambda: deciding(one) == worker_of("b00"), "the broker knows who decides now")
        await until(lambda: not waiting(kazoo, city, victim), "nothing is left with the dead")

        # Without any worker messages go straight, and what was asked is answered by the next one.
        (other,) = (name for name in workers if name != victim)
        workers[other].kill()
        assert await heard(two, three, "late/1", b"straight")
        assert coordinator(two).book.get("publisher", "b11/late/1").epoch < 0
        await until(lambda: not deciding(two) and not coordinator(two).workers, "the broker knows that nobody decides")
        await stack.enter_async_context(working(tmp_path, "w3"))
        await decided(brokers, "publisher", "b11/late/1", "b11")


async def _a_pending_subscription_is_answered(city: City, brokers: tuple[Broker, ...]) -> None:
    """Two subscribe, one of them by a wildcard, to what nobody publishes yet."""
    one, two, three = brokers
    async with Client("127.0.0.1", three.port) as getter, Client("127.0.0.1", two.port) as other:
        await getter.subscribe("bus/7", qos=1)
        await other.subscribe("bus/#", qos=1)
        await asyncio.sleep(0.5)
        assert not coordinator(one).book.of_kind("subscriber")
        await publish(one, "bus/7")
        async with asyncio.timeout(PATIENCE_S):
            for client in (getter, other):
                assert (await anext(client.messages)).payload == b"x", "even the first message comes"
        await decided(brokers, "publisher", "b00/bus/7", "b00")
        await decided(brokers, "subscriber", "b22/bus/7", "b00")
        await decided(brokers, "subscriber", "b11/bus/7", "b00")
    await decided(brokers, "subscriber", "b22/bus/7", "")  # and taken back when nobody wants it any more


def test_workers_that_decide_about_one_topic_at_once_make_one_cluster(tmp_path: Path) -> None:
    play(_workers_that_decide_about_one_topic_at_once_make_one_cluster(tmp_path), 200)


async def _workers_that_decide_about_one_topic_at_once_make_one_cluster(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        addresses, _ = await stack.enter_async_context(servers(tmp_path, 1))
        city = city_on(addresses, "overlay")
        city = replace(city, overlay=replace(city.overlay, workers=3, max_distance_km=1000.0))
        keep_city(tmp_path, city)
        pids = [(await stack.enter_async_context(working(tmp_path, f"w{one}"))).pid for one in range(3)]
        names = ("b00", "b11", "b22")
        brokers = tuple([await stack.enter_async_context(running(city, name)) for name in names])
        kazoo = await stack.enter_async_context(watching(addresses[0]))
        workers = ("w0", "w1", "w2")
        await until(lambda: {assigned_to(kazoo, city, name) for name in names} == set(workers), "a worker each")
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        topics = [f"same/{number}" for number in range(10)]
        await asyncio.gather(*(publish(broker, *topics) for broker in brokers))
        await until(lambda: sum(asks(kazoo, city, name) for name in workers) >= 30, "all requests are there")
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        book = coordinator(brokers[0]).book
        await until(lambda: len(book.of_kind("publisher")) == 30, "everybody has an answer")
        for topic in topics:
            assert len({book.get("publisher", f"{name}/{topic}").value for name in names}) == 1, topic
        assert len(book.of_kind("cluster")) == 10
