"""How a broker asks its coordination worker, through znodes: a request there, an answer here; it waits for the servers.

Requests and answers outlive sessions, workers and brokers: a request stays until a worker has answered it.
"""

import json
import uuid
from collections.abc import Callable
from typing import Any, Final, final

from kazoo.exceptions import NoNodeError

from metromq.broker.peers.znodes import Servers, Watched, packed, quoted, row
from metromq.federation.coordination import Fact

BROKERS: Final = "PublishSubscribeBrokers"
RESPONSES: Final = "CoordinatorResponses"
WORKERS: Final = "CoordWorkers"
REQUESTS: Final = "BrokerRequests"
ELECTION: Final = "Election"
ASKS_AT_ONCE: Final = 200

Answered = Callable[[tuple[Fact, ...], tuple[Fact, ...]], None]
Assigned = Callable[[str, tuple[str, ...]], None]


def workers_there(servers: Servers, watch: Callable[[Any], None]) -> tuple[str, ...]:
    """Names of the workers that have a session; the first one leads them."""
    place = servers.path(ELECTION)
    answers = [
        servers.client.get_async(f"{place}/{name}") for name in sorted(servers.client.get_children(place, watch=watch))
    ]
    found: list[str] = []
    for answer in answers:
        try:
            found.append(answer.get()[0].decode())
        except NoNodeError:
            continue  # it has just gone
    return tuple(found)


@final
class WorkerRequests:
    """`answered` gets what was asked, and the facts that answer it; `assigned` who decides, and all workers."""

    def __init__(
        self, name: str, servers: Servers, watched: Watched, answered: Answered, assigned: Assigned | None = None
    ) -> None:
        self._name, self._servers, self._watched, self._answered = name, servers, watched, answered
        self._assigned = assigned
        self._workers: tuple[str, ...] = ()
        self._client = servers.client
        self._worker = ""
        self._open: dict[str, tuple[Fact, ...]] = {}  # by the number of the request

    def enter(self) -> None:
        self._servers.make_room(ELECTION, WORKERS, f"{BROKERS}/{quoted(self._name)}/{RESPONSES}")
        self._read_workers()
        self._read_worker()
        self._read_answers()

    def ask(self, asks: tuple[Fact, ...], at_once: int = ASKS_AT_ONCE) -> bool:
        """In requests of so many. False: this broker has no worker yet."""
        if not self._worker:
            return False
        place = self._servers.path(WORKERS, quoted(self._worker), REQUESTS, "r-")
        under_way = []
        for start in range(0, len(asks), at_once):
            some = asks[start : start + at_once]
            number = uuid.uuid4().hex
            self._open[number] = some
            data = packed([self._name, number, [row(ask) for ask in some]])
            under_way.append(self._client.create_async(place, data, acl=self._servers.acl, sequence=True))
        for answer in under_way:
            answer.get()
        return True

    def _read_worker(self) -> None:
        path = self._servers.path(BROKERS, quoted(self._name))
        data, _ = self._client.get(path, watch=self._watched(self._read_worker))
        self._worker = data.decode()
        self._tell()

    def _read_workers(self) -> None:
        """Only to say who is there: requests to one that is not are moved by the others."""
        self._workers = workers_there(self._servers, self._watched(self._read_workers))
        self._tell()

    def _tell(self) -> None:
        if self._assigned is not None:
            self._assigned(self._worker, self._workers)

    def _read_answers(self) -> None:
        place = self._servers.path(BROKERS, quoted(self._name), RESPONSES)
        names = self._client.get_children(place, watch=self._watched(self._read_answers))
        answers = [(name, self._client.get_async(f"{place}/{name}")) for name in names]
        read = [(name, answer.get()[0]) for name, answer in answers]
        for name, _ in read:
            self._client.delete_async(f"{place}/{name}")
        for _, data in read:
            numbers, facts = json.loads(data)
            asks = [ask for number in numbers for ask in self._open.pop(number, ())]  # others are of an earlier life
            self._answered(tuple(asks), tuple(Fact(*one) for one in facts))
