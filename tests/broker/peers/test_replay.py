"""Brokers read each other's journals only after the proof that links need: the secret, a certificate, or both."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from metromq.broker import Broker
from metromq.client import Client, ConnectRefused
from metromq.config import Config, Listener, ReplayConfig
from metromq.federation import City
from tests.broker.peers.cities import SECRET, memory_city
from tests.certificates import Authority

pytestmark = pytest.mark.timeout(100)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    authority = Authority(directory)
    for name in ("b00", "b10", "b20", "b30"):
        authority.pair(name, name)
    return directory


def replaying(city: City, name: str, directory: Path) -> Broker:
    spec = city.broker(name)
    listeners = (Listener(host=spec.host, port=spec.port),)
    replay = ReplayConfig(enabled=True)
    config = Config(name=name, data_dir=directory / name, listeners=listeners, sys_interval_s=0, replay=replay)
    return Broker(config, city=city)


@pytest.mark.parametrize("way", ["secret", "certificates", "both"])
def test_a_replay_reads_the_journals_of_peers(way: str, certificates: Path, tmp_path: Path) -> None:
    city = memory_city(None if way == "certificates" else SECRET, None if way == "secret" else certificates)

    async def story() -> None:
        async with AsyncExitStack() as stack:
            names = ("b00", "b10")
            one, other = [await stack.enter_async_context(replaying(city, name, tmp_path)) for name in names]
            for broker in (other, one):
                async with Client("127.0.0.1", broker.port) as who:
                    await who.publish("1/2/air", broker.config.name, 1)
            async with Client("127.0.0.1", one.port) as reader, asyncio.timeout(60):
                await reader.subscribe("$replay/since/1h/#")
                got = [await anext(reader.messages) for _ in range(4)]
        notices = sorted(message.payload.decode()[:21] for message in got if message.topic == "$replay/notice")
        assert notices == ["b20 cannot be reached", "b30 cannot be reached"]
        assert [message.payload for message in got if message.topic == "1/2/air"] == [b"b10", b"b00"]

    asyncio.run(story())


def test_a_stranger_is_no_peer(tmp_path: Path) -> None:
    async def story() -> None:
        async with replaying(memory_city(), "b00", tmp_path) as broker:
            with pytest.raises(ConnectRefused, match="reserved"):
                await Client("127.0.0.1", broker.port, identifier="$replay/b10").connect()

    asyncio.run(story())
