"""A live city of which one broker's clock is ten minutes wrong (libfaketime), and what the lake then says of it.

Three brokers as processes with recorders, paho clients at each. The observer knows what clients published, where, and
who got it; it knows the right time, and nothing of the brokers.
"""

import os
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import Empty

import pytest
from pyspark.sql import SparkSession

from metromq.city_file import city_text
from metromq.federation.city import Membership, grid_city
from metromq.pipeline.lake import Lake
from tests.cli.cities import metromq, wait_for
from tests.cli.test_wrong_clock import AHEAD_S, LIBRARIES, serve
from tests.clients.paho_client import V5, Paho, client
from tests.peers import free_ports
from tests.pipeline.commands import answer

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not LIBRARIES, reason="needs libfaketime (Debian package libfaketime)"),
    pytest.mark.skipif(bool(os.environ.get("LD_PRELOAD")), reason="another library is preloaded"),
]

HOMES = ("b00", "b11", "b22")
WRONG = "b11"
EACH = 6


@dataclass(slots=True)
class Observer:
    sent: Counter[tuple[str, str, bytes]] = field(default_factory=Counter)  # broker, topic, payload
    probes: set[bytes] = field(default_factory=set)  # may be sent before anyone knows of the subscriber
    longest_ms: float = 0.0  # that any message took, as its receiver saw it
    began: float = field(default_factory=time.time)

    def publish(self, home: str, who: Paho, topic: str, retain: bool = False) -> bytes:
        payload = f"{home} {len(self.sent)}".encode()
        who.publish(topic, payload, 1, retain)
        self.sent[home, topic, payload] += 1
        return payload


@dataclass(frozen=True, slots=True)
class Story:
    observer: Observer
    lake: Lake


def hear(observer: Observer, subscribers: list[Paho], wanted: set[bytes], began: float) -> None:
    """Every subscriber gets every one of these."""
    for subscriber in subscribers:
        missing = set(wanted)
        while missing:
            missing.discard(subscriber.messages.get(timeout=60).payload)
    observer.longest_ms = max(observer.longest_ms, (time.time() - began) * 1000)


def know_each_other(observer: Observer, publishers: dict[str, Paho], subscribers: list[Paho]) -> None:
    """Interest travels in its own time: everyone publishes until every subscriber has heard it."""
    for home, who in publishers.items():
        for subscriber in subscribers:

            def heard(home: str = home, who: Paho = who, subscriber: Paho = subscriber) -> bool:
                payload = observer.publish(home, who, f"news/{home}")
                observer.probes.add(payload)
                try:
                    while subscriber.messages.get(timeout=0.3).payload != payload:
                        pass
                except Empty:
                    return False
                return True

            wait_for(heard, f"{home} reaching everybody")


def play(observer: Observer, ports: dict[str, int]) -> None:
    with ExitStack() as stack:
        publishers = {home: stack.enter_context(client(port, V5, f"p-{home}")) for home, port in ports.items()}
        subscribers = [stack.enter_context(client(port, V5, f"s-{home}")) for home, port in ports.items()]
        for subscriber in subscribers:
            subscriber.subscribe("news/#", 1)
        know_each_other(observer, publishers, subscribers)
        began = time.time()
        wanted = set()
        for home, who in publishers.items():
            wanted |= {observer.publish(home, who, f"news/{home}") for _ in range(EACH)}
            wanted |= {observer.publish(home, who, f"news/kept/{home}/{number}", True) for number in range(4 * EACH)}
        hear(observer, subscribers, wanted, began)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Story:
    directory = tmp_path_factory.mktemp("wrong")
    file, data, lake, config = (directory / name for name in ("city.toml", "data", "lake", "metromq.toml"))
    ports = dict(zip(HOMES, free_ports(3), strict=True))
    plain = grid_city("flood-subscriptions", count=3)
    brokers = tuple(replace(broker, listen=f"127.0.0.1:{ports[broker.name]}") for broker in plain.brokers)
    file.write_text(city_text(replace(plain, brokers=brokers, membership=Membership(300, 3, 1))))
    config.write_text(f'sys_interval_s = 1.0\n\n[auth]\nallow_anonymous = true\n\n[recorder]\nlake = "{lake}"\n')
    data.mkdir()
    observer = Observer()
    with ExitStack() as stack:
        for home in HOMES:
            stack.enter_context(serve(file, data, home, AHEAD_S if home == WRONG else 0, "--config", str(config)))
        for home in HOMES:
            wait_for(lambda home=home: (data / home / "broker.json").is_file(), f"{home} running")  # type: ignore[misc]
        wait_for(lambda: are_compared(data), "clocks being compared")
        play(observer, ports)
    answer(spark, "run", "--once", "--lake", str(lake))
    return Story(observer, Lake(lake))


def are_compared(data: Path) -> bool:
    said = metromq("status", "--data", str(data), "--links", check=False).stdout
    return said.count("600.0 s") + said.count("599.9 s") >= 4


def test_rows_are_what_clients_published_whatever_the_clocks_say(story: Story) -> None:
    rows = [row for row in story.lake.arrow("messages").to_pylist() if not row["topic"].startswith("$")]
    first = [row for row in rows if row["kind"] == "publish"]
    assert Counter((row["broker"], row["topic"], row["payload"]) for row in first) == story.observer.sent
    assert {row["origin"] for row in first} == {None}
    by_place = {(row["broker"], row["offset"]): row for row in first}
    arrived: Counter[tuple[str, bytes]] = Counter()
    for row in rows:
        if row["kind"] == "link":
            origin = by_place[row["origin"], row["origin_offset"]]
            assert (row["topic"], row["payload"]) == (origin["topic"], origin["payload"])
            assert row["time"] == origin["time"], "the time of a message is that of the broker that took it"
            arrived[row["broker"], row["payload"]] += 1
    for home, _, payload in story.observer.sent:
        if payload not in story.observer.probes:
            assert {other for other in HOMES if arrived[other, payload] == 1} == set(HOMES) - {home}, payload


def test_times_are_by_the_clock_of_the_broker(story: Story) -> None:
    """But for retained values: of two of them the later one must win, so they have the fastest clock's time."""
    slack, ahead = timedelta(seconds=5), timedelta(seconds=AHEAD_S)
    began, ended = datetime.fromtimestamp(story.observer.began, UTC) - slack, datetime.now(UTC)
    for row in story.lake.arrow("messages").to_pylist():
        if row["kind"] == "publish":
            is_ahead = row["broker"] == WRONG or row["retain"]
            assert began <= row["time"] - (ahead if is_ahead else timedelta()) <= ended, row
        if row["kind"] == "link":
            assert began <= row["arrived"] - (ahead if row["broker"] == WRONG else timedelta()) <= ended, row


def test_latency_is_right_although_a_clock_is_wrong(story: Story) -> None:
    rows = story.lake.arrow("latency").to_pylist()
    assert {(row["origin"], row["broker"]) for row in rows} == {(a, b) for a in HOMES for b in HOMES if a != b}
    for row in rows:
        # A round trip of hellos tells the clocks' difference, within half of it.
        assert -1000 <= row["p50_ms"] <= row["p99_ms"] <= story.observer.longest_ms + 2000, row
