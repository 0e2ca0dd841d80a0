"""check, compact, expire and sql."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import polars
import pytest
from deltalake import DeltaTable
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem
from pyspark.sql import SparkSession

from metromq.errors import LakeConflict, TableDamaged, UsageError
from metromq.pipeline import maintain
from metromq.pipeline.ingest import INGEST, Ingest
from metromq.pipeline.keys import JournalKey
from metromq.pipeline.lake import Lake
from metromq.pipeline.landing import Landing
from metromq.pipeline.maintain import Gap, ask, check, compact, expire, lake_or_usage_error, remove_orphans
from metromq.pipeline.refreshing import refresh_traffic
from tests.pipeline.data import DAY_US, T0_US, land, land_messages, plain_message

pytestmark = pytest.mark.timeout(600)


def take(spark: SparkSession, lake: Lake, landing: Landing) -> None:
    Ingest(spark, lake, landing, lambda taken: None).take_files(landing.files())


def test_check_names_every_hole(spark: SparkSession, lake: Lake, landing: Landing) -> None:
    for start in (10, 30, 40):
        land(landing, "b1", start, 10)
    land(landing, "b2", 0, 5)
    take(spark, lake, landing)
    land(landing, "b1", 50, 10)
    landing.set_aside(land(landing, "b1", 20, 4), "bent")
    landing.write_note(JournalKey("b1"), {"position": 60, "first": 5, "lost": [[24, 26]]})
    first, second = check(lake, landing)
    assert (first.broker, first.rows, first.first, first.last, first.repeated) == ("b1", 30, 10, 49, 0)
    assert first.gaps == (
        Gap(5, 9, "missing"),
        Gap(20, 23, "rejected"),
        Gap(24, 26, "lost"),
        Gap(27, 29, "missing"),
        Gap(50, 59, "waiting"),
    )
    assert not first.whole
    assert (second.gaps, second.whole) == ((), True)


def test_check_sees_what_is_there_twice(
    spark: SparkSession, lake: Lake, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = land(landing, "b1", 0, 10)
    ingest = Ingest(spark, lake, landing, lambda taken: None)
    again = Ingest(spark, lake, landing, lambda taken: None)  # believes that the lake is still empty
    data = Path(landing.where(file)).read_bytes()
    ingest.take_files([file])
    Path(landing.where(file)).write_bytes(data)
    with pytest.raises(LakeConflict, match="another run"):
        again.take_files([file])
    monkeypatch.setattr(again, "_turn", lake.done("messages", INGEST))  # as if nobody had looked
    again.take_files([file])
    (found,) = check(lake, landing)
    assert (found.repeated, found.whole) == (10, False)


def test_check_of_nothing(lake: Lake, landing: Landing) -> None:
    assert check(lake, landing) == []


def test_compact_and_readers(spark: SparkSession, lake: Lake, landing: Landing) -> None:
    for first in range(0, 40, 10):
        land(landing, "b1", first, 10)
        take(spark, lake, landing)
    snapshot = lake.read(spark, "messages")
    before = {(file.table, file.files_before, file.files_after) for file in compact(lake)}
    assert ("messages", 4, 1) in before
    assert snapshot.count() == 40  # a reader that began before still finds its files
    assert [(item.rows, item.whole) for item in check(lake, landing)] == [(40, True)]
    assert {broker: list(ranges) for broker, ranges in Lake(lake.root).coverage().items()} == {
        JournalKey("b1"): [(0, 39)]
    }
    land(landing, "b1", 35, 10)
    take(spark, lake, landing)
    path = lake.path("messages")
    assert polars.scan_delta(path).select(polars.col("offset").sum()).collect().item() == sum(range(45))
    assert polars.read_delta(path).to_pandas()["offset"].nunique() == 45
    files = SubTreeFileSystem(path, LocalFileSystem())
    rows = DeltaTable(path).to_pyarrow_dataset(filesystem=files)
    assert duckdb.sql("SELECT count(*), max(topic) IS NOT NULL FROM rows").fetchall() == [(45, True)]
    assert rows.count_rows() == 45


def test_expire_writes_down_what_went(spark: SparkSession, lake: Lake, landing: Landing) -> None:
    for day in range(4):
        land_messages(landing, "b1", day * 5, [plain_message("a", T0_US + day * DAY_US)] * 5)
    copy = landing.files()[0]
    data = Path(landing.where(copy)).read_bytes()
    take(spark, lake, landing)
    refresh_traffic(spark, lake)
    now = datetime.fromtimestamp(T0_US / 1e6, UTC) + timedelta(days=3, hours=1)
    done = {item.table: (item.files, item.rows) for item in expire(lake, timedelta(days=1), now, keep_hours=0)}
    assert done == {"messages": (2, 10), "telemetry": (0, 0)}
    (found,) = check(lake, landing)
    assert (found.rows, found.first, found.expired, found.whole) == (10, 10, 10, True)
    assert len(list(Path(lake.path("messages")).rglob("day=*/broker=*/*.parquet"))) == 2
    Path(landing.where(copy)).write_bytes(data)  # a late copy of an expired day does not come back
    take(spark, lake, landing)
    assert check(lake, landing) == [found]
    assert len(lake.arrow("traffic")) == 4
    expire(lake, timedelta(days=1), now, statistics=True)
    assert len(lake.arrow("traffic")) == 2


def test_leftovers_of_killed_jobs_go(
    spark: SparkSession, lake: Lake, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a repair wrote for Spark, and files of tables that no commit names; not those of a job at work."""
    land(landing, "b1", 0, 5)
    take(spark, lake, landing)
    (live,) = lake.files("messages")
    table, scratch = Path(lake.path("messages")), Path(lake.root) / "_repair-x"
    lake.store.put("_repair-x/0.parquet", b"")
    orphan, at_work = (table / live.path).with_name("orphan.parquet"), (table / live.path).with_name("new.parquet")
    for path in (orphan, at_work):
        path.write_bytes((table / live.path).read_bytes())
    for path in (table / live.path, orphan):
        os.utime(path, (1, 1))
    version = lake.open("messages").version()
    assert remove_orphans(lake) == [str(orphan.relative_to(lake.root))]
    assert scratch.exists()
    compact(lake)
    monkeypatch.setattr(maintain, "STAGING_SECONDS", -1)
    compact(lake)
    assert not scratch.exists()
    assert not at_work.exists()
    assert (table / live.path).exists()
    assert [item.rows for item in check(lake, landing)] == [5]
    assert lake.open("messages").version() >= version


def test_sql(spark: SparkSession, lake: Lake, landing: Landing, capfd: pytest.CaptureFixture[str]) -> None:
    land_messages(landing, "b1", 0, [plain_message("a", T0_US, payload=b'{"value": 4, "unit": "C"}')])
    take(spark, lake, landing)
    query = "SELECT broker, value, json:unit::string AS unit FROM messages"
    assert ask(spark, lake, query, 9).rows == [{"broker": "b1", "value": 4.0, "unit": "C"}]
    (row,) = ask(spark, lake, "SELECT json, time FROM messages", 9).rows
    assert row["json"] == '{"unit":"C","value":4}'
    assert row["time"].tzinfo is not None
    with pytest.raises(UsageError, match=r"nowhere.*tables: messages"):
        ask(spark, lake, "SELECT * FROM nowhere", 9)
    with pytest.raises(UsageError, match=r"SYNTAX_ERROR.* \(tables:"):
        ask(spark, lake, "SELEKT", 9)
    with pytest.raises(UsageError, match="nosuch"):
        ask(spark, lake, "SELECT nosuch FROM messages", 9)
    assert "SQLQueryContextLogger" not in capfd.readouterr().err  # Spark's pages about it


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_a_file_of_a_table_that_cannot_be_read_is_named(
    spark: SparkSession, lake: Lake, landing: Landing, damage: str
) -> None:
    land(landing, "b1", 0, 300)
    take(spark, lake, landing)
    (file,) = lake.files("messages")
    path = Path(lake.path("messages"), file.path)
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(TableDamaged, match=rf"the table messages has lost rows: .*{path.name}.*"):
        check(Lake(lake.root), landing)
    if damage == "gone":
        with pytest.raises(UsageError, match=rf"PATH_NOT_FOUND.*{path.name}"):
            ask(spark, Lake(lake.root), "SELECT count(*) FROM messages", 9)


def test_a_lake_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no lake"):
        lake_or_usage_error(tmp_path / "nowhere")
