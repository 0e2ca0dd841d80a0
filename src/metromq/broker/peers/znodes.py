"""A city's facts on the znodes of an ensemble, read and written with kazoo; everything here waits for the servers.

Below the city's chroot:

    members/NAME                      ephemeral: the broker has a session; the number of its clients
    facts/KIND/KEY                    a fact as JSON; KEY is quoted, since keys have slashes
    Topics/TOPIC/KIND:BROKER          a fact about a broker and a topic
    log/c-0000000007                  facts that were written together, for those that watch

With coordination workers (worker.py), also:

    Election/n-0000000003             ephemeral: a worker is there; the first one leads
    CoordWorkers/WORKER/BrokerRequests/r-0000000012
    PublishSubscribeBrokers/BROKER    the name of its worker
    PublishSubscribeBrokers/BROKER/CoordinatorResponses/NUMBER

A batch of facts is written in one transaction, which checks that each replaces what its writer knew, and adds an entry
to the log. Brokers watch only the list of entries, so a change costs each of them two reads, however many facts there
are. Writers delete their entries after a while; a broker that finds that it has missed some reads all facts again.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, final
from urllib.parse import quote, unquote

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import AsyncResult, KazooTimeoutError, SequentialThreadingHandler
from kazoo.security import ACL, OPEN_ACL_UNSAFE, make_digest_acl

from metromq.broker import logs
from metromq.errors import ConfigError
from metromq.federation import City
from metromq.federation.coordination import CLUSTER, PUBLISHER, SUBSCRIBER, WANTED, Fact

BATCH: Final = 200  # facts in a transaction; a transaction may have a megabyte
AT_ONCE: Final = 1000  # reads
KEEP_LOG_S: Final = 60.0
# Between two tries to reach servers, at most. Kazoo's own hour is longer than others wait for a broker that is missed.
RETRY_S: Final = 1.0
ANSWER_S: Final = 60.0  # so long a server never takes
ABOUT_TOPICS: Final = frozenset((CLUSTER, PUBLISHER, SUBSCRIBER, WANTED))
PROBLEMS: Final = (KazooException, KazooTimeoutError, OSError)

Job = Callable[[], None]
Watched = Callable[[Job], Callable[[Any], None]]


# Each try that fails would be a line of its own; that the ensemble is away is said once.
_LOG: Final = logging.getLogger("metromq.kazoo")
_LOG.setLevel(logging.ERROR)


def pause(seconds: float) -> None:
    """Not by `time.sleep`, which fails where libfaketime has set the clock wrong."""
    threading.Event().wait(seconds)


class _Answer(AsyncResult):  # type: ignore[misc]
    """Kazoo forgets what is asked in the very moment in which it finds that the session has expired."""

    def get(self, block: bool = True, timeout: float | None = ANSWER_S) -> Any:
        return super().get(block, timeout)


class _Threads(SequentialThreadingHandler):  # type: ignore[misc]
    sleep_func = staticmethod(pause)

    def async_result(self) -> _Answer:
        return _Answer(self)


def quoted(name: str) -> str:
    return quote(name, safe="")


def unquoted(name: str) -> str:
    return unquote(name)


@final
class Servers:
    """The servers, as the city's file names them: how to reach them, and below which znode the city is."""

    def __init__(self, city: City) -> None:
        settings = city.zookeeper
        if not settings.servers:
            raise ConfigError(
                "zookeeper.servers",
                "names no server; `metromq up` starts an ensemble, but a broker by itself needs the addresses of one",
            )
        self.acl: list[ACL] | None = None
        auth = None
        password = _password(city)
        if settings.user and password:
            self.acl = [make_digest_acl(settings.user, password, all=True)]
            auth = [("digest", f"{settings.user}:{password}")]
        self.root = settings.chroot or f"/metromq/{quoted(city.name)}"
        self.client = KazooClient(
            ",".join(settings.servers),
            settings.session_timeout_ms / 1000,
            handler=_Threads(),
            auth_data=auth,
            default_acl=self.acl,
            logger=_LOG,
            connection_retry={"max_tries": -1, "max_delay": RETRY_S, "max_jitter": 0.5, "sleep_func": pause},
        )

    def connect(self) -> bool:
        """Waits a moment for one. Kazoo tries for ever, unless the password is wrong or its thread has died."""
        try:
            thread = self.client._connection._connection_routine
            if thread is None or not thread.is_alive():
                self.client.start_async().wait(RETRY_S)
            elif not self.client.connected:
                pause(RETRY_S / 5)
        except PROBLEMS as problem:
            logs.warning("the ensemble cannot be reached", problem=repr(problem))
            pause(RETRY_S)
        return bool(self.client.connected)

    def path(self, *names: str) -> str:
        return "/".join((self.root, *names))

    def make_room(self, *parts: str) -> None:
        parent = self.root.rpartition("/")[0]
        if parent:
            self.client.ensure_path(parent, acl=OPEN_ACL_UNSAFE)  # other cities may have their own below it
        for part in ("members", "facts", "Topics", "log", *parts):
            self.client.ensure_path(self.path(part))

    def close(self) -> None:
        try:
            self.client.stop()
            self.client.close()
        except PROBLEMS:
            pass


def row(fact: Fact) -> list[str | int]:
    return [fact.kind, fact.key, fact.owner, fact.epoch, fact.value]


def packed(rows: object) -> bytes:
    return json.dumps(rows).encode()


@final
class FactStore:
    """Facts on znodes. `watched` makes of a job a watch that has it done later.

    Without `reads_own` the news leave out what was written here.
    """

    def __init__(self, servers: Servers, watched: Watched, reads_own: bool = True) -> None:
        self._servers, self._client, self._watched = servers, servers.client, watched
        self._seen = -1  # the last entry of the log that was read
        self._own_entries: list[tuple[float, str]] = []
        self._reads_own = reads_own
        self._known: set[str] = set()  # znodes that are there: of kinds and topics

    def forget(self) -> None:
        """The next news are everything."""
        self._seen = -1
        self._known.clear()

    # Reading.

    def news(self, job: Job) -> tuple[Fact, ...]:
        """What new entries say; or everything, at the start and when some are missed. `job` hears of the next."""
        names = sorted(self._client.get_children(self._servers.path("log"), watch=self._watched(job)))
        numbers = {int(name.rpartition("-")[2]): name for name in names}
        fresh = [number for number in sorted(numbers) if number > self._seen]
        if self._seen < 0 or (fresh and fresh[0] > self._seen + 1):
            facts = self._all()
        else:
            own = set() if self._reads_own else {path for _, path in self._own_entries}
            paths = [self._servers.path("log", numbers[number]) for number in fresh]
            facts = self._entries([path for path in paths if path not in own])
        if fresh:
            self._seen = fresh[-1]
        elif self._seen < 0:
            self._seen = self._entries_so_far() - 1
        return facts

    def _entries_so_far(self) -> int:
        _, stat = self._client.get(self._servers.path("log"))
        return (int(stat.cversion) + int(stat.numChildren)) // 2  # the one counts additions and deletions

    def _entries(self, paths: list[str]) -> tuple[Fact, ...]:
        try:
            return tuple(Fact(*one) for data in self._read(paths) for one in json.loads(data))
        except NoNodeError:
            return self._all()

    def _all(self) -> tuple[Fact, ...]:
        parents = [self._servers.path("facts", kind) for kind in self._children("facts")]
        parents += [self._servers.path("Topics", topic) for topic in self._children("Topics")]
        paths: list[str] = []
        for start in range(0, len(parents), AT_ONCE):
            some = parents[start : start + AT_ONCE]
            answers = [self._client.get_children_async(parent) for parent in some]
            paths += [f"{parent}/{name}" for parent, answer in zip(some, answers, strict=True) for name in answer.get()]
        self._known.update(parents)
        return tuple(Fact(*json.loads(data)) for data in self._read(paths))

    def _children(self, part: str) -> list[str]:
        return list(self._client.get_children(self._servers.path(part)))

    def _read(self, paths: list[str]) -> Iterable[bytes]:
        for start in range(0, len(paths), AT_ONCE):
            answers = [self._client.get_async(path) for path in paths[start : start + AT_ONCE]]
            for answer in answers:
                yield answer.get()[0]

    # Writing.

    def place(self, fact: Fact) -> tuple[str, str]:
        """The znode of a fact, and the one above it."""
        if fact.kind in ABOUT_TOPICS:
            broker, _, topic = fact.key.partition("/")
            parent = self._servers.path("Topics", quoted(topic))
            return parent, f"{parent}/{fact.kind}:{quoted(broker)}"
        parent = self._servers.path("facts", fact.kind)
        return parent, f"{parent}/{quoted(fact.key)}"

    def write(self, facts: tuple[Fact, ...], looks: bool) -> bool:
        """In one transaction; whether the ensemble has taken them, or, of a single fact, knows a newer one.

        Without `looks`, a first fact with its key is taken for new; the transaction fails if it is not.
        """
        places = [self.place(fact) for fact in facts]
        self._make_parents({parent for parent, _ in places})
        stored = self.stored(facts, looks)
        new = [
            (fact, path, version)
            for fact, (_, path), (known, version) in zip(facts, places, stored, strict=True)
            if known is None or fact.version > known.version
        ]
        if not new:
            return True
        parts = self.transaction(tuple(fact for fact, _, _ in new))
        for fact, path, version in new:
            self.put(parts, fact, path, version)
        return self.commit(parts)

    def stored(self, facts: tuple[Fact, ...], looks: bool = False) -> list[tuple[Fact | None, int]]:
        """What the ensemble has in the place of each, and the version of its znode; first facts are not looked up."""
        answers = [self._client.get_async(self.place(fact)[1]) if looks or fact.epoch > 0 else None for fact in facts]
        return [_stored(answer) if answer is not None else (None, -1) for answer in answers]

    def put(self, parts: Any, fact: Fact, path: str, version: int) -> None:
        data = packed(row(fact))
        if version < 0:
            parts.create(path, data, acl=self._servers.acl)
        else:
            parts.set_data(path, data, version)

    def transaction(self, facts: tuple[Fact, ...]) -> Any:
        """Begins with the entry of the log by which everybody that watches hears of the facts."""
        parts = self._client.transaction()
        if facts:
            entry = packed([row(fact) for fact in facts])
            parts.create(self._servers.path("log", "c-"), entry, acl=self._servers.acl, sequence=True)
        return parts

    def commit(self, parts: Any) -> bool:
        """False: somebody else was faster."""
        results = parts.commit()
        problems = [result for result in results if isinstance(result, Exception)]
        if problems:
            if any(isinstance(one, BadVersionError | NodeExistsError | NoNodeError) for one in problems):
                return False
            raise problems[0]
        if results and str(results[0]).startswith(self._servers.path("log")):
            self._own_entries.append((time.monotonic(), results[0]))
        return True

    def _make_parents(self, parents: set[str]) -> None:
        missing = sorted(parents - self._known)
        answers = [self._client.create_async(parent, b"", acl=self._servers.acl) for parent in missing]
        for answer in answers:
            try:
                answer.get()
            except NodeExistsError:
                continue
        self._known.update(missing)

    def prune(self) -> None:
        while self._own_entries and time.monotonic() - self._own_entries[0][0] > KEEP_LOG_S:
            try:
                self._client.delete(self._own_entries.pop(0)[1])
            except NoNodeError:
                continue


def _stored(answer: Any) -> tuple[Fact | None, int]:
    try:
        data, stat = answer.get()
    except NoNodeError:
        return None, -1
    return Fact(*json.loads(data)), int(stat.version)


def _password(city: City) -> str:
    settings = city.zookeeper
    if settings.password_file is not None:
        return settings.password_file.read_text(encoding="utf-8").strip()
    return settings.password or ""
