"""Coordination workers: they answer brokers with Algorithms 1 and 2 on what the city knows; pure.

The paper's servers. Each broker has one worker, which the leader of the workers gives it. A request says that clients
of the broker publish a topic, or want a filter, or that it needs another broker to get a topic from; the answer is the
facts of the overlay, written together with the end of the request, so that a worker that dies has answered it or not,
and another one finds it. A subscription to a topic that nobody publishes is kept as a fact; the answer to the topic's
first publisher answers it too.
"""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import final

from metromq.federation.city import City
from metromq.federation.coordination.facts import CITY, CLUSTER, PUBLISHER, SUBSCRIBER, WANTED, Book, Fact
from metromq.federation.description import described
from metromq.federation.routing.clusters import Cluster, find_publish_broker, find_publish_cluster
from metromq.federation.routing.overlay_map import (
    GETS,
    KINDS,
    PUBLISHES,
    WANTS,
    OverlayMap,
    TopicOverlay,
    distance_km,
    key_of,
    nearest_member,
    split_key,
)
from metromq.protocol.topics import matches


def is_plain(topic_filter: str) -> bool:
    return "+" not in topic_filter and "#" not in topic_filter


@dataclass(frozen=True, slots=True)
class Request:
    """What a broker asks at once; `asks` are facts of the kind REQUEST."""

    broker: str
    number: str  # by which the broker knows the answer
    asks: tuple[Fact, ...]


def assigned(workers: Iterable[str], brokers: Iterable[str], now: Mapping[str, str]) -> dict[str, str]:
    """A worker for each broker: evenly, and everybody keeps the one it has, as far as that is even."""
    names, clients = sorted(workers), sorted(brokers)
    if not names:
        return {}
    most, spare = divmod(len(clients), len(names))
    loads = dict.fromkeys(names, 0)
    found: dict[str, str] = {}
    for broker in clients:
        worker = now.get(broker, "")
        room = most + (1 if spare else 0)
        if worker in loads and loads[worker] < room:
            loads[worker] += 1
            spare -= loads[worker] > most
            found[broker] = worker
    for broker in clients:
        if broker not in found:
            found[broker] = min(names, key=lambda name: (loads[name], name))
            loads[found[broker]] += 1
    return found


@final
class Worker:
    """What one worker knows, and what it answers. What it answered counts when it comes back by `facts_said`."""

    def __init__(self, city: City) -> None:
        self.city = city
        self.book = Book(city.names)
        self.map = OverlayMap()
        self.wants: dict[str, set[str]] = {}  # broker -> filters
        self.alive: AbstractSet[str] = frozenset(city.names)
        self._wanted_plain: dict[str, set[str]] = {}  # topic -> brokers
        self._wanted_wild: dict[str, set[str]] = {}
        self._epoch = 0  # of the city's description

    def facts_said(self, facts: Iterable[Fact]) -> None:
        facts = tuple(facts)
        for fact in facts:
            if fact.kind == CITY and fact.epoch > self._epoch:  # brokers have come, or moved
                self._epoch, self.city = fact.epoch, described(fact, self.city).city
        for change in self.book.merge(fact for fact in facts if fact.kind in (*KINDS, WANTED)):
            fact = change.after
            if fact.kind == WANTED:
                self._note_wanted(*split_key(fact.key), bool(fact.owner))
            else:
                self.map.note(fact)

    def _note_wanted(self, broker: str, topic_filter: str, is_wanted: bool) -> None:
        index = self._wanted_plain if is_plain(topic_filter) else self._wanted_wild
        for place, key, item in ((self.wants, broker, topic_filter), (index, topic_filter, broker)):
            if is_wanted:
                place.setdefault(key, set()).add(item)
            elif key in place:
                place[key].discard(item)
                if not place[key]:
                    del place[key]

    def living(self, brokers: Iterable[str]) -> None:
        self.alive = frozenset(brokers)

    def who_wants(self, topic: str) -> set[str]:
        found = set(self._wanted_plain.get(topic, ()))
        for topic_filter, brokers in self._wanted_wild.items():
            if matches(topic_filter, topic):
                found |= brokers
        return found

    def answer(self, requests: Iterable[Request]) -> tuple[Fact, ...]:
        """The facts that answer them, in their order."""
        draft = _Draft(self)
        for request in requests:
            for ask in request.asks:
                verb, topic = split_key(ask.key)
                _ANSWERS[verb](draft, request.broker, topic, bool(ask.value))
        return tuple(draft.facts.values())


def topics_of(facts: Iterable[Fact]) -> tuple[str, ...]:
    """The topics that an answer is about."""
    return tuple(dict.fromkeys(split_key(fact.key)[1] for fact in facts))


@final
class _Draft:
    """An answer that grows: what the worker knows, and what it is about to say."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.city = worker.city
        self.facts: dict[tuple[str, str], Fact] = {}
        self._topics: dict[str, TopicOverlay] = {}
        self._wants: dict[str, set[str]] = {}

    # What the algorithms ask.

    def distance_km(self, one: str, other: str) -> float:
        return distance_km(self.city, one, other)

    def wanted_by(self, broker: str) -> AbstractSet[str]:
        own = self._wants.get(broker)
        return own if own is not None else self._worker.wants.get(broker) or frozenset()

    # What is known.

    def topic(self, topic: str) -> TopicOverlay:
        found = self._topics.get(topic)
        if found is None:
            known = self._worker.map.topics.get(topic) or TopicOverlay()
            found = self._topics[topic] = TopicOverlay()
            found.clusters, found.leaders, found.feeds = dict(known.clusters), dict(known.leaders), dict(known.feeds)
        return found

    def topics(self, topic_filter: str) -> list[str]:
        """Those with clusters that the filter matches."""
        if is_plain(topic_filter):
            return [topic_filter]
        every = dict.fromkeys((*self._worker.map.topics, *self._topics))
        return [topic for topic in every if matches(topic_filter, topic)]

    def clusters(self, topic: str) -> list[Cluster]:
        """Those with members that are there."""
        overlay = self.topic(topic)
        members: dict[str, list[str]] = {}
        for name, founder in overlay.clusters.items():
            if name in self._worker.alive:
                members.setdefault(founder, []).append(name)
        return [Cluster(founder, overlay.leaders.get(founder, ""), tuple(names)) for founder, names in members.items()]

    def who_wants(self, topic: str) -> list[str]:
        found = self._worker.who_wants(topic)
        for broker, filters in self._wants.items():
            (found.add if any(matches(text, topic) for text in filters) else found.discard)(broker)
        return sorted(found)

    def is_there(self, broker: str) -> bool:
        return broker in self._worker.alive

    def wants(self, broker: str, topic: str) -> bool:
        return any(matches(text, topic) for text in self.wanted_by(broker))

    # What is said.

    def want(self, broker: str, topic_filter: str, is_wanted: bool) -> bool:
        """Whether that is news."""
        own = self._wants.get(broker)
        if own is None:
            own = self._wants[broker] = set(self._worker.wants.get(broker, ()))
        if (topic_filter in own) == is_wanted:
            return False
        (own.add if is_wanted else own.discard)(topic_filter)
        self.put(WANTED, broker, topic_filter, broker if is_wanted else "")
        return True

    def put(self, kind: str, broker: str, topic: str, owner: str, value: str = "") -> None:
        key = key_of(broker, topic)
        said = self.facts.get((kind, key)) or self._worker.book.get(kind, key)
        epoch = said.epoch if (kind, key) in self.facts else said.epoch + 1  # one write, whatever was said on the way
        self.facts[kind, key] = Fact(kind, key, owner, epoch, value)

    def serve(self, broker: str, topic: str) -> None:
        """Algorithm 2, unless the broker publishes the topic itself or is served by one that is there."""
        overlay = self.topic(topic)
        now = overlay.feeds.get(broker, "")
        if broker in overlay.clusters or (now in overlay.clusters and now in self._worker.alive):
            return
        found = find_publish_broker(broker, self.clusters(topic), self, self.city.overlay.beta)
        if found is not None and found.broker != now:
            overlay.feeds[broker] = found.broker
            self.put(SUBSCRIBER, broker, topic, broker, found.broker)


def _publishes(draft: _Draft, broker: str, topic: str, no_more: bool) -> None:
    """Algorithm 1; whoever waited for a publisher is answered with it."""
    overlay = draft.topic(topic)
    if no_more:
        _leaves(draft, broker, topic)
        return
    if broker in overlay.clusters:
        return
    found = find_publish_cluster(broker, draft.clusters(topic), draft, draft.city.overlay.max_distance_km)
    founder = found.cluster.founder if found is not None else broker
    if founder == broker and not overlay.leaders.get(broker):
        overlay.leaders[broker] = broker
        draft.put(CLUSTER, broker, topic, broker)
    overlay.clusters[broker] = founder
    draft.put(PUBLISHER, broker, topic, broker, founder)
    for waiting in draft.who_wants(topic):
        draft.serve(waiting, topic)


def _leaves(draft: _Draft, broker: str, topic: str) -> None:
    """A cluster that it led gets another leader, and whoever got the topic from it another publisher."""
    overlay = draft.topic(topic)
    if overlay.clusters.pop(broker, None) is None:
        return
    draft.put(PUBLISHER, broker, topic, "")
    for founder in [founder for founder, leader in overlay.leaders.items() if leader == broker]:
        heir = nearest_member(draft.city, overlay, founder, draft.is_there)
        draft.put(CLUSTER, founder, topic, heir)
        overlay.leaders.pop(founder)
        if heir:
            overlay.leaders[founder] = heir
    for waiting in draft.who_wants(topic):
        draft.serve(waiting, topic)
    for served in [served for served, server in overlay.feeds.items() if server == broker]:  # nobody else publishes it
        del overlay.feeds[served]
        draft.put(SUBSCRIBER, served, topic, "")


def _wants(draft: _Draft, broker: str, topic_filter: str, is_wanted: bool) -> None:
    is_news = draft.want(broker, topic_filter, is_wanted)
    for topic in draft.topics(topic_filter) if is_news or not is_wanted else ():
        overlay = draft.topic(topic)
        if is_wanted:
            draft.serve(broker, topic)
        elif broker in overlay.feeds and not draft.wants(broker, topic):
            del overlay.feeds[broker]
            draft.put(SUBSCRIBER, broker, topic, "")


def _gets(draft: _Draft, broker: str, topic: str, _: bool) -> None:
    draft.serve(broker, topic)


_ANSWERS: Mapping[str, Callable[[_Draft, str, str, bool], None]] = {PUBLISHES: _publishes, WANTS: _wants, GETS: _gets}
