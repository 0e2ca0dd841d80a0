"""The overlay: new topics per second on gossip and on three servers, Fig. 8's largest point, re-clustering."""

import argparse
import asyncio
import random
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bench.growth import cpu_s
from metromq.control import ensemble
from metromq.control.processes import Supervisor
from metromq.federation.city import BrokerSpec, City, LinkSecurity, OverlaySettings, ZooKeeperSettings, grid_city
from metromq.federation.coordination.coordinator import Coordinator
from metromq.federation.coordination.facts import REQUEST, Fact
from metromq.federation.effects import Send
from metromq.federation.links.frame_bytes import encode_frame
from metromq.federation.node import Node
from metromq.federation.routing.overlay_map import PUBLISHES, key_of
from metromq.lab.overlay.schemes import SCHEMES
from metromq.lab.overlay.simulated import Choices, simulate
from metromq.lab.overlay.workload import Load, draw, sites

PATIENCE_S = 120.0


def embedded(count: int) -> str:
    """Two brokers: what it costs one to decide about new topics, and the other to learn of that."""
    city = grid_city("overlay", count=2)
    city = replace(city, overlay=OverlaySettings(max_topics=10_000_000))
    one, two = (Node(city, name, 1, 0) for name in city.names)
    one.peer_up(two.name, 0)
    two.peer_up(one.name, 0)
    start = time.process_time()
    for first in range(0, count, 100):  # as many as come between two ticks
        for number in range(first, first + 100):
            one.routes.published(f"new/{number}")
        now_us = 1000 * (first + 1)
        for effect in one.tick(now_us):
            if isinstance(effect, Send) and effect.peer == two.name:
                two.frame(one.name, encode_frame(effect.frame), now_us)
    took_s = time.process_time() - start
    learnt = len(two.coordinator.book.of_kind("publisher"))
    assert isinstance(two.coordinator, Coordinator)
    assert learnt == count, f"{learnt} of {count} were learnt"
    return (
        f"embedded: {count / took_s:,.0f} new topics per second of a core, decided at one broker and learnt at another"
    )


async def on_servers(count: int, at_once: int) -> str:
    """A worker answers a broker's requests, each about `at_once` topics, on an ensemble of three."""
    with tempfile.TemporaryDirectory(prefix="bench-") as data:
        addresses = tuple(f"127.0.0.1:{port}" for port in ensemble.free_ports(3))
        supervisor = Supervisor(ensemble.server_programs(addresses, Path(data)), lambda text: None)
        await supervisor.start(lambda keeper: None)
        try:
            before = time.process_time() + _servers_cpu_s(supervisor)
            rate = await asyncio.to_thread(_ask_all, addresses, count, at_once)
            cpu_s = time.process_time() + _servers_cpu_s(supervisor) - before
            return (
                f"three servers, one worker: {rate:,.0f} new topics/s answered, {at_once} in a request; "
                f"{1000 * cpu_s / count:.2f} ms of CPU for each, of servers, worker and broker together"
            )
        finally:
            await supervisor.stop()


def _servers_cpu_s(supervisor: Supervisor) -> float:
    """Of the shells that hold the servers, and of the servers."""
    pids = [keeper.pid for keeper in supervisor.keepers.values()]
    children = [Path(f"/proc/{pid}/task/{pid}/children").read_text().split() for pid in pids]
    return cpu_s([*pids, *(int(child) for some in children for child in some)])


def _ask_all(addresses: tuple[str, ...], count: int, at_once: int) -> float:
    from metromq.broker.peers.worker import CoordinationWorker
    from metromq.broker.peers.worker_requests import WorkerRequests
    from metromq.broker.peers.znodes import Servers

    city = grid_city("overlay", count=2)
    overlay = OverlaySettings(workers=1, max_topics=10_000_000)
    city = replace(city, coordination="zookeeper", overlay=overlay, zookeeper=ZooKeeperSettings(servers=addresses))
    worker = CoordinationWorker(city, "w1")
    thread = threading.Thread(target=worker.run)
    thread.start()
    servers = Servers(city)
    answered = [0]
    jobs: list[Callable[[], None]] = []
    lock = threading.Condition()

    def later(job: Callable[[], None]) -> Callable[[object], None]:
        def put(event: object) -> None:
            with lock:
                jobs.append(job)
                lock.notify()

        return put

    def count_answer(asks: tuple[Fact, ...], facts: tuple[Fact, ...]) -> None:
        answered[0] += len(asks)

    requests = WorkerRequests(city.names[0], servers, later, count_answer)
    servers.client.start()
    try:
        requests.enter()
        _until(lambda: requests.ask(()), jobs, lock)
        asks = [Fact(REQUEST, key_of(PUBLISHES, f"new/{number}"), city.names[0], 0) for number in range(count)]
        start = time.monotonic()
        requests.ask(tuple(asks), at_once)
        _until(lambda: answered[0] >= count, jobs, lock)
        took_s = time.monotonic() - start
    finally:
        worker.stop()
        thread.join()
        servers.close()
    return count / took_s


def _until(is_so: Callable[[], bool], jobs: list[Callable[[], None]], lock: threading.Condition) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > end:
            raise TimeoutError("the worker does not answer")
        with lock:
            lock.wait(0.05)
            due = list(dict.fromkeys(jobs))
            jobs.clear()
        for job in due:
            job()


def figure_8() -> str:
    work = draw(Load(600, 100, 0.8, many=True), 1)
    start = time.process_time()
    between = simulate("overlay", work, 1, Choices()).between_ms
    own_s = time.process_time() - start
    for scheme in SCHEMES[1:]:
        simulate(scheme, work, 1, Choices(), between)
    return (
        f"Fig. 8, 600 brokers x 100 topics: {own_s:.1f} s for the overlay, {time.process_time() - start:.1f} s for all"
    )


def reclustering() -> str:
    """Arrival order against the proposal on Spark, for the same workload."""
    from metromq.pipeline import spark as starting
    from metromq.pipeline.reclustering import proposed

    dice = random.Random(1)
    places = dice.sample(sites(), 600)
    specs = tuple(BrokerSpec(f"b{one}", latitude=place[0], longitude=place[1]) for one, place in enumerate(places))
    city = City(specs, routing="overlay", links=LinkSecurity(secret="a secret for the bench"))
    users: dict[str, dict[str, tuple[int, str, float, bool]]] = {f"t{number}": {} for number in range(100)}
    for name in city.names:  # each publishes a tenth of the topics, and wants another tenth
        published, wanted = set(dice.sample(sorted(users), 10)), set(dice.sample(sorted(users), 10))
        for topic in published | wanted:
            rate = float(dice.randint(1, 20)) if topic in published else 0.0
            users[topic][name] = 0, name, rate, topic in wanted
    rows = [(topic, list(brokers.values()), 1) for topic, brokers in users.items()]
    shape = "struct<since:long,broker:string,publications:double,wanted:boolean>"
    session = starting.start("local[2]", memory="1g", app="bench")
    try:
        used = session.createDataFrame(rows, f"topic string, brokers array<{shape}>, fingerprint long")
        used.cache().count()
        start = time.monotonic()
        found = proposed(session, used.repartition(8), None, city, "2026-01-01")
        took_s = time.monotonic() - start
        again_s = time.monotonic()
        kept = proposed(session, used, None, city, "2026-01-01", found)
        again_s = time.monotonic() - again_s
    finally:
        starting.stop(session)
    gain = found.gain
    return (
        f"re-clustering of {gain.topics} topics at 600 brokers on Spark: {took_s:.1f} s, again with nothing new "
        f"{again_s:.1f} s ({kept.counted} counted). Copies {gain.copies_before:,.0f} -> {gain.copies_after:,.0f}, "
        f"mean way {gain.mean_km_before:.1f} -> {gain.mean_km_after:.1f} km. {gain.sentence}"
    )


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench overlay", description=__doc__)
    parser.add_argument("--only", choices=("embedded", "servers", "figure", "spark"))
    parser.add_argument("--topics", type=int, default=5000)
    options = parser.parse_args(argv)
    parts: dict[str, Callable[[], str]] = {
        "embedded": lambda: embedded(options.topics),
        "servers": lambda: "\n".join(asyncio.run(on_servers(options.topics, one)) for one in (1, 100)),
        "figure": figure_8,
        "spark": reclustering,
    }
    for name, part in parts.items():
        if options.only in (None, name):
            print(part(), flush=True)
    return 0
