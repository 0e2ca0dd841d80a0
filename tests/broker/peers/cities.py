"""Small cities in this process, without journals."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from metromq.broker import Broker
from metromq.city_file import validate_city
from metromq.config import Config, Listener
from metromq.control.data_directory import choose_ports
from metromq.federation.city import City, LinkSecurity, grid_city

SECRET = "the secret of this city"


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def memory_city(secret: str | None = SECRET, authority: Path | None = None) -> City:
    """Four brokers; with `authority`, a directory of certificates, links use TLS."""
    plain = grid_city("geographic", l_b=2, count=4, hello_interval_ms=200)
    links = LinkSecurity(secret=secret)
    brokers = plain.brokers
    if authority is not None:
        links = LinkSecurity(secret, None, authority / "ca.crt", authority / "{name}.crt", authority / "{name}.key")
        brokers = tuple(dataclasses.replace(broker, link_listen="127.0.0.1:0") for broker in brokers)
    return choose_ports(validate_city(dataclasses.replace(plain, links=links, brokers=brokers)))


def memory_broker(city: City, name: str) -> Broker:
    spec = city.broker(name)
    listeners = (Listener(host=spec.host, port=spec.port),)
    return Broker(Config(name=name, durability="memory", listeners=listeners, sys_interval_s=0), city=city)


@asynccontextmanager
async def running(city: City, *names: str) -> AsyncIterator[list[Broker]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(memory_broker(city, name)) for name in names]


def is_joined(broker: Broker, peer: str) -> bool:
    assert broker.host is not None
    return broker.host.links[peer].up


def problem(broker: Broker, peer: str) -> str:
    assert broker.host is not None
    return broker.host.links[peer].problem
