"""An overlay that records: every message of paho clients is in the lake once, with its origin and its payload right.

The story and its judge are those of test_city_and_lake.py, in a city whose messages go through clusters and relays.
Then everybody publishes all the time while brokers that lead clusters are killed and started again.
"""

import json
import os
import signal
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Event

import pytest
from pyspark.sql import SparkSession

from tests.cli.cities import CityProcess, city_process, wait_for, write_city
from tests.clients.paho_client import V5, Paho, client, properties
from tests.joints.test_city_and_lake import (
    AREAS,
    HOMES,
    Observer,
    Recorded,
    judge_second_hand,
    play,
    rows_of_the_lake,
)
from tests.pipeline.commands import answer

pytestmark = pytest.mark.timeout(1800)

STORMY = "stormy/value"
KILLS = 2


def play_with_kills(city: CityProcess, observer: Observer) -> None:
    """At QoS 2, since a client may send a QoS 1 message twice if its broker dies."""
    keeps = {"clean": False, "properties": properties("CONNECT", SessionExpiryInterval=3600)}
    sent = {home: 0 for home in HOMES}
    is_over = Event()
    talks: list[Future[None]] = []

    def talk(home: str, who: Paho) -> None:
        while not is_over.is_set():
            observer.publish(home, who, STORMY, f"{home} {sent[home]}".encode(), 2)
            sent[home] += 1

    def have_gone_on(before: dict[str, int]) -> bool:
        for one in talks:
            if one.done():
                one.result()  # it has raised something
        return all(sent[home] > before[home] + 20 for home in HOMES)

    def all_go_on() -> None:
        wait_for(partial(have_gone_on, dict(sent)), "more messages of everybody")

    with ExitStack() as stack:
        getter = stack.enter_context(client(city.place("b22")[1], V5, "getter", **keeps))
        getter.subscribe(STORMY, 2)
        talkers = [
            (home, stack.enter_context(client(city.place(home)[1], V5, f"talker-{home}", **keeps))) for home in HOMES
        ]
        threads = stack.enter_context(ThreadPoolExecutor(len(HOMES)))
        talks += [threads.submit(talk, home, who) for home, who in talkers]
        stack.callback(is_over.set)
        all_go_on()
        killed: set[str] = set()
        for _ in range(KILLS):
            killed.add(kill_a_leader(city, killed))
            all_go_on()
        is_over.set()
        for one in talks:
            one.result()
        got: Counter[bytes] = Counter()

        def has_all() -> bool:
            while not getter.messages.empty():
                got[getter.messages.get().payload] += 1
            return got.total() >= sum(sent.values())

        wait_for(has_all, "every message coming to b22")
        assert got == Counter(one.payload for one in observer.sent if one.topic == STORMY)
    observer.reached[STORMY] = {"b22"}


def kill_a_leader(city: CityProcess, but: set[str]) -> str:
    """The broker that leads a cluster of the topic; `up` starts it again."""

    def leads(home: str) -> bool:
        try:
            return any(cluster["topic"] == STORMY for cluster in city.ask(home)["clusters"])
        except OSError:
            return False

    leader = wait_for(lambda: next((home for home in HOMES if home not in but and leads(home)), None), "a leader")
    pid = city.place(leader)[0]
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: city.place(leader)[0] != pid, f"{leader} starting again")
    return leader


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Recorded:
    directory = tmp_path_factory.mktemp("overlay")
    lake, config, observer = directory / "lake", directory / "metromq.toml", Observer()
    config.write_text(f'[recorder]\nlake = "{lake}"\n\n[journal]\nrecord_qos0 = true\n')
    file = write_city(directory, 3)
    text = file.read_text()
    assert 'routing = "geographic"' in text
    file.write_text(text.replace('routing = "geographic"', 'routing = "overlay"'))
    with city_process(directory, "up", str(file), "--durability", "os", "--config", str(config)) as city:
        city.says("Ctrl-C stops the city")
        play(city, observer)
        observer.reached = {f"{area}/value": {"b22"} for area in AREAS.values()}
        play_with_kills(city, observer)
        assert city.end(signal.SIGINT) == 0
    answer(spark, "run", "--once", "--refresh", "0", "--lake", str(lake))
    checked = answer(spark, "check", "--json", "--lake", str(lake))
    return Recorded(observer, {"lake": rows_of_the_lake(Path(lake))}, json.loads(checked))


def test_every_message_of_an_overlay_is_in_the_lake_once(recorded: Recorded) -> None:
    found = recorded.rows["lake"]
    assert len({(row.broker, row.offset) for row in found}) == len(found)
    first_hand = [row for row in found if row.kind in ("publish", "will")]
    assert sorted(map(repr, (row.sent for row in first_hand))) == sorted(map(repr, recorded.observer.sent))
    judge_second_hand(found, first_hand, recorded.observer)
    stormy = [(row.origin, row.origin_offset, row.broker) for row in found if row.topic == STORMY and row.origin]
    assert Counter(stormy).most_common(1)[0][1] == 1
    assert [item["broker"] for item in recorded.checked if item["whole"]] == list(HOMES)
