"""A whole simulated city: brokers, clients, faults and the virtual clock."""

import dataclasses
from collections.abc import Callable
from typing import Final, cast

from metromq.client import Will
from metromq.errors import UsageError
from metromq.federation import BrokerSpec, City, Routing, steps_to, with_broker
from metromq.federation.host import DRAINED, GONE
from metromq.lab.sim.clock import VirtualClock
from metromq.lab.sim.ensemble import SimEnsemble, SimShim
from metromq.lab.sim.network import Latency, Network, constant_latency
from metromq.lab.sim.sim_broker import SimBroker
from metromq.lab.sim.sim_client import SimClient, SimDelivery
from metromq.lab.sim.sim_workers import SimWorkers
from metromq.protocol.session import HubSettings

LEAVE_S: Final = 120.0
LINKS_S: Final = 60.0  # far more than links need to come up


class SimCity:
    def __init__(self, city: City, latency: Latency | None = None, settings: HubSettings | None = None) -> None:
        self.city = city
        self.clock = VirtualClock()
        self.network = Network(self.clock, latency or constant_latency(0.002))
        self.events: list[tuple[float, str, str]] = []  # what brokers told their operators: time, broker, what
        self._settings = settings or HubSettings()
        self.ensemble = SimEnsemble(city, self.clock) if city.coordination == "zookeeper" else None
        self.workers: SimWorkers | None = None
        if self.ensemble is not None and city.overlay.workers:
            self.workers = self.ensemble.asked = SimWorkers(city, self.ensemble)
        self.brokers = {name: self._broker(city, name) for name in city.names}
        self.clients: dict[str, SimClient] = {}

    def _broker(self, city: City, name: str) -> SimBroker:
        def report(level: str, event: str, **details: object) -> None:
            words = " ".join(f"{key}={value}" for key, value in details.items())
            self.events.append((self.clock.now, name, f"{event} {words}"))

        broker = SimBroker(city, name, self.network, report, self._settings)
        ensemble = self.ensemble
        if ensemble is not None:
            broker.shim_for = lambda broker, host: SimShim(ensemble, broker, host)
        return broker

    def start(self) -> None:
        for broker in self.brokers.values():
            broker.start()
        if not self.clock.run_until(self.is_joined, LINKS_S):
            raise UsageError("the links of the city did not come up")

    def run(self, seconds: float) -> None:
        self.clock.run(seconds)

    def is_joined(self) -> bool:
        """Whether every link is up that can be."""
        running = [broker for broker in self.brokers.values() if broker.host is not None]
        names = {broker.name for broker in running}
        return all(
            link.up or link.resting
            for broker in running
            if broker.host is not None
            for link in broker.host.links.values()
            if link.peer in names and not self.network.is_cut(broker.name, link.peer)
        )

    def settle(self, limit_s: float = 120.0) -> None:
        """Runs until tables agree and nothing waits between brokers within reach; fails when that takes too long."""
        interval_s = self.city.membership.hello_interval_ms / 1000
        end = self.clock.now + limit_s
        quiet = 0
        while quiet < 2:
            self.run(interval_s * self.city.membership.far_factor)
            quiet = quiet + 1 if self._is_quiet() else 0
            if self.clock.now > end:
                raise UsageError(f"the city did not settle within {limit_s} s of virtual time")

    def _is_quiet(self) -> bool:
        running = [broker for broker in self.brokers.values() if broker.running]
        pairs = [(one.name, other.name) for one in running for other in running if one is not other]
        cut = [pair for pair in pairs if self.network.is_cut(*pair)]
        if not self.is_joined() or any(
            self.brokers[one].backlog(other) for one, other in pairs if (one, other) not in cut
        ):
            return False
        if self.ensemble is not None and not self.ensemble.is_quiet():
            return False
        if self.workers is not None and not self.workers.is_quiet():
            return False
        return self.tables_equal() or bool(cut)

    def tables_equal(self) -> bool:
        hosts = [broker.host for broker in self.brokers.values()]
        return len({host.node.table.digest() for host in hosts if host is not None}) == 1

    def owner(self, area: str, at: str) -> str:
        host = self.brokers[at].host
        return host.node.table.owner(area) if host is not None else ""

    # Changes of the running city, told to one broker.

    def change(self, at: str, change: Callable[[City], City]) -> None:
        host = self.brokers[at].host
        if host is not None:
            self.brokers[at].run(lambda: host.change_city(change(host.city), "somebody"))

    def undo(self, at: str) -> None:
        host = self.brokers[at].host
        if host is not None:
            self.brokers[at].run(lambda: host.change_city(host.node.descriptions.earlier[-1].city, "somebody", "undo"))

    def route(self, at: str, routing: str) -> None:
        """Another routing, in steps that every broker follows before the next."""
        host = self.brokers[at].host
        if host is None:
            return
        central = at if routing == "central" else ""
        wanted = dataclasses.replace(host.city, routing=cast(Routing, routing), central=central)
        for step in steps_to(host.city, wanted):
            self.change(at, lambda city, step=step: step)  # type: ignore[misc]
            epoch = host.node.description.epoch
            followed = self.clock.run_until(
                lambda epoch=epoch: min(host.node.descriptions.followed_by.values()) >= epoch,  # type: ignore[misc]
                LEAVE_S,
            )
            if not followed:
                raise UsageError("the city does not follow its new description")

    def join(self, name: str, at: str, area: str = "") -> None:
        """A newcomer, with the description that the broker gives it."""
        self.change(at, lambda city: with_broker(city, BrokerSpec(name, area=area)))
        host = self.brokers[at].host
        if host is not None:
            self.brokers[name] = self._broker(host.city, name)
            self.brokers[name].start()

    def leave(self, name: str) -> bool:
        """Whether the broker could leave; then it is no more."""
        broker, host = self.brokers[name], self.brokers[name].host
        if host is None:
            return False
        broker.run(lambda: host.leaving.leave("somebody"))
        if not self.clock.run_until(lambda: host.leaving.state == GONE, LEAVE_S):
            return False
        broker.kill()
        del self.brokers[name]
        return True

    def drain(self, name: str) -> bool:
        host = self.brokers[name].host
        if host is None:
            return False
        self.brokers[name].run(host.leaving.drain)
        return self.clock.run_until(lambda: host.leaving.state == DRAINED, LEAVE_S)

    def waits_for(self, name: str) -> tuple[str, ...]:
        host = self.brokers[name].host
        return (host.leaving.state, *host.leaving.waits_for()) if host is not None else ("nothing: it does not run",)

    # Clients, by name.

    def client(self, name: str) -> SimClient:
        found = self.clients.get(name)
        if found is None:
            found = self.clients[name] = SimClient(name, self.network)
        return found

    def connect(self, client: str, broker: str, keeps: bool = False, will: tuple[str, str] | None = None) -> SimClient:
        """Runs until the broker has let the client in; the returned client may be refused or still waiting."""
        own = self.client(client)
        refusals = len(own.refused)
        own.connect(broker, keeps, Will(will[0], will[1].encode(), 1) if will else None)
        self.clock.run_until(lambda: own.is_open or len(own.refused) > refusals, 10.0)
        return own

    def received(self, client: str) -> list[SimDelivery]:
        return self.client(client).received
