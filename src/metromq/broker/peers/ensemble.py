"""The shim between a ZooKeeper ensemble and the broker's coordinator: kazoo in a thread, results in the event loop."""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, final

from kazoo.client import KazooState
from kazoo.exceptions import NodeExistsError, NoNodeError

from metromq.broker import logs
from metromq.broker.peers.worker_requests import WorkerRequests
from metromq.broker.peers.znodes import BATCH, PROBLEMS, RETRY_S, FactStore, Job, Servers, pause, quoted, unquoted
from metromq.broker.write_cycle import WriteCycle
from metromq.federation import City
from metromq.federation.coordination import REQUEST, WANTED, Event, Fact, ZooKeeperCoordinator
from metromq.federation.host import Host


@final
class Ensemble:
    """`start` it after the host; `take_writes` after each tick. It has a thread of its own, in which kazoo waits."""

    def __init__(self, city: City, host: Host, cycle: WriteCycle) -> None:
        coordinator = host.node.coordinator
        assert isinstance(coordinator, ZooKeeperCoordinator)
        self._coordinator = coordinator
        self._city, self._host, self._cycle = city, host, cycle
        self._servers = Servers(city)
        self._client = self._servers.client
        self._store = FactStore(self._servers, self._watched)
        self._requests = WorkerRequests(host.name, self._servers, self._watched, self._answered, self._assigned)
        self._jobs: queue.Queue[Job | None] = queue.Queue()
        self._thread = threading.Thread(target=self._work, name="zookeeper", daemon=True)
        self._loop = asyncio.get_running_loop()
        self._told_clients = -1
        self._stops = False

    # In the event loop.

    def start(self) -> None:
        self._thread.start()
        self._client.add_listener(self._state_changed)
        self._jobs.put(self._connect)

    def take_writes(self) -> None:
        """What the coordinator wants written or asked, and how many clients are here."""
        writes = self._coordinator.writes()
        facts = tuple(fact for fact in writes if fact.kind != REQUEST)
        asks = tuple(fact for fact in writes if fact.kind == REQUEST)
        if facts:
            self._jobs.put(lambda: self._write_all(facts))
        if asks:
            self._jobs.put(lambda: self._ask_all(asks))
        clients = self._coordinator.clients
        if clients != self._told_clients and self._coordinator.is_connected:
            self._told_clients = clients
            self._jobs.put(lambda: self._tell_clients(clients))

    async def stop(self) -> None:
        self._stops = True
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join, 5.0)

    def _said(self, tell: Callable[[int], list[Event]]) -> None:
        """From any thread: the coordinator hears something, and the host carries out what follows."""
        self._loop.call_soon_threadsafe(self._hear, tell)

    def _hear(self, tell: Callable[[int], list[Event]]) -> None:
        self._cycle.now()
        now_us = int(self._cycle.hub.clock.now * 1_000_000)
        self._host.run(self._host.node.coordinated(tell(now_us), now_us))
        self._cycle.worked()

    # In kazoo's threads.

    def _state_changed(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._jobs.put(self._enter)
        elif not self._stops:
            self._said(self._coordinator.lost)
            logs.warning("the ensemble is away; known routes are used", state=state)
            if state == KazooState.LOST:
                self._jobs.put(self._connect)

    def _watched(self, job: Job) -> Callable[[Any], None]:
        return lambda event: self._jobs.put(job)

    # In the thread.

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception as problem:  # kazoo has some of its own; if this thread ended nobody would try again
                logs.warning("the ensemble did not answer; trying again", problem=repr(problem))
                if self._client.connected:
                    pause(RETRY_S)
                    self._jobs.put(self._enter)
        self._servers.close()

    def _connect(self) -> None:
        """Goes on trying for ever; the listener hears of it."""
        if not self._stops and not self._servers.connect():
            self._jobs.put(self._connect)

    def _enter(self) -> None:
        """A session is there, new or kept: be a member, watch, and read everything."""
        if not self._client.connected:
            return
        self._servers.make_room()
        self._be_member()
        self._read_members()
        self._store.forget()
        self._read_log()
        self._requests.enter()
        self._said(self._coordinator.connected)
        logs.info("the ensemble is there", servers=",".join(self._city.zookeeper.servers), path=self._servers.root)

    def _own_path(self) -> str:
        return self._servers.path("members", quoted(self._host.name))

    def _be_member(self) -> None:
        path = self._own_path()
        data = str(self._coordinator.clients).encode()
        try:
            self._client.create(path, data, ephemeral=True)
        except NodeExistsError:
            stat = self._client.exists(path)
            if stat is not None and stat.ephemeralOwner != self._client.client_id[0]:
                self._client.delete(path)  # of an earlier life, whose session has not ended yet
                self._client.create(path, data, ephemeral=True)

    def _tell_clients(self, clients: int) -> None:
        try:
            self._client.set(self._own_path(), str(clients).encode())
        except NoNodeError:
            self._be_member()

    def _read_members(self) -> None:
        names = self._client.get_children(self._servers.path("members"), watch=self._watched(self._read_members))
        found: dict[str, int] = {}
        for name in names:
            try:
                data, _ = self._client.get(self._servers.path("members", name))
                found[unquoted(name)] = int(data or b"0")
            except NoNodeError:
                continue  # it has just gone
        if self._host.name not in found:  # its session ended, and a new one has begun
            self._be_member()
            found[self._host.name] = self._coordinator.clients
        self._said(lambda now_us: self._coordinator.members(found, now_us))

    def _read_log(self) -> None:
        self._tell(self._store.news(self._read_log))

    def _tell(self, facts: tuple[Fact, ...]) -> None:
        said = tuple(fact for fact in facts if fact.kind != WANTED)  # peers say themselves what they want
        if said:
            self._said(lambda now_us: self._coordinator.facts_said(said, now_us))

    # Writing.

    def _write_all(self, facts: tuple[Fact, ...]) -> None:
        for start in range(0, len(facts), BATCH):
            batch = facts[start : start + BATCH]
            try:
                if not self._store.write(batch, False):
                    for fact in batch:  # one of them is not new any more: each by itself
                        self._store.write((fact,), True)
            except PROBLEMS:
                self._failed(facts[start:])
                raise
            self._said(lambda now_us, batch=batch: self._coordinator.written(batch, now_us))  # type: ignore[misc]
        self._store.prune()

    def _ask_all(self, asks: tuple[Fact, ...]) -> None:
        try:
            is_asked = self._requests.ask(asks)
        except PROBLEMS:
            self._failed(asks)
            raise
        if not is_asked:
            self._failed(asks)  # no worker is there yet: next time

    def _answered(self, asks: tuple[Fact, ...], facts: tuple[Fact, ...]) -> None:
        self._tell(facts)
        self._said(lambda now_us: self._coordinator.written(asks, now_us))

    def _assigned(self, worker: str, workers: tuple[str, ...]) -> None:
        self._said(lambda now_us: self._coordinator.assigned(worker, workers))

    def _failed(self, facts: tuple[Fact, ...]) -> None:
        def tell(now_us: int) -> list[Event]:
            self._coordinator.failed(facts)
            return []

        self._said(tell)
