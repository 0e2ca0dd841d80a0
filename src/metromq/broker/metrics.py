"""The HTTP door: /metrics for Prometheus and /healthz for whoever restarts brokers."""

from collections.abc import Callable, Iterator

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from metromq.config import Metrics
from metromq.protocol.session.hub import Hub

COUNTERS = {
    "messages_received": "PUBLISH packets from clients",
    "messages_sent": "PUBLISH packets to clients",
    "bytes_received": "Bytes from clients",
    "bytes_sent": "Bytes to clients",
    "packets_received": "MQTT packets from clients",
    "dropped": "Messages not delivered: no room, too large or expired",
    "expired": "Messages whose expiry interval passed before delivery",
    "refused": "Messages not accepted: no permission or no disk space",
    "connects": "Sessions attached",
    "disconnects": "Sessions detached",
    "violations": "Connections closed for a breach of the standard",
    "subscribes": "Subscriptions made",
    "unsubscribes": "Subscriptions removed",
}


class HubCollector(Collector):
    """Reads the hub when Prometheus asks."""

    def __init__(self, hub: Hub, extra: Callable[[], dict[str, float]]) -> None:
        self._hub = hub
        self._extra = extra

    def collect(self) -> Iterator[Metric]:
        hub = self._hub
        for name, text in COUNTERS.items():
            yield CounterMetricFamily(f"metromq_{name}", text, value=getattr(hub.counters, name))
        gauges: dict[str, tuple[str, float]] = {
            "clients_connected": ("Clients connected now", len(hub.sessions) - len(hub.detached)),
            "sessions": ("Sessions, connected or not", len(hub.sessions)),
            "subscriptions": ("Subscriptions", hub.routes.count),
            "retained_messages": ("Retained messages", len(hub.retained)),
            "queued_messages": ("Messages that wait for clients", sum(s.waiting() for s in hub.sessions.values())),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"metromq_{name}", text, value=value)
        for name, value in self._extra().items():
            yield GaugeMetricFamily(f"metromq_{name}", name.replace("_", " "), value=value)


class HttpDoor:
    """Answers on loopback unless configured otherwise; `healthy` says why not, or nothing."""

    def __init__(
        self, config: Metrics, hub: Hub, extra: Callable[[], dict[str, float]], healthy: Callable[[], str]
    ) -> None:
        self._config = config
        self._healthy = healthy
        self._registry = CollectorRegistry()
        self._registry.register(HubCollector(hub, extra))
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def open(self) -> None:
        application = web.Application()
        application.router.add_get("/metrics", self._metrics)
        application.router.add_get("/healthz", self._health)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._config.host, self._config.port or 0)
        await site.start()
        address = self._runner.addresses[0]
        self.port = int(address[1])

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def _health(self, request: web.Request) -> web.Response:
        problem = self._healthy()
        return web.Response(text=(problem or "ok") + "\n", status=503 if problem else 200)
