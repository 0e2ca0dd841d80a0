"""A manager with live brokers, services in both runtimes, and clients of paho: what people and programs see of it."""

import contextlib
import dataclasses
import json
import os
import pwd
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from metromq.control import ManagerDoor, ManagerSays, NoManager
from metromq.telemetry import decode_window
from tests.clients.paho_client import client
from tests.control.manager.live import CENTRAL, FIRST, SECOND, example, live_city, records, service, wait_for
from tests.peers import free_port

pytestmark = pytest.mark.timeout(600)  # for a machine that is busy: each takes some seconds


def owners(door: ManagerDoor) -> dict[str, str]:
    return {one["filter"]: one["broker"] for one in door.ask("GET", "/topics")["delegated"]}


def test_services_enter_work_and_leave_and_failed_ones_leave_nothing_behind(tmp_path: Path) -> None:
    """The three examples; the edge broker of one is not running before, and the manager starts it."""
    with live_city(tmp_path, CENTRAL, FIRST) as city:
        door = city.start_manager("--window", "1")
        noise = service("noise", "noise/+/level", command=example("noise_map"), device=SECOND)
        port = free_port()
        noise["environment"] = {"NOISE_PORT": str(port)}
        dry = door.ask("POST", "/services", noise, dry_run=True)
        done = door.ask("POST", "/services", noise, wait_s=90)
        assert done["phase"] == "done", done
        assert [step["says"] for step in dry["steps"]] == [step["says"] for step in done["steps"]]
        assert next(step["result"] for step in done["steps"] if step["action"] == "start-broker") == "started"
        for name, topic in (("parking", "parking/+/+"), ("air_alarm", "air/+/pm25")):
            body = service(name, topic, command=example(name), device=FIRST)
            assert door.ask("POST", "/services", body, wait_s=90)["phase"] == "done"
        assert owners(door) == {"noise/+/level": SECOND, "parking/+/+": FIRST, "air/+/pm25": FIRST}
        with client(city.port(FIRST)) as user:
            for topic in ("noise-map", "parking-free/+", "alarm/air/+"):
                user.subscribe(topic, 1)
            user.publish("noise/pier/level", b"70", 1)
            user.publish("parking/p1/a", b"taken", 1)
            user.publish("parking/p1/b", b"free", 1)
            for value in (60, 61, 62):
                user.publish("air/pier/pm25", str(value).encode(), 1)
            got: dict[str, bytes] = {}
            while got.keys() < {"noise-map", "parking-free/p1", "alarm/air/pier"} or got["parking-free/p1"] != b"1":
                message = user.take(1)[0]
                got[message.topic] = message.payload
            assert json.loads(got["noise-map"]) == {"pier": 70.0}
            assert got["alarm/air/pier"] == b"on"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as page:
            size = len(page.read())
        failed = door.ask("POST", "/services", service("bad", "x/#", command=["/bin/false"]), wait_s=90)
        assert failed["phase"] == "rolled-back"
        assert failed["why"] == "bad ended at once with status 1."
        states = [step["state"] for step in failed["steps"]]
        assert states == ["taken back"] * (len(states) - 1) + ["failed"], failed
        assert "x/#" not in owners(door)
        with pytest.raises(ManagerSays, match="neither lies within"):
            door.ask("POST", "/services", service("cross", "+/pier/level", command=["/bin/true"]))
        _telemetry_says(tmp_path, size)
        assert b"the noise map is being drawn" in b"".join(door.stream("/services/noise/logs"))
        gone = door.ask("DELETE", "/services/noise", wait_s=90)
        assert gone["phase"] == "done"
        assert "noise/+/level" not in owners(door)
        another = service("noise", "other", command=["/bin/sh", "-c", "echo another; exec sleep 900"], device=FIRST)
        assert door.ask("POST", "/services", another, wait_s=90)["phase"] == "done"
        assert b"".join(door.stream("/services/noise/logs")) == b"another\n", "not what the earlier one had printed"
        kinds = {record["kind"] for record in records(tmp_path)}
        assert {"device", "plan", "step-begun", "step-ended", "plan-ended"} <= kinds


def _telemetry_says(data: Path, size: int) -> None:
    """What fills the planner's dst and dsd waits for the central broker's recorder."""

    def found() -> bool:
        windows = [decode_window(file.read_bytes()) for file in (data / CENTRAL / "telemetry").glob("*.json")]
        rows = [row for window in windows if window.broker == "manager" for row in window.rows]
        topics = Counter[tuple[str, str]]()
        users = Counter[tuple[str, str]]()
        for row in rows:
            (topics if row.subject == "service-topic" else users)[row.name, row.detail] += row.bytes
        return topics["noise", "noise/pier/level"] == 2 and users == {("noise", SECOND): size}

    wait_for(found, "telemetry of services")


def test_a_manager_that_is_killed_at_any_step_finishes_the_plan_when_it_is_back(tmp_path: Path) -> None:
    """At each that changes something. It finds a manager that takes the step it was at for done."""
    with live_city(tmp_path, CENTRAL, SECOND) as city:
        city.start_dying_manager("start-broker")
        body = service("parking", "parking/+/+", command=example("parking"), device=FIRST)
        _ask_and_forget(city.find_manager(), body)
        city.await_death("manager")
        for action in ("delegate", "start-service", "await-service"):
            city.start_dying_manager(action)
            city.await_death("manager")
        before = (tmp_path / "manager" / "run" / "service-parking.pid").read_text()
        door = city.start_manager()
        plan = wait_for(lambda: _ended(door, 1), "the plan ends")
        assert plan["phase"] == "done", plan
        assert owners(door) == {"parking/+/+": FIRST}
        assert door.ask("GET", "/services")[0]["running"]
        assert (tmp_path / "manager" / "run" / "service-parking.pid").read_text() == before, "the same process"
        subprocess.run(["kill", "-9", before.strip()], check=True)
        wait_for(lambda: door.ask("GET", "/services")[0]["restarts"] >= 1, "a killed service is started again")
        wait_for(lambda: door.ask("GET", "/services")[0]["running"], "and runs")
        refused = subprocess.run(
            [sys.executable, "-m", "metromq.cli.main", "manager", "--data", str(tmp_path), "--listen", "127.0.0.1:0"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert "another manager runs" in refused.stderr


def test_a_filter_that_is_a_part_of_a_wider_one_is_its_owners_and_is_a_filter_again_without_that(
    tmp_path: Path,
) -> None:
    """The central broker keeps no entry for what the owner of a wider filter has anyway."""
    with live_city(tmp_path) as city:
        door = city.start_manager()

        def hand(topic_filter: str, broker: str) -> None:
            plan = door.ask("POST", "/topics", {"filter": topic_filter, "broker": broker}, wait_s=90)
            assert plan["phase"] == "done", plan

        near = service("near", "noise/+/level", command=["/bin/sleep", "900"], device=FIRST)
        assert door.ask("POST", "/services", near, wait_s=90)["phase"] == "done"
        hand("noise/#", FIRST)
        wait_for(lambda: owners(door) == {"noise/#": FIRST}, "one entry is enough")
        hand("noise/a/b", SECOND)
        hand("noise/a/b", FIRST)
        wait_for(lambda: owners(door) == {"noise/#": FIRST}, "it lies within the wider one again")
        hand("noise/a/b", CENTRAL)
        assert owners(door) == {"noise/#": FIRST, "noise/a/b": CENTRAL}
        hand("noise/#", "")
        wait_for(lambda: owners(door) == {"noise/+/level": FIRST}, "the service has its topics where it is")
        wait_for(
            lambda: {plan["phase"] for plan in door.ask("GET", "/plans")} == {"done"},
            "the manager's own plans end well, too",
        )


def test_people_decide_and_the_loop_leaves_it_alone_until_they_hand_it_back(tmp_path: Path) -> None:
    """All traffic of the service's topics is at one broker, a person wants them at the other, and later does not care.
    The proxy is told by a manager that was killed when it was about to."""
    with live_city(tmp_path) as city:
        fixed = ("--listen", f"127.0.0.1:{free_port()}", "--span", "600")
        door = city.start_manager(*fixed)
        city.start_proxy(door, "gate", free_port())
        body = service("noise", "noise/#", command=["/bin/sleep", "900"], device=FIRST)
        assert door.ask("POST", "/services", body, wait_s=90)["phase"] == "done"
        city.kill("manager")
        city.start_dying_manager("tell-proxies", *fixed)
        alice = dataclasses.replace(city.find_manager(), author="alice")
        with contextlib.suppress(NoManager):
            alice.ask("POST", "/topics", {"filter": "noise/#", "broker": SECOND}, wait_s=0)
        city.await_death("manager")
        door = city.start_manager(*fixed)
        plan = wait_for(lambda: _ended(door, 2), "the plan ends")
        assert plan["steps"][-1]["result"] == "1 of 1 proxies know", plan
        assert door.ask("GET", "/proxies")[0]["knows_table"]
        with client(city.port(FIRST)) as user:
            user.subscribe("noise/#", 1)

            def wishes() -> Any:
                user.publish("noise/1", b"x", 1)
                return door.ask("POST", "/loop", dry_run=True)

            left = [f"left alone: noise/# at {SECOND}, delegated by alice"]
            wait_for(lambda: "1 topics" in wishes()["grounds"][0], "traffic is counted")
            assert (wishes()["left_alone"], wishes()["plan"]) == (left, None)
            assert door.ask("POST", "/loop")["plan"] is None
            assert alice.ask("POST", "/topics", {"filter": "noise/#", "broker": ""}, wait_s=90)["phase"] == "done"
            done = door.ask("POST", "/loop", wait_s=90)
        assert done["plan"]["phase"] == "done"
        assert _decided(door) == {"noise/#": (FIRST, "service noise")}
        hers = alice.ask("POST", "/topics", {"filter": "noise/#", "broker": CENTRAL}, wait_s=90)
        assert (owners(door), _decided(door)) == ({}, {"noise/#": (CENTRAL, "person alice")})
        with pytest.raises(ManagerSays, match=r"left alone: noise/# at .*, delegated by alice"):
            door.ask("POST", f"/plans/{done['plan']['number']}/undo")
        assert door.ask("POST", f"/plans/{hers['number']}/undo", wait_s=90)["phase"] == "done"
        assert _decided(door) == {"noise/#": (FIRST, "service noise")}
        _commands_say_who_decided(tmp_path)
        gone = door.ask("DELETE", "/services/noise", wait_s=90)
        assert gone["phase"] == "done"
        assert (owners(door), _decided(door)) == ({}, {})


def _commands_say_who_decided(data: Path) -> None:
    """Whoever has no token sees all the same who has what."""
    own = data / "manager" / "tokens" / "bob"
    own.parent.mkdir()
    own.write_text("bob's own token, long enough\n")

    def said(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "metromq.cli.main", "delegate", "--data", str(data), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)

    said("air/#", SECOND, "--token-file", str(own))
    shown = [(one["filter"], one["broker"], one["by"]) for one in json.loads(said("--json").stdout)]
    assert shown == [("air/#", SECOND, "person bob"), ("noise/#", FIRST, "service noise")]
    blind = said("--json", "--token-file", str(data / "none"))
    assert [(one["filter"], one["by"]) for one in json.loads(blind.stdout)] == [("air/#", ""), ("noise/#", "")]
    assert "Who decided is not known" in blind.stderr
    said("air/#", "--return")


def _decided(door: ManagerDoor) -> dict[str, tuple[str, str]]:
    return {one["filter"]: (one["broker"], one["by"]) for one in door.ask("GET", "/topics")["decided"]}


def test_a_tunnel_stays_where_filters_were_for_what_waits_there(tmp_path: Path) -> None:
    with live_city(tmp_path, CENTRAL, FIRST) as city:
        door = city.start_manager()

        def edges() -> Any:
            return door.ask("GET", "/topics")["table"]["edges"]

        city.start_proxy(door, "gate", free_port())
        for broker in (FIRST, ""):
            plan = door.ask("POST", "/topics", {"filter": "noise/#", "broker": broker}, wait_s=90)
            assert plan["phase"] == "done", plan
        assert list(edges()) == [FIRST]
        file = tmp_path / "manager" / "run" / f"tunnel-{FIRST}.pid"
        before = file.read_text()
        os.kill(int(before), signal.SIGKILL)
        wait_for(lambda: file.exists() and file.read_text() not in ("", before), "it is started again")
        wait_for(lambda: list(edges()) == [FIRST], "and proxies are told")


def _ask_and_forget(door: ManagerDoor, body: dict[str, Any]) -> None:
    try:
        door.ask("POST", "/services", body, wait_s=90)
    except Exception:
        pass  # the manager dies meanwhile


def _ended(door: ManagerDoor, number: int) -> Any:
    plan = door.ask("GET", f"/plans/{number}")
    return plan if plan["ended"] else None


def messages_between(door: ManagerDoor) -> int:
    """What links have carried since the brokers started."""
    status = door.ask("GET", "/status")
    return sum(link["messages_sent"] for broker in status["brokers"] for link in broker["links"])


def test_the_loop_follows_traffic_from_one_district_to_another_and_loses_nothing(tmp_path: Path) -> None:
    """Virtual patience is not possible with live brokers, so the manager is told to have little."""
    with live_city(tmp_path) as city:
        door = city.start_manager("--span", "4", "--looks", "2", "--dwell", "0")
        sent = 0
        got: list[int] = []
        for name in (FIRST, SECOND):
            with client(city.port(name)) as reader, client(city.port(name)) as writer:
                reader.subscribe("air/district/#", 1)
                before, start = messages_between(door), sent
                for _ in range(100):  # distributed as it was: by the central broker, or by the other district's
                    writer.publish("air/district/1", str(sent).encode(), 1)
                    sent += 1
                spread = (messages_between(door) - before) / (sent - start)
                end = time.monotonic() + 60
                while owners(door).get("air/district/#") != name:
                    assert time.monotonic() < end, door.ask("POST", "/loop", dry_run=True)
                    for _ in range(10):
                        writer.publish("air/district/1", str(sent).encode(), 1)
                        sent += 1
                    door.ask("POST", "/loop", patient=True, wait_s=60)
                before, start = messages_between(door), sent
                for _ in range(100):
                    writer.publish("air/district/1", str(sent).encode(), 1)
                    sent += 1
                kept = (messages_between(door) - before) / (sent - start)
                assert kept < 0.2 < spread, (kept, spread)
                got += [int(message.payload) for message in reader.take(sent - len(got))]
        assert got == list(range(sent))
        plans = door.ask("GET", "/plans", kind="loop")
        assert len(plans) == 2
        undone = door.ask("POST", f"/plans/{plans[0]['number']}/undo", wait_s=60)
        assert undone["phase"] == "done"
        assert owners(door) == {"air/district/#": FIRST}


def _history_says_who_it_was(data: Path, door: ManagerDoor) -> None:
    """The command's user; whoever has a token of their own, whatever they say; and a token that is removed is worth
    nothing."""
    user = pwd.getpwuid(os.getuid()).pw_name
    own = data / "manager" / "tokens" / "alice"
    own.parent.mkdir()
    own.write_text("alice's own token, long enough\n")
    hers = ManagerDoor(door.url, own.read_text().strip(), "somebody else")
    said = ManagerDoor(door.url, door.token, "night shift")
    for asking in (door, said, hers, ManagerDoor(door.url, door.token)):
        asking.ask("PUT", f"/devices/{FIRST}", {"broker": FIRST})
    assert [record["author"] for record in door.ask("GET", "/history", limit=4)] == [user, "alice", "night shift", user]
    own.unlink()
    with pytest.raises(ManagerSays, match="token"):
        hers.ask("GET", "/status")


def test_a_manager_without_a_city_says_so_and_when_it_is_there(tmp_path: Path) -> None:
    with live_city(tmp_path, SECOND) as city:
        door = city.start_manager()
        said = (tmp_path / "manager.out").read_text()
        assert f"{CENTRAL}, the central broker, is not running here" in said
        with pytest.raises(ManagerSays, match="central broker"):
            door.ask("PUT", "/proxies/gate", {"listen": "127.0.0.1:1"})
        city.start_broker(CENTRAL)
        wait_for(
            lambda: f"{CENTRAL}, the central broker, answers" in (tmp_path / "manager.out").read_text(), "it is there"
        )
        assert door.ask("PUT", "/proxies/gate", {"listen": "127.0.0.1:1"})["version"]
        city.kill(CENTRAL)
        wait_for(lambda: (tmp_path / "manager.out").read_text().count("nothing changes hands") == 2, "and is lost")


def test_strangers_get_nothing(tmp_path: Path) -> None:
    with live_city(tmp_path, CENTRAL) as city:
        door = city.start_manager()
        for token in ("", "wrong", "\u00e9".encode("latin-1").decode("latin-1")):
            with pytest.raises(ManagerSays, match="token"):
                ManagerDoor(door.url, token).ask("GET", "/status")
        assert door.ask("GET", "/status")["routing"] == "delegation"
        _history_says_who_it_was(tmp_path, door)
        assert door.ask("GET", "/explain", topic="a/b")["legs"]
        gate = threading.Thread(
            target=door.ask,
            args=("PUT", "/proxies/gate", {"listen": "127.0.0.1:1", "wait_s": 10, "version": _version(door)}),
        )
        gate.start()
        wait_for(lambda: door.ask("GET", "/proxies"), "a proxy waits for news")
        city.kill("manager", signal.SIGTERM)
        gate.join()
        assert not (tmp_path / "manager" / "manager.json").exists()
        assert "Error" not in (tmp_path / "manager.out").read_text(), "to stop it is no error, whoever is waiting"


def _version(door: ManagerDoor) -> Any:
    return door.ask("GET", "/topics")["table"]["version"]


@pytest.mark.parametrize("name", ["noise_map", "parking", "air_alarm"])
def test_examples_that_are_run_by_hand_say_what_they_need(name: str) -> None:
    plain = {key: value for key, value in os.environ.items() if not key.startswith("MQTT_")}
    done = subprocess.run(example(name), env=plain, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("MQTT_BROKER, MQTT_CLIENT_ID, MQTT_TOPICS must be set.")
