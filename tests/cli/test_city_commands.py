"""A user's day with a city: start it, look at it, break it, stop it. Real processes on ports from the system."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from metromq.city_file import load_city
from metromq.client import Client
from metromq.federation.status import CityStatus, to_json
from metromq.protocol.topics.areas import all_areas
from metromq.reading import read_data
from tests.cli.cities import DEADLINE_S, CityProcess, city_process, environment, metromq, wait_for, write_city
from tests.peers import play, require

NAMES = ["b00", "b10", "b20", "b30"]


@pytest.fixture(scope="module")
def city(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CityProcess]:
    directory = tmp_path_factory.mktemp("city")
    with city_process(directory, "up", str(write_city(directory, 4)), "--durability", "os") as running:
        running.says("Ctrl-C stops the city")
        yield running
        assert running.end(signal.SIGINT) == 0
        assert "All stopped." in running.output()
        assert running.all_gone()
        assert not list(running.data.glob("*/broker.json"))


def links_of(broker: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {link["peer"]: link for link in broker["links"]}


def areas_of(broker: dict[str, Any]) -> list[str]:
    return [area["area"] for area in broker["areas"]]


def test_status_tells_what_runs_where(city: CityProcess) -> None:
    status = city.status()
    assert (status["city"], status["routing"]) == ("test", "geographic")
    assert [broker["name"] for broker in status["brokers"]] == NAMES
    assert {broker["state"] for broker in status["brokers"]} == {"up"}
    assert all(broker["listen"] == f"127.0.0.1:{city.place(broker['name'])[1]}" for broker in status["brokers"])
    assert sorted(area for broker in status["brokers"] for area in areas_of(broker)) == sorted(all_areas(2))
    assert len({broker["table"] for broker in status["brokers"]}) == 1
    for broker in status["brokers"]:
        assert {link["state"] for link in broker["links"]} == {"up"}
        assert sorted(links_of(broker)) == sorted(set(NAMES) - {broker["name"]})
    assert to_json(read_data(CityStatus, status)) == {**status, "brokers": with_tuples(status)}


def with_tuples(status: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """JSON has lists where the dataclasses have tuples."""
    lists = ("areas", "clusters", "alive", "links", "workers")
    return tuple({**b, **{name: tuple(b[name]) for name in lists}} for b in status["brokers"])


def test_status_as_a_table(city: CityProcess) -> None:
    text = metromq("status", "--data", str(city.data), "--links").stdout
    for name in NAMES:
        assert re.search(rf"^{name} +127\.0\.0\.1:\d+ .*up", text, re.MULTILINE)
    assert re.search(r"^b00 +b10 +up", text, re.MULTILINE)
    assert "4/4 brokers up, 12/12 links up" in text
    assert "topic tables agree" in text


def test_the_resolved_file_has_the_ports(city: CityProcess) -> None:
    resolved = load_city(city.data / "city.toml")
    assert [broker.port for broker in resolved.brokers] == [city.place(name)[1] for name in NAMES]


def test_messages_pass_and_status_counts_them(city: CityProcess) -> None:
    """Published at b10, responsible b20, subscribed at b30."""
    topic = "2/1/0/0/bus/17/position"
    before = links_of(city.broker("b10"))["b20"]["messages_sent"]

    async def story() -> None:
        async with (
            Client("127.0.0.1", city.place("b30")[1], identifier="subscriber") as subscriber,
            Client("127.0.0.1", city.place("b10")[1], identifier="publisher") as publisher,
        ):
            await subscriber.subscribe("2/+/#", qos=1)
            explained = wait_for(lambda: explain_once_known(city, topic), "the interest of b30 reaching b20")
            assert [(leg["broker"], leg["stage"]) for leg in explained["legs"]] == [
                ("b10", "client"),
                ("b20", "owner"),
                ("b30", "final"),
            ]
            assert explained["legs"][1]["step"]["interested"] == ["b30"]
            assert explained["legs"][2]["step"]["subscribers"] == 1
            for number in range(5):
                await publisher.publish(topic, str(number), qos=1)
            got = [await anext(subscriber.messages) for _ in range(5)]
            assert [message.payload for message in got] == [b"0", b"1", b"2", b"3", b"4"]
            there = city.broker("b30")
            assert (there["clients"], there["subscriptions"]) == (1, 1)
            assert there["traffic"]["messages_sent"] >= 5

    play(story(), DEADLINE_S)
    link = links_of(city.broker("b10"))["b20"]
    assert link["messages_sent"] - before == 5
    assert link["backlog"] == 0


def explain_once_known(city: CityProcess, topic: str) -> dict[str, Any] | None:
    done = metromq("explain", topic, "--from", "b10", "--data", str(city.data), "--json")
    explained: dict[str, Any] = json.loads(done.stdout)
    return explained if len(explained["legs"]) == 3 else None


def test_explain_a_subscription(city: CityProcess) -> None:
    text = metromq("explain", "1/+/2/#", "--from", "b30", "--data", str(city.data)).stdout
    assert "A subscription to 1/+/2/#, from a client of b30" in text
    assert "announced to b10: area 1/0, 1/1, 1/2, 1/3" in text
    assert "now: 0 subscriptions at b30 itself" in text


def test_explain_without_a_running_city(tmp_path: Path) -> None:
    done = metromq("explain", "news/today", "--from", "b33", "--city", "central", "--data", str(tmp_path))
    assert "b00 as owner: it distributes every message" in done.stdout
    assert "b33 is not running here" in done.stdout


def test_a_second_city_on_the_same_data_is_refused(city: CityProcess) -> None:
    done = metromq("up", "geographic", "--data", str(city.data), check=False)
    assert done.returncode == 2
    assert f"already running in {city.data} (process {city.process.pid})" in done.stderr


def test_a_killed_broker_is_started_again(city: CityProcess) -> None:
    pid, port = city.place("b10")
    os.kill(pid, signal.SIGKILL)
    city.says("b10 was killed by SIGKILL; restarting it in")
    city.says("b10 is back as process")

    def is_whole() -> bool:
        status = city.status()
        return all(
            broker["state"] == "up"
            and len(areas_of(broker)) == 4
            and all(link["state"] == "up" for link in broker["links"])
            for broker in status["brokers"]
        )

    wait_for(is_whole, "the whole city being up again")
    assert city.place("b10")[0] != pid
    assert city.place("b10")[1] == port


def test_a_frozen_broker_is_stood_in_for(city: CityProcess) -> None:
    pid, _ = city.place("b20")
    os.kill(pid, signal.SIGSTOP)
    try:

        def stood_in_for() -> bool:
            others = [city.ask(name) for name in NAMES if name != "b20"]
            return {area for broker in others for area in areas_of(broker)} == set(all_areas(2))

        wait_for(stood_in_for, "the takeover of b20's areas")
        assert city.broker("b20")["state"] == "unreachable"
    finally:
        os.kill(pid, signal.SIGCONT)
    back = wait_for(lambda: (found := city.broker("b20"))["areas"] and found, "b20's return")
    wait_for(lambda: len({broker["table"] for broker in city.status()["brokers"]}) == 1, "agreement on one topic table")
    assert all(area["home"] for area in back["areas"])


def test_brokers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    file = write_city(tmp_path, 2)
    with city_process(tmp_path, "up", str(file), "--only", "b00,b20", "--durability", "memory") as running:
        running.says("Ctrl-C stops the city")
        assert len(running.pids) == 2
        running.end(signal.SIGKILL)
        wait_for(running.all_gone, "the end of the orphans")


def test_a_broker_that_cannot_start_is_named_with_its_log(tmp_path: Path) -> None:
    file = write_city(tmp_path, 2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        file.write_text(file.read_text().replace("127.0.0.1:0", address, 1))
        done = metromq("up", str(file), "--data", str(tmp_path / "data"), "--durability", "memory", check=False)
    assert done.returncode == 2
    assert "b00 did not start" in done.stderr
    assert f"listener {address}: cannot listen" in done.stderr
    assert not list((tmp_path / "data").glob("*/broker.json"))


def test_the_demo_prints_commands_that_work(tmp_path: Path) -> None:
    require("mosquitto_sub")
    file = write_city(tmp_path, 3)
    with city_process(tmp_path, "demo", str(file), "--buses", "6", "--bikes", "0", "--durability", "memory") as demo:
        demo.says("Or kill a broker")
        lines = [line.strip() for line in demo.output().splitlines() if line.startswith("  ")]
        for start, extra in (("mosquitto_sub", "-C 3 -W 60"), (shlex.quote(sys.executable), "-C 3 -W 60")):
            line = next(line for line in lines if line.startswith(start))
            done = subprocess.run(
                f"{line} {extra}", shell=True, capture_output=True, text=True, env=environment(), timeout=DEADLINE_S
            )
            assert done.returncode == 0, done.stderr
            assert len(done.stdout.splitlines()) == 3
        status = next(line for line in lines if " status " in line)
        done = subprocess.run(status, shell=True, capture_output=True, text=True, env=environment(), timeout=DEADLINE_S)
        assert "3/3 brokers up" in done.stdout
        assert demo.end(signal.SIGTERM) == 0
        assert demo.all_gone()
