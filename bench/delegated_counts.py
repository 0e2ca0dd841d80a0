"""The delegation paper's workload on live brokers and proxies, in ten networks: what crosses, counted on the way.

Each network has an edge broker and a proxy that knows it; the central broker is in the cloud. Clients count what they
send and get, relays at the boundary what passes between proxies and brokers, and links say what brokers exchange.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bench.cities import PATIENCE_S, BenchCity, bench_city
from bench.crossing import Boundary, Publications
from metromq.control.city_status import ask_city
from metromq.control.delegating import delegate, delegations
from metromq.errors import UsageError
from metromq.federation.city import grid_city
from metromq.gateway import Proxy, ProxyOptions, TunnelEnd
from metromq.lab.delegation.architecture import SCHEMES, Demand, Scheme, Setting, broker_messages, draw, external
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import MQTT311, Connect, Publish, Subscribe, Subscription

LIVE = ("centralized", "LP", "NS", "EP")
SMALL = Setting(networks=10, publishers=20, subscribers=5, topics=8, zipf=0.5)
LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class LiveCount:
    """Of one second, in which everybody publishes once."""

    scheme: str
    external: float
    per_broker: float
    counted_external: int  # without brokers, as simulated ones have it too
    counted_per_broker: float

    @property
    def worst(self) -> float:
        """The largest deviation of what was counted live, as a share."""
        pairs = (
            (self.external, self.counted_external),
            (self.per_broker, self.counted_per_broker),
        )
        return max(abs(live - other) / max(other, 1.0) for live, other in pairs)


class _Device:
    """A client that counts what it gets."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.got = Publications()
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    async def open(self, port: int, topics: list[str]) -> None:
        reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        await self._ask(reader, encode(Connect(self.name, MQTT311, keepalive_s=0), MQTT311), 0x20)
        for topic in topics:
            await self._ask(reader, encode(Subscribe(1, [Subscription(topic, 0)]), MQTT311), 0x90)
        self._reading = asyncio.ensure_future(self._read(reader))

    async def _ask(self, reader: asyncio.StreamReader, data: bytes, answer: int) -> None:
        assert self._writer is not None
        self._writer.write(data)
        head = await asyncio.wait_for(reader.readexactly(2), PATIENCE_S)
        body = await reader.readexactly(head[1])
        if head[0] != answer or body[-1] > 2:
            raise UsageError(f"{self.name} was refused: {(head + body).hex()}")

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                self.got.feed(data)

    def publish(self, topic: str) -> None:
        assert self._writer is not None
        self._writer.write(encode(Publish(topic, b"1", 0), MQTT311))

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        if self._reading is not None:
            self._reading.cancel()


class _Network:
    """A proxy, the edge broker's end of tunnels, and the boundaries on both ways."""

    def __init__(self, edge: str, edge_port: int, central_port: int) -> None:
        self.edge = edge
        self.to_central = Boundary(central_port)
        self._end = TunnelEnd(("127.0.0.1", 0), ("127.0.0.1", edge_port))
        self.to_edge: Boundary | None = None
        self.proxy: Proxy | None = None

    async def open(self) -> None:
        await self._end.open()
        self.to_edge = Boundary(self._end.port, is_tunnel=True)
        await self.to_central.open()
        await self.to_edge.open()
        edges = {self.edge: ("127.0.0.1", self.to_edge.port)}
        self.proxy = Proxy(ProxyOptions(("127.0.0.1", 0), ("127.0.0.1", self.to_central.port), edges))
        await self.proxy.open()

    def tell(self, topics: list[str]) -> None:
        """What its clients speak about with their network's broker; anything else is the central one's."""
        assert self.proxy is not None
        self.proxy.told(dict.fromkeys(topics, self.edge))

    async def close(self) -> None:
        while self.proxy is not None and self.proxy.clients:
            await asyncio.sleep(LOOK_S)  # they say goodbye
        for boundary in (self.to_central, self.to_edge):
            if boundary is not None:
                await boundary.close()
        await asyncio.sleep(LOOK_S)
        if self.proxy is not None:
            await self.proxy.close()
        await self._end.close()


class _Live:
    def __init__(self, running: BenchCity, demand: Demand) -> None:
        self._running = running
        self._demand = demand
        city = running.city
        self._central, *self._edges = city.names
        port = running.port
        self._networks = [_Network(edge, port(edge), port(self._central)) for edge in self._edges]

    async def run(self, names: tuple[str, ...]) -> list[LiveCount]:
        try:
            for network in self._networks:
                await network.open()
            return [await self._count(name, SCHEMES[name]) for name in names]
        finally:
            for network in self._networks:
                await network.close()

    async def _count(self, name: str, scheme: Scheme) -> LiveCount:
        """Topics are the scheme's own, so what was delegated before is in nobody's way. What a network's broker gets
        is one filter, and so one change of hands."""
        demand, homes = self._demand, self._demand.home
        at_home = scheme.at_home(demand) if scheme.at_home is not None else np.zeros(len(homes), np.bool_)
        topics = [f"{name}/{'edge' if at_home[t] else 'cloud'}/{homes[t]}/{t}" for t in range(len(homes))]
        if at_home.any():
            await self._delegate({f"{name}/edge/{number}/#": edge for number, edge in enumerate(self._edges)})
        for number, network in enumerate(self._networks):
            others = (scheme.least > 0) & (demand.subscribers[:, number] >= max(scheme.least, 1))
            network.tell([topics[t] for t in np.flatnonzero(np.where(homes == number, at_home, others))])
        readers, writers = await self._clients(topics)
        try:
            await self._rest(lambda: True)
            before = await self._seen()
            for topic, writer in enumerate(writers):
                writer.publish(topics[topic])
            wanted = int(demand.subscribers.sum())
            await self._rest(lambda: sum(reader.got.count for reader in readers) >= wanted)
            after = await self._seen()
            got = sum(reader.got.count for reader in readers)
            if got != wanted:
                raise UsageError(f"{name}: clients want {wanted} messages, and got {got}")
        finally:
            for client in (*readers, *writers):
                await client.close()
        crossed, tunnelled, linked, at_edges = (late - early for late, early in zip(after, before, strict=True))
        return LiveCount(
            name,
            crossed + linked,
            (tunnelled + at_edges) / len(self._edges),
            external(scheme, demand),
            broker_messages(scheme, demand),
        )

    async def _delegate(self, wanted: dict[str, str]) -> None:
        """One that was given up is ordered again."""
        city, data = self._running.city, self._running.data
        end = time.monotonic() + PATIENCE_S
        missing = dict(wanted)
        while missing:
            if time.monotonic() > end:
                raise UsageError(f"{len(missing)} filters were not delegated within {PATIENCE_S:.0f} s")
            await asyncio.sleep(LOOK_S)
            known = {one.filter: one for one in await delegations(city, data)}
            if any(one.phase for one in known.values()):
                continue
            missing = {one: owner for one, owner in wanted.items() if one not in known or known[one].broker != owner}
            for topic, owner in missing.items():
                await delegate(city, data, topic, owner, 0.0)

    async def _clients(self, topics: list[str]) -> tuple[list[_Device], list[_Device]]:
        """A publisher for each topic; subscriber n of a network has the topics that n or more want there."""
        readers, writers = [], []
        for number, network in enumerate(self._networks):
            assert network.proxy is not None
            table = self._demand.subscribers[:, number]
            for one in range(int(table.max(initial=0))):
                reader = _Device(f"{topics[0]}-s{number}-{one}")
                readers.append(reader)
                await reader.open(network.proxy.port, [topics[t] for t in np.flatnonzero(table > one)])
        for topic, home in enumerate(self._demand.home):
            proxy = self._networks[int(home)].proxy
            assert proxy is not None
            writer = _Device(f"{topics[topic]}-p")
            writers.append(writer)
            await writer.open(proxy.port, [])
        return readers, writers

    async def _seen(self) -> tuple[int, int, int, int]:
        """Past boundaries to the central broker, through tunnels, over links, and over links from and to an edge."""
        status = await ask_city(self._running.city, self._running.data)
        linked = at_edges = 0
        for broker in status.brokers:
            for link in broker.links:
                linked += link.messages_sent
                at_edges += link.messages_sent * ((broker.name in self._edges) + (link.peer in self._edges))
        tunnels = sum(network.to_edge.count for network in self._networks if network.to_edge is not None)
        return sum(network.to_central.count for network in self._networks), tunnels, linked, at_edges

    async def _rest(self, is_done: Callable[[], bool]) -> None:
        """Until that is so, what was sent over links has come, and nothing moves any more."""
        end = time.monotonic() + PATIENCE_S
        last: tuple[int, int, int, int] | None = None
        while time.monotonic() < end:
            await asyncio.sleep(LOOK_S)
            status = await ask_city(self._running.city, self._running.data)
            links = [link for broker in status.brokers for link in broker.links]
            is_calm = sum(link.messages_sent for link in links) == sum(link.messages_received for link in links)
            is_same = len({broker.table for broker in status.brokers}) == 1
            seen = await self._seen()
            if is_done() and is_calm and is_same and seen == last:
                return
            last = seen
        raise UsageError(f"the city does not come to rest within {PATIENCE_S:.0f} s")


def live_counts(setting: Setting = SMALL, names: tuple[str, ...] = LIVE, seed: int = 1) -> list[LiveCount]:
    demand = draw(setting, np.random.default_rng(seed))
    with bench_city(grid_city("delegation", count=setting.networks + 1, hello_interval_ms=500)) as running:
        return asyncio.run(_Live(running, demand).run(names))
