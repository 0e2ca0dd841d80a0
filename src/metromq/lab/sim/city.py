"""A whole simulated city: brokers, clients, faults and the virtual clock."""

from metromq.errors import UsageError
from metromq.federation.city import City
from metromq.lab.sim.broker import SimBroker
from metromq.lab.sim.network import Latency, Network, constant_latency, environment
from metromq.lab.sim.sessions import Delivery, SimClient
from metromq.protocol.session.message import Message


class SimCity:
    def __init__(self, city: City, latency: Latency | None = None) -> None:
        self.city = city
        self.env = environment()
        self.network = Network(self.env, latency or constant_latency(0.002))
        self.brokers = {name: SimBroker(city, name, self.network) for name in city.names}
        for broker in self.brokers.values():
            broker.peers = {name: other for name, other in self.brokers.items() if name != broker.name}
        self.network.on_up = lambda broker, peer: self.brokers[broker].peer_up(peer)
        self.network.on_down = lambda broker, peer: self.brokers[broker].peer_down(peer)
        self.clients: dict[str, SimClient] = {}
        self.places: dict[str, str] = {}

    def start(self) -> None:
        for broker in self.brokers.values():
            broker.start()
        self.run(0.1)

    def run(self, seconds: float) -> None:
        self.env.run(until=self.env.now + seconds)

    def settle(self, limit_s: float = 120.0) -> None:
        """Runs until tables agree and nothing waits between brokers within reach; fails when that takes too long."""
        interval_s = self.city.membership.hello_interval_ms / 1000
        end = self.env.now + limit_s
        quiet = 0
        while quiet < 2:
            self.run(interval_s * self.city.membership.far_factor)
            quiet = quiet + 1 if self._is_quiet() else 0
            if self.env.now > end:
                raise UsageError(f"the city did not settle within {limit_s} s of virtual time")

    def _is_quiet(self) -> bool:
        running = [broker for broker in self.brokers.values() if broker.running]
        for broker in running:
            for peer, outbox in broker.disk.outboxes.items():
                if self.network.connected(broker.name, peer) and len(outbox):
                    return False
        return self.tables_equal() or any(
            not self.network.connected(one.name, other.name) for one in running for other in running if one is not other
        )

    def tables_equal(self) -> bool:
        return len({broker.node.table.digest() for broker in self.brokers.values() if broker.node is not None}) == 1

    def owner(self, area: str, at: str) -> str:
        node = self.brokers[at].node
        return node.table.owner(area) if node is not None else ""

    # Clients, by name.

    def connect(self, client: str, broker: str, clean: bool = True, will: tuple[str, str] | None = None) -> None:
        own = self.clients.setdefault(client, SimClient(client))
        message = Message(will[0], will[1].encode(), 1, publisher=client) if will else None
        self.places[client] = broker
        self.brokers[broker].connect(own, clean, message)

    def at(self, client: str) -> SimBroker:
        return self.brokers[self.places[client]]

    def received(self, client: str) -> list[Delivery]:
        return self.clients[client].received
