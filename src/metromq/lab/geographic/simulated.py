"""The paper's load on a simulated city: the routers of the live broker, counted message by message."""

from functools import partial

from metromq.federation import grid_city
from metromq.lab.geographic.formulas import Cost, Load
from metromq.lab.geographic.workload import Publisher, Subscriber, Workload, build, scaled
from metromq.lab.sim.sim_city import SimCity
from metromq.lab.sim.sim_client import SimClient

WARM_UP_S = 1.0


def simulate(scheme: str, load: Load, factor: int = 100, seconds: float | None = None) -> list[Cost]:
    """Of each broker, per second at the full load, from a run with 1/factor of the clients."""
    seconds = seconds or load.publish_interval_s
    workload = build(scheme, scaled(load, factor))
    # Hellos would only cost time here: no broker fails. Without them large cities do not get going, so that this is a
    # full mesh of any size, as in the paper.
    city = SimCity(grid_city(scheme, l_b=load.level, hello_interval_ms=600_000, mesh_up_to=load.brokers))
    _attach(city, workload)
    city.run(WARM_UP_S)
    before = _counts(city)
    _schedule(city, workload, seconds)
    city.run(seconds + WARM_UP_S)
    scale = factor / seconds
    return [
        Cost(*((late - early) * scale for early, late in zip(*pair, strict=True)))
        for pair in zip(before, _counts(city), strict=True)
    ]


def _counts(city: SimCity) -> list[tuple[int, int, int, int]]:
    """Publications and subscriptions in, then out, of each broker."""
    counts = [broker.counts() for broker in city.brokers.values()]
    return [(c.publications_in, c.subscriptions_in, c.publications_out, c.subscriptions_out) for c in counts]


def _attach(city: SimCity, workload: Workload) -> None:
    city.start()
    for subscriber in workload.subscribers:
        _enter(city, subscriber.name, subscriber.broker).subscribe(subscriber.topic_filter, 0)
    for publisher in workload.publishers:
        _enter(city, publisher.name, publisher.broker)


def _enter(city: SimCity, name: str, broker: str) -> SimClient:
    """Without keep alive: until all clients are there the first ones are silent for longer than it would allow."""
    city.clients[name] = SimClient(name, city.network, keepalive_s=0)
    return city.connect(name, broker)


def _schedule(city: SimCity, workload: Workload, seconds: float) -> None:
    for at_s, publisher in workload.publications(seconds):
        city.clock.after(at_s, partial(_publish, city, publisher))
    for at_s, subscriber in workload.changes(seconds):
        city.clock.after(at_s, partial(_change, city, subscriber))


def _publish(city: SimCity, publisher: Publisher) -> None:
    city.client(publisher.name).publish(publisher.topic, "x", 0)


def _change(city: SimCity, subscriber: Subscriber) -> None:
    client = city.client(subscriber.name)
    client.unsubscribe(subscriber.topic_filter)
    client.subscribe(subscriber.next_filter, 0)
