"""The overlay live against simulated: brokers with emulated distances, and whole brokers under the virtual clock.

The same script is played on both: clients publish each topic for the first time, broker by broker, then others
subscribe, and the next broker's turn comes when the city agrees on what follows; then every publisher sends a message
at a random moment of each step. Compared are the mean time from publisher to subscriber, and the share of packets
that brokers forward to each other. A third column adds the kilometres up along the ways that the lab's figures use.
"""

import argparse
import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench.cities import PATIENCE_S, START_S, BenchCity
from bench.delays import Pair, delayed
from bench.machine import raise_file_limit
from bench.peers import BUILD
from metromq.client import Client
from metromq.errors import UsageError
from metromq.federation.city import City, Membership, OverlaySettings
from metromq.federation.coordination import Fact
from metromq.federation.status import CityStatus
from metromq.lab.overlay.schemes import Routing, Way
from metromq.lab.overlay.workload import SUBSCRIBERS, Load, Workload, draw
from metromq.lab.sim.sim_city import SimCity
from metromq.lab.sim.sim_client import SimClient, SimDelivery

MS_PER_KM = 0.04  # far more than a loaded machine adds: brokers are 80 ms apart on average
HELLO_MS = 5000  # rarely: a machine that is too slow must not take a broker for gone
TURN_S = 2.0  # of virtual time, for everybody to hear of everything
POLL_S = 0.2
LATEST_S = 30.0  # for the last messages to come


@dataclass(frozen=True, slots=True)
class Trial:
    """What is played."""

    brokers: int = 30
    topics: int = 20
    local_rate: float = 0.2
    steps: int = 5
    step_s: float = 8.0
    max_distance_km: float = 1000.0
    ms_per_km: float = MS_PER_KM
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Measured:
    latency_ms: float
    published: int
    forwarded: int
    delivered: int

    @property
    def share(self) -> float:
        """Of forwarded packets, percent: the paper's AFT."""
        return 100 * self.forwarded / (self.published + self.forwarded + self.delivered)


@dataclass(frozen=True, slots=True)
class Publication:
    at_s: float
    broker: int
    topic: str
    payload: str


class Script:
    """Who does what, in which order; by numbers of brokers."""

    def __init__(self, trial: Trial) -> None:
        load = Load(trial.brokers, trial.topics, trial.local_rate, many=True, same=False)
        drawn = draw(load, trial.seed)
        # One subscriber where the paper has ten: brokers are compared here, not the clients of this process.
        fewer = {t: {b: n // SUBSCRIBERS for b, n in some.items()} for t, some in drawn.subscribers.items()}
        self.work: Workload = replace(drawn, subscribers=fewer)
        settings = OverlaySettings(trial.max_distance_km)
        membership = Membership(hello_interval_ms=HELLO_MS, mesh_up_to=max(16, trial.brokers))
        self.city: City = replace(Routing("overlay", self.work, settings).city, membership=membership)
        dice = random.Random(trial.seed)
        self.order = dice.sample(range(trial.brokers), trial.brokers)
        self.delays_s: dict[Pair, float] = {
            (one, other): self.city.distance_km(one, other) * trial.ms_per_km / 1000
            for one in self.city.names
            for other in self.city.names
            if one != other
        }
        self.publications = sorted(self._publications(trial, dice), key=lambda one: one.at_s)

    def _publications(self, trial: Trial, dice: random.Random) -> Iterator[Publication]:
        for step in range(trial.steps):
            for topic, brokers in self.work.publishers.items():
                for broker, count in brokers.items():
                    for number in range(count):
                        at_s = (step + dice.random()) * trial.step_s
                        yield Publication(at_s, broker, topic, f"{step} {broker} {number} {topic}")

    def published_at(self, broker: int) -> list[str]:
        return [topic for topic, brokers in self.work.publishers.items() if broker in brokers]

    def wanted_at(self, broker: int) -> list[list[str]]:
        """The topics of each of the broker's subscribers."""
        counts = {topic: brokers[broker] for topic, brokers in self.work.subscribers.items() if broker in brokers}
        most = max(counts.values(), default=0)
        return [[topic for topic, count in counts.items() if count > number] for number in range(most)]

    def deliveries(self) -> int:
        return sum(sum(self.work.subscribers[one.topic].values()) for one in self.publications)

    def delay_s(self, sender: str, receiver: str) -> float:
        """Clients are where their broker is."""
        return self.delays_s.get((sender, receiver), 0.0)


class Arrivals:
    """Who got what when, and whether everybody got everything once."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.sent_at: dict[str, float] = {}
        self.count = 0
        self.latency_s = 0.0
        self._got: Counter[tuple[str, str]] = Counter()

    def came(self, client: str, payload: str, at: float) -> None:
        if payload not in self.sent_at:
            return  # of the beginning
        self.count += 1
        self.latency_s += at - self.sent_at[payload]
        self._got[client, payload] += 1

    @property
    def is_complete(self) -> bool:
        return self.count >= self._script.deliveries()

    def measured(self, forwarded: int) -> Measured:
        wanted = self._script.deliveries()
        twice = sum(count - 1 for count in self._got.values())
        if twice or self.count != wanted:
            raise UsageError(f"{wanted} deliveries are due: {self.count} came, {twice} of them twice")
        return Measured(1000 * self.latency_s / self.count, len(self.sent_at), forwarded, self.count)


# Under the virtual clock.


class _Ear:
    """Tells the arrivals what a simulated client gets."""

    def __init__(self, arrivals: Arrivals, now: Callable[[], float]) -> None:
        self._arrivals, self._now = arrivals, now

    def delivered(self, client: SimClient, delivery: SimDelivery) -> None:
        self._arrivals.came(client.name, delivery.payload, self._now())

    def opened(self, client: SimClient, session_present: bool) -> None: ...

    def ended(self, client: SimClient, problem: str) -> None: ...

    def settled(self, client: SimClient, token: int, code: int) -> None: ...


def simulated(script: Script) -> tuple[Measured, list[str], tuple[Fact, ...]]:
    """What comes out, the digest of the agreed facts after each turn of the script, and the facts."""
    city = SimCity(script.city, script.delay_s)
    city.start()
    arrivals = Arrivals(script)
    ear = _Ear(arrivals, lambda: city.clock.now)
    digests: list[str] = []

    def client(name: str, broker: int) -> SimClient:
        made = SimClient(name, city.network, observer=ear, keepalive_s=0)
        made.connect(f"b{broker}")
        city.clock.run_until(lambda: made.is_open, 10.0)
        return made

    def turn_ends() -> None:
        city.run(TURN_S)
        [digest] = {broker.host.node.table.digest() for broker in city.brokers.values() if broker.host is not None}
        digests.append(f"{digest:014x}")

    publishers = {number: client(f"p{number}", number) for number in script.order}
    for number in script.order:
        for topic in script.published_at(number):
            publishers[number].publish(topic, "first", 1)
        turn_ends()
    for number in script.order:
        for place, topics in enumerate(script.wanted_at(number)):
            subscriber = client(f"s{number}-{place}", number)
            for topic in topics:
                subscriber.subscribe(topic, 1)
        turn_ends()
    before = _sent(city)
    start = city.clock.now

    def publish(one: Publication) -> None:
        arrivals.sent_at[one.payload] = city.clock.now
        publishers[one.broker].publish(one.topic, one.payload, 1)

    for one in script.publications:
        city.clock.after(one.at_s, lambda one=one: publish(one))  # type: ignore[misc]
    city.run(script.publications[-1].at_s + LATEST_S)
    assert city.clock.now > start
    hosts = [broker.host for broker in city.brokers.values()]
    assert hosts[0] is not None
    return arrivals.measured(_sent(city) - before), digests, hosts[0].node.table.book.facts()


def _sent(city: SimCity) -> int:
    hosts = [broker.host for broker in city.brokers.values() if broker.host is not None]
    return sum(link.sent_messages for host in hosts for link in host.links.values())


# By the lab's ways.


def summed_up(script: Script, facts: tuple[Fact, ...]) -> Measured:
    routing = Routing("overlay", script.work, script.city.overlay)
    routing.adopt(facts)
    forwarded = delivered = 0
    total_s = 0.0
    for one in script.publications:
        way = routing.way(one.topic, one.broker)
        forwarded += way.forwards()
        for clients, late_s in _arrivals(way, script, 0.0):
            delivered += clients
            total_s += clients * late_s
    return Measured(1000 * total_s / delivered, len(script.publications), forwarded, delivered)


def _arrivals(way: Way, script: Script, late_s: float) -> Iterator[tuple[int, float]]:
    yield way.clients, late_s
    for onward in way.onward:
        yield from _arrivals(onward, script, late_s + script.delay_s(f"b{way.broker}", f"b{onward.broker}"))


# Live.


@contextmanager
def far_brokers(script: Script) -> Iterator[BenchCity]:
    """Broker processes, with a relay on the way from each to each other."""
    raise_file_limit()
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="bench-") as data:
        running = BenchCity(script.city, Path(data), "memory", {})
        with delayed(script.delays_s, {name: running.port(name) for name in script.city.names}) as (ports, begin):
            running.detours, running.all_run = ports, begin
            try:
                running.open()
                yield running
            finally:
                running.close()


def live(script: Script, digests: Sequence[str], say: Callable[[str], None]) -> Measured:
    with far_brokers(script) as running:
        say(f"{len(script.city.names)} brokers run, and all links are up")
        return asyncio.run(_live(script, running, iter(digests), say))


async def _live(script: Script, running: BenchCity, digests: Iterator[str], say: Callable[[str], None]) -> Measured:
    loop, arrivals = asyncio.get_running_loop(), Arrivals(script)
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:

        async def client(name: str, broker: int) -> Client:
            made = Client("127.0.0.1", running.port(f"b{broker}"), identifier=name, timeout_s=PATIENCE_S)
            return await stack.enter_async_context(made)

        async def listen(name: str, subscriber: Client) -> None:
            async for message in subscriber.messages:
                arrivals.came(name, bytes(message.payload).decode(), loop.time())

        publishers = {number: await client(f"p{number}", number) for number in script.order}
        for number in script.order:
            for topic in script.published_at(number):
                await publishers[number].publish(topic, b"first", qos=1)
            await _agreed(running, next(digests))
        say("all topics have publishers, and the clusters are those of the simulator")
        for number in script.order:
            for place, topics in enumerate(script.wanted_at(number)):
                subscriber = await client(f"s{number}-{place}", number)
                await subscriber.subscribe([(topic, 1) for topic in topics])
                tasks.create_task(listen(f"s{number}-{place}", subscriber))
            await _agreed(running, next(digests))
        say("all subscribers are there, and their choices are those of the simulator")
        before = _forwarded(await running.status_now())
        start = loop.time()
        for one in script.publications:
            await asyncio.sleep(start + one.at_s - loop.time())
            arrivals.sent_at[one.payload] = loop.time()
            tasks.create_task(_publish(publishers[one.broker], one))
        end = loop.time() + PATIENCE_S
        while not arrivals.is_complete and loop.time() < end:
            await asyncio.sleep(POLL_S)
        await asyncio.sleep(1.0)  # whatever comes twice
        found = arrivals.measured(_forwarded(await running.status_now()) - before)
        await stack.aclose()
        return found


async def _publish(client: Client, one: Publication) -> None:
    await client.publish(one.topic, one.payload.encode(), qos=1)


async def _agreed(running: BenchCity, digest: str) -> None:
    """Every broker has the facts that the simulator's have, and knows what the others want."""
    end = asyncio.get_running_loop().time() + START_S
    while True:
        status = await running.status_now()
        tables = {broker.table for broker in status.brokers}
        under_way = sum(broker.interest_sent - broker.interest_received for broker in status.brokers)
        if tables == {digest} and not under_way:
            return
        if asyncio.get_running_loop().time() > end:
            raise UsageError(f"live brokers do not agree on what simulated ones do: {tables}, not {digest}")
        await asyncio.sleep(POLL_S)


def _forwarded(status: CityStatus) -> int:
    return sum(link.messages_sent for broker in status.brokers for link in broker.links)


def compared(trial: Trial, say: Callable[[str], None] = lambda text: None) -> Mapping[str, Measured]:
    script = Script(trial)
    virtual, digests, facts = simulated(script)
    say("simulated")
    return {"live": live(script, digests, say), "simulator": virtual, "lab": summed_up(script, facts)}


def main(argv: Sequence[str]) -> int:
    usual = Trial()
    parser = argparse.ArgumentParser(prog="python -m bench overlay_live", description=__doc__)
    parser.add_argument("--brokers", type=int, default=usual.brokers)
    parser.add_argument("--steps", type=int, default=usual.steps)
    parser.add_argument("--ms-per-km", type=float, default=usual.ms_per_km)
    parser.add_argument("--max-distance-km", type=float, default=usual.max_distance_km)
    parser.add_argument("--seed", type=int, default=usual.seed)
    options = parser.parse_args(argv)
    trial = Trial(
        options.brokers,
        steps=options.steps,
        ms_per_km=options.ms_per_km,
        max_distance_km=options.max_distance_km,
        seed=options.seed,
    )
    found = compared(trial, lambda text: print(text, flush=True))
    for name, one in found.items():
        print(
            f"{name:>10}: {one.latency_ms:8.2f} ms, {one.share:6.3f} % forwarded "
            f"({one.published} published, {one.forwarded} forwarded, {one.delivered} delivered)"
        )
    ours, theirs = found["live"], found["simulator"]
    late, more = (100 * (a / b - 1) for a, b in ((ours.latency_ms, theirs.latency_ms), (ours.share, theirs.share)))
    print(f"live against the simulator: latency {late:+.1f} %, forwarded {more:+.2f} %; 10 % are allowed")
    return 0 if abs(late) <= 10 and abs(more) <= 10 else 1
