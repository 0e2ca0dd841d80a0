"""Clients of paho publish all the time while an ensemble of three has every trouble: each message comes as it should.

The observer knows only what was acknowledged and what came. The overlay with coordination workers has most to lose.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from metromq.control import ensemble, keep_city
from metromq.control.processes import Supervisor
from tests.broker.peers.test_ensemble import (
    PATIENCE_S,
    _expire,
    _kill,
    _leader,
    alive,
    city_on,
    coordinator,
    running,
    servers,
    until,
)
from tests.broker.peers.test_worker import working
from tests.chaos.relay import Relay, Way
from tests.clients.paho_client import V5, Paho
from tests.peers import play

pytest.importorskip("kazoo")
pytestmark = [
    pytest.mark.skipif(not all(jar.exists() for jar in ensemble.JARS), reason="needs the Debian package zookeeper"),
    pytest.mark.timeout(300),
]


@dataclass
class Talk:
    """One publisher, on its own topics, until it is told to stop."""

    name: str
    paho: Paho
    sent: dict[bytes, int] = field(default_factory=dict)  # what was acknowledged, with its QoS
    is_over: bool = False

    async def go(self) -> None:
        number = 0
        while not self.is_over:
            qos = 1 + number % 2
            payload = f"{self.name} {number}".encode()
            await asyncio.to_thread(self.paho.publish, f"story/{number % 7}", payload, qos)
            self.sent[payload] = qos
            number += 1
            await asyncio.sleep(0.02)


@asynccontextmanager
async def paho(port: int, name: str) -> AsyncIterator[Paho]:
    client = Paho(V5, name)
    await asyncio.to_thread(client.connect, port)
    try:
        yield client
    finally:
        await asyncio.to_thread(client.close)


def test_messages_come_as_they_should_whatever_happens_to_the_ensemble(tmp_path: Path) -> None:
    play(_whatever_happens_to_the_ensemble(tmp_path), 280)


async def _whatever_happens_to_the_ensemble(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        addresses, supervisor = await stack.enter_async_context(servers(tmp_path, 3))
        city = city_on(addresses, "overlay")
        city = replace(city, overlay=replace(city.overlay, workers=1))
        keep_city(tmp_path, city)
        await stack.enter_async_context(working(tmp_path, "w1"))
        relays = [await _relay(stack, address) for address in addresses]
        behind = replace(city.zookeeper, servers=tuple(f"127.0.0.1:{relay.port}" for relay in relays))
        one = await stack.enter_async_context(running(replace(city, zookeeper=behind), "b00"))
        two = await stack.enter_async_context(running(city, "b11"))
        three = await stack.enter_async_context(running(city, "b22"))
        for broker in (one, two, three):
            await until(lambda: len(coordinator(broker)._sessions) == 3, "three members")  # noqa: B023
        getter = await stack.enter_async_context(paho(three.port, "getter"))
        await asyncio.to_thread(getter.subscribe, "story/#", 2)
        await asyncio.sleep(0.5)
        talks = [
            Talk(name, await stack.enter_async_context(paho(broker.port, name)))
            for name, broker in (("from-one", one), ("from-two", two))
        ]
        tasks = [asyncio.create_task(talk.go()) for talk in talks]
        await until(lambda: bool(coordinator(three).book.of_kind("subscriber")), "the workers have answered")

        # The leader of the ensemble dies.
        _kill(supervisor, await _leader(addresses))
        await until(lambda: all(coordinator(broker).is_connected for broker in (one, two, three)), "they go on")
        # A broker loses its way to the servers for longer than its session lasts.
        for relay in relays:
            relay.cut()
        await until(lambda: not coordinator(one).is_connected, "b00 is cut off")
        await until(lambda: "b00" not in alive(two), "and missed")
        for relay in relays:
            relay.is_cut = False
        await until(lambda: coordinator(one).is_connected and "b00" in alive(two), "b00 is back")
        # A session is ended by force.
        client = two.member._shim._client  # type: ignore[union-attr]
        session = client.client_id
        await asyncio.to_thread(_expire, ",".join(addresses), session)
        await until(lambda: coordinator(two).is_connected and client.client_id != session, "a new session")
        # All three servers stop, and start again.
        await _all_stop(supervisor)
        await until(lambda: not coordinator(three).is_connected, "the ensemble is away")
        told = [len(talk.sent) for talk in talks]
        await until(lambda: all(len(talk.sent) > before + 5 for talk, before in zip(talks, told, strict=True)), "on")
        await until(lambda: all(coordinator(broker).is_connected for broker in (one, two, three)), "it is back")

        for talk in talks:
            talk.is_over = True
        await asyncio.gather(*tasks)
        await _judge(getter, {**talks[0].sent, **talks[1].sent})


async def _judge(getter: Paho, sent: dict[bytes, int]) -> None:
    got: Counter[bytes] = Counter()

    def has_all() -> bool:
        while not getter.messages.empty():
            got[getter.messages.get().payload] += 1
        return all(payload in got for payload in sent)

    await until(has_all, f"all of {len(sent)} messages come")
    assert set(got) == set(sent)
    assert [payload for payload, qos in sent.items() if qos == 2 and got[payload] != 1] == []


async def _relay(stack: AsyncExitStack, address: str) -> Relay:
    host, _, port = address.rpartition(":")
    relay = Relay(Way(), Way())
    relay.target = host, int(port)
    await relay.open()
    stack.push_async_callback(relay.close)
    return relay


async def _all_stop(supervisor: Supervisor) -> None:
    """They are killed; their supervisor starts them again."""
    async with asyncio.timeout(PATIENCE_S):  # the leader that was killed before may not be back yet
        while not all(keeper.pid for keeper in supervisor.keepers.values()):
            await asyncio.sleep(0.05)
    for name in list(supervisor.keepers):
        _kill(supervisor, name)
