"""What clients did and saw, with the time of each: all that the judge of the contract may know."""

from dataclasses import dataclass, field
from typing import NamedTuple

FOREVER = float("inf")


class Wish(NamedTuple):
    """A will."""

    topic: str
    payload: str
    delay_s: float


@dataclass(slots=True)
class SeenConnection:
    """One connection of a client: accepted at `opened`, over at `ended`."""

    client: str
    broker: str
    keeps: bool
    will: Wish | None
    asked: float
    opened: float = FOREVER
    ended: float = FOREVER
    present: bool = False
    goodbye: bool = False  # ended with DISCONNECT
    apart: bool = False  # the broker of the connection before was out of reach
    still_since: float = FOREVER  # since when the broker stood still that it came to, or had until just now


@dataclass(slots=True)
class Subscribed:
    client: str
    topic_filter: str
    qos: int
    sent: float
    acked: float = FOREVER
    ended: float = FOREVER  # when the client began to end it


@dataclass(slots=True)
class Published:
    number: int  # in the order in which they were sent
    client: str
    broker: str
    topic: str
    payload: str  # unique; empty: a deletion
    qos: int
    retain: bool
    sent: float
    acked: float = FOREVER
    again: bool = False  # it was under way when its publisher began anew, and may have been sent a second time


@dataclass(slots=True)
class Delivered:
    client: str
    at: float
    topic: str
    payload: str
    qos: int
    retain: bool


@dataclass(slots=True)
class Seen:
    connections: list[SeenConnection] = field(default_factory=list)
    subscriptions: list[Subscribed] = field(default_factory=list)
    published: list[Published] = field(default_factory=list)
    delivered: list[Delivered] = field(default_factory=list)
    # Client and payload of what came and was never shown: the client began anew before it was released.
    forgotten: set[tuple[str, str]] = field(default_factory=set)
    faults: list[tuple[float, str]] = field(default_factory=list)  # when something broke, and what
    mends: list[tuple[float, str]] = field(default_factory=list)  # when something was mended, and what
    deaths: list[tuple[float, str]] = field(default_factory=list)  # when a broker died, and which
    routing: str = ""
    lag_s: float = 1.0  # how long a message may take between brokers when nothing is broken
    reroutes: list[tuple[float, float]] = field(default_factory=list)  # from when to when brokers had two
    slow: list[tuple[float, float, float]] = field(default_factory=list)  # from when to when, by how much a link
    probes: dict[str, dict[str, str]] = field(default_factory=dict)  # at the end: broker -> topic -> retained value
    sessions: dict[str, list[str]] = field(default_factory=dict)  # at the end: client -> brokers that keep its session
    stuck: str = ""  # why the city did not come to rest

    def slowed(self, at: float, by_s: float) -> None:
        self.slow.append((at, FOREVER, by_s))

    def healed(self, at: float) -> None:
        """What was under way before comes as late as it was sent."""
        self.slow = [(begun, min(over, at + by_s), by_s) for begun, over, by_s in self.slow]

    def reroutes_from(self, at: float) -> None:
        if not self.reroutes or self.reroutes[-1][1] < FOREVER:
            self.reroutes.append((at, FOREVER))

    def rerouted(self, at: float) -> None:
        """All brokers work by the new routing."""
        if self.reroutes:
            self.reroutes[-1] = self.reroutes[-1][0], min(self.reroutes[-1][1], at)

    def lag_between(self, start: float, end: float) -> float:
        """How long a message that is under way between two times may take: two links, both may be the slowest."""
        slowest = max((by_s for begun, over, by_s in self.slow if begun <= end and over >= start), default=0.0)
        return self.lag_s + 2 * slowest
