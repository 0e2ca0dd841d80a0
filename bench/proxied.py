"""A proxy and the end of its tunnel, measured: a stream through them, what they add to a message's way."""

import asyncio
import os
import random
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import generator
from bench.cities import BenchCity, bench_city, is_compiled, wait_until
from bench.machine import cpu_seconds
from bench.peers import BUILD, COMPILED, free_port
from metromq.control.delegating import delegate
from metromq.federation.city import grid_city

FILTER = "near/#"
WINDOW_BYTES = 512 * 1024
ROUND_S = 0.5
Values = dict[str, float]


@dataclass(frozen=True, slots=True)
class Gate:
    """Where clients connect with and without a proxy, and the processes in between."""

    proxy: int
    edge: int
    proxy_pid: int
    tunnel_pid: int
    edge_pid: int


@contextmanager
def gate() -> Iterator[Gate]:
    """Two brokers; the edge broker has the filter, and a proxy leads to it."""
    with bench_city(grid_city("delegation", count=2)) as running, ExitStack() as stack:
        central, edge = running.city.names
        hand(running, FILTER, edge)
        listen, tunnel = free_port(), free_port()
        end = ("tunnel", "--listen", f"127.0.0.1:{tunnel}", "--broker", f"127.0.0.1:{running.port(edge)}")
        door = ("proxy", "--listen", f"127.0.0.1:{listen}", "--central", f"127.0.0.1:{running.port(central)}")
        way = ("--edge", f"{edge}=127.0.0.1:{tunnel}", "--filter", f"{FILTER}={edge}")
        tunnel_pid = stack.enter_context(_program(tunnel, *end))
        proxy_pid = stack.enter_context(_program(listen, *door, *way))
        yield Gate(listen, running.port(edge), proxy_pid, tunnel_pid, running.pid(edge))


@contextmanager
def gate_apart() -> Iterator[Gate]:
    """The same, with a core of its own for the generator, which never sleeps: who shared it would wait for it."""
    cores = os.sched_getaffinity(0)
    own = max(cores)
    os.sched_setaffinity(0, cores - {own} or cores)  # which all that is started inherits
    try:
        with gate() as way:
            os.sched_setaffinity(0, {own})
            yield way
    finally:
        os.sched_setaffinity(0, cores)


@contextmanager
def _program(port: int, *words: str) -> Iterator[int]:
    tree = COMPILED if is_compiled() else BUILD.parent / "src"
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "metromq.cli.main", *words],
            env=os.environ | {"PYTHONPATH": str(tree)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=Path(tree),
        )
        try:
            wait_until(f"{words[0]} listens", lambda: _answers(port))
            yield process.pid
        finally:
            process.kill()
            process.wait()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def hand(running: BenchCity, topic_filter: str, owner: str) -> float:
    """Seconds until the filter has changed hands; one that was given up is ordered again."""
    took = [0.0]

    def is_there() -> bool:
        start = time.monotonic()
        found = asyncio.run(delegate(running.city, running.data, topic_filter, owner, 30.0))
        took[0] = time.monotonic() - start
        return (found.broker if found is not None else running.city.central) == owner

    wait_until(f"{owner} has {topic_filter}", is_there)
    return took[0]


def stream(seconds: float, topics: int = 1, subscriber_too: bool = False) -> Values:
    """QoS 0 as fast as it goes, by one publisher to so many topics in turn."""
    names = [f"near/{number:05}" for number in range(topics)]
    with gate() as way:
        subscriber = generator.connect(way.proxy if subscriber_too else way.edge, "sub", filter=FILTER)
        publisher = generator.connect(way.proxy, "pub")
        _first_arrives(publisher, subscriber, names[0])
        size = len(generator.packet(names[0]))
        window = WINDOW_BYTES // size
        chosen = names * max(1, window // 4 // len(names))
        random.Random(1).shuffle(chosen)
        batch = b"".join([generator.packet(topic) for topic in chosen])
        flow = generator.Stream(publisher, 1, batch, (size, size), window)
        load = generator.Load([flow], [(subscriber, flow)])
        load_before = os.getloadavg()[0]
        pids = {"proxy": way.proxy_pid, "tunnel's end": way.tunnel_pid, "edge broker": way.edge_pid}
        used: list[dict[str, float]] = []

        def note() -> float:
            used.append({name: cpu_seconds(pid) for name, pid in pids.items()})
            return 0.0

        own = time.process_time()
        count = load.run(seconds / 4, seconds, note)
        own = time.process_time() - own
        publisher.close()
        subscriber.close()
    each = 1e6 / max(count.messages, 1)
    costs = {f"{name}, us of processor each": (used[-1][name] - used[0][name]) * each for name in pids}
    found = {"messages/s": count.rate, "lost": float(count.lost)} | costs
    return found | {"generator, cores": own / (1.25 * seconds), "load of the machine before": load_before}


def _first_arrives(publisher: socket.socket, subscriber: socket.socket, topic: str) -> None:
    poll = select.poll()
    poll.register(subscriber, select.POLLIN)

    def arrives() -> bool:
        publisher.send(generator.packet(topic))
        return bool(poll.poll(100))

    wait_until("a message comes through", arrives)
    while poll.poll(300):
        subscriber.recv(1 << 20)


def added(rate: float, seconds: float) -> Values:
    """Publisher and subscriber behind the proxy, and both at the edge broker, by turns of half a second."""
    topics = {"proxy": "near/latency-p", "edge": "near/latency-e"}
    with gate_apart() as way:
        ports = {"proxy": way.proxy, "edge": way.edge}
        pairs = {}
        for name, port in ports.items():
            subscriber = generator.connect(port, f"sub-{name}", filter=topics[name])
            publisher = generator.connect(port, f"pub-{name}")
            _first_arrives(publisher, subscriber, topics[name])
            pairs[name] = (publisher, subscriber, generator.packet(topics[name]))
        found: dict[str, list[int]] = {name: [] for name in pairs}
        lost, load = 0, os.getloadavg()[0]
        for number in range(2 * max(1, int(seconds / ROUND_S)) + 2):
            name = ("proxy", "edge")[number % 2]
            times, missing = generator.latencies([pairs[name]], len(pairs[name][2]), rate, ROUND_S)
            if number >= 2:  # the first of each warms up
                found[name] += times
                lost += missing
        for publisher, subscriber, _ in pairs.values():
            publisher.close()
            subscriber.close()
    values = {
        f"{name} {share} ms": _at(sorted(times), part)
        for name, times in found.items()
        for share, part in (("p50", 0.5), ("p99", 0.99))
    }
    difference = values["proxy p99 ms"] - values["edge p99 ms"]
    return values | {"added p99 ms": difference, "lost": float(lost), "load of the machine before": load}


def _at(ordered: Sequence[int], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1e6
