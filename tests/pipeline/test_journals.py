"""A broker's journals in the lake: replaced ones apart, those of lakes written before under no name."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from metromq.journal.identity import NAME
from metromq.pipeline.content import repair
from metromq.pipeline.ingest import Ingest
from metromq.pipeline.journals import key_of, noted_journals
from metromq.pipeline.keys import JournalKey
from metromq.pipeline.lake import Lake
from metromq.pipeline.landing import Landing
from metromq.pipeline.maintain import check, compact
from metromq.pipeline.recorder import Recorder
from metromq.pipeline.schemas import TABLES
from tests.pipeline.data import fill, journal_of

pytestmark = pytest.mark.timeout(600)
NEW = ("journal", "arrived")


def take(spark: SparkSession, lake: Lake, landing: Landing) -> None:
    Ingest(spark, lake, landing, print).take_files(landing.files())


def record(landing: Landing, data: Path) -> JournalKey:
    recorder = Recorder("b1", data / "journal", landing)
    recorder.step()
    recorder.close()
    return recorder.key


def make_old(lake: Lake, landing: Landing) -> None:
    """The lake as it was before journals had names: no such columns, no such files, no such notes."""
    rows = lake.arrow("messages").drop_columns(list(NEW))
    table = Path(lake.path("messages"))
    for path in sorted(table.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    schema = pa.schema([item for item in TABLES["messages"].schema if item.name not in NEW])
    write_deltalake(table, rows.select(schema.names).cast(schema), partition_by=["day", "broker"])
    (note,) = (Path(landing.root) / "messages" / "b1").glob("_position-*.json")
    said = json.loads(note.read_text())
    del said["id"]
    note.with_name("_position.json").write_text(json.dumps(said))
    note.unlink()


def test_a_lake_written_before_goes_on(spark: SparkSession, lake: Lake, landing: Landing, tmp_path: Path) -> None:
    data = tmp_path / "b1"
    journal = journal_of(data / "journal", 20)
    record(landing, data)
    take(spark, lake, landing)
    make_old(lake, landing)
    old = Lake(lake.root)
    assert {key: list(ranges) for key, ranges in old.coverage().items()} == {JournalKey("b1"): [(0, 19)]}
    assert [item.whole for item in check(old, landing, noted_journals(landing))] == [True]
    fill(journal, 10)
    assert record(landing, data) == JournalKey("b1")  # it reaches as far as what is there: the same journal
    take(spark, old, landing)
    Recorder("b1", data / "journal", landing, start=5).step()  # shipped again
    take(spark, old, landing)
    assert {key: list(ranges) for key, ranges in Lake(lake.root).coverage().items()} == {JournalKey("b1"): [(0, 29)]}
    (found,) = check(old, landing, noted_journals(landing))
    assert (found.rows, found.repeated, found.whole) == (30, 0, True)
    assert found.content is not None
    assert found.content.compared == 30
    journal.close()

    (data / "journal").rename(tmp_path / "away")
    journal_of(data / "journal", 25).close()  # fewer than 30: a new disk
    fresh = record(landing, data)
    assert fresh.journal
    take(spark, old, landing)
    assert {item.journal: (item.rows, item.whole) for item in check(old, landing)} == {
        "": (30, True),
        fresh.journal: (25, True),
    }
    compact(old)  # rows of both, some in files without the column, in one file
    assert len(Lake(lake.root).files("messages")) == 1
    assert {key: list(ranges) for key, ranges in Lake(lake.root).coverage().items()} == {
        JournalKey("b1"): [(0, 29)],
        fresh: [(0, 24)],
    }
    rows = {(row["journal"] or "", row["offset"]) for row in old.read(spark, "messages").collect()}
    assert len(rows) == 55
    away = {JournalKey("b1"): tmp_path / "away", fresh: data / "journal"}
    assert [item.content.right for item in check(old, landing, away) if item.content is not None] == [True, True]


def test_wrong_rows_of_one_journal_are_repaired(
    spark: SparkSession, lake: Lake, landing: Landing, tmp_path: Path
) -> None:
    keys = {}
    for life, count in (("one", 12), ("two", 7)):
        journal_of(tmp_path / life / "journal", count).close()
        keys[record(landing, tmp_path / life)] = tmp_path / life / "journal"
    one, two = keys
    for file in landing.files():
        if file.key == two:
            table = pq.read_table(landing.where(file))
            pq.write_table(table.set_column(4, "topic", pa.array(["x"] * 7)), landing.where(file))
    take(spark, lake, landing)
    done = {JournalKey(item.broker, item.journal): (item.rows, item.left.right) for item in repair(spark, lake, keys)}
    assert done == {one: (0, True), two: (7, True)}
    assert {key: list(ranges) for key, ranges in lake.coverage().items()} == {one: [(0, 11)], two: [(0, 6)]}


def test_a_recorder_follows_its_directory_to_a_new_journal(landing: Landing, tmp_path: Path) -> None:
    journal_of(tmp_path / "journal", 9).close()
    recorder = Recorder("b1", tmp_path / "journal", landing)
    recorder.step()
    old = recorder.key
    (tmp_path / "journal").rename(tmp_path / "away")
    journal_of(tmp_path / "journal", 4).close()
    assert recorder.step().messages == 4
    assert recorder.key not in (old, JournalKey("b1"))
    assert [(file.key, file.first, file.last) for file in landing.files()] == sorted(
        [(old, 0, 8), (recorder.key, 0, 3)]
    )
    assert key_of(landing, "b1", tmp_path / "away") == old
    recorder.close()
    assert (tmp_path / "away" / NAME).read_text() == old.journal


def test_a_journal_without_a_name_is_the_first(landing: Landing, tmp_path: Path) -> None:
    """A directory that no broker of this version has opened yet."""
    journal_of(tmp_path / "journal", 3).close()
    (tmp_path / "journal" / NAME).unlink()
    assert record(landing, tmp_path) == JournalKey("b1")
    assert Path(landing.where(landing.files()[0])).name == f"b1-{0:020d}-{2:020d}.parquet"
