"""Clients of a simulated broker: subscriptions, queues and deliveries, as little of MQTT as stories need."""

from dataclasses import dataclass, field

from metromq.federation.interest import SHARE_PREFIX, FilterIndex, plain_filter
from metromq.protocol.session.message import Message

MessageId = tuple[str, int]


@dataclass(slots=True)
class Delivery:
    topic: str
    payload: str
    qos: int
    retain: bool


@dataclass(slots=True)
class SimClient:
    """The client's own side: what it has received, over all its connections."""

    name: str  # its client identifier
    user: str = ""
    received: list[Delivery] = field(default_factory=list)
    refused: bool = False


@dataclass(slots=True)
class Session:
    """What a broker keeps for a client."""

    client: SimClient
    connected: bool
    clean: bool
    subscriptions: dict[str, int] = field(default_factory=dict)
    queue: list[tuple[Message, int, bool]] = field(default_factory=list)
    will: Message | None = None
    opened_us: int = 0
    arrived: set[MessageId] | None = None  # while the session moves here: what came by both ways

    def take(self, message: Message, qos: int, retain: bool) -> None:
        if self.arrived is not None and message.origin_offset >= 0:
            if (message.origin, message.origin_offset) in self.arrived:
                return
            self.arrived.add((message.origin, message.origin_offset))
        if self.connected:
            self.client.received.append(Delivery(message.topic, message.payload.decode(), qos, retain))
        elif not self.clean and qos:
            self.queue.append((message, qos, retain))

    def flush(self) -> None:
        for message, qos, retain in self.queue:
            self.client.received.append(Delivery(message.topic, message.payload.decode(), qos, retain))
        self.queue.clear()


class Sessions:
    """All sessions of a broker and their index of filters."""

    def __init__(self) -> None:
        self.by_name: dict[str, Session] = {}
        self._index = FilterIndex()
        self._holders: dict[str, dict[str, int]] = {}  # filter -> client -> QoS
        self._turn = 0

    def filters(self) -> list[tuple[str, int]]:
        """Every filter and how many want it."""
        return [(text, len(holders)) for text, holders in self._holders.items()]

    def holders(self, topic_filter: str) -> int:
        return len(self._holders.get(topic_filter, {}))

    def add(self, session: Session, topic_filter: str, qos: int) -> None:
        session.subscriptions[topic_filter] = qos
        holders = self._holders.setdefault(topic_filter, {})
        if not holders:
            inner = plain_filter(topic_filter)
            self._index.put(inner, self._index.get(inner) + 1)
        holders[session.client.name] = qos

    def remove(self, session: Session, topic_filter: str) -> None:
        session.subscriptions.pop(topic_filter, None)
        holders = self._holders.get(topic_filter, {})
        if holders.pop(session.client.name, None) is not None and not holders:
            del self._holders[topic_filter]
            inner = plain_filter(topic_filter)
            self._index.put(inner, self._index.get(inner) - 1)

    def deliver(self, message: Message, plain: bool, shares: tuple[str, ...], retain: bool = False) -> int:
        """To plain subscribers once each, and to one member of each named shared subscription; counts deliveries."""
        granted: dict[str, int] = {}
        for topic_filter in self._index.matching(message.topic) if plain else ():
            for client, qos in self._holders.get(topic_filter, {}).items():
                granted[client] = max(granted.get(client, 0), qos)
        for client, qos in granted.items():
            self.by_name[client].take(message, min(qos, message.qos), retain)
        return len(granted) + sum(self._deliver_share(message, share) for share in shares)

    def _deliver_share(self, message: Message, share: str) -> int:
        holders = self._holders.get(share)
        if not holders:
            return 0
        names = sorted(holders)
        names = [name for name in names if self.by_name[name].connected] or names
        self._turn += 1
        name = names[self._turn % len(names)]
        self.by_name[name].take(message, min(holders[name], message.qos), False)
        return 1


def is_shared(topic_filter: str) -> bool:
    return topic_filter.startswith(SHARE_PREFIX)
