"""The paper's architecture experiment by counting: who subscribes to what, and what six schemes make of it.

A message is external when it crosses the boundary of a network, up to the cloud or down from it. With one broker in
each network a message goes up once if anybody outside wants it, and down once into every network that wants it. Where
a topic is not delegated its clients speak with the central broker, and each of their messages crosses the boundary.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

TOPIC_BYTES = 40
SUBSCRIBER_BYTES = 6

Counts = NDArray[np.int64]  # topic, network: subscribers there


@dataclass(frozen=True, slots=True)
class Setting:
    """Table 2 of the paper. Every publisher has a topic of its own and publishes once a second."""

    networks: int = 10
    publishers: int = 10_000  # per network
    subscribers: int = 100  # per network
    topics: int = 200  # that a subscriber wants
    locality: float = 0.5  # the share of them that is published in its own network
    zipf: float = 0.0  # 0: every topic is as likely; else by rank ** -zipf


@dataclass(frozen=True, slots=True)
class Demand:
    """`subscribers[t, n]` in network n want topic t, which is published in `home[t]`."""

    home: NDArray[np.int64]
    subscribers: Counts
    inside: NDArray[np.int64]  # those at home,
    outside: Counts  # and the others


def demand_of(home: NDArray[np.int64], subscribers: Counts) -> Demand:
    others = subscribers.copy()
    np.put_along_axis(others, home[:, None], 0, 1)
    return Demand(home, subscribers, np.take_along_axis(subscribers, home[:, None], 1)[:, 0], others)


def draw(setting: Setting, rng: np.random.Generator) -> Demand:
    """Each subscriber wants so many different topics, each of its own network or of another by chance."""
    networks, size = setting.networks, setting.publishers
    weights = np.arange(1, size + 1, dtype=float) ** -setting.zipf
    chances = np.cumsum(weights / weights.sum())
    chances[-1] = 1.0
    counts = np.zeros(networks * size, np.int64)
    table = np.zeros((networks * size, networks), np.int64)
    for network in range(networks):
        counts[:] = 0
        for _ in range(setting.subscribers):
            own = min(int(rng.binomial(setting.topics, setting.locality)), size)
            others = min(setting.topics - own, (networks - 1) * size)
            counts[network * size + _different(own, 1, chances, rng)] += 1
            found = _different(others, networks - 1, chances, rng)
            counts[found + size * (found >= network * size)] += 1
        table[:, network] = counts
    return demand_of(np.repeat(np.arange(networks), size), table)


def _different(count: int, networks: int, chances: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """So many different topics of networks of equal size, by chance; drawn again until there are enough."""
    size = len(chances)
    found, batch = np.zeros(0, np.int64), count
    while len(found) < count:
        batch *= 2  # where few topics are popular, most that is drawn is known already
        more = np.searchsorted(chances, rng.random(batch), side="right").clip(0, size - 1)
        more += size * rng.integers(0, networks, len(more))
        together = np.concatenate([found, more])
        _, first = np.unique(together, return_index=True)
        found = together[np.sort(first)][:count]
    return found


# What a scheme delegates: which topics at home, and which of other networks' topics in a network.


def _pairs(demand: Demand) -> NDArray[np.bool_]:
    return demand.inside > 0


def _pairs_and_unwanted(demand: Demand) -> NDArray[np.bool_]:
    nobody: NDArray[np.bool_] = demand.subscribers.sum(1) == 0
    return _pairs(demand) | nobody


def _all(demand: Demand) -> NDArray[np.bool_]:
    return np.ones(len(demand.home), np.bool_)


@dataclass(frozen=True, slots=True)
class Scheme:
    """`at_home` says which topics the broker of their own network has; others' topics from `least` subscribers on."""

    at_home: Callable[[Demand], NDArray[np.bool_]] | None
    least: int = 0  # 0: never
    floods: str = ""  # subscriptions: "" none, "all", or "global" ones only


SCHEMES: dict[str, Scheme] = {
    "centralized": Scheme(None),
    "SF": Scheme(_all, 1, "all"),
    "EMMA": Scheme(_all, 1, "global"),
    "LP": Scheme(_pairs),
    "NS": Scheme(_pairs_and_unwanted),
    "EP": Scheme(_pairs_and_unwanted, 2),
}


def external(scheme: Scheme, demand: Demand) -> int:
    """Messages a second that cross the boundary of a network."""
    if scheme.at_home is None:
        return len(demand.home) + int(demand.subscribers.sum())
    at_home, outside = scheme.at_home(demand), demand.outside
    up = np.where(at_home, outside.sum(1) > 0, True)
    taken = _taken(scheme, outside)
    down = np.where(taken, 1, outside).sum(1)
    straight = np.where(at_home, 0, demand.inside)
    return int((up + down + straight).sum())


def _taken(scheme: Scheme, outside: Counts) -> NDArray[np.bool_]:
    """Where a network's own broker gets others' topics for its clients."""
    return outside >= scheme.least if scheme.least > 1 else (outside > 0) & (scheme.least == 1)


def broker_messages(scheme: Scheme, demand: Demand) -> float:
    """Messages a second into and out of a network's broker, on average."""
    if scheme.at_home is None:
        return 0.0
    at_home, outside = scheme.at_home(demand), demand.outside
    own = np.where(at_home, 1 + demand.inside + (outside.sum(1) > 0), 0).sum()
    others = np.where(_taken(scheme, outside), 1 + outside, 0).sum()
    return float(own + others) / len(demand.subscribers[0])


def table_bytes(scheme: Scheme, demand: Demand) -> float:
    """The subscription table of a network's broker, on average; one entry stands for everybody behind the cloud."""
    if scheme.at_home is None:
        return 0.0
    networks = len(demand.subscribers[0])
    wanted, outside = demand.subscribers.sum(1), demand.outside
    flooded = (wanted > 0) & ((outside.sum(1) > 0) if scheme.floods == "global" else bool(scheme.floods))
    everywhere = np.where(flooded, TOPIC_BYTES + SUBSCRIBER_BYTES * wanted, 0).sum() * networks
    is_own = scheme.at_home(demand) & ~flooded & (wanted > 0)
    entries = demand.inside + (outside.sum(1) > 0)
    own = np.where(is_own, TOPIC_BYTES + SUBSCRIBER_BYTES * entries, 0).sum()
    taken = _taken(scheme, outside) & ~flooded[:, None]
    others = np.where(taken, TOPIC_BYTES + SUBSCRIBER_BYTES * outside, 0).sum()
    return float(everywhere + own + others) / networks
