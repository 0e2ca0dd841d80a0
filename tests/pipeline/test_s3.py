"""A lake on an object store, from the journal to statistics: the same rows, whatever fails; see also test_store,
test_kills, test_cluster and test_content."""

import json
import shutil
import tempfile
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars
import pytest
from pyspark.sql import SparkSession

from metromq.errors import LakeConflict, MetroError
from metromq.pipeline.ingest import Ingest, Taken
from metromq.pipeline.jobs import IngestOptions, run
from metromq.pipeline.journals import noted_journals
from metromq.pipeline.keys import JournalKey
from metromq.pipeline.lake import Lake
from metromq.pipeline.landing import Landing
from metromq.pipeline.maintain import ask, check, compact, expire
from metromq.pipeline.quick import ask_quickly
from metromq.pipeline.recorder import Recorder
from metromq.telemetry.windows import TelemetryRow
from tests.pipeline.data import DAY_US, T0_US, journal_of, land, land_messages, land_window, plain_message, window
from tests.pipeline.processes import until

pytestmark = pytest.mark.timeout(600)
ON_S3 = pytest.mark.parametrize("lake", ["s3"], indirect=True)
ON_EACH = pytest.mark.parametrize("lake", ["s3", "azure"], indirect=True)
ONCE = IngestOptions(once=True, refresh_seconds=0)


def offsets(lake: Lake, broker: str) -> list[int]:
    rows = lake.arrow("messages", columns=("broker", "offset")).to_pylist()
    return sorted(row["offset"] for row in rows if row["broker"] == broker)


@ON_EACH
def test_the_life_of_a_lake(spark: SparkSession, lake: Lake, landing: Landing, tmp_path: Path) -> None:
    """Recorded, loaded with what is broken set aside, counted, asked, proved, merged, expired."""
    journal_of(tmp_path / "b1" / "journal", 60).close()
    recorder = Recorder("b1", tmp_path / "b1" / "journal", landing)
    recorder.step()
    land_messages(landing, "b2", 0, [plain_message("0/a", T0_US + day * DAY_US) for day in (0, 9, 9)])
    cut = land(landing, "b3", 0, 10)
    landing.store.put(cut.path, landing.store.read(cut.path)[:-50])
    land_window(landing, window("b2", T0_US, [TelemetryRow("topic", "0/a", publications=5)]))
    taken: list[Taken] = []
    run(spark, lake, IngestOptions(once=True), taken.append)
    assert (sum(item.messages for item in taken), sum(item.telemetry_files for item in taken)) == (63, 1)
    assert [item.path for item in landing.rejected()] == [cut.path]
    assert landing.files() == []
    recorder.step()
    assert recorder.position == 60

    found = {item.broker: item for item in check(lake, landing, noted_journals(landing))}
    content = found["b1"].content
    assert content is not None
    assert (content.compared, content.right, found["b1"].whole, found["b2"].rows) == (60, True, True, 3)
    assert [gap.why for gap in found["b3"].gaps] == ["rejected"]
    query = "SELECT count(*) AS n, sum(offset) AS s FROM messages WHERE broker = 'b1'"
    assert ask(spark, lake, query, 9).rows == [{"n": 60, "s": sum(range(60))}]
    assert ask_quickly(lake, query, 9, "1g").rows == [{"n": 60, "s": sum(range(60))}]
    counted = ask(spark, lake, "SELECT sum(publications) AS n FROM traffic WHERE broker = 'b2'", 9)
    assert counted.rows == [{"n": 5 + 2}]

    before = polars.read_delta(lake.path("messages"), storage_options=lake.store.delta_options)
    land(landing, "b1", 60, 10)
    run(spark, lake, ONCE, taken.append)
    done = {item.table: (item.files_before, item.files_after) for item in compact(lake, keep_hours=0)}
    assert done["messages"][1] == 3 < done["messages"][0]  # one of b1, and two days of b2
    assert len(before) == 63

    now = datetime.fromtimestamp(T0_US / 1e6, UTC) + timedelta(days=9, hours=1)
    expire(lake, timedelta(days=1), now, keep_hours=0)
    assert (offsets(lake, "b1"), offsets(lake, "b2")) == ([], [1, 2])
    assert {item.broker: item.expired for item in check(lake, landing)}["b2"] == 1
    parquet = [file.path for file in lake.store.files("messages") if file.path.endswith(".parquet")]
    assert len([path for path in parquet if "day=" in path]) == 1


@ON_EACH
def test_two_drivers_at_once(
    spark: SparkSession, lake: Lake, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both believe that they are alone, and the second commits when the first is about to: one has the rows."""
    file = land(landing, "b1", 0, 10)
    content = landing.store.read(file.path)
    first, second = Ingest(spark, lake, landing, print), Ingest(spark, Lake(lake.root), landing, print)
    evolve = lake._evolve

    def overtaken(*arguments: Any) -> None:
        evolve(*arguments)
        monkeypatch.setattr(lake, "_evolve", evolve)
        assert second.take_files([file]).messages == 10
        landing.store.put(file.path, content)

    monkeypatch.setattr(lake, "_evolve", overtaken)
    with pytest.raises(LakeConflict, match="another run has written"):
        first.take_files([file])
    with pytest.raises(LakeConflict, match="another run has written"):
        first.take_files([file])
    assert offsets(lake, "b1") == list(range(10))
    assert landing.files() == [file]
    assert second.take_files([file]).repeated_files == 1
    assert landing.files() == []


@ON_S3
def test_a_deleted_checkpoint_loses_nothing(
    spark: SparkSession, lake: Lake, landing: Landing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken away under a running stream: it goes on or ends, and the next run goes on, each row once."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stop, failures = threading.Event(), []

    def follow() -> None:
        try:
            run(spark, lake, IngestOptions(trigger_seconds=0.1, refresh_seconds=0), lambda taken: None, stop)
        except MetroError as error:
            failures.append(error)

    job = threading.Thread(target=follow)
    job.start()
    try:
        land(landing, "b1", 0, 10)
        until(lambda: landing.files() == [], "the first batch")
        (checkpoint,) = tmp_path.glob("metromq-checkpoint-*")
        shutil.rmtree(checkpoint, ignore_errors=True)
        land(landing, "b1", 10, 10)
        until(lambda: not job.is_alive() or landing.files() == [], "the next batch, or the end")
    finally:
        stop.set()
        job.join()
    land(landing, "b1", 20, 10)
    run(spark, lake, ONCE, lambda taken: None)
    assert offsets(lake, "b1") == list(range(30))
    assert {key: list(ranges) for key, ranges in lake.coverage().items()} == {JournalKey("b1"): [(0, 29)]}
    assert not list(tmp_path.glob("metromq-checkpoint-*"))
    assert len(json.dumps([str(error) for error in failures])) < 1000
