"""A city's bad day, and what the lake says of it: every row and every number is what its clients saw.

Three brokers as processes, two of them at one site, with recorders; paho clients. Sessions roam, values are retained,
replaced and deleted, a client is lost with its will, the owner of an area is killed and another takes over until it is
back, a broker restarts. Then `metromq pipeline run --once`, `check`, `what-if` and a Spark program over the journals.

The observer is plain Python. It knows what clients published, subscribed to and got, and where they were, nothing else.
"""

import json
import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from math import log
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from metromq.city_file import city_text
from metromq.config import RecorderConfig
from metromq.federation.city import City, Membership, Site, grid_city
from metromq.pipeline.lake import Lake
from metromq.protocol.topics import matches
from tests.clients.paho_client import V5, V311, Paho, properties
from tests.joints.source_rows import rows_of
from tests.joints.test_city_and_lake import (
    Row,
    Sent,
    rows_of_the_lake,
    rows_of_the_source,
)
from tests.pipeline.commands import answer
from tests.scenarios.city import LiveCity, live_city

pytestmark = pytest.mark.timeout(1800)

SITES = {"b00": "north", "b11": "north", "b22": "south"}
AREAS = {"b00": "0/1/2/3", "b11": "1/2/0/0", "b22": "3/3/1/0"}  # one that each is responsible for
OWNED = AREAS["b00"]  # whose owner will be killed
KEPT = properties("CONNECT", SessionExpiryInterval=3600)
NEWS = "+/+/+/+/news/#"


@dataclass(slots=True)
class Guest:
    """A client with a session that stays; it counts what it got, and knows where it was last."""

    name: str
    version: int
    filters: list[str] = field(default_factory=list)
    home: str = ""
    got: Counter[bytes] = field(default_factory=Counter)
    retained: Counter[bytes] = field(default_factory=Counter)
    _paho: Paho | None = None

    def enter(self, live: LiveCity, home: str) -> None:
        self.home = home
        self._paho = Paho(self.version, self.name, clean=False)
        options = {"properties": KEPT} if self.version == V5 else {}
        code, _, _ = self._paho.connect(live.ports[home], **options)
        assert code == 0

    def subscribe(self, filter_: str, qos: int) -> None:
        self.client.subscribe(filter_, qos)
        self.filters.append(filter_)

    @property
    def client(self) -> Paho:
        assert self._paho is not None, f"{self.name} is not connected"
        return self._paho

    def look(self) -> None:
        while self._paho is not None and not self._paho.messages.empty():
            message = self._paho.messages.get()
            (self.retained if message.retain else self.got)[message.payload] += 1

    def leave(self) -> None:
        self.client.close()
        self.look()
        self._paho = None

    def is_here(self) -> bool:
        return self._paho is not None

    def wants(self, topic: str) -> bool:
        return any(matches(filter_, topic) for filter_ in self.filters)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message for a session: where it was published, and where the session was then."""

    origin: str
    home: str
    topic: str
    size: int


@dataclass(slots=True)
class Observer:
    """Writes down what clients do."""

    sent: list[Sent] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    awaited: dict[str, Counter[bytes]] = field(default_factory=lambda: defaultdict(Counter))  # by guest
    subscribers: Counter[tuple[str, str]] = field(default_factory=Counter)  # (broker, topic): the most at a time
    began_s: float = field(default_factory=time.time)
    ended_s: float = 0.0

    def published(self, sent: Sent, guests: list[Guest]) -> None:
        """QoS 0 is for those who are there."""
        self.sent.append(sent)
        takers = [guest for guest in guests if guest.wants(sent.topic) and (sent.qos or guest.is_here())]
        for guest in takers:
            self.awaited[guest.name][sent.payload] += 1
            self.deliveries.append(Delivery(sent.home, guest.home, sent.topic, len(sent.payload)))
        for home, count in Counter(guest.home for guest in takers).items():
            self.subscribers[home, sent.topic] = max(self.subscribers[home, sent.topic], count)

    def named(self, guest: Guest, topic: str) -> None:
        """Someone subscribed to a topic by its name."""
        self.subscribers[guest.home, topic] = max(self.subscribers[guest.home, topic], 1)

    def by_site(self, counts: Counter[tuple[str, str]]) -> dict[tuple[str, str], int]:
        found: Counter[tuple[str, str]] = Counter()
        for (broker, topic), count in counts.items():
            found[SITES[broker], topic] += count
        return dict(found)

    def publications(self) -> Counter[tuple[str, str]]:
        return Counter((one.home, one.topic) for one in self.sent)

    def publishers(self) -> Counter[tuple[str, str]]:
        return Counter((home, topic) for home, _, topic in {(one.home, one.publisher, one.topic) for one in self.sent})


class Play:
    """The city, its clients and the observer."""

    def __init__(self, live: LiveCity, observer: Observer, lake: Path, stack: ExitStack) -> None:
        self.live = live
        self.observer = observer
        self.guests: list[Guest] = []
        self._lake = lake
        self._stack = stack
        self._publishers: dict[str, Paho] = {}
        self._number = 0

    def guest(self, name: str, version: int, home: str, filter_: str, qos: int) -> Guest:
        guest = Guest(name, version)
        guest.enter(self.live, home)
        guest.subscribe(filter_, qos)
        self.guests.append(guest)
        return guest

    def open_publisher(self, home: str) -> None:
        version = V311 if home == "b11" else V5
        paho = Paho(version, f"p-{home}")
        assert paho.connect(self.live.ports[home])[0] == 0
        self._publishers[home] = paho

    def close_publisher(self, home: str) -> None:
        self._publishers.pop(home).close()

    def publish(self, home: str, topic: str, qos: int = 1, retain: bool = False, payload: bytes | None = None) -> None:
        self._number += 1
        text = b"%d" % self._number if payload is None else payload
        self._publishers[home].publish(topic, text, qos, retain)
        self.observer.published(Sent(home, f"p-{home}", topic, text, qos, retain), self.guests)

    def everyone_publishes(self, name: str, qoses: tuple[int, ...] = (1, 2)) -> None:
        for home in self._publishers:
            for area in AREAS.values():
                for qos in qoses:
                    self.publish(home, f"{area}/news/{name}", qos)

    def all_got(self, *away: Guest) -> None:
        """Until everyone who is here has everything that was ever for them, at rest."""
        here = [guest for guest in self.guests if guest not in away]

        def done() -> bool:
            for guest in here:
                guest.look()
            return all(guest.got >= self.observer.awaited[guest.name] for guest in here)

        self.live.wait_until(done)
        self.live.settle()

    def counts_are_safe(self, home: str) -> None:
        """Until the telemetry of all that happened at a broker has landed: a kill takes with it what it has not."""
        topic = f"marks/{home}/{self._number}"
        self.publish(home, topic)

        def landed() -> bool:
            files = (self._lake / "landing" / "telemetry" / home).glob("*.parquet")
            return any(topic in pq.read_table(file, columns=["name"])["name"].to_pylist() for file in files)

        self.live.wait_until(landed)

    def owner(self, home: str) -> str:
        area = "/".join(OWNED.split("/")[:2])
        owners = self.live.ask(home).owners
        return next(owner for key, owner in owners.items() if key.endswith(area))

    def lose(self, home: str, topic: str) -> None:
        """A client whose connection breaks, with a will."""
        lost = Paho(V5, f"lost-{home}")
        lost.paho.will_set(topic, b"gone without a word", 1)
        lost.connect(self.live.ports[home])
        lost.kill()
        self.observer.published(Sent(home, f"lost-{home}", topic, b"gone without a word", 1, False), self.guests)

    def close(self) -> None:
        for home in list(self._publishers):
            self.close_publisher(home)
        for guest in self.guests:
            if guest.is_here():
                guest.leave()


def play(stage: Play) -> None:
    live, observer = stage.live, stage.observer
    for home in SITES:
        stage.open_publisher(home)
    walker = stage.guest("walker", V5, "b00", NEWS, 1)
    stage.guest("keeper", V311, "b11", NEWS, 1)
    stayer = stage.guest("stayer", V5, "b22", "0/1/#", 2)
    exact = stage.guest("exact", V5, "b00", f"{AREAS['b22']}/news/exact", 1)
    observer.named(exact, f"{AREAS['b22']}/news/exact")
    live.settle()
    stage.everyone_publishes("calm", (0, 1, 2))
    stage.publish("b11", f"{AREAS['b22']}/news/exact")
    stage.lose("b11", f"{OWNED}/news/will")
    stage.all_got()
    values_are_kept(stage)
    the_walker_walks(stage, walker)
    the_owner_is_killed(stage, walker, exact)
    a_broker_restarts(stage, stayer)
    observer.ended_s = time.time()


def values_are_kept(stage: Play) -> None:
    """Set, replaced, deleted; then someone subscribes elsewhere, with a session that stays."""
    stage.publish("b22", f"{OWNED}/value/one", 1, retain=True)
    stage.live.settle()  # which of two values at two brokers is newer is certain only after the lag
    stage.publish("b11", f"{OWNED}/value/one", 2, retain=True, payload=b"the newest")
    stage.publish("b00", f"{AREAS['b11']}/value/two", 1, retain=True)
    stage.publish("b00", f"{AREAS['b11']}/value/two", 1, retain=True, payload=b"")
    stage.publish("b22", f"{AREAS['b22']}/value/three", 0, retain=True, payload=b"at most once")
    stage.live.settle()
    late = stage.guest("late", V311, "b11", "+/+/+/+/value/#", 1)

    def served() -> bool:
        late.look()
        return sum(late.retained.values()) >= 2

    stage.live.wait_until(served)
    stage.live.settle()
    stage.publish("b22", f"{OWNED}/value/one", 1, retain=True, payload=b"and one more")
    stage.all_got()


def the_walker_walks(stage: Play, walker: Guest) -> None:
    """To the other site, and what waited goes with it; what is published while it arrives comes once, too."""
    walker.leave()
    stage.live.settle()
    stage.everyone_publishes("queued", (0, 1, 2))
    stage.live.settle()
    walker.enter(stage.live, "b22")
    stage.everyone_publishes("moving")
    stage.all_got()
    stage.everyone_publishes("moved", (0, 1, 2))
    stage.all_got()


def the_owner_is_killed(stage: Play, walker: Guest, exact: Guest) -> None:
    """Messages of its area go on, by another; its own clients get theirs when it is back."""
    live = stage.live
    exact.leave()
    stage.close_publisher("b00")
    live.settle()
    stage.open_publisher("b00")
    stage.counts_are_safe("b00")
    stage.close_publisher("b00")
    live.settle()
    live.kill("b00")
    stage.everyone_publishes("killed")
    live.wait_until(lambda: stage.owner("b11") != "b00" and stage.owner("b22") != "b00")
    stage.everyone_publishes("taken-over")
    stage.publish("b22", f"{AREAS['b22']}/news/exact")
    stage.all_got(exact)
    walker.leave()
    walker.enter(live, "b11")
    stage.all_got(exact)
    stage.everyone_publishes("walked")
    stage.all_got(exact)
    live.start("b00")
    live.settle()
    live.wait_until(lambda: stage.owner("b11") == stage.owner("b22") == "b00")
    stage.open_publisher("b00")
    exact.enter(live, "b00")
    stage.everyone_publishes("back", (0, 1, 2))
    stage.publish("b11", f"{AREAS['b22']}/news/exact")
    stage.all_got()


def a_broker_restarts(stage: Play, stayer: Guest) -> None:
    stayer.leave()
    stage.close_publisher("b22")
    stage.live.settle()
    stage.live.stop("b22")
    stage.everyone_publishes("while-away")
    stage.all_got(stayer)
    stage.live.start("b22")
    stage.live.settle()
    stage.open_publisher("b22")
    stayer.enter(stage.live, "b22")
    stage.everyone_publishes("restarted")
    stage.all_got()


def make_city() -> City:
    city = grid_city("geographic", count=3)
    brokers = tuple(replace(spec, site=SITES[spec.name]) for spec in city.brokers)
    sites = tuple(Site(name) for name in sorted(set(SITES.values())))
    return replace(city, name="test", membership=Membership(300, 3, 1), brokers=brokers, sites=sites)


@dataclass(frozen=True, slots=True)
class Story:
    observer: Observer
    guests: list[Guest]
    lake: Lake
    rows: dict[str, list[Row]]  # by the way they were read
    check: list[dict[str, Any]]
    what_if: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Story:
    directory = tmp_path_factory.mktemp("eventful")
    lake, data, file, observer = directory / "lake", directory / "data", directory / "city.toml", Observer()
    city = make_city()
    file.write_text(city_text(city))
    settings = {"recorder": RecorderConfig(lake=str(lake), window_s=1.0)}
    with live_city(city, data, settings) as live, ExitStack() as stack:
        stage = Play(live, observer, lake, stack)
        stack.callback(stage.close)
        play(stage)
        stage.close()
        for name in SITES:
            live.stop(name)
    answer(spark, "run", "--once", "--lake", str(lake))
    cost = answer(spark, "what-if", "--json", "--lake", str(lake), "--city", str(file))
    check = json.loads(answer(spark, "check", "--json", "--lake", str(lake)))
    rows = {"lake": rows_of_the_lake(lake), "source": rows_of_the_source(rows_of(spark, str(data)))}
    costs = {item["choice"]: item for item in json.loads(cost)}
    return Story(observer, stage.guests, Lake(lake), rows, check, costs)


def test_clients_got_everything_once(story: Story) -> None:
    """Without this, the observer's counts would be of another city."""
    for guest in story.guests:
        assert guest.got == story.observer.awaited[guest.name], guest.name
    (late,) = (guest for guest in story.guests if guest.name == "late")
    assert late.retained == {b"the newest": 1, b"at most once": 1}


@pytest.mark.parametrize("way", ["lake", "source"])
def test_every_row_is_what_a_client_published(story: Story, way: str) -> None:
    found = [row for row in story.rows[way] if not row.topic.startswith("$metromq/")]
    assert {count for count in Counter((row.broker, row.offset) for row in found).values()} == {1}
    first_hand = [row for row in found if row.kind in ("publish", "will")]
    recorded = [sent for sent in story.observer.sent if sent.qos or sent.retain]
    assert Counter(row.sent for row in first_hand) == Counter(recorded)
    by_place = {place(row): row for row in first_hand}
    for row in found:
        if row.kind in ("link", "replay") and row.origin_offset >= 0:
            original = by_place[row.origin, row.origin_offset]
            assert row.sent == replace(original.sent, home=row.broker), row
        elif row.kind in ("link", "replay") and row.origin:  # a deletion that is passed on says only what it deletes
            assert (row.payload, row.retain) == (b"", True), row
        elif row.kind == "replay":  # a value of this broker's own clients, for a late subscriber
            assert row.sent in recorded, row
    links = [(row.broker, *place(row)) for row in found if row.kind == "link" and row.origin_offset >= 0]
    assert max(Counter(links).values()) == 1, "a copy is written once"
    assert {row.kind for row in found} == {"publish", "will", "link", "replay"}


def place(row: Row) -> tuple[str, int]:
    return (row.origin, row.origin_offset) if row.origin else (row.broker, row.offset)


def test_what_a_client_got_is_at_its_broker(story: Story) -> None:
    rows = story.rows["lake"]
    held = {(row.broker, row.payload, row.topic) for row in rows}
    sent = {(one.payload, one.topic): one for one in story.observer.sent}
    durable = {key for key, one in sent.items() if one.qos}
    missing = [
        (guest.name, payload)
        for guest in story.guests
        for payload in guest.got
        for (text, topic), one in sent.items()
        if text == payload and (text, topic) in durable and guest.wants(topic)
        if not any((home, payload, topic) in held for home in SITES if home != one.home or home == guest.home)
    ]
    assert missing == []


def test_the_check_finds_everything_whole(story: Story) -> None:
    assert [(item["broker"], item["whole"]) for item in story.check] == [(name, True) for name in SITES]
    assert sum(item["content"]["compared"] for item in story.check) == len(story.rows["lake"])


def table(story: Story, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = story.lake.arrow(name).to_pylist()
    return found


def counted(rows: list[dict[str, Any]], value: str, *keys: str) -> dict[tuple[Any, ...], int]:
    found: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        found[tuple(row[key] for key in keys)] += row[value]
    return {key: count for key, count in found.items() if count}


def test_traffic_counts_what_clients_published(story: Story) -> None:
    rows, observer = table(story, "traffic"), story.observer
    assert counted(rows, "publications", "broker", "topic") == dict(observer.publications())
    touched = {(home, topic) for home, topic in (*observer.publications(), *observer.subscribers)}
    assert {(row["broker"], row["topic"]) for row in rows} == touched, "others only pass it on"
    sizes: Counter[tuple[str, str]] = Counter()
    for one in observer.sent:
        sizes[one.home, one.topic] += len(one.payload)
    assert counted(rows, "published_bytes", "broker", "topic") == {key: size for key, size in sizes.items() if size}
    assert {row["broker"]: row["site"] for row in rows} == SITES
    first, last = (min(row["window_start"] for row in rows), max(row["window_start"] for row in rows))
    assert observer.began_s - 60 < first.timestamp() <= last.timestamp() <= observer.ended_s


def test_traffic_counts_what_clients_got(story: Story) -> None:
    """Where their sessions were when it was published; from the same site, and from others."""
    rows = table(story, "traffic")
    near: Counter[tuple[str, str]] = Counter()
    far: Counter[tuple[str, str]] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    for one in story.observer.deliveries:
        (near if SITES[one.origin] == SITES[one.home] else far)[one.home, one.topic] += 1
        sizes[one.home, one.topic] += one.size
    assert counted(rows, "deliveries_local", "broker", "topic") == dict(near)
    assert counted(rows, "deliveries_remote", "broker", "topic") == dict(far)
    assert counted(rows, "delivered_bytes", "broker", "topic") == {key: size for key, size in sizes.items() if size}


def test_delegation_inputs(story: Story) -> None:
    observer, rows = story.observer, table(story, "delegation_inputs")
    makers, takers = observer.by_site(observer.publishers()), observer.by_site(observer.subscribers)
    made = observer.by_site(observer.publications())
    seconds = span_s(story)
    topics = {topic for _, topic in (*makers, *takers)}
    wanted = {
        (topic, site): (
            makers.get((site, topic), 0),
            sum(makers.get((other, topic), 0) for other in set(SITES.values()) - {site}),
            takers.get((site, topic), 0),
            sum(takers.get((other, topic), 0) for other in set(SITES.values()) - {site}),
            pytest.approx(made.get((site, topic), 0) / seconds),
        )
        for topic in topics
        for site in set(SITES.values())
        if (site, topic) in makers or (site, topic) in takers
    }
    names = ("publishers_inside", "publishers_outside", "subscribers_inside", "subscribers_outside")
    found = {
        (row["topic"], row["site"]): (*(row[name] for name in names), row["publications_per_second"]) for row in rows
    }
    assert found == wanted, "a broker that only passes a topic on has nothing to do with it"


def span_s(story: Story) -> float:
    """From the first minute in which anything happened to the end of the last."""
    minutes: list[float] = [row["window_start"].timestamp() for row in table(story, "traffic")]
    return max(minutes) - min(minutes) + 60


def test_tau_is_what_clients_sent_and_got(story: Story) -> None:
    sizes: Counter[tuple[str, str]] = Counter()
    for one in story.observer.sent:
        sizes[one.topic, SITES[one.home]] += len(one.payload)
    for delivery in story.observer.deliveries:
        sizes[delivery.topic, SITES[delivery.home]] += delivery.size
    mbps = {key: pytest.approx(size * 8 / span_s(story) / 1e6) for key, size in sizes.items() if size}
    assert {(row["topic"], row["device"]): row["mbps"] for row in table(story, "planner_tau")} == mbps
    assert table(story, "planner_dsd") == table(story, "planner_dst") == []  # nobody reported any


def test_daily_statistics(story: Story) -> None:
    observer = story.observer
    by_topic = Counter(one.topic for one in observer.sent)
    ranked = sorted(by_topic.items(), key=lambda item: (-item[1], item[0]))
    popular = sorted(table(story, "popularity"), key=lambda row: row["rank"])
    assert [(row["topic"], row["publications"]) for row in popular] == ranked
    (fit,) = table(story, "zipf")
    assert (fit["topics"], fit["publications"]) == (len(by_topic), len(observer.sent))
    assert fit["exponent"] == pytest.approx(likeliest([count for _, count in ranked]), abs=1e-3)
    made, taken = (topics_at(observer.by_site(counts)) for counts in (observer.publications(), observer.subscribers))
    north, south = (made[site] | taken[site] for site in ("north", "south"))
    (alike,) = table(story, "similarity")
    assert alike["jaccard"] == pytest.approx(len(north & south) / len(north | south))
    for row in table(story, "locality"):
        site = row["site"]
        near = sum(SITES[one.home] == site == SITES[one.origin] for one in observer.deliveries)
        far = sum(SITES[one.home] == site != SITES[one.origin] for one in observer.deliveries)
        assert (row["deliveries_local"], row["deliveries_remote"]) == (near, far)
        assert row["delivery_locality"] == pytest.approx(near / (near + far))
        assert (row["topics_subscribed"], row["topics_local"]) == (len(taken[site]), len(taken[site] & made[site]))


def topics_at(counts: dict[tuple[str, str], int]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for site, topic in counts:
        found[site].add(topic)
    return found


def likeliest(counts: list[int]) -> float:
    """The Zipf exponent by looking at many."""
    total = sum(counts)

    def likelihood(exponent: float) -> float:
        norm = log(sum(rank**-exponent for rank in range(1, len(counts) + 1)))
        return sum(-exponent * count * log(rank) for rank, count in enumerate(counts, 1)) - total * norm

    low, high = 0.0, 5.0
    for _ in range(100):
        third = (high - low) / 3
        low, high = (low + third, high) if likelihood(low + third) < likelihood(high - third) else (low, high - third)
    return (low + high) / 2


def test_latency_counts_every_message_that_came_over_a_link(story: Story) -> None:
    """But for wills, and for retained values: their time is that of the city's fastest clock."""
    links = Counter(
        (row["origin"], row["broker"])
        for row in table(story, "messages")
        if row["kind"] == "link" and row["origin"] in SITES and row["arrived"] and not row["retain"]
    )
    assert counted(table(story, "latency"), "messages", "origin", "broker") == dict(links)


def test_what_if_counts_each_message_by_hand(story: Story) -> None:
    wanting: dict[str, set[str]] = defaultdict(set)
    for site, topic in story.observer.by_site(story.observer.subscribers):
        wanting[topic].add(site)
    city = make_city()
    homes = {area: SITES[broker] for area, broker in city.homes.items()}
    central = SITES[city.central] if city.central else SITES[city.names[0]]
    counts: Counter[str] = Counter()
    for one in story.observer.sent:
        here, wants = SITES[one.home], wanting[one.topic]
        area = "/".join(one.topic.split("/")[: city.areas.l_b])
        counts["flood-publications"] += len(set(SITES.values())) - 1
        counts["flood-subscriptions"] += len(wants - {here})
        counts["central"] += through(here, central, wants)
        counts["geographic"] += through(here, homes[area], wants) if area in homes else len(wants - {here})
    found = {choice: story.what_if[choice]["messages_between"] for choice in counts}
    assert found == dict(counts)


def through(here: str, owner: str, wants: set[str]) -> int:
    return (here != owner) + len(wants - {here, owner})
