"""A city whose filters change hands, and one too large for a link between every two brokers, followed into one lake.

`metromq up` of three brokers with the routing `delegation`, then of eighteen; clients of paho. The brokers count
(`keep_counts`) and have no recorders: `metromq pipeline run --once --data ...` records both cities, as after the demo.

The observer is plain Python. It knows what clients published, subscribed to and got, and where they were, nothing else.
"""

import json
import signal
from collections import Counter, defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from metromq.city_file import city_text
from metromq.federation import UP
from metromq.federation.city import City, grid_city
from metromq.pipeline.lake import Lake
from tests.cli.cities import CityProcess, city_process, metromq, wait_for
from tests.clients.paho_client import V5, Paho, client, properties
from tests.joints.test_city_and_lake import Row, place, rows_of_the_lake
from tests.joints.test_delegation import Stream
from tests.pipeline.commands import answer

pytestmark = pytest.mark.timeout(1800)

START_S = 300.0  # eighteen brokers on a busy machine
KEPT = properties("CONNECT", SessionExpiryInterval=3600)
PROBE = "probe"  # in topics that tell when a subscription is known everywhere; nobody counts who got those


def renamed(city: City, letter: str) -> City:
    """So that both cities' brokers can be told apart in one lake."""
    brokers = tuple(replace(spec, name=letter + spec.name[1:]) for spec in city.brokers)
    return replace(city, name=letter, brokers=brokers, central=letter + city.central[1:] if city.central else "")


DELEGATION = renamed(grid_city("delegation", count=3, hello_interval_ms=300), "d")
LARGE = renamed(grid_city(l_b=3, l_c=2, count=18), "w")


@dataclass(frozen=True, slots=True)
class Said:
    """One publication, as its publisher knows it."""

    home: str
    topic: str
    payload: bytes
    qos: int


@dataclass(slots=True)
class Observer:
    sent: list[Said] = field(default_factory=list)
    publishers: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))  # (broker, topic)
    got: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # (from broker, to broker, topic)
    sizes: Counter[tuple[str, str]] = field(default_factory=Counter)  # (topic, broker): bytes to and from clients
    subscribers: Counter[tuple[str, str]] = field(default_factory=Counter)  # (broker, topic)

    def published(self, home: str, who: str, topic: str, payload: bytes, qos: int, takers: list[str]) -> None:
        """`takers`: the homes of those for whom it is."""
        self.sent.append(Said(home, topic, payload, qos))
        self.publishers[home, topic].add(who)
        self.sizes[topic, home] += len(payload)
        for taker in takers:
            self.got[home, taker, topic] += 1
            self.sizes[topic, taker] += len(payload)
        for taker, count in Counter(takers).items():
            self.subscribers[taker, topic] = max(self.subscribers[taker, topic], count)


@dataclass(frozen=True, slots=True)
class Story:
    observer: Observer
    lake: Lake
    rows: list[Row]
    check: list[dict[str, Any]]


class Scene:
    """One city and its clients."""

    def __init__(self, city: CityProcess, observer: Observer, stack: ExitStack) -> None:
        self.city = city
        self.observer = observer
        self._stack = stack
        self._publishers: dict[str, Paho] = {}
        self.readers: list[tuple[str, Paho]] = []

    def port(self, name: str) -> int:
        return self.city.place(name)[1]

    def read(self, home: str, topic_filter: str) -> None:
        reader = self._stack.enter_context(client(self.port(home), V5, f"r-{home}-{len(self.readers)}"))
        reader.subscribe(topic_filter, 2)
        self.readers.append((home, reader))

    def publisher(self, home: str) -> Paho:
        if home not in self._publishers:
            self._publishers[home] = self._stack.enter_context(client(self.port(home), V5, f"p-{home}"))
        return self._publishers[home]

    def ready(self, prefix: str, homes: list[str]) -> None:
        """Interest travels in its own time: until what is published at any of these brokers reaches every reader."""
        for home in homes:
            topic = f"{prefix}/{PROBE}/{home}"
            heard: set[int] = set()

            def all_heard(home: str = home, topic: str = topic, heard: set[int] = heard) -> bool:
                self.publisher(home).publish(topic, b"?", 1)
                self.observer.published(home, f"p-{home}", topic, b"?", 1, [])
                for number, (_, reader) in enumerate(self.readers):
                    while not reader.messages.empty():
                        heard |= {number} if reader.messages.get().topic == topic else set()
                return len(heard) == len(self.readers)

            wait_for(all_heard, f"{topic} reaching everybody", START_S)

    def publish(self, home: str, topic: str, payload: bytes, qos: int, more: tuple[str, ...] = ()) -> None:
        """`more`: homes of sessions that want it besides the readers."""
        self.publisher(home).publish(topic, payload, qos)
        takers = [where for where, _ in self.readers]
        self.observer.published(home, f"p-{home}", topic, payload, qos, [*takers, *more])


def messages_of(reader: Paho, count: int) -> Counter[tuple[str, bytes]]:
    found: Counter[tuple[str, bytes]] = Counter()
    while sum(found.values()) < count:
        message = reader.messages.get(timeout=START_S)
        if PROBE not in message.topic:
            found[message.topic, message.payload] += 1
    return found


def play_delegation(city: CityProcess, file: Path, observer: Observer) -> None:
    """A filter goes round while others publish to it; every reader gets everything once."""
    central, first, second = DELEGATION.names
    with ExitStack() as stack:
        scene = Scene(city, observer, stack)
        for home in (central, first, second, second):
            scene.read(home, "parking/#")
        scene.ready("parking", [central, first])
        streams = {home: Stream(scene.port(home), f"parking/{home}") for home in (central, first)}
        for owner in (first, second, "--return"):

            def handed(owner: str = owner) -> bool:
                words = ("delegate", "parking/#", owner, "--city", str(file), "--data", str(city.data))
                return metromq(*words, check=False).returncode == 0

            wait_for(handed, f"handing the filter over: {owner}", START_S)
            for stream in streams.values():
                stream.more(20)
        sent = [(home, f"parking/{home}", str(n).encode()) for home, one in streams.items() for n in one.stop()]
        for home, topic, payload in sent:
            observer.published(home, f"stream-{home}", topic, payload, 2, [where for where, _ in scene.readers])
        scene.publish(second, "parking/last", b"what comes twice comes before this", 1)
        wanted = Counter([("parking/last", b"what comes twice comes before this"), *((t, p) for _, t, p in sent)])
        for _, reader in scene.readers:
            assert messages_of(reader, len(sent) + 1) == wanted


def few_links(city: CityProcess) -> dict[str, set[str]] | None:
    """Who has a link to whom, once it is far from everybody: brokers that start one by one look for more at first."""
    status = city.status()
    assert {broker["state"] for broker in status["brokers"]} == {UP}
    linked = {broker["name"]: {link["peer"] for link in broker["links"]} for broker in status["brokers"]}
    return linked if max(map(len, linked.values())) <= 10 else None


def play_large(city: CityProcess, observer: Observer) -> None:
    """Readers and publishers at brokers that keep no link with each other; a session moves; a value is kept."""
    linked = wait_for(lambda: few_links(city), "links that the start needed going to rest", START_S)
    one, other = next((a, b) for a in linked for b in linked if a != b and b not in linked[a])
    owner = next(name for name in linked if name not in (one, other, *linked[one]))
    topic = f"{LARGE.by_name[owner].area.split()[0]}/news"
    with ExitStack() as stack:
        scene = Scene(city, observer, stack)
        for home in (one, other, other):
            scene.read(home, f"{topic}/#")
        roamer = Paho(V5, "roamer", clean=False)
        stack.callback(roamer.close)
        assert roamer.connect(scene.port(other), properties=KEPT)[0] == 0
        roamer.subscribe(f"{topic}/#", 1)
        scene.ready(topic, [one, other, owner])
        for number in range(30):
            home = (one, other, owner)[number % 3]
            scene.publish(home, f"{topic}/{number % 4}", b"%d" % number, number % 3, (other,))
        got = messages_of(roamer, 30)
        roamer.kill()
        scene.publish(one, f"{topic}/away", b"while it was away", 2, (other,))
        assert roamer.connect(scene.port(one), properties=KEPT)[0] == 0, "its session follows it"
        got += messages_of(roamer, 1)
        scene.publish(owner, f"{topic}/away", b"and after", 1, (one,))
        got += messages_of(roamer, 1)
        wanted = Counter((said.topic, said.payload) for said in observer.sent if said.topic.startswith(f"{topic}/"))
        assert got == Counter({key: count for key, count in wanted.items() if PROBE not in key[0]})
        for _, reader in scene.readers:
            assert messages_of(reader, 32) == got


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Story:
    directory = tmp_path_factory.mktemp("cities")
    observer, lake, config = Observer(), directory / "lake", directory / "metromq.toml"
    config.write_text("[recorder]\nkeep_counts = true\nwindow_s = 3600.0\n")
    data: list[str] = []
    for city in (DELEGATION, LARGE):
        file = directory / f"{city.name}.toml"
        file.write_text(city_text(city))
        file.chmod(0o600)
        words = ("up", str(file), "--durability", "os", "--config", str(config))
        with city_process(directory / city.name, *words) as running:
            running.says("Ctrl-C stops the city", START_S)
            if city is DELEGATION:
                play_delegation(running, file, observer)
            else:
                play_large(running, observer)
            assert running.end(signal.SIGINT) == 0
        data += ["--data", str(running.data)]
    answer(spark, "run", "--once", "--lake", str(lake), *data)
    checked = json.loads(answer(spark, "check", "--json", "--lake", str(lake), *data))
    return Story(observer, Lake(lake), rows_of_the_lake(lake), checked)


def table(story: Story, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = story.lake.arrow(name).to_pylist()
    return found


def counted(rows: list[dict[str, Any]], value: str, *keys: str) -> dict[tuple[Any, ...], int]:
    found: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        if PROBE not in row["topic"] or value == "publications":
            found[tuple(row[key] for key in keys)] += row[value]
    return {key: count for key, count in found.items() if count}


def test_every_row_is_what_a_client_published_and_there_once(story: Story) -> None:
    found = [row for row in story.rows if not row.topic.startswith("$")]
    assert max(Counter((row.broker, row.offset) for row in found).values()) == 1
    first_hand = [row for row in found if row.kind == "publish"]
    said = Counter(Said(row.broker, row.topic, row.payload, row.qos) for row in first_hand)
    assert said == Counter(one for one in story.observer.sent if one.qos)
    by_place = {place(row): row for row in first_hand}
    links = [row for row in found if row.kind == "link"]
    for row in links:
        original = by_place[row.origin, row.origin_offset]
        assert (row.topic, row.payload, row.qos) == (original.topic, original.payload, original.qos), row
        assert original.broker == row.origin
        # What the owner of a filter sends to the others goes by way of the central broker, wherever it came from.
        assert row.origin != row.broker or row.broker == DELEGATION.central
    copies = Counter((row.broker, *place(row)) for row in links)
    assert max(count for (broker, *_), count in copies.items() if broker in LARGE.names) == 1, "a copy is written once"
    # A broker that has just given a filter up passes on what still comes for it, and gets a copy from the central one.
    assert max(copies.values()) <= 2
    assert {row.broker[0] for row in links} == {"d", "w"}
    held = {(row.broker, *place(row)) for row in found}
    missing = [
        (home, row)
        for (_, home, topic) in story.observer.got
        for row in first_hand
        if row.topic == topic and (home, *place(row)) not in held
    ]
    assert missing == [], "what clients got is at their brokers"


def test_the_check_finds_everything_whole(story: Story) -> None:
    assert {item["broker"] for item in story.check} <= {*DELEGATION.names, *LARGE.names}
    assert all(item["whole"] for item in story.check)
    assert sum(item["content"]["compared"] for item in story.check) == len(story.rows)


def test_statistics_are_what_plain_counting_says(story: Story) -> None:
    observer, rows = story.observer, table(story, "traffic")
    assert counted(rows, "publications", "broker", "topic") == dict(
        Counter((one.home, one.topic) for one in observer.sent)
    )
    near, far = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for (origin, home, topic), count in observer.got.items():
        (near if origin == home else far)[home, topic] += count
    assert counted(rows, "deliveries_local", "broker", "topic") == dict(near)
    assert counted(rows, "deliveries_remote", "broker", "topic") == dict(far)
    sizes = counted(table(story, "traffic"), "published_bytes", "topic", "broker")
    for key, size in counted(rows, "delivered_bytes", "topic", "broker").items():
        sizes[key] = sizes.get(key, 0) + size
    assert sizes == {key: size for key, size in observer.sizes.items() if PROBE not in key[0]}


def test_delegation_inputs_are_what_plain_counting_says(story: Story) -> None:
    observer = story.observer
    makers = {key: len(names) for key, names in observer.publishers.items()}
    wanted = {}
    for home, topic in {*makers, *observer.subscribers}:
        inside = makers.get((home, topic), 0), observer.subscribers[home, topic]
        everywhere = [sum(n for (_, t), n in counts.items() if t == topic) for counts in (makers, observer.subscribers)]
        wanted[topic, home] = (inside[0], everywhere[0] - inside[0], inside[1], everywhere[1] - inside[1])
    names = ("publishers_inside", "publishers_outside", "subscribers_inside", "subscribers_outside")
    found = {
        (row["topic"], row["site"]): tuple(row[name] for name in names) for row in table(story, "delegation_inputs")
    }
    assert {key: value for key, value in found.items() if PROBE not in key[0]} == {
        key: value for key, value in wanted.items() if PROBE not in key[0]
    }


def test_latency_counts_every_message_that_came_over_a_link(story: Story) -> None:
    links = Counter(
        (row.origin, row.broker)
        for row in story.rows
        if row.kind == "link" and row.topic[0] != "$" and row.origin != row.broker
    )
    found: Counter[tuple[str, str]] = Counter()
    for row in table(story, "latency"):
        found[row["origin"], row["broker"]] += row["messages"]
    assert found == links
