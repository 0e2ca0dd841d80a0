"""The geographic paper's costs: messages that one broker receives and sends per second, in three broker networks."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

SCHEMES = ("flood-publications", "flood-subscriptions", "geographic")


@dataclass(frozen=True, slots=True)
class Load:
    """The paper's parameters; the defaults are those of its figure 5."""

    level: int = 3  # of the brokers: 4 ** level of them
    publishers: int = 500  # per broker
    subscribers: int = 10_000  # per broker
    publish_interval_s: float = 10.0
    subscribe_interval_s: float = 150.0
    other: float = 0.3  # share of subscriptions to another area
    missed: float = 0.4  # share of publishers that are attached to another area's broker

    @property
    def brokers(self) -> int:
        return int(4**self.level)


@dataclass(frozen=True, slots=True)
class Cost:
    """Messages per broker and second."""

    publish_in: float
    subscribe_in: float
    publish_out: float
    subscribe_out: float

    @property
    def total(self) -> float:
        return self.publish_in + self.subscribe_in + self.publish_out + self.subscribe_out


def mean(costs: Sequence[Cost]) -> Cost:
    """Of several brokers."""
    return Cost(*(sum(getattr(one, field.name) for one in costs) / len(costs) for field in fields(Cost)))


def cost(scheme: str, load: Load) -> Cost:
    published = load.publishers / load.publish_interval_s
    delivered = load.subscribers / load.publish_interval_s
    changed = load.subscribers / load.subscribe_interval_s
    others = load.brokers - 1
    if scheme == "flood-publications":
        return Cost(load.brokers * published, changed, delivered + others * published, 0.0)
    if scheme == "flood-subscriptions":
        return Cost(
            published + load.other * delivered,
            load.brokers * changed,
            (1 + load.other) * delivered,
            others * changed,
        )
    return Cost(
        (1 + load.missed) * published + load.other * delivered,
        (1 + load.other) * changed,
        (1 + load.other) * delivered + load.missed * published,
        load.other * changed,
    )
