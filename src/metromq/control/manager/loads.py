"""How much workload a device carries, by the paper's equations (5) and (6), from what was counted."""

from collections.abc import Iterable

from metromq.control.core import ServiceSpec, Statistics, client_mbps, published_mbps

BROKER_WORKLOAD = 10.0


def load_of(statistics: Statistics, filters: Iterable[str], services: Iterable[ServiceSpec]) -> float:
    brokers = sum(sum(client_mbps(statistics.of_filter(one)).values()) for one in filters) * BROKER_WORKLOAD
    used = sum(
        spec.mqtt_workload_per_mbps * sum(published_mbps(statistics.of_filter(one)) for one in spec.topics)
        for spec in services
    )
    return round(brokers + used, 6)
