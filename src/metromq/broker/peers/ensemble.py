"""The shim between a ZooKeeper ensemble and the broker's coordinator: kazoo in a thread, results in the event loop.

Below the city's chroot:

    members/NAME            ephemeral: the broker has a session; the number of its clients
    facts/KIND/KEY          a fact as JSON; KEY is quoted, since keys have slashes
    log/c-0000000007        facts that were written together, for those that watch

A batch of facts is written in one transaction, which checks that each replaces what its writer knew, and adds an entry
to the log. Brokers watch only the list of entries, so a change costs each of them two reads, however many facts there
are. Writers delete their entries after a while; a broker that finds that it has missed some reads all facts again.
"""

import asyncio
import json
import queue
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, final
from urllib.parse import quote, unquote

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import ACL, OPEN_ACL_UNSAFE, make_digest_acl

from metromq.broker import logs
from metromq.broker.write_cycle import WriteCycle
from metromq.errors import ConfigError
from metromq.federation import City
from metromq.federation.coordination import Event, Fact, ZooKeeperCoordinator
from metromq.federation.host import Host

BATCH: Final = 200  # facts in a transaction; a transaction may have a megabyte
KEEP_LOG_S: Final = 60.0
RETRY_S: Final = 1.0
LOG: Final = "/log/c-"
PROBLEMS: Final = (KazooException, KazooTimeoutError, OSError)

Job = Callable[[], None]


@final
class Ensemble:
    """`start` it after the host; `take_writes` after each tick. It has a thread of its own, in which kazoo waits."""

    def __init__(self, city: City, host: Host, cycle: WriteCycle) -> None:
        if not city.zookeeper.servers:
            raise ConfigError(
                "zookeeper.servers",
                "names no server; `metromq up` starts an ensemble, but a broker by itself needs the addresses of one",
            )
        coordinator = host.node.coordinator
        assert isinstance(coordinator, ZooKeeperCoordinator)
        self._coordinator = coordinator
        self._city, self._host, self._cycle = city, host, cycle
        settings = city.zookeeper
        self._acl: list[ACL] | None = None
        auth = None
        password = _password(city)
        if settings.user and password:
            self._acl = [make_digest_acl(settings.user, password, all=True)]
            auth = [("digest", f"{settings.user}:{password}")]
        self._root = settings.chroot or f"/metromq/{quote(city.name, safe='')}"
        self._client = KazooClient(
            ",".join(settings.servers), settings.session_timeout_ms / 1000, auth_data=auth, default_acl=self._acl
        )
        self._jobs: queue.Queue[Job | None] = queue.Queue()
        self._thread = threading.Thread(target=self._work, name="zookeeper", daemon=True)
        self._loop = asyncio.get_running_loop()
        self._seen = -1  # the last entry of the log that was read
        self._own_entries: list[tuple[float, str]] = []
        self._told_clients = -1
        self._kinds: set[str] = set()  # that have a znode
        self._stops = False

    # In the event loop.

    def start(self) -> None:
        self._thread.start()
        self._client.add_listener(self._state_changed)
        self._jobs.put(self._connect)

    def take_writes(self) -> None:
        """What the coordinator wants written, and how many clients are here."""
        facts = self._coordinator.writes()
        if facts:
            self._jobs.put(lambda: self._write_all(facts))
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

    def _watched(self, job: Job) -> Callable[[Any], None]:
        return lambda event: self._jobs.put(job)

    # In the thread.

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except PROBLEMS as problem:
                logs.warning("the ensemble did not answer; trying again", problem=repr(problem))
                if self._client.connected:
                    time.sleep(RETRY_S)
                    self._jobs.put(self._enter)
        try:
            self._client.stop()
            self._client.close()
        except PROBLEMS:
            pass

    def _connect(self) -> None:
        self._client.start_async()  # goes on trying for ever, and tells the listener

    def _enter(self) -> None:
        """A session is there, new or kept: be a member, watch, and read everything."""
        if not self._client.connected:
            return
        parent = self._root.rpartition("/")[0]
        if parent:
            self._client.ensure_path(parent, acl=OPEN_ACL_UNSAFE)  # other cities may have their own below it
        for part in ("members", "facts", "log"):
            self._client.ensure_path(f"{self._root}/{part}")
        self._be_member()
        self._read_members()
        self._seen = -1
        self._read_log()
        self._said(self._coordinator.connected)
        logs.info("the ensemble is there", servers=",".join(self._city.zookeeper.servers), path=self._root)

    def _be_member(self) -> None:
        path = f"{self._root}/members/{quote(self._host.name, safe='')}"
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
            self._client.set(f"{self._root}/members/{quote(self._host.name, safe='')}", str(clients).encode())
        except NoNodeError:
            self._be_member()

    def _read_members(self) -> None:
        names = self._client.get_children(f"{self._root}/members", watch=self._watched(self._read_members))
        found: dict[str, int] = {}
        for name in names:
            try:
                data, _ = self._client.get(f"{self._root}/members/{name}")
                found[unquote(name)] = int(data or b"0")
            except NoNodeError:
                continue  # it has just gone
        if self._host.name not in found:  # its session ended, and a new one has begun
            self._be_member()
            found[self._host.name] = self._coordinator.clients
        self._said(lambda now_us: self._coordinator.members(found, now_us))

    def _read_log(self) -> None:
        """New entries; or everything, at the start and when some are missed."""
        names = sorted(self._client.get_children(f"{self._root}/log", watch=self._watched(self._read_log)))
        numbers = {int(name.rpartition("-")[2]): name for name in names}
        fresh = [number for number in sorted(numbers) if number > self._seen]
        if self._seen < 0 or (fresh and fresh[0] > self._seen + 1):
            self._read_facts()
        else:
            self._read_entries(f"{self._root}/log/{numbers[number]}" for number in fresh)
        if fresh:
            self._seen = fresh[-1]
        elif self._seen < 0:
            self._seen = self._entries_so_far() - 1

    def _entries_so_far(self) -> int:
        _, stat = self._client.get(f"{self._root}/log")
        return (int(stat.cversion) + int(stat.numChildren)) // 2  # the one counts additions and deletions

    def _read_entries(self, paths: Iterable[str]) -> None:
        answers = [self._client.get_async(path) for path in paths]
        facts: list[Fact] = []
        for answer in answers:
            try:
                facts += [Fact(*row) for row in json.loads(answer.get()[0])]
            except NoNodeError:
                self._read_facts()
                return
        self._said(lambda now_us: self._coordinator.facts_said(tuple(facts), now_us))

    def _read_facts(self) -> None:
        paths = [
            f"{self._root}/facts/{kind}/{key}"
            for kind in self._client.get_children(f"{self._root}/facts")
            for key in self._client.get_children(f"{self._root}/facts/{kind}")
        ]
        facts: list[Fact] = []
        for start in range(0, len(paths), 1000):
            answers = [self._client.get_async(path) for path in paths[start : start + 1000]]
            facts += [Fact(*json.loads(answer.get()[0])) for answer in answers]
        self._said(lambda now_us: self._coordinator.facts_said(tuple(facts), now_us))

    # Writing.

    def _write_all(self, facts: tuple[Fact, ...]) -> None:
        for start in range(0, len(facts), BATCH):
            batch = facts[start : start + BATCH]
            try:
                if not self._write(batch, False):
                    for fact in batch:  # one of them is not new any more: each by itself
                        self._write((fact,), True)
            except PROBLEMS:
                self._coordinator_failed(facts[start:])
                raise
            self._said(lambda now_us, batch=batch: self._coordinator.written(batch, now_us))  # type: ignore[misc]
        self._prune()

    def _coordinator_failed(self, facts: tuple[Fact, ...]) -> None:
        def tell(now_us: int) -> list[Event]:
            self._coordinator.failed(facts)
            return []

        self._said(tell)

    def _write(self, facts: tuple[Fact, ...], looks: bool) -> bool:
        """In one transaction; whether the ensemble has taken them, or, of a single fact, knows a newer one.

        Without `looks`, a first fact with its key is taken for new; the transaction fails if it is not.
        """
        paths = [f"{self._root}/facts/{fact.kind}/{quote(fact.key, safe='')}" for fact in facts]
        for kind in {fact.kind for fact in facts} - self._kinds:
            self._client.ensure_path(f"{self._root}/facts/{kind}")
            self._kinds.add(kind)
        answers = [
            self._client.get_async(path) if looks or fact.epoch > 0 else None
            for fact, path in zip(facts, paths, strict=True)
        ]
        stored = [self._stored(answer) if answer is not None else (None, -1) for answer in answers]
        new = [
            (fact, path, version)
            for fact, path, (known, version) in zip(facts, paths, stored, strict=True)
            if known is None or fact.version > known.version
        ]
        if not new:
            return True
        parts = self._client.transaction()
        for fact, path, version in new:
            data = _packed(fact)
            if version < 0:
                parts.create(path, data, acl=self._acl)
            else:
                parts.set_data(path, data, version)
        entry = json.dumps([_row(fact) for fact, _, _ in new]).encode()
        parts.create(self._root + LOG, entry, acl=self._acl, sequence=True)
        results = parts.commit()
        problems = [result for result in results if isinstance(result, Exception)]
        if problems:
            if any(isinstance(one, BadVersionError | NodeExistsError) for one in problems):
                return False
            raise problems[0]
        self._own_entries.append((time.monotonic(), results[-1]))
        return True

    def _stored(self, answer: Any) -> tuple[Fact | None, int]:
        try:
            data, stat = answer.get()
        except NoNodeError:
            return None, -1
        return Fact(*json.loads(data)), int(stat.version)

    def _prune(self) -> None:
        while self._own_entries and time.monotonic() - self._own_entries[0][0] > KEEP_LOG_S:
            try:
                self._client.delete(self._own_entries.pop(0)[1])
            except NoNodeError:
                continue


def _row(fact: Fact) -> list[str | int]:
    return [fact.kind, fact.key, fact.owner, fact.epoch, fact.value]


def _packed(fact: Fact) -> bytes:
    return json.dumps(_row(fact)).encode()


def _password(city: City) -> str:
    settings = city.zookeeper
    if settings.password_file is not None:
        return settings.password_file.read_text(encoding="utf-8").strip()
    return settings.password or ""
