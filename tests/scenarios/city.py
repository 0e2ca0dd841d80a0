"""A live city for tests: real broker processes, every link through a relay that can be cut, clients in this process."""

import asyncio
import dataclasses
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, TypeVar, cast

from metromq.federation import BrokerSpec, steps_to, with_area, with_broker
from metromq.federation.city import City, Routing
from metromq.federation.host import DRAINED, GONE, Host
from tests.peers import free_ports

T = TypeVar("T")
DEADLINE_S = 60.0  # far beyond what any machine needs; only a hang reaches it

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["metromq.broker", "metromq.broker.peers.member", "uvloop", "tests.scenarios.city"])


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What a broker process says about itself."""

    digest: int
    owners: dict[str, str]
    backlog: int  # messages that wait for peers whose link is up
    links_up: int
    clients: int
    state: str  # whether it leaves
    city: City
    followed: bool  # by all, as far as it knows
    between: int  # messages sent to peers since the start


def serve_broker(
    city: City,
    name: str,
    data: Path,
    peers: dict[str, tuple[str, int]],
    port: int,
    settings: Mapping[str, Any],
    pipe: Connection,
) -> None:
    """The main function of a broker process; `settings` are fields of its Config."""
    import uvloop

    from metromq.broker import Broker
    from metromq.config import Config, Listener

    signal.signal(signal.SIGINT, signal.SIG_IGN)

    async def run() -> None:
        given = {"listeners": (Listener(port=port),), "sys_interval_s": 0, **settings}
        config = Config(name=name, data_dir=data / name, **given)
        stop = asyncio.Event()
        async with Broker(config, city=city, peer_addresses=peers) as broker:
            pipe.send(broker.port)

            def answer() -> None:
                try:
                    asked = pipe.recv()
                    if asked == "stop":
                        stop.set()
                        return
                    host = broker.host
                    assert host is not None
                    if asked != "status":
                        broker.cycle.now()
                        asked(host)
                        broker.cycle.worked()
                    links = [link for link in host.links.values() if link.up]
                    backlog = sum(link.backlog.unsettled() for link in links)
                    entries = {entry.key: entry.owner for entry in host.node.table.entries()}
                    followed = min(host.node.descriptions.followed_by.values()) >= host.node.description.epoch
                    digest = host.node.table.digest()
                    state = host.leaving.state
                    clients = len(broker.hub.sessions.by_client_id)
                    between = sum(link.sent_messages for link in host.links.values())
                    pipe.send(
                        Answer(
                            digest,
                            entries,
                            backlog,
                            len(links),
                            clients,
                            state,
                            host.city,
                            followed,
                            between,
                        )
                    )
                except (EOFError, OSError):
                    stop.set()

            asyncio.get_running_loop().add_reader(pipe.fileno(), answer)
            await stop.wait()
            asyncio.get_running_loop().remove_reader(pipe.fileno())

    uvloop.run(run())


def move_area(area: str, home: str, host: Host) -> None:
    host.change_city(with_area(host.city, area, home), "somebody")


def undo(host: Host) -> None:
    host.change_city(host.node.descriptions.earlier[-1].city, "somebody", "undo")


def take_in(spec: BrokerSpec, host: Host) -> None:
    host.change_city(with_broker(host.city, spec), "somebody")


def become(city: City, host: Host) -> None:
    host.change_city(city, "somebody")


def leave(host: Host) -> None:
    host.leaving.leave("somebody")


def drain(host: Host) -> None:
    host.leaving.drain()


class Relay:
    """Carries one direction's link between two brokers, until it is cut."""

    def __init__(self) -> None:
        self.target: tuple[str, int] | None = None
        self.is_cut = False
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        self.is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    async def close(self) -> None:
        self.cut()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        self._writers.add(writer)
        try:
            if self.is_cut or self.target is None:
                return
            far_reader, far_writer = await asyncio.open_connection(*self.target)
            writers.append(far_writer)
            self._writers.add(far_writer)
            await asyncio.gather(_pipe(reader, far_writer), _pipe(far_reader, writer))
        except OSError:
            pass
        finally:
            for one in writers:
                self._writers.discard(one)
                one.transport.abort()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.transport.abort()


class LiveCity:
    """Start with `live_city`; everything it made is gone when the block ends."""

    def __init__(self, city: City, data: Path, settings: Mapping[str, Any] | None = None) -> None:
        self.city = city
        self.data = data
        self._settings = dict(settings or {})
        self.ports: dict[str, int] = {}
        self.relays = {(one, other): Relay() for one in city.names for other in city.names if one != other}
        self._processes: dict[str, ForkServerProcess] = {}
        self._pipes: dict[str, Connection] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="live-city", daemon=True)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs on the city's own event loop, where relays and clients live."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(DEADLINE_S)

    def open(self) -> None:
        self._thread.start()
        for relay in self.relays.values():
            self.run(relay.open())
        for name in self.city.names:
            self._launch(name)
        for name in self.city.names:
            self._await_port(name)
        self.wait_until(lambda: all(self.ask(name).links_up == len(self.city.names) - 1 for name in self.city.names))

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.join()
        for relay in self.relays.values():
            self.run(relay.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _launch(self, name: str) -> None:
        ours, theirs = CONTEXT.Pipe()
        peers = {peer: ("127.0.0.1", relay.port) for (own, peer), relay in self.relays.items() if own == name}
        process = CONTEXT.Process(
            target=serve_broker,
            args=(self.city, name, self.data, peers, self.city.broker(name).port, self._settings, theirs),
            name=name,
            daemon=True,
        )
        process.start()
        theirs.close()
        self._processes[name] = process
        self._pipes[name] = ours

    def _await_port(self, name: str) -> None:
        assert self._pipes[name].poll(DEADLINE_S), f"{name} did not start"
        port = self.ports[name] = self._pipes[name].recv()
        for (_, other), relay in self.relays.items():
            if other == name:
                relay.target = ("127.0.0.1", port)

    # Faults.

    @property
    def running(self) -> list[str]:
        return [name for name, process in self._processes.items() if process.is_alive()]

    def start(self, name: str) -> None:
        self._launch(name)
        self._await_port(name)

    def kill(self, name: str) -> None:
        self._processes[name].kill()
        self._processes[name].join()

    def stop(self, name: str) -> None:
        """As `metromq serve` ends: nothing is cut off."""
        self._pipes[name].send("stop")
        self._processes[name].join()

    def pause(self, name: str) -> None:
        pid = self._processes[name].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        pid = self._processes[name].pid
        assert pid is not None
        os.kill(pid, signal.SIGCONT)

    def cut(self, one: str, other: str) -> None:
        for pair in ((one, other), (other, one)):
            self._loop.call_soon_threadsafe(self.relays[pair].cut)

    def split(self, side: list[str]) -> None:
        for one, other in self.relays:
            if (one in side) != (other in side):
                self.cut(one, other)

    def heal(self) -> None:
        for relay in self.relays.values():
            relay.is_cut = False

    # Changes of the running city, told to one broker.

    def change(self, name: str, change: Callable[[Host], None]) -> None:
        """`change` goes to the broker's process, so it is a function of a module, or a partial of one."""
        self.ask(name, change)

    def join(self, name: str, at: str, area: str) -> None:
        """A newcomer: peers dial the address that the description has for it."""
        port = free_ports(1)[0]
        self.change(at, partial(take_in, BrokerSpec(name, f"127.0.0.1:{port}", area=area)))
        self.city = self.ask(at).city
        for other in self._processes:
            for pair in ((name, other), (other, name)):
                self.relays[pair] = Relay()
                self.run(self.relays[pair].open())
            self.relays[name, other].target = ("127.0.0.1", self.ports[other])
        self._launch(name)
        self._await_port(name)

    def route(self, at: str, routing: str) -> None:
        before = self.ask(at).city
        central = at if routing == "central" else ""
        for step in steps_to(before, dataclasses.replace(before, routing=cast(Routing, routing), central=central)):
            self.change(at, partial(become, step))
            self.wait_until(lambda: self.ask(at).followed)

    def leave(self, name: str) -> None:
        self.change(name, leave)
        self.wait_until(lambda: self.ask(name).state == GONE)
        self.kill(name)
        del self._processes[name]

    def drain(self, name: str) -> None:
        self.change(name, drain)
        self.wait_until(lambda: self.ask(name).state == DRAINED)

    # Seeing.

    def ask(self, name: str, question: object = "status") -> Answer:
        pipe = self._pipes[name]
        pipe.send(question)
        assert pipe.poll(DEADLINE_S), f"{name} does not answer"
        answer = pipe.recv()
        assert isinstance(answer, Answer)
        return answer

    def wait_until(self, condition: Callable[[], bool], seconds: float = DEADLINE_S) -> None:
        """Polls, because nothing in a live city tells when it is done."""
        end = time.monotonic() + seconds
        pause = threading.Event()
        while not condition():
            assert time.monotonic() < end, "the city did not come to rest in time"
            pause.wait(0.05)

    def reachable(self, one: str, other: str) -> bool:
        return not self.relays[one, other].is_cut and not self.relays[other, one].is_cut

    def settle(self, busy: bool = False) -> None:
        """Until every link that can be up is up, nothing waits, and tables agree wherever brokers can reach each other;
        seen twice, a few hellos apart, because frames are on their way that nobody counts. `busy`: clients go on to
        publish, so that something always waits somewhere."""
        quiet = [0]
        pause = threading.Event()
        interval_s = self.city.membership.hello_interval_ms / 1000

        def is_quiet() -> bool:
            quiet[0] = quiet[0] + 1 if self._is_quiet(busy) else 0
            if quiet[0] < 2:
                pause.wait(interval_s * self.city.membership.far_factor)
            return quiet[0] >= 2

        self.wait_until(is_quiet, 4 * DEADLINE_S)

    def _is_quiet(self, busy: bool) -> bool:
        names = self.running
        answers = {name: self.ask(name) for name in names}
        for name, answer in answers.items():
            within = [other for other in names if other != name and self.reachable(name, other)]
            if answer.links_up < len(within) or (answer.backlog and not busy):
                return False
            if any(answers[other].digest != answer.digest for other in within):
                return False
        return True


@contextmanager
def live_city(city: City, data: Path, settings: Mapping[str, Any] | None = None) -> Iterator[LiveCity]:
    live = LiveCity(city, data, settings)
    try:
        live.open()
        yield live
    finally:
        live.close()
