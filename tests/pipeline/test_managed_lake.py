"""A managed city and its lake, both ways: what services used fills the planner's tables, and the lake moves topics.

Live brokers with recorders, the manager, an example service, clients of paho, Spark. The observer knows what clients
published and what a user of the service was sent.
"""

import signal
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from metromq.control import ManagerDoor
from metromq.pipeline.jobs import IngestOptions, run
from metromq.pipeline.lake import Lake
from metromq.pipeline.refreshing import refresh_hours, refresh_planner, refresh_traffic
from tests.clients.paho_client import client
from tests.control.manager import live
from tests.control.manager.live import CENTRAL, FIRST, LiveCity, example, live_city, service, wait_for
from tests.peers import free_port

pytestmark = pytest.mark.timeout(600)

LEVELS = [b"61.5", b"70", b"58.25"]
DISTRICT = "air/district/1"


def use_the_city(city: LiveCity, door: ManagerDoor, port: int) -> int:
    """People and sensors; the size of the noise map that somebody was sent."""
    with client(city.port(FIRST)) as sensor, client(city.port(FIRST)) as reader:
        reader.subscribe("noise-map", 1)
        reader.subscribe("air/district/#", 1)
        for level in LEVELS:
            sensor.publish("noise/pier/level", level, 1)
        for number in range(40):
            sensor.publish(DISTRICT, str(number).encode(), 1)
        got = 0
        while got < 40:
            got += reader.take(1)[0].topic == DISTRICT
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as page:
            return len(page.read())


def rows(lake: Lake, table: str) -> list[dict[str, Any]]:
    return list(lake.arrow(table, lake.files(table)).to_pylist())


def waiting(data: Path) -> list[Path]:
    """Telemetry that recorders have not shipped yet."""
    return [file for name in (CENTRAL, FIRST) for file in (data / name / "telemetry").glob("*.json")]


def landed(lake: Lake, subject: str) -> int:
    """Bytes of a subject in what recorders have brought."""
    tables = [pq.read_table(file) for file in Path(lake.landing).rglob("[!._]*.parquet")]
    told = [row for table in tables if "subject" in table.column_names for row in table.to_pylist()]
    return sum(row["bytes"] for row in told if row["subject"] == subject)


def play(city: LiveCity, lake: Lake) -> int:
    door = city.start_manager("--window", "1")
    port = free_port()
    noise = service("noise", "noise/+/level", command=example("noise_map"), device=FIRST)
    noise["environment"] = {"NOISE_PORT": str(port)}
    done = door.ask("POST", "/services", noise, wait_s=90)
    assert done["phase"] == "done", done
    size = use_the_city(city, door, port)
    # The brokers' windows may end between two messages.
    for subject, wanted in (("service-topic", sum(map(len, LEVELS))), ("service-device", size)):
        wait_for(lambda: landed(lake, subject) >= wanted, f"the recorder brings {subject}")  # noqa: B023
    assert door.ask("DELETE", "/services/noise", wait_s=90)["phase"] == "done"
    city.kill("manager", signal.SIGTERM)
    wait_for(lambda: not waiting(city.data), "recorders bring all that was counted")
    for name in (CENTRAL, FIRST):
        city.kill(name, signal.SIGTERM)
    return size


def test_what_services_use_fills_the_planners_tables_and_the_lake_moves_topics(
    tmp_path: Path, spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "city"
    data.mkdir()
    monkeypatch.setenv("METROMQ_RECORDER__LAKE", str(lake.root))
    with live_city(data, CENTRAL, FIRST) as city:
        size = play(city, lake)
        run(spark, lake, IngestOptions(once=True, refresh_seconds=0), lambda taken: None)
        for step in (refresh_traffic, refresh_hours):  # of the statistics those that the planner needs
            assert step(spark, lake)
        assert refresh_planner(spark, lake, 24)
        check_planner_tables(lake, size)

        # Brokers that count nothing, and no traffic: whatever moves topics now has read the lake.
        monkeypatch.delenv("METROMQ_RECORDER__LAKE")
        monkeypatch.setattr(live, "COUNTING", {})
        city.start_broker(CENTRAL, FIRST)
        door = city.start_manager()
        assert door.ask("POST", "/loop", dry_run=True)["plan"] is None
        city.kill("manager")
        door = city.start_manager("--lake", str(lake.root), "--policy", "auto", "--span", "600")
        found = door.ask("POST", "/loop", wait_s=90)
        assert found["plan"] is not None, found
        assert found["plan"]["phase"] == "done", found
        owners = {one["filter"]: one["broker"] for one in door.ask("GET", "/topics")["delegated"]}
        assert owners["air/district/#"] == FIRST, found
        assert found["crossing_then"] < found["crossing_now"], found


def check_planner_tables(lake: Lake, size: int) -> None:
    """Mbit/s over the minutes that the lake has: the same number of minutes makes bytes of both tables."""
    [dst] = rows(lake, "planner_dst")
    [dsd] = rows(lake, "planner_dsd")
    assert (dst["service"], dst["topic"]) == ("noise", "noise/pier/level")
    assert (dsd["service"], dsd["device"]) == ("noise", FIRST)
    starts = {row["window_start"] for row in rows(lake, "traffic")}
    seconds = (max(starts) - min(starts)).total_seconds() + 60
    assert round(dst["mbps"] * 1e6 / 8 * seconds, 3) == sum(map(len, LEVELS))
    assert round(dsd["mbps"] * 1e6 / 8 * seconds, 3) == size
