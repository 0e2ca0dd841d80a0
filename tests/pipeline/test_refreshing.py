"""The statistics follow the tables: made once, changed where something changed, whole after a kill."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake.transaction import AddAction
from pyspark.sql import DataFrame, SparkSession

from metromq.errors import LakeConflict
from metromq.pipeline.ingest import Ingest
from metromq.pipeline.lake import Lake, TableFile
from metromq.pipeline.landing import Landing
from metromq.pipeline.maintain import compact, expire
from metromq.pipeline.refreshing import change, refresh, refresh_traffic
from metromq.pipeline.table_files import Complete
from metromq.pipeline.whatif import recorded_days
from metromq.telemetry.windows import TelemetryRow
from tests.pipeline import twins
from tests.pipeline.data import DAY_US, T0_US, land_messages, land_window, link_message, plain_message, window
from tests.pipeline.test_transforms import alike, ordered

pytestmark = pytest.mark.timeout(600)
MINUTE_US = 60_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COUNTED = [
    TelemetryRow("topic", "a", publications=1, publishers=1, subscribers=1, deliveries_local=1),
    TelemetryRow("topic-from", "a", "b1", deliveries_local=1),
    TelemetryRow("clock", "b2", "250"),
]
OF_DAYS = ("traffic_hours", "popularity", "locality", "zipf", "similarity")  # a day has few rows in them
T0 = EPOCH + timedelta(microseconds=T0_US)


def take(spark: SparkSession, lake: Lake, landing: Landing) -> None:
    Ingest(spark, lake, landing, lambda taken: None).take_files(landing.files())


def rows(lake: Lake, name: str) -> list[dict[str, Any]]:
    return ordered(lake.arrow(name).to_pylist())


def agrees(lake: Lake) -> None:
    """All tables are what the twins make of everything at once."""
    messages, telemetry = rows(lake, "messages"), rows(lake, "telemetry")
    flows = twins.traffic(messages, telemetry)
    alike(rows(lake, "traffic"), flows)
    alike(rows(lake, "locality"), twins.locality(flows))
    alike(rows(lake, "popularity"), twins.popularity(flows))
    assert len(rows(lake, "zipf")) == len({row["day"] for row in flows})
    found = {(row["day"], row["left"], row["right"]): row["jaccard"] for row in rows(lake, "similarity")}
    assert found == pytest.approx(twins.jaccard(flows))
    expected = twins.latency(messages, telemetry)
    if expected:
        alike(rows(lake, "latency"), expected)
    newest = max(row["window_start"] for row in flows)
    recent = [row for row in flows if row["window_start"] > newest - timedelta(hours=24)]
    seconds = (newest - min(row["window_start"] for row in recent)).total_seconds() + 60
    tau = {(row["topic"], row["device"]): row["mbps"] for row in rows(lake, "planner_tau")}
    assert tau == pytest.approx(twins.tau(recent, seconds))
    alike(rows(lake, "delegation_inputs"), twins.delegation_inputs(recent, seconds))


def test_statistics_follow(spark: SparkSession, lake: Lake, landing: Landing) -> None:
    counted = [
        TelemetryRow("topic", "a", publications=9, publishers=2, subscribers=3, deliveries_local=5, delivered_bytes=70)
    ]
    land_messages(landing, "b1", 0, [plain_message(t, T0_US + i * 40_000_000, f"p{i}") for i, t in enumerate("aabca")])
    land_messages(landing, "b2", 0, [link_message("a", T0_US + 250_000, "b1", 0), plain_message("c", T0_US)])
    land_window(landing, window("b1", T0_US, counted))
    take(spark, lake, landing)
    assert set(refresh(spark, lake)) >= {"traffic", "latency", "planner_tau", "delegation_inputs"}
    agrees(lake)
    assert refresh(spark, lake) == []

    before = {file.path for file in lake.files("traffic")}
    land_messages(
        landing, "b1", 5, [plain_message("d", T0_US + DAY_US), plain_message("d", T0_US + DAY_US + MINUTE_US)]
    )
    take(spark, lake, landing)
    refresh(spark, lake)
    agrees(lake)
    assert before < {file.path for file in lake.files("traffic")}  # yesterday's files were left alone

    compact(lake)
    assert refresh(spark, lake) == []  # merged files hold nothing new

    # Late: a link row whose origin comes only later, and one more publication of yesterday.
    land_messages(landing, "b2", 2, [link_message("e", T0_US + DAY_US + 7_000_000, "b3", 1, 1_000_000)])
    take(spark, lake, landing)
    refresh(spark, lake)
    land_messages(landing, "b3", 0, [plain_message("a", T0_US + 1), plain_message("e", T0_US + DAY_US + 6_000_000)])
    take(spark, lake, landing)
    refresh(spark, lake)
    agrees(lake)
    assert [row["p99_ms"] for row in rows(lake, "latency") if row["origin"] == "b3"] == [1000.0]


class CountingLake(Lake):
    """Knows of how many rows the files are that are read or written, and keeps files small."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.specs = {name: replace(spec, file_rows=20) for name, spec in self.specs.items()}
        self.counts: Counter[str] = Counter()

    def read(self, spark: SparkSession, name: str, files: Sequence[TableFile] | None = None) -> DataFrame:
        self.counts[f"{name} read"] += sum(file.rows for file in (self.files(name) if files is None else files))
        return super().read(spark, name, files)

    def arrow(self, name: str, files: Sequence[TableFile] | None = None, columns: Sequence[str] = ()) -> pa.Table:
        found = super().arrow(name, files, columns)
        self.counts[f"{name} read"] += len(found)
        return found

    def write_files(self, frame: DataFrame, name: str, complete: Complete | None = None) -> list[AddAction]:
        written = super().write_files(frame, name, complete)
        self.counts[f"{name} written"] += sum(json.loads(action.stats)["numRecords"] for action in written)
        return written


def test_a_refresh_costs_what_is_new_and_not_what_is_there(spark: SparkSession, tmp_path: Path) -> None:
    """An hour, or four, of which all is made, merged and known; then a new minute, and one more message of an old."""
    found = {}
    for hours in (1, 4):
        lake = CountingLake(tmp_path / f"lake{hours}")
        landing = Landing(lake.landing)
        moments = [T0_US + minute * MINUTE_US for minute in range(hours * 60)]
        land_messages(landing, "b1", 0, [plain_message("a", moment) for moment in moments])
        land_messages(landing, "b2", 0, [link_message("a", moment, "b1", n) for n, moment in enumerate(moments)])
        for moment in moments:
            land_window(landing, window("b1", moment, COUNTED))
        take(spark, lake, landing)
        refresh(spark, lake)
        compact(lake)
        assert refresh(spark, lake) == []
        new = moments[-1] + MINUTE_US
        lake.counts.clear()
        land_messages(landing, "b1", len(moments), [plain_message("a", new), plain_message("a", moments[30])])
        land_messages(landing, "b2", len(moments), [link_message("a", new, "b1", 0)])
        land_window(landing, window("b1", new, COUNTED))
        take(spark, lake, landing)
        refresh(spark, lake)
        found[hours] = dict(lake.counts)
        agrees(lake)
    one, four = found[1], found[4]
    assert one.keys() == four.keys() >= {"messages read", "telemetry read", "traffic read", "traffic written"}
    for name in one.keys() - {f"{table} {way}" for table in OF_DAYS for way in ("read", "written")}:
        clocks = 3 * 60 if name == "telemetry read" else 0  # of the whole day, one in each window here
        assert four[name] <= one[name] + clocks + 40, (name, found)  # two files, where their borders fall otherwise
    assert four["traffic_hours read"] <= one["traffic_hours read"] + 5 * 3 * 2  # five readers, hours, brokers


def test_windows_longer_than_a_minute_come_piece_by_piece(spark: SparkSession, lake: Lake, landing: Landing) -> None:
    """Messages of an hour, then the window that counted them and QoS 0 beside them, then a late file of another broker:
    whatever comes when, the tables are those of everything at once, and nothing counts twice."""
    hour_us = 60 * MINUTE_US
    assert T0_US % hour_us == 0
    land_messages(landing, "b1", 0, [plain_message("a", T0_US + i * 5 * MINUTE_US) for i in range(10)])
    take(spark, lake, landing)
    refresh(spark, lake)
    counted = [TelemetryRow("topic", "a", publications=13, publishers=1, subscribers=2, deliveries_local=40)]
    land_window(landing, replace(window("b1", T0_US, counted), seconds=3600.0))
    take(spark, lake, landing)
    refresh(spark, lake)
    agrees(lake)
    assert sum(row["publications"] for row in rows(lake, "traffic")) == 13
    land_messages(landing, "b1", 10, [plain_message("a", T0_US + 59 * MINUTE_US)])
    land_messages(landing, "b2", 0, [plain_message("a", T0_US + 30 * MINUTE_US)] * 13)
    land_messages(landing, "b2", 13, [plain_message("a", T0_US + 60 * MINUTE_US)])
    take(spark, lake, landing)
    refresh(spark, lake)
    agrees(lake)
    near = {row["site"]: (row["deliveries_local"], row["deliveries_remote"]) for row in rows(lake, "locality")}
    assert near == {"site-b1": (20, 20), "b2": (0, 0)}


def test_a_late_file_after_expire_adds_to_its_minute(spark: SparkSession, lake: Lake, landing: Landing) -> None:
    """The other brokers' rows of that minute are in `traffic` only, and stay."""
    for broker, count in (("b1", 3), ("b2", 5)):
        land_messages(landing, broker, 0, [plain_message("a", T0_US)] * count)
        land_messages(
            landing, broker, count, [link_message("a", T0_US, "b3", 1), plain_message("a", T0_US + 9 * DAY_US)]
        )
    take(spark, lake, landing)
    refresh(spark, lake)
    before = rows(lake, "latency")
    expire(lake, timedelta(days=3), EPOCH + timedelta(microseconds=T0_US + 9 * DAY_US))

    def publications() -> dict[str, int]:
        return {row["broker"]: row["publications"] for row in rows(lake, "traffic") if row["window_start"] == T0}

    land_messages(landing, "b3", 0, [plain_message("a", T0_US)] * 7)
    take(spark, lake, landing)
    refresh(spark, lake)
    assert publications() == {"b1": 3, "b2": 5, "b3": 7}
    land_messages(landing, "b1", 50, [plain_message("a", T0_US), link_message("a", T0_US, "b3", 1)])
    take(spark, lake, landing)
    refresh(spark, lake)
    assert publications() == {"b1": 4, "b2": 5, "b3": 7}
    assert refresh(spark, lake) == []
    assert rows(lake, "latency") == before


def test_everything_is_new_when_the_old_version_is_gone(spark: SparkSession, lake: Lake, landing: Landing) -> None:
    land_messages(landing, "b1", 0, [plain_message("a", T0_US)])
    take(spark, lake, landing)
    assert refresh_traffic(spark, lake)
    assert change(lake, "messages", "traffic").files == []
    land_messages(landing, "b1", 1, [plain_message("a", T0_US)])
    take(spark, lake, landing)
    assert len(change(lake, "messages", "traffic").files) == 1
    lake.open("messages").create_checkpoint()
    for entry in Path(lake.path("messages"), "_delta_log").glob("*.json"):
        entry.unlink()
    assert len(change(lake, "messages", "traffic").files) == 2


def test_a_change_by_someone_else_is_not_overwritten(spark: SparkSession, lake: Lake, landing: Landing) -> None:
    for offset in range(2):
        land_messages(landing, "b1", offset, [plain_message("a", T0_US)])
        take(spark, lake, landing)
    seen = lake.files("messages")
    compact(Lake(lake.root))
    with pytest.raises(LakeConflict, match="try again"):
        lake.commit("messages", [], seen[:1])
    lake.commit("messages", [], lake.files("messages"))
    assert lake.files("messages") == []


def test_a_clock_of_another_century_hides_nobody(spark: SparkSession, lake: Lake, landing: Landing) -> None:
    """The planner looks at the last hours, and `what-if` at the last day: those that have come."""
    century = 100 * 365 * DAY_US
    land_messages(landing, "b1", 0, [plain_message("a", T0_US), plain_message("b", T0_US + century)])
    take(spark, lake, landing)
    refresh(spark, lake)
    assert {row["topic"] for row in rows(lake, "planner_tau")} == {"a"}
    assert recorded_days(lake) == [T0.date()]
    future = (T0 + timedelta(microseconds=century)).date()
    assert recorded_days(lake, future) == [T0.date(), future]


def test_all_may_have_such_a_clock(spark: SparkSession, lake: Lake, landing: Landing) -> None:
    land_messages(landing, "b1", 0, [plain_message("b", T0_US + 100 * 365 * DAY_US)])
    take(spark, lake, landing)
    refresh(spark, lake)
    assert {row["topic"] for row in rows(lake, "planner_tau")} == {"b"}
    assert len(recorded_days(lake)) == 1
