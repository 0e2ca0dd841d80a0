"""A coordination worker on an ensemble: takes brokers' requests, writes answers; the first of the workers leads them.

Its decisions are those of `metromq.federation.routing.Worker`. An answer is one transaction: the facts, the entry of
the log, the responses, and the end of the requests. It also changes the znode of each topic that it is about, in the
version that this worker has seen, so that of two workers which decide about a topic at once the later one decides
again. What a dead worker has not answered the leader moves to the others.
"""

import json
import queue
from collections.abc import Callable, Iterable
from typing import Any, Final, final

from kazoo.client import KazooState
from kazoo.exceptions import BadVersionError, NoNodeError

from metromq.broker import logs
from metromq.broker.peers.worker_requests import BROKERS, ELECTION, REQUESTS, RESPONSES, WORKERS, workers_there
from metromq.broker.peers.znodes import RETRY_S, FactStore, Job, Servers, packed, pause, quoted, row, unquoted
from metromq.federation import City
from metromq.federation.coordination import Fact
from metromq.federation.routing import Request, Worker, assigned, split_key, topics_of

# A transaction may have a megabyte, and the more is answered in one, the less each answer waits for disks. What an
# answer takes is estimated, generously, from the request: its own bytes, several times, and so much beside.
MOST_BYTES: Final = 500_000
REQUEST_BYTES: Final = 300
ASK_BYTES: Final = 600


@final
class CoordinationWorker:
    """`run` works until another thread calls `stop`; kazoo's own threads only put jobs into the queue."""

    def __init__(self, city: City, name: str, ready: Callable[[], None] = lambda: None) -> None:
        self.city, self.name = city, name
        self._ready = ready
        self._servers = Servers(city)
        self._client = self._servers.client
        self._jobs: queue.Queue[Job | None] = queue.Queue()
        self._store = FactStore(self._servers, self._watched, reads_own=False)
        self._worker = Worker(city)
        self._versions: dict[str, int] = {}  # of topics' znodes, as far as they are known
        self._candidates: tuple[str, ...] = ()  # names of workers that are there, the leader first
        self.answered = 0  # asks

    @property
    def leads(self) -> bool:
        return self._candidates[:1] == (self.name,)

    def run(self) -> None:
        self._client.add_listener(self._state_changed)
        self._jobs.put(self._connect)
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception as problem:  # kazoo has some of its own; if this thread ended nobody would try again
                logs.warning("the ensemble did not answer; trying again", problem=repr(problem))
                if self._client.connected:
                    pause(RETRY_S)
                    self._jobs.put(self._enter)
        self._servers.close()

    def stop(self) -> None:
        self._jobs.put(None)

    def _state_changed(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._jobs.put(self._enter)
        else:
            logs.warning("the ensemble is away", state=state)
            if state == KazooState.LOST:
                self._jobs.put(self._connect)

    def _watched(self, job: Job) -> Callable[[Any], None]:
        return lambda event: self._jobs.put(job)

    def _connect(self) -> None:
        """Goes on trying for ever; the listener hears of it."""
        if not self._servers.connect():
            self._jobs.put(self._connect)

    # Being there.

    def _enter(self) -> None:
        """A session is there, new or kept: stand for election, and read everything."""
        if not self._client.connected:
            return
        self._servers.make_room(ELECTION, BROKERS, f"{WORKERS}/{quoted(self.name)}/{REQUESTS}")
        self._stand()
        self._store.forget()
        self._worker = Worker(self.city)
        self._versions.clear()
        self._read_log()
        self._read_members()
        self._read_candidates()
        self._read_requests()
        logs.info("the worker works", servers=",".join(self.city.zookeeper.servers), path=self._servers.root)
        self._ready()

    def _stand(self) -> None:
        place = self._servers.path(ELECTION)
        for name in self._client.get_children(place):
            stat = self._client.exists(f"{place}/{name}")
            if stat is not None and stat.ephemeralOwner == self._client.client_id[0]:
                return
        self._client.create(f"{place}/n-", self.name.encode(), ephemeral=True, sequence=True)

    def _read_log(self) -> None:
        self._worker.facts_said(self._store.news(self._read_log))

    def _read_members(self) -> None:
        names = self._client.get_children(self._servers.path("members"), watch=self._watched(self._read_members))
        self._worker.living(map(unquoted, names))

    def _read_candidates(self) -> None:
        self._candidates = workers_there(self._servers, self._watched(self._read_candidates))
        if self.leads:
            self._lead()

    # Leading.

    def _lead(self) -> None:
        """A worker for each broker, and what dead ones have left undone for the living."""
        if not self.leads:
            return
        place = self._servers.path(BROKERS)
        brokers = self._client.get_children(place, watch=self._watched(self._lead))
        now: dict[str, tuple[str, int]] = {}
        for name in brokers:
            data, stat = self._client.get(f"{place}/{name}")
            now[unquoted(name)] = data.decode(), stat.version
        wanted = assigned(self._candidates, now, {broker: worker for broker, (worker, _) in now.items()})
        for broker, worker in wanted.items():
            if now[broker][0] != worker:
                try:
                    self._client.set(f"{place}/{quoted(broker)}", worker.encode(), version=now[broker][1])
                except BadVersionError:  # another leader was faster, and this one will hear of it
                    return
        for name in self._client.get_children(self._servers.path(WORKERS)):
            if unquoted(name) not in self._candidates:
                self._move(name, wanted)

    def _move(self, dead: str, wanted: dict[str, str]) -> None:
        """Its requests get another worker; those that brokers add until they know follow by the watch."""
        place = self._servers.path(WORKERS, dead, REQUESTS)
        try:
            names = sorted(self._client.get_children(place, watch=self._watched(self._lead)))
        except NoNodeError:
            return
        for name in names:
            try:
                data, _ = self._client.get(f"{place}/{name}")
            except NoNodeError:
                continue
            worker = wanted.get(json.loads(data)[0], self.name)
            parts = self._client.transaction()
            to = self._servers.path(WORKERS, quoted(worker), REQUESTS, "r-")
            parts.create(to, data, acl=self._servers.acl, sequence=True)
            parts.delete(f"{place}/{name}")
            self._store.commit(parts)

    # Answering.

    def _read_requests(self) -> None:
        place = self._servers.path(WORKERS, quoted(self.name), REQUESTS)
        names = sorted(self._client.get_children(place, watch=self._watched(self._read_requests)))
        answers = [(f"{place}/{name}", self._client.get_async(f"{place}/{name}")) for name in names]
        batch: dict[str, Request] = {}
        weight = 0
        for path, answer in answers:
            try:
                data = answer.get()[0]
            except NoNodeError:
                continue
            batch[path] = _request(data)
            weight += REQUEST_BYTES + 8 * len(data) + ASK_BYTES * len(batch[path].asks)
            if weight >= MOST_BYTES:
                self._answer(batch)
                batch, weight = {}, 0
        if batch:
            self._answer(batch)
        self._store.prune()

    def _answer(self, batch: dict[str, Request]) -> None:
        """All at once if nobody else writes about the same topics; otherwise one after the other, while needed."""
        if self._try(batch):
            return
        for path, request in batch.items():
            while self._client.exists(path) is not None and not self._try({path: request}):
                continue

    def _try(self, batch: dict[str, Request]) -> bool:
        facts = self._worker.answer(batch.values())
        topics = topics_of(facts)
        stored = self._store.stored(facts)
        parts = self._store.transaction(facts)
        for topic in topics:
            self._touch(parts, topic)
        for fact, (_, version) in zip(facts, stored, strict=True):
            self._store.put(parts, fact, self._store.place(fact)[1], version)
        rows: dict[str, list[list[str | int]]] = {}
        for fact in facts:
            rows.setdefault(split_key(fact.key)[0], []).append(row(fact))
        numbers: dict[str, list[str]] = {}
        for path, request in batch.items():
            numbers.setdefault(request.broker, []).append(request.number)
            parts.delete(path)
        for broker, own in numbers.items():  # one response to each, however many requests it answers
            response = self._servers.path(BROKERS, quoted(broker), RESPONSES, own[0])
            parts.create(response, packed([own, rows.get(broker, [])]), acl=self._servers.acl)
        if not self._store.commit(parts):
            self._look_again(topics)
            return False
        for topic in topics:
            self._versions[topic] = self._versions.get(topic, -1) + 1
        self._worker.facts_said(facts)
        self.answered += sum(len(request.asks) for request in batch.values())
        return True

    def _touch(self, parts: Any, topic: str) -> None:
        path = self._servers.path("Topics", quoted(topic))
        version = self._versions.get(topic)
        if version is None:
            parts.create(path, b"", acl=self._servers.acl)
        else:
            parts.set_data(path, b"", version)

    def _look_again(self, topics: Iterable[str]) -> None:
        """First the versions, then what was said until then: what is said later changes the versions, too."""
        asked = [(topic, self._client.exists_async(self._servers.path("Topics", quoted(topic)))) for topic in topics]
        for topic, answer in asked:
            stat = answer.get()
            if stat is None:
                self._versions.pop(topic, None)
            else:
                self._versions[topic] = stat.version
        self._read_log()


def _request(data: bytes) -> Request:
    broker, number, asks = json.loads(data)
    return Request(broker, number, tuple(Fact(*one) for one in asks))
