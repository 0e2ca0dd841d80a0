"""The paper's load on a live city: broker processes, real clients, and the counters of the brokers themselves.

The load goes by counts and not by the clock: while a subscriber changes once, a publisher publishes as often as the
paper's intervals say, and before and after all changes the city comes to rest. So the figures are the same on a fast
and on a slow machine.
"""

import asyncio
import operator
import tempfile
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from metromq.client import Client, MqttError
from metromq.control import CityOptions, RunningCity, ask_city
from metromq.errors import MetroError, UsageError
from metromq.federation import BrokerStatus, CityStatus, grid_city
from metromq.lab.geographic.formulas import Cost, Load
from metromq.lab.geographic.workload import Publisher, Subscriber, Workload, build, scaled

AT_ONCE = 50  # clients that do something at the same time
REST_POLL_S = 0.1
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Counted:
    """What one broker counted: publications and subscriptions, with clients and with peers."""

    published: int  # by clients
    delivered: int  # to clients
    publications_from_peers: int
    publications_to_peers: int
    subscribed: int  # by clients
    subscriptions_from_peers: int
    subscriptions_to_peers: int

    def __sub__(self, earlier: "Counted") -> "Counted":
        values = (getattr(self, field.name) - getattr(earlier, field.name) for field in fields(self))
        return Counted(*values)


@dataclass(frozen=True, slots=True)
class LiveRun:
    """One load on a city, broker by broker."""

    scheme: str
    load: Load
    factor: int  # clients of the load for one here
    brokers: tuple[Counted, ...]

    def costs(self, level: int | None = None) -> list[Cost]:
        """Of each broker, per second at the full load; for a city of another level, what flooding sends to each peer
        is counted for its peers."""
        peers = 4 ** (level or self.load.level) - 1
        return [self._cost(counted, peers / (self.load.brokers - 1)) for counted in self.brokers]

    def _cost(self, counted: Counted, growth: float) -> Cost:
        publications = growth if self.scheme == "flood-publications" else 1.0
        subscriptions = growth if self.scheme == "flood-subscriptions" else 1.0
        scale = self.factor / self.load.subscribe_interval_s
        return Cost(
            scale * (counted.published + publications * counted.publications_from_peers),
            scale * (counted.subscribed + subscriptions * counted.subscriptions_from_peers),
            scale * (counted.delivered + publications * counted.publications_to_peers),
            scale * subscriptions * counted.subscriptions_to_peers,
        )


def run_live(scheme: str, load: Load, intervals_s: Sequence[float], factor: int = 100) -> list[LiveRun]:
    """One live city; in it the load with each of the intervals between a subscriber's changes."""
    return asyncio.run(_run_live(scheme, load, intervals_s, factor))


async def _run_live(scheme: str, load: Load, intervals_s: Sequence[float], factor: int) -> list[LiveRun]:
    workload = build(scheme, scaled(load, factor))
    # Nobody fails here, and rare hellos leave a slow machine in peace.
    city = grid_city(scheme, l_b=load.level, hello_interval_ms=600_000, mesh_up_to=load.brokers)
    with tempfile.TemporaryDirectory(prefix="metromq-lab-") as data:
        running = RunningCity(city, Path(data), (), CityOptions("memory"), lambda text: None)
        await running.start(lambda keeper: None)
        try:
            status = await running.joined(lambda up, wanted: None)
            crowd = _Crowd(workload, status, running)
            try:
                await crowd.enter()
                return [await _measure(crowd, scheme, load, interval_s, factor) for interval_s in intervals_s]
            finally:
                await crowd.leave()
        finally:
            await running.stop()


async def _measure(crowd: "_Crowd", scheme: str, load: Load, interval_s: float, factor: int) -> LiveRun:
    rounds, rest = divmod(interval_s, load.publish_interval_s)
    if rest or rounds < 2:
        raise UsageError(f"{interval_s} s is no multiple of the {load.publish_interval_s} s between publications")
    before = await crowd.rest()
    await crowd.publish(int(rounds) // 2)
    await crowd.rest()
    await crowd.change()
    await crowd.rest()
    await crowd.publish(int(rounds) - int(rounds) // 2)
    after = await crowd.rest()
    own_load = Load(
        load.level,
        load.publishers,
        load.subscribers,
        load.publish_interval_s,
        interval_s,
        load.other,
        load.missed,
    )
    return LiveRun(scheme, own_load, factor, tuple(after[name] - before[name] for name in sorted(after)))


class _Crowd:
    """All clients of the workload, each with a connection of its own."""

    def __init__(self, workload: Workload, status: CityStatus, running: RunningCity) -> None:
        self._running = running
        self._received = 0
        self._gate = asyncio.Semaphore(AT_ONCE)
        ports = {broker.name: broker.listen.rpartition(":") for broker in status.brokers}
        self._publishers = [(one, _client(ports[one.broker])) for one in workload.publishers]
        self._subscribers = [(one, _client(ports[one.broker])) for one in workload.subscribers]
        self._reading: list[asyncio.Task[None]] = []
        self._changed = False

    async def enter(self) -> None:
        await self._all(self._enter(client, None) for _, client in self._publishers)
        await self._all(self._enter(client, one.topic_filter) for one, client in self._subscribers)

    async def leave(self) -> None:
        await self._all(client.disconnect() for _, client in (*self._publishers, *self._subscribers))
        await asyncio.gather(*self._reading)

    async def publish(self, count: int) -> None:
        """Every publisher, `count` times."""
        for _ in range(count):
            await self._all(self._publish(one, client) for one, client in self._publishers)

    async def change(self) -> None:
        """Every subscriber, once; a second time brings it back."""
        self._changed = not self._changed
        await self._all(self._change(one, client) for one, client in self._subscribers)

    async def rest(self) -> dict[str, Counted]:
        """The counters once nothing is on its way between brokers or to clients."""
        seen: dict[str, Counted] = {}
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    status = await ask_city(self._running.city, self._running.data)
                    found = {broker.name: _count(broker) for broker in status.brokers}
                    if found == seen and self._is_quiet(found):
                        return found
                    seen = found
                    await asyncio.sleep(REST_POLL_S)
        except TimeoutError:
            raise MetroError(f"the live city does not come to rest within {PATIENCE_S:.0f} s: {seen}") from None

    def _is_quiet(self, found: Mapping[str, Counted]) -> bool:
        def total(name: str) -> int:
            return sum(map(operator.attrgetter(name), found.values()))

        return (
            total("publications_to_peers") == total("publications_from_peers")
            and total("subscriptions_to_peers") == total("subscriptions_from_peers")
            and total("delivered") == self._received
        )

    async def _all(self, work: Iterable[Awaitable[Any]]) -> None:
        async def one(item: Awaitable[Any]) -> None:
            async with self._gate:
                await item

        await asyncio.gather(*(one(item) for item in work))

    async def _enter(self, client: Client, topic_filter: str | None) -> None:
        await client.connect()
        if topic_filter is not None:
            await client.subscribe(topic_filter)
            self._reading.append(asyncio.create_task(self._read(client)))

    async def _read(self, client: Client) -> None:
        try:
            async for _ in client.messages:
                self._received += 1
        except MqttError:
            pass  # the city stops; what is missing shows in the counters

    async def _publish(self, publisher: Publisher, client: Client) -> None:
        await client.publish(publisher.topic, b"x", qos=1)  # acknowledged, so that the broker has counted it

    async def _change(self, subscriber: Subscriber, client: Client) -> None:
        old, new = subscriber.topic_filter, subscriber.next_filter
        if not self._changed:
            old, new = new, old
        await client.unsubscribe(old)
        await client.subscribe(new)


def _client(listen: tuple[str, str, str]) -> Client:
    # Without an identifier of its own nobody need be asked where its session is.
    return Client(listen[0], int(listen[2]), keepalive_s=0, timeout_s=PATIENCE_S)


def _count(broker: BrokerStatus) -> Counted:
    return Counted(
        broker.traffic.messages_received,
        broker.traffic.messages_sent,
        sum(link.messages_received for link in broker.links),
        sum(link.messages_sent for link in broker.links),
        broker.subscribes,
        broker.interest_received,
        broker.interest_sent,
    )
