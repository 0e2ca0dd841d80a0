"""Who is connected, and how many may be."""

from typing import Final, final

from metromq.protocol.session.clock import Clock
from metromq.protocol.session.counters import BrokerCounters
from metromq.protocol.session.hub_settings import HubSettings
from metromq.protocol.session.network_connection import NetworkConnection
from metromq.protocol.session.newcomers import Newcomers
from metromq.protocol.session.topic_counts import TopicCounts

SLOTS_PER_S: Final = 4
LOOK_S: Final = 10.0  # a connection is looked at so often, or sooner: one that is gone is not held for longer


@final
class Connections:
    """Every connection from its first byte to its end, whether its client is let in or not.

    Each is looked at when its time may be over, not all of them at every tick: with 20,000 that took milliseconds.
    """

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
        self._slots: dict[int, list[NetworkConnection]] = {}  # who is looked at when, in quarters of a second

    def look_at(self, connection: NetworkConnection, moment: float) -> None:
        """Sees to it that the connection is checked when that moment has come."""
        now = self._clock.now
        slot = max(int(min(moment, now + LOOK_S) * SLOTS_PER_S), int(now * SLOTS_PER_S) + 1)
        connection.slot = slot
        waiting = self._slots.get(slot)
        if waiting is None:
            self._slots[slot] = [connection]
        else:
            waiting.append(connection)

    def tick(self) -> None:
        """Checks those whose time may be over."""
        slot_now = int(self._clock.now * SLOTS_PER_S)
        for slot in sorted([slot for slot in self._slots if slot <= slot_now]):
            for connection in self._slots.pop(slot):
                if connection.slot == slot:  # else it is in another slot too
                    moment = connection.check()
                    if moment:
                        self.look_at(connection, moment)

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
