"""A session with a long queue moves to another broker: how long that takes, and how long others wait meanwhile."""

import multiprocessing
import socket
import time
from multiprocessing.connection import Connection

from bench import generator
from bench.cities import bench_city
from metromq.client.core import ClientCore, ClientOptions, Deliver, Effect, Opened, Send, Settled
from metromq.federation.city import City, grid_city
from metromq.protocol.wire import MQTT5, Properties, Publish, Subscription

TOPIC = "bench/moved"
PAYLOAD = bytes(100)
AT_ONCE = 500  # publications under way
PROBE_EVERY_S = 0.002
CALM_S = 2.0  # before the move, for comparison
AFTER_S = 1.0


class Mover:
    """A client that keeps its session, on a blocking socket."""

    def __init__(self, port: int, name: str, is_new: bool = False) -> None:
        self.received = self.settled = 0
        self.is_open = False
        self._socket = socket.create_connection(("127.0.0.1", port), generator.ANSWER_S)
        self._core = ClientCore(ClientOptions(name, MQTT5, is_new, 3600))
        self._do(self._core.connect(time.monotonic()))
        while not self.is_open:
            self.read()

    def read(self) -> None:
        self._do(self._core.receive(self._socket.recv(1 << 18), time.monotonic()))

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._socket.sendall(effect.data)
            elif isinstance(effect, Deliver):
                self.received += 1
                self._do(self._core.taken(effect.message, time.monotonic()))
            elif isinstance(effect, Settled):
                self.settled += 1
            elif isinstance(effect, Opened):
                self.is_open = True

    def subscribe(self) -> None:
        self._do(self._core.subscribe([Subscription(TOPIC, 1)], 0, Properties(), time.monotonic())[1])
        while not self.settled:
            self.read()

    def publish(self, count: int) -> None:
        for number in range(count):
            self._do(self._core.publish(Publish(TOPIC, PAYLOAD, 1), time.monotonic())[1])
            while number + 1 - self.settled >= AT_ONCE:
                self.read()
        while self.settled < count:
            self.read()

    def close(self) -> None:
        self._socket.close()


def _probe(port: int, pipe: Connection) -> None:
    """Sends itself a message every now and then until it is told to stop; when, and how long each took."""
    topic = f"bench/probe/{port}"
    client = generator.connect(port, f"probe-{port}", filter=topic)
    client.setblocking(True)
    packet = generator.packet(topic)
    found: list[tuple[float, float]] = []
    pipe.send(None)  # ready
    while not pipe.poll():
        start = time.monotonic()
        client.sendall(packet)
        rest = len(packet)
        while rest:
            rest -= len(client.recv(rest))
        found.append((start, time.monotonic() - start))
        time.sleep(PROBE_EVERY_S)
    pipe.send(found)


class Probe:
    """In a process of its own, so that what this one does delays nothing."""

    def __init__(self, port: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, far = context.Pipe()
        self._process = context.Process(target=_probe, args=(port, far), daemon=True)
        self._process.start()
        self._pipe.recv()

    def longest_ms(self, moved_at: float) -> tuple[float, float]:
        """Before the move, and from then on."""
        self._pipe.send(None)
        found = self._pipe.recv()
        self._process.join()
        waits = [[took for at, took in found if (at >= moved_at) == is_after] for is_after in (False, True)]
        return max(waits[0], default=0.0) * 1000, max(waits[1], default=0.0) * 1000


def three_brokers() -> City:
    return grid_city("geographic", l_b=2, count=3)


def move(queued: int = 10_000) -> dict[str, float]:
    with bench_city(three_brokers()) as running:
        old, new, other = (running.port(name) for name in running.city.names)
        mover = Mover(old, "mover", is_new=True)
        mover.subscribe()
        mover.close()
        running.settle()
        publisher = Mover(other, "publisher", is_new=True)
        publisher.publish(queued)
        running.settle()
        probes = Probe(old), Probe(new)
        time.sleep(CALM_S)
        start = time.monotonic()
        mover = Mover(new, "mover")
        while mover.received < queued:
            mover.read()
        took_s = time.monotonic() - start
        time.sleep(AFTER_S)
        (calm, at_old), (also_calm, at_new) = (probe.longest_ms(start) for probe in probes)
        publisher.close()
        mover.close()
    return {
        "all moved s": took_s,
        "others before, max ms": max(calm, also_calm),
        "others at the old broker, max ms": at_old,
        "others at the new broker, max ms": at_new,
    }
