"""Coordination workers on the simulated ensemble: the product's own decisions, with workers that die and come back."""

from typing import Final, final

from metromq.federation import City
from metromq.federation.coordination import Fact
from metromq.federation.routing import Request, Worker, assigned, topics_of
from metromq.lab.sim.ensemble import SimEnsemble

WORK_S: Final = 0.02  # between looks at the requests
DECIDE_S: Final = 0.004  # from a look to the transaction


@final
class SimWorkers:
    """Requests wait in the ensemble, whatever becomes of workers and brokers."""

    def __init__(self, city: City, ensemble: SimEnsemble) -> None:
        self._city, self._ensemble = city, ensemble
        self.names = tuple(f"w{number}" for number in range(city.overlay.workers))
        self._running: dict[str, _Working] = {}
        self._sessions: set[str] = set()  # workers that the leader takes for alive
        self._assigned: dict[str, str] = {}
        self._requests: dict[str, dict[str, Request]] = {name: {} for name in self.names}
        self._versions: dict[str, int] = {}  # of topics
        self.answered = 0
        self.conflicts = 0
        for name in self.names:
            self.start(name)

    # Faults.

    def kill(self, name: str) -> None:
        if self._running.pop(name, None) is not None:
            self._ensemble.clock.after(self._ensemble.timeout_s, lambda: self._expire(name))

    def start(self, name: str) -> None:
        if name not in self._running:
            self._running[name] = _Working(self._city)
            self._sessions.add(name)
            self._lead()
            self._work(name, self._running[name])

    def _expire(self, name: str) -> None:
        if name not in self._running:
            self._sessions.discard(name)
            self._lead()

    def _lead(self) -> None:
        """Who leads makes no difference: each would do the same."""
        self._assigned = assigned(sorted(self._sessions), self._city.names, self._assigned)
        for dead in self.names:
            if dead not in self._sessions and self._assigned:
                for request in self._requests[dead].values():
                    self._requests[self._assigned[request.broker]][request.number] = request
                self._requests[dead].clear()

    # Work.

    def worker_of(self, broker: str) -> str:
        return self._assigned.get(broker, "")

    def ask(self, worker: str, request: Request) -> None:
        self._requests[worker][request.number] = request
        if worker not in self._sessions:
            self._lead()

    def is_quiet(self) -> bool:
        return not any(self._requests.values())

    def _work(self, name: str, working: "_Working") -> None:
        if self._running.get(name) is not working:
            return
        batch = tuple(self._requests[name].values())
        if not batch or self._ensemble.is_away:
            self._ensemble.clock.after(WORK_S, lambda: self._work(name, working))
            return
        working.read(self._ensemble)
        versions = dict(self._versions)
        facts = working.worker.answer(batch)

        def commit() -> None:
            touched = topics_of(facts)
            is_fresh = all(versions.get(topic) == self._versions.get(topic) for topic in touched)
            self.conflicts += not is_fresh
            still_there = all(request.number in self._requests[name] for request in batch)
            lives = self._running.get(name) is working and not self._ensemble.is_away
            if is_fresh and still_there and lives:
                self._commit(name, batch, facts, touched)
            self._ensemble.clock.after(WORK_S, lambda: self._work(name, working))

        self._ensemble.clock.after(DECIDE_S, commit)

    def _commit(self, name: str, batch: tuple[Request, ...], facts: tuple[Fact, ...], touched: tuple[str, ...]) -> None:
        for topic in touched:
            self._versions[topic] = self._versions.get(topic, -1) + 1
        self._ensemble.write(facts)
        for request in batch:
            del self._requests[name][request.number]
            self.answered += len(request.asks)
            shim = self._ensemble.shims.get(request.broker)
            if shim is not None:
                shim.watched(lambda shim=shim, number=request.number: shim.answered(number))  # type: ignore[misc]


@final
class _Working:
    """One life of a worker."""

    def __init__(self, city: City) -> None:
        self.worker = Worker(city)
        self._seen = 0  # so much of the log

    def read(self, ensemble: SimEnsemble) -> None:
        seen = len(ensemble.log)
        self.worker.facts_said(ensemble.log[self._seen : seen])
        self._seen = seen
        self.worker.living(ensemble.members())
