"""What brokers tell of themselves and what `metromq status` makes of it: frozen, and the same shape in JSON."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from metromq.reading import read_data

UP: Final = "up"
DOWN: Final = "down"  # no process, or nobody hears it
RESTING: Final = "resting"  # of a link: closed because there was nothing to send, and opened when there is
UNREACHABLE: Final = "unreachable"  # its process lives, or peers hear it, but it does not answer us


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """The durable stream to one peer, and what comes back over the peer's own; control frames are not counted."""

    peer: str
    state: str
    problem: str = ""  # why it is down
    waiting: int = 0  # QoS 1 and 2 messages that were not sent yet
    in_flight: int = 0  # sent, not acknowledged
    backlog: int = 0  # both
    lag_s: float = 0.0  # age of the oldest of them
    messages_sent: int = 0
    bytes_sent: int = 0
    messages_received: int = 0
    bytes_received: int = 0
    messages_sent_per_s: float = 0.0
    bytes_sent_per_s: float = 0.0
    messages_received_per_s: float = 0.0
    bytes_received_per_s: float = 0.0
    via: str = ""  # the broker that messages go through, because the peer cannot be reached directly
    clock_ahead_s: float | None = None  # how far the peer's clock is ahead of this broker's; None: not measured yet
    clock_error_s: float | None = None  # by how much that can be wrong


@dataclass(frozen=True, slots=True)
class AreaStatus:
    """An area that the broker is responsible for; not `home`: it stands in for another."""

    area: str
    epoch: int
    home: bool


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """A cluster of publishers that the broker leads (routing = "overlay"); it is named after its founder."""

    topic: str
    founder: str
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Traffic:
    """Messages from and to clients and their payload bytes, links not counted; rates are of the last seconds."""

    messages_received: int = 0
    messages_sent: int = 0
    messages_dropped: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
    messages_received_per_s: float = 0.0
    messages_sent_per_s: float = 0.0
    bytes_received_per_s: float = 0.0
    bytes_sent_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    name: str
    state: str
    listen: str = ""
    area: str = ""
    site: str = ""
    pid: int = 0  # 0: not on this machine, or not running
    http: str = ""  # where it answers /status, /metrics, /healthz and /explain
    problem: str = ""  # why it is not healthy
    version: str = ""
    uptime_s: float = 0.0
    durability: str = ""
    clients: int = 0  # connected now
    sessions: int = 0  # connected or not
    subscriptions: int = 0
    subscribes: int = 0  # filters that clients have subscribed to since the start
    interest_received: int = 0  # filters that peers have announced since the start
    interest_sent: int = 0  # filters announced to peers, counted for each peer
    retained_messages: int = 0
    retained_bytes: int = 0
    queued_messages: int = 0  # that wait for clients
    traffic: Traffic = dataclasses.field(default_factory=Traffic)
    areas: tuple[AreaStatus, ...] = ()
    clusters: tuple[ClusterStatus, ...] = ()  # that it leads
    worker: str = ""  # the coordination worker that decides for it; empty: none does, or the city has none
    workers: tuple[str, ...] = ()  # all that are there, as far as it knows; the first one leads them
    alive: tuple[str, ...] = ()  # the brokers that this one believes to be there
    table: str = ""  # equal in brokers whose topic tables are equal
    links: tuple[LinkStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class CityStatus:
    city: str
    routing: str
    time: float  # Unix time in seconds
    brokers: tuple[BrokerStatus, ...]


def to_json(status: BrokerStatus | CityStatus) -> dict[str, Any]:
    return dataclasses.asdict(status)


def broker_from_json(raw: Mapping[str, Any]) -> BrokerStatus:
    """Fields that this version does not know are left out, so that versions may differ within a city."""
    return read_data(BrokerStatus, raw, ignore_unknown=True)
