"""One host of a city of four, whose peers are played by the test: it gets parcels by hand, on a simulated disk."""

from metromq.federation import grid_city
from metromq.federation.host import Host
from metromq.federation.links.batch import LinkMessage, encode_batch
from metromq.federation.links.frames import BATCH_TOPIC
from metromq.lab.sim.sim_city import SimCity
from metromq.protocol.session import KIND_LINK, Message

OWN = "b0"
PEERS = ("b1", "b2", "b3")


class OneHost:
    def __init__(self, routing: str = "flood-subscriptions") -> None:
        self.city = SimCity(grid_city(routing, l_b=1, l_c=0))
        self.broker = self.city.brokers[OWN]
        self.broker.start()

    @property
    def host(self) -> Host:
        assert self.broker.host is not None
        return self.broker.host

    def subscribe(self, client: str, topic_filter: str, qos: int = 2) -> None:
        self.city.connect(client, OWN, keeps=True)
        self.city.client(client).subscribe(topic_filter, qos)
        self.city.run(2.0)  # nobody answers what is retained elsewhere

    def batch(self, peer: str, entries: list[LinkMessage]) -> None:
        payload = encode_batch(entries, 0)
        self.broker.run(lambda: self.host.arrived(peer, BATCH_TOPIC, payload, None))

    def restart(self, with_snapshot: bool) -> None:
        self.city.run(0.1)
        if with_snapshot:
            self.broker.take_snapshot()
        self.broker.kill()
        self.broker.start()
        self.city.run(0.1)

    def got(self, client: str) -> list[str]:
        self.city.run(2.0)
        return [delivery.payload for delivery in self.city.received(client)]

    def stored(self) -> dict[str, bytes]:
        assert self.broker.hub is not None
        found = self.broker.hub.retained.messages.match("#")
        return {message.topic: message.payload for message in found}


def from_peer(
    topic: str, payload: bytes, origin: str, offset: int, qos: int = 2, retain: bool = False, time_us: int = 1
) -> Message:
    return Message(topic, payload, qos, retain, b"", 0, time_us, "", KIND_LINK, origin, offset)
