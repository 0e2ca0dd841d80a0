"""A simulated ZooKeeper ensemble: one truth, sessions that expire, watches that come late, servers that are away.

It is what clients see of an ensemble, not its servers. A broker's shim here does what kazoo's does in the live broker:
it keeps a session alive, reads what has changed when a watch tells it to, writes, and tells the coordinator.
"""

from collections.abc import Callable
from typing import Final, Protocol, final

from metromq.federation import City
from metromq.federation.coordination import REQUEST, WANTED, Event, Fact, ZooKeeperCoordinator
from metromq.federation.host import Host
from metromq.federation.routing import Request
from metromq.lab.sim.clock import VirtualClock

ANSWER_S: Final = 0.002  # each way
PING_S: Final = 0.2


class Client(Protocol):
    """The process that a shim is part of: its name, and how to do something in its turn."""

    name: str

    @property
    def is_awake(self) -> bool: ...

    def run(self, action: Callable[[], None]) -> None: ...


class Asked(Protocol):
    """Who answers requests about topics."""

    def worker_of(self, broker: str) -> str: ...

    def ask(self, worker: str, request: Request) -> None: ...


@final
class SimEnsemble:
    def __init__(self, city: City, clock: VirtualClock) -> None:
        self.clock = clock
        self.timeout_s = city.zookeeper.session_timeout_ms / 1000
        self.facts: dict[tuple[str, str], Fact] = {}
        self.log: list[Fact] = []
        self.is_away = False
        self.unreached: set[str] = set()  # brokers whose way here is cut
        self.lags_s: dict[str, float] = {}  # how much later watches tell a broker
        self.shims: dict[str, SimShim] = {}
        self.asked: Asked | None = None
        self._heard: dict[int, float] = {}  # sessions, and when their brokers were heard last
        self._number = 0
        clock.after(PING_S, self._look)

    # Faults.

    def leave(self) -> None:
        self.is_away = True

    def come_back(self) -> None:
        """Sessions have their whole time again, as after the election of a leader."""
        self.is_away = False
        self._heard = dict.fromkeys(self._heard, self.clock.now)

    def expire(self, broker: str) -> None:
        shim = self.shims.get(broker)
        if shim is not None and self._heard.pop(shim.session, None) is not None:
            self.members_changed()

    def heal(self) -> None:
        self.unreached.clear()
        self.lags_s.clear()
        self.come_back()

    # Sessions.

    def reaches(self, broker: str) -> bool:
        return not self.is_away and broker not in self.unreached

    def open_session(self) -> int:
        self._number += 1
        self._heard[self._number] = self.clock.now
        return self._number

    def is_valid(self, session: int) -> bool:
        return session in self._heard

    def heard(self, session: int) -> None:
        if session in self._heard:
            self._heard[session] = self.clock.now

    def _look(self) -> None:
        if not self.is_away:
            ended = [one for one, at in self._heard.items() if self.clock.now - at > self.timeout_s]
            for session in ended:
                del self._heard[session]
            if ended:
                self.members_changed()
        self.clock.after(PING_S, self._look)

    def members(self) -> dict[str, int]:
        return {name: shim.clients for name, shim in self.shims.items() if self.is_valid(shim.session)}

    def members_changed(self) -> None:
        for shim in self.shims.values():
            shim.watched(shim.read_members)

    # Facts.

    def write(self, facts: tuple[Fact, ...]) -> None:
        new = []
        for fact in facts:
            known = self.facts.get((fact.kind, fact.key))
            if known is None or fact.version > known.version:
                self.facts[fact.kind, fact.key] = fact
                new.append(fact)
        if new:
            self.log += new
            for shim in self.shims.values():
                shim.watched(shim.read_log)

    def is_quiet(self) -> bool:
        """Whether everybody that runs has said and heard everything."""
        return all(shim.is_quiet() for shim in self.shims.values() if shim.client.is_awake)


@final
class SimShim:
    """One life of a broker; `ends` when the next one begins."""

    def __init__(self, ensemble: SimEnsemble, client: Client, host: Host) -> None:
        coordinator = host.node.coordinator
        assert isinstance(coordinator, ZooKeeperCoordinator)
        self._ensemble, self._host, self.client, self._coordinator = ensemble, host, client, coordinator
        self.session = 0
        self.clients = 0
        self._seen = 0  # so much of the log
        self._is_connected = False
        self._requests = 0
        self._asks: dict[str, tuple[Fact, ...]] = {}

    def start(self) -> None:
        before = self._ensemble.shims.get(self.client.name)
        self._ensemble.shims[self.client.name] = self  # the member's znode of an earlier life is replaced
        if before is not None:
            self._requests = before._requests
        self._ping()

    def take_writes(self) -> None:
        self.clients = self._coordinator.clients
        writes = self._coordinator.writes()
        facts = tuple(fact for fact in writes if fact.kind != REQUEST)
        asks = tuple(fact for fact in writes if fact.kind == REQUEST)
        if facts:
            self._later(lambda: self._arrive(facts))
        if asks:
            self._later(lambda: self._ask(asks))

    def answered(self, number: str) -> None:
        """A worker has; its facts are in the log."""
        asks = self._asks.pop(number, ())
        if asks:
            self._tell(lambda now_us: self._coordinator.written(asks, now_us))

    def is_quiet(self) -> bool:
        log = self._ensemble.log
        return self._is_connected and self._seen == len(log) and not self._coordinator.waits

    # The session.

    @property
    def _is_current(self) -> bool:
        return self._ensemble.shims.get(self.client.name) is self

    def _ping(self) -> None:
        if not self._is_current:
            return
        if self.client.is_awake:
            self.client.run(self._beat)
        self._ensemble.clock.after(PING_S, self._ping)

    def _beat(self) -> None:
        ensemble = self._ensemble
        if not ensemble.reaches(self.client.name):
            self._lose()
            return
        if not ensemble.is_valid(self.session):
            self._lose()
            self.session = ensemble.open_session()
            ensemble.members_changed()
        ensemble.heard(self.session)
        if not self._is_connected:
            self._enter()

    def _lose(self) -> None:
        if self._is_connected:
            self._is_connected = False
            self._tell(self._coordinator.lost)

    def _enter(self) -> None:
        self._is_connected = True
        self.read_members()
        self._seen = 0
        self.read_log()
        self._tell(self._coordinator.connected)

    def _tell(self, tell: Callable[[int], list[Event]]) -> None:
        now_us = int(self._host.hub.clock.now * 1_000_000)
        self._host.run(self._host.node.coordinated(tell(now_us), now_us))

    # Watches.

    def watched(self, read: Callable[[], None]) -> None:
        """Something has changed: this broker hears of it after a while, and reads."""
        lag_s = self._ensemble.lags_s.get(self.client.name, 0.0)
        self._ensemble.clock.after(lag_s + 2 * ANSWER_S, lambda: self._turn(read))

    def _turn(self, action: Callable[[], None]) -> None:
        if self._is_current:
            self.client.run(lambda: self._act(action))

    def _act(self, action: Callable[[], None]) -> None:
        if not (self._is_current and self._is_connected and self._ensemble.is_valid(self.session)):
            return  # who enters reads everything
        if self._ensemble.reaches(self.client.name):
            action()
        else:  # if the way is back before anybody saw that it was cut, it comes after all
            self._ensemble.clock.after(PING_S, lambda: self._turn(action))

    def read_members(self) -> None:
        members = self._ensemble.members()
        self._tell(lambda now_us: self._coordinator.members(members, now_us))

    def read_log(self) -> None:
        facts = tuple(fact for fact in self._ensemble.log[self._seen :] if fact.kind != WANTED)
        self._seen = len(self._ensemble.log)
        if facts:
            self._tell(lambda now_us: self._coordinator.facts_said(facts, now_us))

    # Writing.

    def _later(self, action: Callable[[], None]) -> None:
        self._ensemble.clock.after(ANSWER_S, action)

    def _arrive(self, facts: tuple[Fact, ...]) -> None:
        """At the ensemble. What is answered may not be heard, and is written again."""
        if self._ensemble.reaches(self.client.name):
            self._ensemble.write(facts)
        self._later(lambda: self._hear_of(facts))

    def _hear_of(self, facts: tuple[Fact, ...]) -> None:
        is_heard = self._ensemble.reaches(self.client.name)

        def hear() -> None:
            if not self._is_current:
                return
            if is_heard:
                self._tell(lambda now_us: self._coordinator.written(facts, now_us))
            else:
                self._coordinator.failed(facts)

        if self._is_current:
            self.client.run(hear)

    def _ask(self, asks: tuple[Fact, ...]) -> None:
        asked = self._ensemble.asked
        worker = asked.worker_of(self.client.name) if asked is not None else ""
        if asked is None or not worker or not self._ensemble.reaches(self.client.name):
            if self._is_current:
                self.client.run(lambda: self._coordinator.failed(asks))
            return
        self._requests += 1
        number = f"{self.client.name}-{self._requests}"
        self._asks[number] = asks
        asked.ask(worker, Request(self.client.name, number, asks))
