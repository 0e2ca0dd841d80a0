"""A city that records, and what the lake and the Spark source then say of it.

Three brokers as processes, paho clients at each, recorders, `metromq pipeline run --once`, a Spark program over the
brokers' data directories. The observer is plain Python: it knows what the clients published and where, and where others
had subscribed.
"""

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Empty
from typing import Any

import pytest

from metromq.pipeline.lake import Lake
from tests.cli.cities import CityProcess, city_process, environment, wait_for, write_city
from tests.clients.paho_client import V5, V311, Paho, client, properties
from tests.pipeline.settings import QUICK

pytestmark = pytest.mark.timeout(1800)

HOMES = ("b00", "b11", "b22")
AREAS = {"b00": "0/1/2/3", "b11": "1/2/0/0", "b22": "3/3/1/0"}  # one that each is responsible for
SETTINGS = [f"{name}={value}" for name, value in QUICK.items()]
DEADLINE_S = 900.0
USER_PROPERTY = b"\x26\x00\x04mark"
PROBE = b"probe"  # may be sent before anyone knows of the subscriber
WILL = b"gone without a word"


@dataclass(frozen=True, slots=True)
class Sent:
    """One publication, as its publisher knows it."""

    home: str
    publisher: str
    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: bytes = b""  # as MQTT 5 writes them, but for the expiry
    expires: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table, whichever way it was read."""

    broker: str
    offset: int
    kind: str
    topic: str
    payload: bytes
    qos: int
    retain: bool
    publisher: str
    origin: str
    origin_offset: int
    properties: bytes
    expires_at: Any

    @property
    def sent(self) -> Sent:
        """What the row says of the publication, if it was published at this broker."""
        return Sent(
            self.broker,
            self.publisher,
            self.topic,
            self.payload,
            self.qos,
            self.retain,
            self.properties,
            self.expires_at is not None,
        )


@dataclass(slots=True)
class Observer:
    """Remembers what the clients did."""

    sent: list[Sent] = field(default_factory=list)
    reached: dict[str, set[str]] = field(default_factory=dict)  # topic: homes of those who had subscribed to it

    def publish(self, home: str, who: Paho, topic: str, payload: bytes, qos: int, retain: bool = False) -> None:
        options: dict[str, Any] = {}
        mark = f"{home}-{len(self.sent)}"
        if who.version == V5:
            options["properties"] = properties("PUBLISH", UserProperty=[("mark", mark)], MessageExpiryInterval=3600)
        who.publish(topic, payload, qos, retain, **options)
        written = USER_PROPERTY + len(mark).to_bytes(2, "big") + mark.encode() if options else b""
        name = who.paho._client_id.decode()
        self.sent.append(Sent(home, name, topic, payload, qos, retain, written, bool(options)))


@dataclass(frozen=True, slots=True)
class Recorded:
    """After the story: the observer's memory, and the rows by the way they were read."""

    observer: Observer
    rows: dict[str, list[Row]]
    checked: list[dict[str, Any]]  # what `metromq pipeline check` says


def publishers(stack: ExitStack, city: CityProcess) -> list[tuple[str, Paho]]:
    """At every broker one client of each version."""
    return [
        (home, stack.enter_context(client(city.place(home)[1], version, f"{home}-{name}")))
        for home in HOMES
        for version, name in ((V311, "old"), (V5, "new"))
    ]


def until_heard(observer: Observer, home: str, who: Paho, topic: str, subscriber: Paho) -> None:
    """Interest travels in its own time: publish until the subscriber hears it, then drop what else came."""

    def heard() -> bool:
        observer.publish(home, who, topic, PROBE, 1)
        try:
            subscriber.messages.get(timeout=0.3)
        except Empty:
            return False
        return True

    wait_for(heard, f"{topic} from {home} reaching its subscriber")


def play(city: CityProcess, observer: Observer) -> None:
    """Everyone publishes to topics of everyone; subscribers are at b22, plain, shared and late."""
    with ExitStack() as stack:
        clients = publishers(stack, city)
        plain = stack.enter_context(client(city.place("b22")[1], V5, "plain"))
        shared = stack.enter_context(client(city.place("b00")[1], V5, "shared"))
        plain.subscribe("+/+/+/+/value", 2)
        shared.subscribe("$share/workers/+/+/+/+/value", 1)
        for home, who in clients:
            for area in AREAS.values():
                until_heard(observer, home, who, f"{area}/value", plain)
        will_at(city, observer, "b11", f"{AREAS['b00']}/value")
        for number, (home, who) in enumerate(clients):
            publish_all(observer, home, who, number)
        late_subscribers(stack, city)
    observer.reached = {f"{area}/value": {"b22", owner} for owner, area in AREAS.items()}


def publish_all(observer: Observer, home: str, who: Paho, number: int) -> None:
    for place, (owner, area) in enumerate(AREAS.items()):
        for qos in (0, 1, 2):
            text = f"2{number}.{place}{qos}".encode()
            observer.publish(home, who, f"{area}/value", text, qos)
            observer.publish(home, who, f"{area}/silent", b"\x00\xff" + text, qos)
            observer.publish(home, who, f"{area}/kept/{home}", b"kept " + text, qos, retain=True)
        observer.publish(home, who, f"{area}/value", b"", 1)
        if owner != home:
            observer.publish(home, who, f"{area}/removed/{home}", b"for a while", 1, retain=True)
            observer.publish(home, who, f"{area}/removed/{home}", b"", 1, retain=True)


def will_at(city: CityProcess, observer: Observer, home: str, topic: str) -> None:
    lost = Paho(V5, f"{home}-lost")
    lost.paho.will_set(topic, WILL, 1)
    lost.connect(city.place(home)[1])
    lost.kill()
    observer.sent.append(Sent(home, f"{home}-lost", topic, WILL, 1, False))


def late_subscribers(stack: ExitStack, city: CityProcess) -> None:
    """Retained values are passed on, and written again, for someone who subscribes later and elsewhere."""
    for home in ("b00", "b11"):
        late = stack.enter_context(client(city.place(home)[1], V5, f"late-{home}"))
        late.subscribe("+/+/+/+/kept/#", 1)
        got: set[str] = set()

        def all_there(late: Paho = late, got: set[str] = got) -> bool:
            while not late.messages.empty():
                got.add(late.messages.get().topic)
            return len(got) == len(AREAS) * len(HOMES)

        wait_for(all_there, f"the retained values at {home}")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    directory = tmp_path_factory.mktemp("recorded")
    lake, config, observer = directory / "lake", directory / "metromq.toml", Observer()
    config.write_text(f'[recorder]\nlake = "{lake}"\n\n[journal]\nrecord_qos0 = true\n')
    words = ("up", str(write_city(directory, 3)), "--durability", "os", "--config", str(config))
    with city_process(directory, *words) as city:
        city.says("Ctrl-C stops the city")
        play(city, observer)
        assert city.end(signal.SIGINT) == 0  # each recorder ships the rest
    source = start("-m", "tests.joints.source_rows", str(city.data), *SETTINGS)
    settings = [word for setting in SETTINGS for word in ("--conf", setting)]
    run = ("-m", "metromq.cli.main", "pipeline", "run", "--once", "--refresh", "0", "--lake", str(lake), *settings)
    finish(start(*run))
    found = {"lake": rows_of_the_lake(lake), "source": rows_of_the_source(map(json.loads, finish(source).splitlines()))}
    checked = finish(start("-m", "metromq.cli.main", "pipeline", "check", "--json", "--lake", str(lake)))
    return Recorded(observer, found, json.loads(checked))


def start(*words: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, *words], stdout=pipe, stderr=pipe, text=True, env=environment())


def finish(process: subprocess.Popen[str], deadline_s: float = DEADLINE_S) -> str:
    output, errors = process.communicate(timeout=deadline_s)
    assert process.returncode == 0, errors
    return output


def rows_of_the_lake(lake: Path) -> list[Row]:
    found = Lake(lake).arrow("messages").to_pylist()
    for row in found:  # the table says it with nulls
        row["origin"] = row["origin"] or ""
        row["origin_offset"] = -1 if row["origin_offset"] is None else row["origin_offset"]
    return rows(found)


def rows_of_the_source(found: Iterable[dict[str, Any]]) -> list[Row]:
    return rows([{**row, **{name: bytes.fromhex(row[name]) for name in ("payload", "properties")}} for row in found])


def rows(found: list[dict[str, Any]]) -> list[Row]:
    return [Row(**{name: row[name] for name in Row.__dataclass_fields__}) for row in found]


@pytest.mark.parametrize("way", ["lake", "source"])
def test_every_row_is_what_a_client_published(recorded: Recorded, way: str) -> None:
    found, observer = recorded.rows[way], recorded.observer
    assert Counter((row.broker, row.offset) for row in found).most_common(1)[0][1] == 1
    first_hand = [row for row in found if row.kind in ("publish", "will")]
    assert Counter(row.sent for row in first_hand) == Counter(observer.sent)
    assert {(row.origin, row.origin_offset) for row in first_hand if row.kind == "publish"} == {("", -1)}
    assert {row.origin for row in first_hand if row.kind == "will"} == {
        f"{row.broker}/will" for row in first_hand if row.kind == "will"
    }
    judge_second_hand(found, first_hand, observer)


def place(row: Row) -> tuple[str, int]:
    """Where others say that a row comes from; a will has the same name whichever broker fires it."""
    return (row.origin, row.origin_offset) if row.origin else (row.broker, row.offset)


def judge_second_hand(found: list[Row], first_hand: list[Row], observer: Observer) -> None:
    """A row that a link or a replay made names a publication, and says the same of it."""
    by_place = {place(row): row for row in first_hand}
    # Brokers also write down what they tell each other of themselves, below $metromq/.
    second_hand = [
        row for row in found if row.kind not in ("publish", "will") and not row.topic.startswith("$metromq/")
    ]
    for row in second_hand:
        if row.kind == "replay" and not row.origin:  # a retained value, for a late subscriber of the same broker
            assert any(replace(row.sent, home=home) in observer.sent for home in HOMES), row
            continue
        assert (row.origin, row.origin_offset) in by_place, row
        home = row.origin.removesuffix("/will")
        assert replace(row.sent, home=home) == by_place[row.origin, row.origin_offset].sent
    arrived = {(row.origin, row.origin_offset, row.broker) for row in second_hand if row.kind == "link"}
    missing = [
        (row, home)
        for row in first_hand
        for home in observer.reached.get(row.topic, set()) - {row.broker}
        if (*place(row), home) not in arrived and row.payload != PROBE
    ]
    assert missing == []
    assert {row.kind for row in second_hand} == {"link", "replay"}
    assert {row.qos for row in second_hand} == {0, 1, 2}


def test_the_check_compares_every_row_with_the_journals(recorded: Recorded) -> None:
    assert [item["broker"] for item in recorded.checked if item["whole"]] == list(HOMES)
    assert sum(item["content"]["compared"] for item in recorded.checked) == len(recorded.rows["lake"])
