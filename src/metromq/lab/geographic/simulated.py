"""The paper's load on a simulated city: the routers of the live broker, counted message by message."""

from functools import partial

from metromq.federation.city import grid_city
from metromq.lab.geographic.formulas import Cost, Load
from metromq.lab.geographic.workload import Publisher, Subscriber, Workload, build, scaled
from metromq.lab.sim.city import SimCity

WARM_UP_S = 1.0


def simulate(scheme: str, load: Load, factor: int = 100, seconds: float | None = None) -> Cost:
    """Per broker and second at the full load, from a run with 1/factor of the clients."""
    seconds = seconds or load.publish_interval_s
    workload = build(scheme, scaled(load, factor))
    # Hellos would only cost time here: no broker fails.
    city = SimCity(grid_city(scheme, l_b=load.level, hello_interval_ms=600_000))
    _attach(city, workload)
    city.run(WARM_UP_S)
    for broker in city.brokers.values():
        broker.reset_counters()
    _schedule(city, workload, seconds)
    city.run(seconds + WARM_UP_S)
    brokers = list(city.brokers.values())
    scale = factor / seconds / len(brokers)
    return Cost(
        sum(broker.counters.publications_in for broker in brokers) * scale,
        sum(broker.counters.subscriptions_in for broker in brokers) * scale,
        sum(broker.counters.publications_out for broker in brokers) * scale,
        sum(broker.subscriptions_out() for broker in brokers) * scale,
    )


def _attach(city: SimCity, workload: Workload) -> None:
    for broker in city.brokers.values():
        broker.start()
    for subscriber in workload.subscribers:
        city.connect(subscriber.name, subscriber.broker)
        city.brokers[subscriber.broker].subscribe(subscriber.name, subscriber.topic_filter, 0)
    for publisher in workload.publishers:
        city.connect(publisher.name, publisher.broker)


def _schedule(city: SimCity, workload: Workload, seconds: float) -> None:
    for at_s, publisher in workload.publications(seconds):
        city.network.after(at_s, partial(_publish, city, publisher))
    for at_s, subscriber in workload.changes(seconds):
        city.network.after(at_s, partial(_change, city, subscriber))


def _publish(city: SimCity, publisher: Publisher) -> None:
    city.brokers[publisher.broker].publish(publisher.name, publisher.topic, "x", 0, False)


def _change(city: SimCity, subscriber: Subscriber) -> None:
    broker = city.brokers[subscriber.broker]
    broker.unsubscribe(subscriber.name, subscriber.topic_filter)
    broker.subscribe(subscriber.name, subscriber.next_filter, 0)
