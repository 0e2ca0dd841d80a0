"""What the lake's tables say of a city, against what its clients sent and got.

Three brokers as processes, two of them at one site, with recorders; paho clients at each. One broker stands still for
a while, another gets a new data directory. Then `metromq pipeline run --once`, `check`, `what-if` and a Spark program
over the journals.

The observer is plain Python: it knows what clients published, subscribed to and received, where and when.
"""

import json
import os
import signal
import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from metromq.city_file import city_text
from metromq.federation.city import Membership, Site, grid_city
from metromq.pipeline.lake import Lake
from tests.cli.cities import CityProcess, city_process, wait_for
from tests.clients.paho_client import V5, V311, Paho, client
from tests.joints.source_rows import rows_of
from tests.pipeline.commands import answer, on_session, pipeline

pytestmark = pytest.mark.timeout(1800)

SITES = {"b00": "north", "b11": "north", "b22": "south"}
STILL_S = 1.2


@dataclass(slots=True)
class Observer:
    """Counts what clients do."""

    published: Counter[tuple[str, str]] = field(default_factory=Counter)  # (broker, topic)
    recorded: Counter[tuple[str, str]] = field(default_factory=Counter)  # of those, at QoS 1 and 2
    delivered: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # (from broker, to broker, topic)
    subscribers: Counter[tuple[str, str]] = field(default_factory=Counter)  # (broker, topic)
    publishers: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    waits_ms: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))

    def site_counts(self, counts: Counter[tuple[str, str]]) -> Counter[tuple[str, str]]:
        found: Counter[tuple[str, str]] = Counter()
        for (broker, topic), count in counts.items():
            found[SITES[broker], topic] += count
        return found


@dataclass(frozen=True, slots=True)
class Story:
    observer: Observer
    lake: Lake
    check: list[dict[str, Any]]
    what_if: dict[str, dict[str, Any]]
    source: list[dict[str, Any]]
    said: str  # by `run`
    data: Path


def write_city(directory: Path) -> Path:
    city = grid_city("flood-subscriptions", count=3)
    brokers = tuple(replace(spec, site=SITES[spec.name]) for spec in city.brokers)
    sites = tuple(Site(name) for name in sorted(set(SITES.values())))
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "city.toml"
    file.write_text(
        city_text(replace(city, name="test", membership=Membership(300, 3, 1), brokers=brokers, sites=sites))
    )
    return file


class Stage:
    """The clients of one life of the city: a publisher at each broker, and subscribers with the filters they have."""

    def __init__(self, city: CityProcess, observer: Observer, stack: ExitStack) -> None:
        self.city = city
        self.observer = observer
        self.publishers = {name: stack.enter_context(self._client(name, f"p-{name}")) for name in SITES}
        self.subscribers: list[tuple[str, str, Paho]] = []
        self._stack = stack
        self._number = 0

    def _client(self, broker: str, name: str) -> Any:
        return client(self.city.place(broker)[1], V5, name)

    def subscribe(self, broker: str, filter_: str, qos: int = 1) -> None:
        who = self._stack.enter_context(self._client(broker, f"s-{broker}-{len(self.subscribers)}"))
        who.subscribe(filter_, qos)
        self.subscribers.append((broker, filter_, who))

    def ready(self) -> None:
        """Interest travels in its own time: probes to topics that nobody counts, until everyone hears all."""
        for origin, publisher in self.publishers.items():
            for _, filter_, who in self.subscribers:

                def heard(publisher: Paho = publisher, who: Paho = who, topic: str = probe(filter_, origin)) -> bool:
                    publisher.publish(topic, b"probe", 1)
                    time.sleep(0.05)
                    return any(message.topic == topic for message in list(who.messages.queue))

                wait_for(heard, f"{filter_} reaching {origin}")
        time.sleep(0.5)
        for _, _, who in self.subscribers:
            with who.messages.mutex:
                who.messages.queue.clear()

    def publish(self, broker: str, topic: str, count: int, qos: int = 1, payloads: tuple[bytes, ...] = ()) -> None:
        """Until every subscriber has got everything, so that the next step finds all at rest."""
        who, observer = self.publishers[broker], self.observer
        began = time.time()
        for number in range(count):
            self._number += 1
            who.publish(topic, payloads[number] if payloads else b"%d" % self._number, qos)
        observer.published[broker, topic] += count
        observer.publishers[broker, topic].add(f"p-{broker}")
        if qos:
            observer.recorded[broker, topic] += count
        for place, filter_, subscriber in self.subscribers:
            if matches(filter_, topic):
                for _ in range(count):
                    assert subscriber.messages.get(timeout=30).topic == topic
                    observer.waits_ms[broker, place].append((time.time() - began) * 1000)
                observer.delivered[broker, place, topic] += count
        for place, topic_ in {(place, topic) for place, filter_, _ in self.subscribers if matches(filter_, topic)}:
            held = sum(where == place and matches(filter_, topic_) for where, filter_, _ in self.subscribers)
            observer.subscribers[place, topic_] = max(observer.subscribers[place, topic_], held)


def probe(filter_: str, origin: str) -> str:
    """A topic that a filter matches and whose name says that it is none of the story's."""
    return f"{filter_.removesuffix('#')}probe/{origin}" if filter_.endswith("#") else filter_


def matches(filter_: str, topic: str) -> bool:
    return filter_ == topic or (filter_.endswith("/#") and topic.startswith(filter_[:-1]))


def play(city: CityProcess, observer: Observer, life: int) -> None:
    with ExitStack() as stack:
        stage = Stage(city, observer, stack)
        stage.subscribe("b00", "news/#")
        stage.subscribe("b11", "news/#")
        stage.subscribe("b11", "news/#")
        stage.subscribe("b22", "news/#")
        stage.ready()
        stage.publish("b00", "news/mixed", 6)
        stage.publish("b11", "news/mixed", 3)
        stage.publish("b22", "news/mixed", 9)
        stage.publish("b22", "news/south", 5)
        stage.publish("b00", "news/north", 4, qos=0)
        stage.publish("b11", "quiet/north", 7)  # nobody wants it
        stage.publish("b00", "quiet/number", 2, payloads=(b"1e400", b"1e30"))
        if life == 1:
            stand_still(city, stage)
            subscribe_again(stage)
            subscribe_to_a_retained_value(stage)
        one_more_subscriber(stage)


def one_more_subscriber(stage: Stage) -> None:
    """Publications at the two sites are delivered to different numbers of clients, all in one window."""
    stage.publish("b22", "news/change", 10)
    stage.subscribe("b00", "news/#")
    stage.ready()
    stage.publish("b00", "news/change", 5)


def subscribe_again(stage: Stage) -> None:
    place, _, who = stage.subscribers[0]
    for _ in range(3):
        who.subscribe("again", 1)
    stage.observer.subscribers[place, "again"] = 1


def subscribe_to_a_retained_value(stage: Stage) -> None:
    """A session that stays gets it by a record of its own."""
    stage.publishers["b22"].publish("kept/value", b"7", 1, retain=True)
    stage.observer.published["b22", "kept/value"] += 1
    stage.observer.recorded["b22", "kept/value"] += 1
    stage.observer.publishers["b22", "kept/value"].add("p-b22")
    stage.observer.subscribers["b00", "kept/value"] = 1
    with client(stage.city.place("b00")[1], V311, "stays", clean=False) as who:
        who.subscribe("kept/value", 1)
        assert who.messages.get(timeout=30).retain


def stand_still(city: CityProcess, stage: Stage) -> None:
    """b22 is frozen while b00 publishes: those messages take at least so long to arrive there."""
    pid, _ = city.place("b22")
    os.kill(pid, signal.SIGSTOP)
    try:
        began = time.time()
        for number in range(8):
            stage.publishers["b00"].publish("news/slow", b"%d" % number, 1)
        time.sleep(STILL_S)
    finally:
        os.kill(pid, signal.SIGCONT)
    observer = stage.observer
    for place, _, subscriber in stage.subscribers:
        for _ in range(8):
            assert subscriber.messages.get(timeout=30).topic == "news/slow"
            observer.waits_ms["b00", place].append((time.time() - began) * 1000)
        observer.delivered["b00", place, "news/slow"] += 8
        observer.subscribers[place, "news/slow"] = 2 if place == "b11" else 1
    observer.published["b00", "news/slow"] += 8
    observer.recorded["b00", "news/slow"] += 8
    observer.publishers["b00", "news/slow"].add("p-b00")


def live(directory: Path, words: tuple[str, ...], observer: Observer, life: int) -> Path:
    with city_process(directory, *words) as city:
        city.says("Ctrl-C stops the city")
        play(city, observer, life)
        assert city.end(signal.SIGINT) == 0  # each recorder ships the rest
    return city.data


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Story:
    directory = tmp_path_factory.mktemp("statistics")
    lake, config, observer = directory / "lake", directory / "metromq.toml", Observer()
    # A window of an hour: it ends long after most minutes whose messages it counts.
    config.write_text(f'sys_interval_s = 1.0\n\n[recorder]\nlake = "{lake}"\nwindow_s = 3600.0\n')
    city = write_city(directory)
    words = ("up", str(city), "--durability", "os", "--config", str(config))
    data = live(directory, words, observer, 1)
    (data / "b11").rename(directory / "b11-of-old")  # the disk was replaced
    (data / "b00" / "telemetry" / f"{1:020d}-{1:020d}.json").touch()  # and the power was cut
    live(directory, words, observer, 2)
    rows = list(rows_of(spark, str(data)))
    poison(lake / "landing" / "messages" / "b00")
    with on_session(spark):
        loading = pipeline("run", "--once", "--lake", str(lake))
    assert loading.exit_code == 0, loading.output
    cost = answer(spark, "what-if", "--json", "--lake", str(lake), "--city", str(city))
    checked = pipeline("check", "--json", "--lake", str(lake), "--data", f"b11={directory / 'b11-of-old'}").stdout
    costs = {item["choice"]: item for item in json.loads(cost)}
    return Story(observer, Lake(lake), json.loads(checked), costs, rows, loading.stderr, data)


def poison(folder: Path) -> None:
    """A file with a right name whose topics are numbers; its offsets are beyond those of the story."""
    table = pq.read_table(sorted(folder.glob("*.parquet"))[0]).slice(0, 1)
    offset = 10**9
    table = table.set_column(table.schema.get_field_index("topic"), "topic", pa.array([7], pa.int64()))
    table = table.set_column(table.schema.get_field_index("offset"), "offset", pa.array([offset], pa.int64()))
    table = table.set_column(table.schema.get_field_index("journal"), "journal", pa.array(["feed"], pa.string()))
    pq.write_table(table, folder / f"b00-feed-{offset:020d}-{offset:020d}.parquet")


def test_poison_is_named_and_stops_nothing(story: Story) -> None:
    assert "rejected messages/b00/b00-feed-00000000001000000000" in story.said
    assert "its column 'topic' is int64, not string" in story.said
    assert [(item["whole"], item["gaps"][0]["why"]) for item in story.check if item["journal"] == "feed"] == [
        (False, "rejected")
    ]
    assert [path.name for path in (story.data / "b00" / "telemetry" / "unreadable").glob("*.json")]
    assert not list((story.data / "b00" / "telemetry").glob("*.json"))


def test_a_number_beyond_all_is_no_value(story: Story) -> None:
    found = [row for row in story.lake.arrow("messages").to_pylist() if row["topic"] == "quiet/number"]
    assert {row["payload"]: row["value"] for row in found} == {b"1e400": None, b"1e30": 1e30}


def counted(rows: list[dict[str, Any]], value: str, *keys: str) -> dict[tuple[Any, ...], int]:
    found: dict[tuple[Any, ...], int] = defaultdict(int)
    for row in rows:
        found[tuple(row[key] for key in keys)] += row[value]
    return {key: count for key, count in found.items() if count}


def of_story(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if "probe" not in row["topic"]]


def test_a_replaced_data_directory_is_another_journal(story: Story) -> None:
    """Every message is there once, of the old journal and of the new one, and `check` knows both."""
    rows = of_story(story.lake.arrow("messages").to_pylist())
    first_hand = Counter((row["broker"], row["topic"]) for row in rows if row["kind"] in ("publish", "will"))
    assert first_hand == story.observer.recorded
    assert sum(story.observer.recorded.values()) == 2 * (32 + 15) + 8 + 1
    assert Counter((item["broker"], item["whole"]) for item in story.check if item["journal"] != "feed") == {
        ("b00", True): 1,
        ("b11", True): 2,
        ("b22", True): 1,
    }
    assert sum(item["content"]["compared"] for item in story.check if item["content"]) == len(
        story.lake.arrow("messages")
    )
    arrived = Counter(row["topic"] for row in rows if row["kind"] == "link" and row["broker"] == "b11")
    assert arrived == {"news/mixed": 30, "news/south": 10, "news/slow": 8, "news/change": 30}


def test_the_spark_source_names_the_journals_that_are_there(story: Story) -> None:
    by_journal = {(row["broker"], row["journal"]) for row in story.source}
    held = {(item["broker"], item["journal"]) for item in story.check}
    assert len(by_journal) == 3
    assert by_journal < held
    fresh = Counter(
        row["topic"] for row in of_story(story.source) if (row["broker"], row["kind"]) == ("b11", "publish")
    )
    assert fresh == {"news/mixed": 3, "quiet/north": 7}


def test_publications_and_who(story: Story) -> None:
    """An hour's window counts QoS 0 too; what is recorded does not count again."""
    rows = of_story(story.lake.arrow("traffic").to_pylist())
    wanted = story.observer.site_counts(story.observer.published)
    assert counted(rows, "publications", "site", "topic") == dict(wanted)
    assert {row["site"] for row in rows} == set(SITES.values())
    assert not [row["topic"] for row in rows if "#" in row["topic"] or row["topic"].startswith("$")]
    ranked = {row["topic"]: row["publications"] for row in of_story(story.lake.arrow("popularity").to_pylist())}
    by_topic: Counter[str] = Counter()
    for (_, topic), count in wanted.items():
        by_topic[topic] += count
    assert ranked == by_topic


def test_subscribers_of_two_brokers_at_a_site_add_up(story: Story) -> None:
    inputs = of_story(story.lake.arrow("delegation_inputs").to_pylist())
    inside = {(row["site"], row["topic"]): row["subscribers_inside"] for row in inputs if row["subscribers_inside"]}
    assert inside == dict(story.observer.site_counts(story.observer.subscribers))
    makers: Counter[tuple[str, str]] = Counter()
    for (broker, topic), names in story.observer.publishers.items():
        makers[SITES[broker], topic] += len(names)
    found = {(row["site"], row["topic"]): row["publishers_inside"] for row in inputs if row["publishers_inside"]}
    assert found == dict(makers)


def test_local_is_what_was_published_at_the_same_site(story: Story) -> None:
    rows = of_story(story.lake.arrow("traffic").to_pylist())
    local: Counter[tuple[str, str]] = Counter()
    remote: Counter[tuple[str, str]] = Counter()
    for (origin, place, topic), count in story.observer.delivered.items():
        (local if SITES[origin] == SITES[place] else remote)[SITES[place], topic] += count
    assert counted(rows, "deliveries_local", "site", "topic") == dict(local)
    assert counted(rows, "deliveries_remote", "site", "topic") == dict(remote)


def test_a_retained_value_that_is_sent_again_tells_where_it_comes_from(story: Story) -> None:
    rows = [row for row in story.lake.arrow("messages").to_pylist() if row["topic"] == "kept/value"]
    (first,) = [row for row in rows if row["kind"] == "publish"]
    (again,) = [row for row in rows if row["kind"] == "replay" and row["broker"] == "b00"]
    assert (again["origin"], again["origin_offset"]) == (first["broker"], first["offset"]) == ("b22", first["offset"])


def test_similarity_and_subscription_locality_are_of_topics(story: Story) -> None:
    used: dict[str, set[str]] = defaultdict(set)
    probes = {row["topic"] for row in story.lake.arrow("traffic").to_pylist()} - topics_of(story)
    for counts in (story.observer.published, story.observer.subscribers):
        for broker, topic in counts:
            used[SITES[broker]].add(topic)
    both = {name: topics | probes for name, topics in used.items()}  # everyone hears the probes
    (row,) = story.lake.arrow("similarity").to_pylist()
    assert row["jaccard"] == pytest.approx(len(both["north"] & both["south"]) / len(both["north"] | both["south"]))
    wanted: dict[str, set[str]] = {site: set() for site in SITES.values()}
    for broker, topic in story.observer.subscribers:
        wanted[SITES[broker]].add(topic)
    found = {row["site"]: row["topics_subscribed"] for row in story.lake.arrow("locality").to_pylist()}
    assert found == {name: len(topics | probes) for name, topics in wanted.items()}


def topics_of(story: Story) -> set[str]:
    return {topic for _, topic in (*story.observer.published, *story.observer.subscribers)}


def test_what_if_sees_the_sites_of_the_city(story: Story) -> None:
    """Flooding sends each publication once to the other site."""
    probes = sum(row["publications"] for row in story.lake.arrow("traffic").to_pylist() if "probe" in row["topic"])
    total = sum(story.observer.published.values()) + probes
    cost = story.what_if["flood-publications"]
    assert [site["site"] for site in cost["sites"]] == sorted(set(SITES.values()))
    assert cost["messages_between"] == total


def test_latency_is_what_messages_took(story: Story) -> None:
    """More than nothing, less than clients saw; and as long as a broker stood still."""
    rows = story.lake.arrow("latency").to_pylist()
    links = {(row["origin"], row["broker"]) for row in rows}
    assert links == {(one, other) for one in SITES for other in SITES if one != other}
    assert all(row["p99_ms"] > 0 for row in rows)
    slow = [row for row in rows if (row["origin"], row["broker"]) == ("b00", "b22")]
    assert max(row["p99_ms"] for row in slow) >= STILL_S * 1000 * 0.9
    for row in rows:
        assert row["p99_ms"] <= max(story.observer.waits_ms[row["origin"], row["broker"]]) + 1000
    arrived = [row for row in story.lake.arrow("messages").to_pylist() if row["arrived"] is not None]
    assert {row["kind"] for row in arrived} == {"link"}
    clock = timedelta(milliseconds=50)  # a broker reads it once a turn
    assert all(row["time"] - clock <= row["arrived"] <= datetime.now(UTC) for row in arrived)
