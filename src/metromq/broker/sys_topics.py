"""The `$SYS` topics that Mosquitto's users know, from the hub's counters."""

from metromq import __version__
from metromq.protocol.session import Hub, Message

PREFIX = "$SYS/broker/"


class SysTopics:
    """Publishes what has changed since the last time, retained, as Mosquitto does."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._started = hub.clock.now
        self._last: dict[str, str] = {}
        self._rates: dict[str, tuple[float, int]] = {}

    def values(self) -> dict[str, str]:
        hub = self._hub
        counters = hub.counters
        connected = hub.sessions.connected()
        numbers: dict[str, int] = {
            "bytes/received": counters.bytes_received,
            "bytes/sent": counters.bytes_sent,
            "clients/connected": connected,
            "clients/active": connected,
            "clients/disconnected": len(hub.sessions.detached),
            "clients/inactive": len(hub.sessions.detached),
            "clients/maximum": counters.clients_maximum,
            "clients/total": len(hub.sessions.by_client_id),
            "messages/received": counters.packets_received,
            "messages/sent": counters.packets_sent,
            "publish/messages/received": counters.messages_received,
            "publish/messages/sent": counters.messages_sent,
            "publish/messages/dropped": counters.dropped,
            "publish/bytes/received": counters.publish_bytes_received,
            "publish/bytes/sent": counters.publish_bytes_sent,
            "retained messages/count": len(hub.retained.messages),
            "store/messages/count": sum(backlog.waiting() for backlog in hub.all_backlogs()),
            "subscriptions/count": hub.routes.count,
            "shared_subscriptions/count": len(hub.routes.shares),
        }
        values = {name: str(number) for name, number in numbers.items()}
        values["version"] = f"metromq version {__version__}"
        values["uptime"] = f"{int(hub.clock.now - self._started)} seconds"
        for name in ("messages/received", "messages/sent", "bytes/received", "bytes/sent"):
            values[f"load/{name}/1min"] = self._rate(name, numbers[name])
        return values

    def _rate(self, name: str, number: int) -> str:
        """Per minute since the last update."""
        then, before = self._rates.get(name, (self._started, 0))
        self._rates[name] = (self._hub.clock.now, number)
        span = self._hub.clock.now - then
        return f"{(number - before) / span * 60:.2f}" if span > 0 else "0.00"

    def publish(self) -> None:
        hub = self._hub
        for name, value in self.values().items():
            if self._last.get(name) != value:
                self._last[name] = value
                message = Message(PREFIX + name, value.encode(), 0, True)
                message.time_us = hub.clock.wall_us
                hub.publishing.publish_system(message)
