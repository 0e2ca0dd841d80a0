"""The page /metrics in Prometheus' format; loaded when it is first asked for."""

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from metromq.broker.http_listener import HttpAnswer
from metromq.federation import UP, BrokerStatus
from metromq.protocol.session import BrokerCounters

COUNTERS = {
    "messages_received": "PUBLISH packets from clients",
    "messages_sent": "PUBLISH packets to clients",
    "bytes_received": "Bytes from clients",
    "bytes_sent": "Bytes to clients",
    "packets_received": "MQTT packets from clients",
    "dropped": "Messages not delivered: no room, too large or expired",
    "expired": "Messages whose expiry interval passed before delivery",
    "refused": "Messages not accepted: no permission or no disk space",
    "retained_dropped": "Messages of wills and peers that were delivered and not retained: no room",
    "connects": "Sessions attached",
    "disconnects": "Sessions detached",
    "violations": "Connections closed for a breach of the standard",
    "subscribes": "Subscriptions made",
    "unsubscribes": "Subscriptions removed",
}


GAUGES = {
    "clients": ("clients_connected", "Clients connected now"),
    "sessions": ("sessions", "Sessions, connected or not"),
    "subscriptions": ("subscriptions", "Subscriptions"),
    "retained_messages": ("retained_messages", "Retained messages"),
    "retained_bytes": ("retained_bytes", "Memory that retained messages take"),
    "queued_messages": ("queued_messages", "Messages waiting for clients"),
}
LINK_GAUGES = {
    "backlog": "QoS 1 and 2 messages that the peer has not acknowledged",
    "lag_s": "Age of the oldest message in the backlog, in seconds",
}
LINK_COUNTERS = {
    "messages_sent": "Messages sent to the peer",
    "bytes_sent": "Bytes sent to the peer",
    "messages_received": "Messages received from the peer",
    "bytes_received": "Bytes received from the peer",
}


class StatusCollector(Collector):
    """One broker's status and counters as Prometheus wants them."""

    def __init__(self, status: BrokerStatus, counters: BrokerCounters, extra: Mapping[str, float]) -> None:
        self._status = status
        self._counters = counters
        self._extra = extra

    def collect(self) -> Iterator[Metric]:
        for name, text in COUNTERS.items():
            yield CounterMetricFamily(f"metromq_{name}", text, value=getattr(self._counters, name))
        for field, (name, text) in GAUGES.items():
            yield GaugeMetricFamily(f"metromq_{name}", text, value=getattr(self._status, field))
        for name, value in self._extra.items():
            yield GaugeMetricFamily(f"metromq_{name}", name.replace("_", " "), value=value)
        if self._status.links:
            yield from self._links()

    def _links(self) -> Iterator[Metric]:
        family: CounterMetricFamily | GaugeMetricFamily
        family = GaugeMetricFamily("metromq_link_up", "1 while the link to the peer is up", labels=["peer"])
        for link in self._status.links:
            family.add_metric([link.peer], float(link.state == UP))
        yield family
        yield from self._ways()
        for kind, table in ((GaugeMetricFamily, LINK_GAUGES), (CounterMetricFamily, LINK_COUNTERS)):
            for name, text in table.items():
                family = kind(f"metromq_link_{name}", text, labels=["peer"])
                for link in self._status.links:
                    family.add_metric([link.peer], getattr(link, name))
                yield family
        areas = sum(1 for area in self._status.areas if not area.home)
        yield GaugeMetricFamily("metromq_areas", "Areas this broker is responsible for", value=len(self._status.areas))
        yield GaugeMetricFamily("metromq_areas_taken_over", "Areas taken over from another broker", value=areas)

    def _ways(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "metromq_link_relayed", "1 while messages go through a third broker", labels=["peer"]
        )
        for link in self._status.links:
            family.add_metric([link.peer], float(bool(link.via)))
        yield family
        text = "How far the peer's clock is ahead of this broker's, in seconds"
        family = GaugeMetricFamily("metromq_link_clock_ahead_s", text, labels=["peer"])
        for link in self._status.links:
            if link.clock_ahead_s is not None:
                family.add_metric([link.peer], link.clock_ahead_s)
        yield family


def metrics_page(status: BrokerStatus, counters: BrokerCounters, extra: Mapping[str, float]) -> HttpAnswer:
    registry = CollectorRegistry()
    registry.register(StatusCollector(status, counters, extra))
    return HttpAnswer(generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4)
