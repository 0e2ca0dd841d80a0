"""Who is connected, and how many may be."""

from typing import final

from metromq.protocol.session.clock import Clock
from metromq.protocol.session.counters import BrokerCounters
from metromq.protocol.session.hub_settings import HubSettings
from metromq.protocol.session.network_connection import NetworkConnection
from metromq.protocol.session.newcomers import Newcomers
from metromq.protocol.session.topic_counts import TopicCounts


@final
class Connections:
    """Every connection from its first byte to its end, whether its client is let in or not."""

    def __init__(
        self, settings: HubSettings, clock: Clock, counters: BrokerCounters, topic_counts: TopicCounts
    ) -> None:
        self.open: dict[NetworkConnection, None] = {}
        self.newcomers = Newcomers(settings.max_unconnected)
        self.clients = 0  # that are in
        self._settings = settings
        self._clock = clock
        self._counters = counters
        self._topic_counts = topic_counts
        self._tokens = settings.max_connects_per_s
        self._tokens_at = 0.0

    def too_many(self) -> bool:
        return self.clients >= self._settings.max_connections

    def may_connect(self) -> bool:
        """Takes one of the connects this second has, in bursts of up to one second's worth."""
        rate = self._settings.max_connects_per_s
        if rate <= 0:
            return True
        now = self._clock.now
        self._tokens = min(rate, self._tokens + (now - self._tokens_at) * rate)
        self._tokens_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def entered(self) -> None:
        """A client is let in."""
        counters = self._counters
        counters.connects += 1
        self.clients += 1
        counters.clients_maximum = max(counters.clients_maximum, self.clients)
        if self._topic_counts.recording:
            self._topic_counts.connects += 1
