"""Overlay: the brokers that publish a topic form clusters by place and interest, and lead its messages to the others.

A broker that publishes a topic joins a cluster near it, or founds one (Algorithm 1); one that only wants it chooses a
publisher to get it from (Algorithm 2, both in clusters.py). A message goes straight to the members of the own cluster
and, through the leaders of the two clusters, to those of others; each publisher brings it to the subscribers that chose
it. Clusters, leaders and choices are facts of the book, each written by the broker that it is about, so that brokers
which decide at the same time never disagree.

Every broker knows what the others want (the paper's coordination database), so the publisher's broker knows everybody
that a message is for. A copy for a relay names its share of them, and none is lost or served twice because two brokers
see the clusters differently: facts decide which way a message takes, not who gets it. Where there is no fact, or a
relay is gone, a message goes straight.
"""

from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet
from typing import Final, final

from metromq.federation.city import City
from metromq.federation.coordination.facts import CLUSTER, PUBLISHER, REQUEST, SUBSCRIBER, Change, Fact
from metromq.federation.coordination.succession import Living, Succession, TopicTable
from metromq.federation.interest import FilterIndex, plain_filter
from metromq.federation.routing.clusters import Choice, Cluster, find_publish_broker, find_publish_cluster
from metromq.federation.routing.few_links import links_between, next_on_ways
from metromq.federation.routing.overlay_map import (
    GETS,
    KINDS,
    NO_MORE,
    PUBLISHES,
    WANTS,
    OverlayMap,
    TopicOverlay,
    distance_km,
    key_of,
    nearest_member,
    split_key,
)
from metromq.federation.routing.router import EVERYTHING, STAY, Audience, Carry, Router, Suggestion, Ways, stays_here
from metromq.federation.stages import CLIENT
from metromq.protocol.topics import matches

MANY: Final = 1000  # topics that are named one by one


def _is_nearer(city: City, founder: str, one: str, other: str) -> bool:
    return (distance_km(city, founder, one), one) < (distance_km(city, founder, other), other)


class OverlayWays(Ways):
    """One broker's part: decides ways, remembers what its clients do, and says what the city is to agree on."""

    leads = True

    def __init__(self, city: City, name: str, table: TopicTable) -> None:
        super().__init__()
        self.city, self.name, self.table = city, name, table
        succession = table.succession  # of another kind while a city changes its routing
        self.map = succession.map if isinstance(succession, OverlaySuccession) else OverlayMap()
        self._alive: frozenset[str] | None = None  # nobody has said yet that somebody is gone
        self._joined: dict[str, str] = {}  # topics that clients here publish -> the founder of the cluster
        self._left: set[str] = set()  # topics that they published once: what was said of them stays in every book
        self._heard: set[str] = set()  # topics that they have published since the last turn,
        self._turns_us = 0  # and when the next one is; 0: time has not begun
        self._filters = FilterIndex()  # what clients here want
        self._open: dict[str, None] = {}  # topics whose facts may have to change
        self._links: tuple[tuple[str, ...], frozenset[str], dict[str, str]] | None = None  # members, living, next
        for kind in KINDS:
            self.learnt(tuple(Change(fact, fact) for fact in table.book.of_kind(kind)))

    # Where messages go.

    def carriers(self, topic: str, peers: tuple[str, ...], passed: Collection[str]) -> tuple[Carry, ...]:
        overlay = self.map.topics.get(topic)
        if self.city.overlay.max_links:
            steps = {peer: self._linked_step(peer, passed) for peer in peers}
        elif overlay is not None:
            steps = {peer: self._step(overlay, topic, peer, passed) for peer in peers}
        else:
            return ()
        relays = {step for peer, step in steps.items() if step != peer}
        found: dict[str, list[str]] = {}
        for peer, step in steps.items():
            relay = peer if peer in relays else step  # a relay that wants the message gets it with its share
            if relay in relays:
                found.setdefault(relay, []).append(peer)
        return tuple(Carry(relay, tuple(targets), self._role(overlay, relay)) for relay, targets in found.items())

    def _linked_step(self, target: str, passed: Collection[str]) -> str:
        """The next broker on the way that has few links (few_links.py); where there is none: straight."""
        step = self._next_links().get(target, target)
        return step if step not in passed else target

    def _next_links(self) -> dict[str, str]:
        members = self.table.book.members
        living = self._alive if self._alive is not None else frozenset(members)
        if self._links is None or self._links[0] is not members or self._links[1] != living:
            known = [name for name in members if name in self.city.by_name]
            places = tuple((name, *self.city.place_of(name)) for name in known)
            links = links_between(places, self.city.overlay.max_links, self.city.distance_km)
            self._links = members, living, next_on_ways(self.name, links, living, self.city.distance_km)
        return self._links[2]

    def _step(self, overlay: TopicOverlay, topic: str, target: str, passed: Collection[str]) -> str:
        """The next broker on the way to one that wants the topic; the target itself: straight."""
        for step in self._way(overlay, topic, target):
            if step not in passed and self._lives(step):
                return step
        return target

    def _way(self, overlay: TopicOverlay, topic: str, target: str) -> Iterator[str]:
        """The brokers between here and a target: leaders, and the publisher that serves it."""
        server = overlay.feeds.get(target, target)
        theirs = overlay.clusters.get(server)
        if theirs is None or server == self.name:
            return
        own = overlay.clusters.get(self.name) or self._joined.get(topic)
        if own != theirs:
            for leader in (overlay.leaders.get(own or "", self.name), overlay.leaders.get(theirs, "")):
                if leader == self.name:
                    continue
                yield leader
        if server != target:
            yield server

    def _lives(self, broker: str) -> bool:
        members = self.table.book.members if self._alive is None else self._alive
        return broker != self.name and broker in members

    def _role(self, overlay: TopicOverlay | None, broker: str) -> str:
        if self.city.overlay.max_links or overlay is None:
            return f"is next on the way along {self.city.overlay.max_links} links at each broker"
        founder = overlay.clusters.get(broker, "")
        if overlay.leaders.get(founder) == broker:
            return f"leads the cluster {founder} of {len(overlay.members(founder))}"
        return f"publishes the topic, in the cluster {founder or '(none)'}"

    # What happens.

    def expects(self, topic: str) -> bool:
        """Once for each turn. The topics that facts were ever made about are bounded, too."""
        if topic in self._heard or stays_here(topic):
            return False
        most, now = self.city.overlay.max_topics, len(self._joined)
        has_room = now < most and (topic in self._left or now + len(self._left) < 2 * most)
        return topic in self._joined or has_room

    def published(self, topic: str) -> bool:
        self._heard.add(topic)
        if topic in self._joined:
            return False
        self._join(topic)
        self._open[topic] = None
        return True

    def _join(self, topic: str) -> None:
        found = self._find_cluster(topic)
        self._joined[topic] = found.cluster.founder if found is not None else self.name

    def listens(self, now_us: int) -> tuple[str, ...]:
        """A topic that was not published for a whole turn is given back."""
        turn_us = self.city.overlay.idle_s * 1_000_000
        if now_us < self._turns_us or not turn_us:
            return ()
        is_first, self._turns_us = not self._turns_us, now_us + turn_us
        if is_first:
            return ()
        idle = [topic for topic in self._joined if topic not in self._heard]
        heard, self._heard = self._heard, set()
        for topic in idle:
            del self._joined[topic]
            self._open[topic] = None
        return tuple(heard) if len(heard) < MANY else EVERYTHING

    def wanted(self, topic_filter: str, is_wanted: bool) -> None:
        if topic_filter != plain_filter(topic_filter):
            return  # the publisher's broker chooses the member of a shared subscription, and serves it straight
        self._filters.put(topic_filter, 1 if is_wanted else 0)
        if "+" not in topic_filter and "#" not in topic_filter:
            self._open[topic_filter] = None
        else:
            self._open.update((topic, None) for topic in self.map.topics if matches(topic_filter, topic))

    def learnt(self, changes: tuple[Change, ...]) -> tuple[str, ...]:
        topics: dict[str, None] = {}
        for change in changes:
            fact = change.after
            if fact.kind not in KINDS:
                return self._learnt_all(changes)
            topics[self.map.note(fact)] = None
            if fact.kind == PUBLISHER:
                self._learnt_of_own(fact)
        self._open.update(topics)
        return tuple(topics)

    def _learnt_of_own(self, fact: Fact) -> None:
        broker, topic = split_key(fact.key)
        if broker == self.name and fact.owner:
            self._joined[topic] = fact.value
            self._left.discard(topic)
        elif broker == self.name:
            self._left.add(topic)

    def _learnt_all(self, changes: tuple[Change, ...]) -> tuple[str, ...]:
        """Somebody has joined or left, too."""
        self.learnt(tuple(change for change in changes if change.after.kind in KINDS))
        self._open.update(dict.fromkeys(self.map.topics))
        return EVERYTHING

    def living(self, alive: tuple[str, ...]) -> tuple[str, ...]:
        before = frozenset(self.table.book.members) if self._alive is None else self._alive
        self._alive = frozenset(alive)
        self._open.update(dict.fromkeys(self.map.topics))
        return tuple(sorted(before - self._alive - {self.name}))

    # What the city is to agree on.

    def proposals(self) -> tuple[Fact, ...]:
        topics, self._open = self._open, {}
        return tuple(
            fact for topic in topics for fact in (*self._leads(topic), *self._membership(topic), *self._feed(topic))
        )

    def _leads(self, topic: str) -> Iterator[Fact]:
        """A leader that leaves its cluster names another, and one without a leader gets one."""
        overlay, own, book = self.map.topics.get(topic), self._joined.get(topic, ""), self.table.book
        for founder, leader in overlay.leaders.items() if overlay is not None else ():
            if leader == self.name and founder != own:
                heir = nearest_member(self.city, overlay, founder, self._lives)
                yield book.next(CLUSTER, key_of(founder, topic), heir)
        if own and not book.owner(CLUSTER, key_of(own, topic)):
            heir = nearest_member(self.city, overlay, own, self._lives)
            if own == self.name or not heir or _is_nearer(self.city, own, self.name, heir):
                yield book.next(CLUSTER, key_of(own, topic), self.name)

    def _membership(self, topic: str) -> Iterator[Fact]:
        founder = self._joined.get(topic)
        book, key = self.table.book, key_of(self.name, topic)
        known = book.get(PUBLISHER, key)
        if founder is not None and (known.owner, known.value) != (self.name, founder):
            yield book.next(PUBLISHER, key, self.name, founder)
        elif founder is None and known.owner == self.name:
            yield book.next(PUBLISHER, key, "")

    def _feed(self, topic: str) -> Iterator[Fact]:
        """Whom this broker gets the topic from. It keeps to one that publishes and is there: a change of ways would let
        messages overtake each other. For the same reason a subscriber that begins to publish keeps its choice."""
        overlay = self.map.topics.get(topic)
        now = overlay.feeds.get(self.name, "") if overlay is not None else ""
        if overlay is None or (now in overlay.clusters and self._lives(now) and self._wants(topic)):
            return
        if self.name in overlay.clusters and topic not in self._joined:
            return  # it leaves its cluster, and chooses when that is known
        chosen = ""
        if self._wants(topic) and topic not in self._joined:
            found = self.find_server(topic)
            chosen = found.broker if found is not None else ""
        if chosen != now:
            key = key_of(self.name, topic)
            yield self.table.book.next(SUBSCRIBER, key, self.name if chosen else "", chosen)

    def _wants(self, topic: str) -> bool:
        return bool(self._filters.matching(topic))

    # The algorithms, on what this broker knows.

    def clusters(self, topic: str) -> list[Cluster]:
        """Those with members that are there."""
        overlay = self.map.topics.get(topic)
        if overlay is None:
            return []
        members: dict[str, list[str]] = {}
        for name, founder in overlay.clusters.items():
            if name == self.name or self._lives(name):
                members.setdefault(founder, []).append(name)
        return [Cluster(founder, overlay.leaders.get(founder, ""), tuple(names)) for founder, names in members.items()]

    def _find_cluster(self, topic: str) -> Choice | None:
        return find_publish_cluster(self.name, self.clusters(topic), _Ground(self), self.city.overlay.max_distance_km)

    def find_server(self, topic: str) -> Choice | None:
        """Algorithm 2 for this broker; None: nobody else publishes the topic."""
        return find_publish_broker(self.name, self.clusters(topic), _Ground(self), self.city.overlay.beta)


@final
class AskingWays(OverlayWays):
    """Where coordination workers decide (workers.py): this broker asks, and what they have decided comes as facts.

    Until an answer is there messages go straight, so nobody waits for one.
    """

    def __init__(self, city: City, name: str, table: TopicTable) -> None:
        super().__init__(city, name, table)
        self._told: dict[str, bool] = {}  # filters that clients here want, or do not any more, since the last tick

    def _join(self, topic: str) -> None:
        self._joined[topic] = ""

    def wanted(self, topic_filter: str, is_wanted: bool) -> None:
        super().wanted(topic_filter, is_wanted)
        if topic_filter == plain_filter(topic_filter):
            self._told[topic_filter] = is_wanted

    def proposals(self) -> tuple[Fact, ...]:
        told, self._told = self._told, {}
        topics, self._open = self._open, {}
        asks = [self._ask(WANTS, text, "yes" if is_wanted else "") for text, is_wanted in told.items()]
        asks += [ask for topic in topics for ask in self._asks(topic)]
        return tuple(asks)

    def _ask(self, verb: str, topic: str, value: str = "") -> Fact:
        return Fact(REQUEST, key_of(verb, topic), self.name, 0, value)

    def _asks(self, topic: str) -> Iterator[Fact]:
        overlay = self.map.topics.get(topic)
        if topic in self._joined:
            if overlay is None or self.name not in overlay.clusters:
                yield self._ask(PUBLISHES, topic)
        elif overlay is not None and self.name in overlay.clusters:
            yield self._ask(PUBLISHES, topic, NO_MORE)
        elif overlay is not None:
            server = overlay.feeds.get(self.name, "")
            is_wanted = self._wants(topic)
            if is_wanted and overlay.clusters and not (server in overlay.clusters and self._lives(server)):
                yield self._ask(GETS, topic)
            elif server and not is_wanted:
                yield self._ask(WANTS, topic)


class OverlayRouter(Router):
    def __init__(self, city: City, name: str, table: TopicTable) -> None:
        super().__init__(city, name, table)
        self.ways: OverlayWays = (AskingWays if city.overlay.workers else OverlayWays)(city, name, table)

    def announce_to(self, topic_filter: str) -> frozenset[str]:
        return self.others

    def decide(self, topic: str, stage: int, origin: str) -> Suggestion:
        if stays_here(topic) or stage > CLIENT:
            return STAY
        return Suggestion(Audience.INTERESTED)

    def explain(self, topic_or_filter: str, peer: str = "") -> tuple[str, ...]:
        if peer:
            return ("must know every subscription, to say whom its messages are for",)
        if "+" in topic_or_filter or "#" in topic_or_filter:
            return self._explain_filter(topic_or_filter)
        clusters = self.ways.clusters(topic_or_filter)
        if not clusters:
            return ("No clusters have been agreed on for this topic yet: it goes straight to who wants it.",)
        named = (f"{one.founder} ({', '.join(one.members)}; {one.leader} leads)" for one in clusters)
        count = f"{len(clusters)} cluster{'s' if len(clusters) > 1 else ''}"
        lines = [f"The publishers of {topic_or_filter} form {count}: {', '.join(named)}."]
        overlay = self.ways.map.topics[topic_or_filter]
        own = overlay.clusters.get(self.name)
        if own:
            reaches = "it reaches its members straight, and others through their leaders"
            lines.append(f"{self.name} is in the cluster {own}: {reaches}.")
        found = self.ways.find_server(topic_or_filter) if self.name in overlay.feeds else None
        if found is not None:
            score = f"nearest cluster {found.distance_km:.1f} km, utility {found.utility:.2f}"
            lines.append(f"{self.name} gets it from {overlay.feeds[self.name]} ({score} for {found.broker} now).")
        return tuple(lines)

    def _explain_filter(self, topic_filter: str) -> tuple[str, ...]:
        topics = [topic for topic in self.ways.map.topics if matches(plain_filter(topic_filter), topic)]
        return (
            f"{topic_filter} covers {len(topics)} topics that have clusters; each is got from a broker of its own.",
        )


@final
class _Ground:
    """What the algorithms ask, answered from the city's file and from what brokers have announced."""

    def __init__(self, ways: OverlayWays) -> None:
        self._ways = ways

    def distance_km(self, one: str, other: str) -> float:
        return distance_km(self._ways.city, one, other)

    def wanted_by(self, broker: str) -> AbstractSet[str]:
        return self._ways.wanted_by(broker)


@final
class OverlaySuccession(Succession):
    """Nobody is responsible for a topic; but a cluster whose leader is gone gets another: the living member nearest to
    its founder."""

    def __init__(self, city: City) -> None:
        self._city = city
        self.map = OverlayMap()

    def first(self) -> tuple[Fact, ...]:
        return ()

    def home(self, fact: Fact) -> str:
        return ""

    def heir(self, fact: Fact, living: Living) -> str:
        if fact.kind != CLUSTER:
            return ""
        founder, topic = split_key(fact.key)
        return nearest_member(self._city, self.map.topics.get(topic), founder, living.__contains__)

    def filters(self, key: str) -> tuple[str, ...]:
        return ()
