"""What each routing choice and delegation policy would cost: messages and table entries, counted without simulating.

For every topic let p[n] be its publications at site n and s[n] its subscribers there. Every cost below is a sum over
topics, so that topics can be divided between tasks. Sites with neither publications nor subscribers of a topic need no
row. The lab's simulator and a message-by-message twin in the tests agree with these sums.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

TOPIC_BYTES: Final = 40  # as the delegation paper counts tables
ENTRY_BYTES: Final = 6

Array = Any  # a numpy array


@dataclass(frozen=True, slots=True)
class Demand:
    """The rows (topic, site) of some topics, whole topics only."""

    sites: int
    topic: Array  # 0 .. topics - 1, per row
    site: Array  # 0 .. sites - 1, per row
    published: Array  # p, per row
    subscribers: Array  # s, per row
    owner: Array  # per row, the site responsible for the topic's area; -1: it has none

    @property
    def topics(self) -> int:
        return int(self.topic.max()) + 1 if len(self.topic) else 0


@dataclass(frozen=True, slots=True)
class Cost:
    """Per site, and last for the cloud: messages in and out, those of them sent to another site, and the table."""

    messages_in: Array
    messages_out: Array
    between: Array
    table_topics: Array
    table_entries: Array

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*(mine + theirs for mine, theirs in zip(_fields(self), _fields(other), strict=True)))


def _fields(cost: Cost) -> tuple[Array, ...]:
    return cost.messages_in, cost.messages_out, cost.between, cost.table_topics, cost.table_entries


def demand(sites: int, keys: Array, site: Array, published: Array, subscribers: Array, owner: Array) -> Demand:
    """`keys` name topics in any way; here they become small numbers."""
    topic = pa.array(keys).dictionary_encode().indices.to_numpy()
    return Demand(sites, topic, site, published, subscribers, owner)


@dataclass(frozen=True, slots=True)
class _Sums:
    """What every choice needs: per row its topic's totals."""

    wants: Array  # 1 where the site has a subscriber
    everywhere: Array  # publications of the topic at all sites
    wanting: Array  # sites that want the topic
    held: Array  # subscribers of the topic at all sites


def _sums(rows: Demand) -> _Sums:
    wants = (rows.subscribers > 0).astype(np.float64)

    def total(weights: Array) -> Array:
        return np.bincount(rows.topic, weights, rows.topics)[rows.topic]

    return _Sums(wants, total(rows.published), total(wants), total(rows.subscribers))


class _Ledger:
    """Adds up per site; index `sites` is the cloud."""

    def __init__(self, rows: Demand) -> None:
        self._rows = rows
        self.columns = [np.zeros(rows.sites + 1) for _ in range(5)]

    def add(self, column: int, weights: Array, at: Array | None = None) -> None:
        site = self._rows.site if at is None else at
        self.columns[column] += np.bincount(site, weights, self._rows.sites + 1)

    def cloud(self, column: int, amount: float) -> None:
        self.columns[column][-1] += amount

    def send(self, weights: Array, to: Array | None = None, by: Array | None = None) -> None:
        """Copies that leave one site for another."""
        self.add(_OUT, weights, by)
        self.add(_BETWEEN, weights, by)
        if to is not None:
            self.add(_IN, weights, to)

    def cost(self) -> Cost:
        return Cost(*self.columns)


_IN, _OUT, _BETWEEN, _TOPICS, _ENTRIES = range(5)


def _clients(ledger: _Ledger, rows: Demand, sums: _Sums) -> None:
    """Publishers hand their messages to their site's broker, which serves its own subscribers."""
    ledger.add(_IN, rows.published)
    ledger.add(_OUT, rows.subscribers * sums.everywhere)
    ledger.add(_TOPICS, sums.wants)
    ledger.add(_ENTRIES, rows.subscribers)


def flood_publications(rows: Demand, central: int) -> Cost:
    ledger, sums = _Ledger(rows), _sums(rows)
    _clients(ledger, rows, sums)
    ledger.send(rows.published * (rows.sites - 1))
    for site, own in enumerate(np.bincount(rows.site, rows.published, rows.sites)):
        ledger.columns[_IN][site] += rows.published.sum() - own
    return ledger.cost()


def flood_subscriptions(rows: Demand, central: int) -> Cost:
    ledger, sums = _Ledger(rows), _sums(rows)
    _clients(ledger, rows, sums)
    _straight(ledger, rows, sums, np.ones(len(rows.topic)))
    return ledger.cost()


def _straight(ledger: _Ledger, rows: Demand, sums: _Sums, chosen: Array) -> None:
    """Every broker knows who wants a topic and sends a copy to each of them, for the rows of the chosen topics."""
    ledger.send(chosen * rows.published * (sums.wanting - sums.wants))
    ledger.add(_IN, chosen * sums.wants * (sums.everywhere - rows.published))
    # At every other site: an entry per wanting site, and a topic where that site does not want it itself.
    once = _first_rows(rows)
    announced = float((chosen * sums.wants).sum())
    wanted = float((chosen * once * (sums.wanting > 0)).sum())
    own = np.bincount(rows.site, chosen * sums.wants, rows.sites)
    ledger.columns[_ENTRIES][:-1] += announced - own
    ledger.columns[_TOPICS][:-1] += wanted - own


def _first_rows(rows: Demand) -> Array:
    """1 on one row of every topic, for sums over topics."""
    once = np.zeros(len(rows.topic))
    if len(rows.topic):
        _, places = np.unique(rows.topic, return_index=True)
        once[places] = 1.0
    return once


def central_broker(rows: Demand, central: int) -> Cost:
    ledger, sums = _Ledger(rows), _sums(rows)
    _clients(ledger, rows, sums)
    _through(ledger, rows, sums, np.full(len(rows.topic), central), np.ones(len(rows.topic)))
    return ledger.cost()


def geographic(rows: Demand, central: int) -> Cost:
    ledger, sums = _Ledger(rows), _sums(rows)
    _clients(ledger, rows, sums)
    placed = rows.owner >= 0
    _through(ledger, rows, sums, np.where(placed, rows.owner, 0), placed.astype(np.float64))
    _straight(ledger, rows, sums, (~placed).astype(np.float64))
    return ledger.cost()


def _through(ledger: _Ledger, rows: Demand, sums: _Sums, owner: Array, chosen: Array) -> None:
    """Publications go to the topic's owner, which sends one copy to every site that wants it, but the publisher's."""
    elsewhere = chosen * (rows.site != owner)
    ledger.send(elsewhere * rows.published, to=owner)
    served = elsewhere * sums.wants
    copies = served * (sums.everywhere - rows.published)
    ledger.send(copies, by=owner)
    ledger.add(_IN, copies)
    ledger.add(_ENTRIES, served, owner)
    # The owner's table gains a topic that only others want: once per topic, and not if it wants the topic itself.
    own = np.bincount(rows.topic, chosen * (rows.site == owner) * sums.wants, rows.topics)[rows.topic]
    ledger.add(_TOPICS, _first_rows(rows) * chosen * (sums.wanting > 0) * (1 - own), owner)


def centralised(rows: Demand, central: int) -> Cost:
    """The papers' baseline: no broker at the edge, every client talks to the cloud."""
    ledger, sums = _Ledger(rows), _sums(rows)
    deliveries = rows.subscribers * sums.everywhere
    ledger.add(_BETWEEN, rows.published + deliveries)
    ledger.cloud(_IN, rows.published.sum())
    ledger.cloud(_OUT, deliveries.sum())
    ledger.cloud(_TOPICS, (_first_rows(rows) * (sums.wanting > 0)).sum())
    ledger.cloud(_ENTRIES, rows.subscribers.sum())
    return ledger.cost()


def subscription_flooding(rows: Demand, central: int) -> Cost:
    return _flooded(rows, np.ones(len(rows.topic), bool))


def emma(rows: Demand, central: int) -> Cost:
    """Subscription flooding, but a subscription to what only its own network publishes is not flooded."""
    return _flooded(rows, _sums(rows).everywhere != rows.published)


def _flooded(rows: Demand, flooded: Array) -> Cost:
    """One copy up if any other network wants it, one down to each; the backbone multiplies."""
    ledger, sums = _Ledger(rows), _sums(rows)
    _clients(ledger, rows, sums)
    outside = (sums.wanting - sums.wants) > 0
    down = sums.wants * (sums.everywhere - rows.published)
    ledger.send(rows.published * outside)
    ledger.add(_IN, down)
    ledger.add(_BETWEEN, down)
    told = flooded * sums.wants
    at_others = told.sum() - np.bincount(rows.site, told, rows.sites)
    ledger.columns[_ENTRIES][:-1] += at_others
    known = np.bincount(rows.topic, told, rows.topics)[rows.topic]
    heard = float((_first_rows(rows) * (known > 0)).sum())
    ledger.columns[_TOPICS][:-1] += heard - np.bincount(rows.site, sums.wants * (known > 0), rows.sites)
    return ledger.cost()


def _delegation(policy: str) -> Callable[[Demand, int], Cost]:
    def count(rows: Demand, central: int) -> Cost:
        return _delegated(rows, _chosen(policy, rows))

    return count


def _chosen(policy: str, rows: Demand) -> Array:
    """LP: published and subscribed inside. NS: and published inside for nobody. EP: and wanted twice from outside."""
    sums = _sums(rows)
    inside = (rows.published > 0) & (rows.subscribers > 0)
    if policy == "lp":
        return inside
    inside |= (rows.published > 0) & (sums.held == 0)
    if policy == "ns":
        return inside
    return inside | ((sums.everywhere > rows.published) & (rows.subscribers >= 2))


def _delegated(rows: Demand, chosen: Array) -> Cost:
    """A delegated topic's publications stay inside but for one copy up if someone outside wants it; all others go up.
    Down comes one copy to a delegated broker, else one for every subscriber. Only delegated topics touch the broker."""
    ledger, sums = _Ledger(rows), _sums(rows)
    outside = (sums.held - rows.subscribers) > 0
    up = rows.published * (~chosen | outside)
    from_others = sums.everywhere - rows.published
    down = np.where(chosen, sums.wants * from_others, rows.subscribers * sums.everywhere)
    ledger.add(_BETWEEN, up + down)
    ledger.add(_IN, chosen * (rows.published + sums.wants * from_others))
    ledger.add(_OUT, chosen * (rows.published * outside + rows.subscribers * sums.everywhere))
    ledger.add(_TOPICS, chosen * sums.wants)
    ledger.add(_ENTRIES, chosen * (rows.subscribers + (sums.wants > 0) * outside * (rows.published > 0)))
    ledger.cloud(_IN, up.sum())
    ledger.cloud(_OUT, down.sum())
    return ledger.cost()


CHOICES: Final[dict[str, Callable[[Demand, int], Cost]]] = {
    "central": central_broker,
    "flood-publications": flood_publications,
    "flood-subscriptions": flood_subscriptions,
    "geographic": geographic,
    "centralised": centralised,
    "sf": subscription_flooding,
    "emma": emma,
    "delegation-lp": _delegation("lp"),
    "delegation-ns": _delegation("ns"),
    "delegation-ep": _delegation("ep"),
}
