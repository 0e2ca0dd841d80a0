"""The architecture experiment at small size on simulated brokers: what the product's own routers make of it.

Each network has a broker, and a central one stands in the cloud. As behind the paper's proxies, clients speak with
their network's broker about topics that are delegated there, and with the central one about all others.
"""

from dataclasses import dataclass

from metromq.federation import City, grid_city
from metromq.lab.delegation.architecture import SCHEMES, Demand, Scheme
from metromq.lab.sim.sim_city import SimCity
from metromq.lab.sim.sim_client import SimClient

CALM_S = 1.0  # for everything that is under way
FLOODING = "flood-subscriptions"


@dataclass(frozen=True, slots=True)
class Counted:
    external: int
    per_broker: float


def count(name: str, demand: Demand) -> Counted:
    """Every publisher publishes once."""
    return _Experiment(SCHEMES[name], demand).run()


class _Experiment:
    def __init__(self, scheme: Scheme, demand: Demand) -> None:
        self._demand = demand
        self._networks = len(demand.subscribers[0])
        self._floods = bool(scheme.floods)
        self._at_home = scheme.at_home(demand) if scheme.at_home is not None else [False] * len(demand.home)
        self._least = scheme.least
        self._city = SimCity(_city(FLOODING if self._floods else "delegation", self._networks))
        self._central, *self._edges = self._city.city.names

    def run(self) -> Counted:
        city = self._city
        city.start()
        city.run(CALM_S)
        if not self._floods:
            self._delegate()
        for topic in range(len(self._demand.home)):
            for network in range(self._networks):
                for number in range(int(self._demand.subscribers[topic, network])):
                    self._client(f"s{network}-{number}", self._place(topic, network)).subscribe(f"t/{topic}", 0)
        publishers = [self._client(f"p{n}", self._place(t, int(n))) for t, n in enumerate(self._demand.home)]
        city.run(CALM_S)
        before = self._counts()
        ups = sum(self._publish(client, topic) for topic, client in enumerate(publishers))
        return self._difference(before, self._counts(), ups)

    def _place(self, topic: int, network: int) -> str:
        """The broker that a network's clients speak with about a topic."""
        wanted = int(self._demand.subscribers[topic, network])
        is_taken = self._at_home[topic] if self._demand.home[topic] == network else 0 < self._least <= wanted
        return self._edges[network] if is_taken else self._central

    def _delegate(self) -> None:
        homes = self._demand.home
        wanted = [(f"t/{topic}", self._edges[int(homes[topic])]) for topic, own in enumerate(self._at_home) if own]
        central = self._city.brokers[self._central]

        def hand_over() -> None:
            assert central.host is not None
            for topic_filter, owner in wanted:
                central.host.delegate(topic_filter, owner)

        central.run(hand_over)
        self._city.run(CALM_S)

    def _client(self, name: str, broker: str) -> SimClient:
        known = self._city.clients.get(f"{name}@{broker}")
        return known if known is not None else self._city.connect(f"{name}@{broker}", broker)

    def _publish(self, client: SimClient, topic: int) -> bool:
        """Whether it left its broker for others: with flooding that counts once, however many they are."""
        before = self._between()
        client.publish(f"t/{topic}", "1", 0)
        self._city.run(0.05)
        return self._between() > before

    def _between(self) -> int:
        return sum(broker.counts().between for broker in self._city.brokers.values())

    def _counts(self) -> dict[str, tuple[int, int, int]]:
        counts = {name: broker.counts() for name, broker in self._city.brokers.items()}
        return {name: (one.publications_in, one.publications_out, one.between) for name, one in counts.items()}

    def _difference(
        self, before: dict[str, tuple[int, int, int]], after: dict[str, tuple[int, int, int]], ups: int
    ) -> Counted:
        """Between brokers, and between the central one and clients; what it gets from brokers is counted there."""
        found = {
            name: tuple(late - early for late, early in zip(after[name], before[name], strict=True)) for name in after
        }
        between = sum(counts[2] for counts in found.values())
        received, sent, central_between = found[self._central]
        edge_received, edge_sent, edge_between = (sum(found[name][place] for name in self._edges) for place in range(3))
        if self._floods:  # one copy leaves the network, and the cloud has one for each that wants it
            return Counted(between + ups, (edge_received + edge_sent - edge_between + ups) / self._networks)
        from_clients = received - edge_between
        return Counted(between + from_clients + sent - central_between, (edge_received + edge_sent) / self._networks)


def _city(routing: str, networks: int) -> City:
    return grid_city(routing, count=networks + 1, hello_interval_ms=500)
