"""`metromq pipeline` as a user types it; the session is the tests' own, but for runs in test_kills and test_cluster."""

import json
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from metromq.cli.pipeline import loading, queries, upkeep
from metromq.cli.pipeline.printing import show
from metromq.errors import MetroError, UsageError
from metromq.pipeline import jobs
from metromq.pipeline import spark as spark_start
from metromq.pipeline.jobs import lake_lock
from metromq.pipeline.keys import JournalKey
from metromq.pipeline.lake import Lake
from metromq.pipeline.landing import MESSAGES, LandedFile, Landing
from metromq.pipeline.recorder import recorder_lock
from metromq.telemetry.spool import spool_window
from metromq.telemetry.windows import TelemetryRow
from tests.pipeline.bad_decoder import without_notes
from tests.pipeline.commands import on_session
from tests.pipeline.commands import pipeline as metromq
from tests.pipeline.data import T0_US, journal_of, land, window
from tests.pipeline.processes import COMMAND, Program, until

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def shared(spark: SparkSession) -> Iterator[None]:
    with on_session(spark):
        yield


def test_a_file_has_no_edge_at_which_a_row_is_broken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    show(["first", "second"], [["x", "a word " * 20], ["y", "another " * 20]])
    assert len(capsys.readouterr().out.splitlines()) == 3
    monkeypatch.setenv("COLUMNS", "40")
    show(["first", "second"], [["x", "a word " * 20]])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 40


@pytest.mark.usefixtures("shared")
def test_from_a_journal_to_an_answer(tmp_path: Path) -> None:
    data, lake = tmp_path / "b1", str(tmp_path / "lake")
    journal_of(data / "journal", 40).close()
    spool_window(data, window("b1", T0_US, [TelemetryRow("topic", "a", publications=1, subscribers=2)]))
    assert metromq("record", "--data", str(data), "--lake", lake, "--broker", "b1", "--once").exit_code == 0
    ran = metromq("run", "--once", "--lake", lake)
    assert ran.exit_code == 0
    assert [line.split() for line in ran.stdout.splitlines()][1:3] == [["messages", "40"], ["telemetry", "files", "1"]]
    assert "loaded 40 messages" in ran.stderr
    assert json.loads(metromq("check", "--lake", lake, "--json").stdout)[0]["rows"] == 40
    assert json.loads(metromq("refresh", "--lake", lake, "--json").stdout) == []  # the run has done it
    counted = metromq("sql", "SELECT broker, count(*) AS n FROM messages GROUP BY broker", "--lake", lake, "--json")
    assert json.loads(counted.stdout) == [{"broker": "b1", "n": 40}]
    assert "DuckDB answered in" in counted.stderr
    slowly = metromq("sql", "SELECT upper(broker) AS b FROM messages LIMIT 1", "--lake", lake, "--json")
    assert json.loads(slowly.stdout) == [{"b": "B1"}]
    assert "(the question has the function upper)" in slowly.stderr
    assert "(--spark)" in metromq("sql", "--spark", "SELECT 1 AS one", "--lake", lake).stderr
    listed = {row["table"]: row for row in json.loads(metromq("tables", "--lake", lake, "--json").stdout)}
    assert (listed["messages"]["rows"], listed["messages"]["own"]) == (40, False)
    payloads = metromq("sql", "SELECT time, payload, json FROM messages ORDER BY offset LIMIT 3", "--lake", lake)
    assert len(payloads.stdout.splitlines()) >= 4
    costs = json.loads(metromq("what-if", "--routing", "central, delegation-ep", "--lake", lake, "--json").stdout)
    assert [cost["choice"] for cost in costs] == ["central", "delegation-ep"]
    page = tmp_path / "costs.html"
    table = metromq("what-if", "--lake", lake, "--html", str(page)).stdout
    assert "flood-subscriptions" in table
    assert "Only one day was seen" in table
    assert "Only one day was seen" in page.read_text()
    assert metromq("compact", "--lake", lake).exit_code == 0
    gone = json.loads(metromq("expire", "--lake", lake, "--older-than", "7d", "--json").stdout)
    assert {item["table"]: item["rows"] for item in gone} == {"messages": 40, "telemetry": 1}


@pytest.mark.usefixtures("shared")
def test_a_data_directory_becomes_tables_of_your_own(tmp_path: Path) -> None:
    """`run --data --models`: no recorder, and a model that cannot be made is told."""
    lake, models = str(tmp_path / "lake"), tmp_path / "models"
    for name in ("b1", "b2"):
        journal_of(tmp_path / "data" / name / "journal", 10).close()
    models.mkdir()
    head = "-- key: broker\n-- window: 1h\nSELECT window_start, broker, count(*) AS n"
    (models / "busy.sql").write_text(f"{head} FROM messages GROUP BY window_start, broker")
    (models / "bad.sql").write_text(f"{head} FROM messages GROUP BY window_start")
    words = ("--data", str(tmp_path / "data"), "--models", str(models), "--metrics", "127.0.0.1:0")
    ran = metromq("run", "--once", "--lake", lake, *words)
    assert ran.exit_code == 0
    assert "loaded 20 messages; 20 rows" in ran.stderr
    assert "metrics are at http://127.0.0.1:" in ran.stderr
    assert "the table bad could not be made" in ran.stderr
    answer = metromq(
        "sql", "SELECT broker, sum(n) AS n FROM busy GROUP BY broker ORDER BY broker", "--lake", lake, "--json"
    )
    assert json.loads(answer.stdout) == [{"broker": "b1", "n": 10}, {"broker": "b2", "n": 10}]
    again = metromq("refresh", "--lake", lake, "--models", str(models), "--json")
    assert (again.exit_code, json.loads(again.stdout)) == (1, [])
    with pytest.raises(UsageError, match="must be HOST:PORT"):
        metromq("run", "--once", "--lake", lake, "--metrics", "here")


@pytest.mark.usefixtures("shared")
def test_a_gap_is_an_exit_status(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    landing = Landing(lake.landing)
    land(landing, "b1", 0, 10)
    broken = Path(landing.where(land(landing, "b1", 10, 10)))
    broken.write_bytes(b"nonsense")
    ran = metromq("run", "--once", "--refresh", "0", "--json", "--lake", lake.root)
    assert json.loads(ran.stdout)["messages"] == 10
    assert "rejected messages/b1/b1-00000000000000000010" in ran.stderr
    landing.write_note(JournalKey("b1"), {"position": 20, "first": 0, "lost": []})
    found = metromq("check", "--lake", lake.root)
    assert found.exit_code == 1
    assert "10..19 rejected" in found.stdout


def test_sparks_own_pages_are_opened_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, str]] = []

    @contextmanager
    def session(master: str, memory: str, conf: Sequence[str]) -> Iterator[Any]:
        asked.append(dict(item.split("=", 1) for item in conf))
        yield SimpleNamespace(sparkContext=SimpleNamespace(uiWebUrl="http://127.0.0.1:4041"))

    monkeypatch.setattr(loading, "spark_session", session)
    monkeypatch.setattr(jobs, "run", lambda *_: None)
    ran = metromq("run", "--once", "--lake", str(tmp_path), "--ui", "4041", "--conf", "spark.x=y")
    assert "Spark's pages are at http://127.0.0.1:4041" in ran.stderr
    assert "pages" not in metromq("run", "--once", "--lake", str(tmp_path)).stderr
    light = spark_start.light_settings(0)
    assert asked == [light | {"spark.x": "y", "spark.ui.enabled": "true", "spark.ui.port": "4041"}, light]


def test_few_rows_are_loaded_without_the_second_compiler(landing: Landing) -> None:
    """It pays for those who load many, or go on."""
    few = [f"{name}={value}" for name, value in spark_start.light_settings(0).items()]
    landing.store.put(LandedFile(MESSAGES, "b1", 0, spark_start.FEW_TO_LOAD - 1).path, b"")
    assert (loading.light(landing, True), loading.light(landing, False)) == (few, [])
    landing.store.put(LandedFile(MESSAGES, "b1", spark_start.FEW_TO_LOAD, spark_start.FEW_TO_LOAD).path, b"")
    assert loading.light(landing, True) == []


def test_a_second_run_is_refused_before_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(loading, "spark_session", never)
    with lake_lock(Lake(tmp_path)), pytest.raises(UsageError, match="another `metromq pipeline run`"):
        metromq("run", "--once", "--lake", str(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--routing", "central,centrall"), "unknown choice centrall; the choices are central"),
        (("--html", "nowhere/costs.html"), "there is no directory nowhere"),
        (("--day", "2026-01-01"), "no traffic for 2026-01-01"),
        ((), "no traffic for any day"),
        (("--city", "atlantis"), "atlantis"),
    ],
)
def test_what_if_says_what_cannot_be_before_spark_starts(
    arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(queries, "spark_session", never)
    Lake(tmp_path).open("messages")
    with pytest.raises(MetroError, match=words):
        metromq("what-if", "--lake", str(tmp_path), *arguments)


@pytest.mark.parametrize("text", ["30", "d", "-3d", "3y", "", "²d", "999999999d", "99999999999999d", "9" * 5000 + "d"])
def test_ages_are_checked(text: str) -> None:
    with pytest.raises(UsageError, match="for example 30d"):
        upkeep.age(text)


def test_a_setting_without_a_value_is_named(tmp_path: Path) -> None:
    Lake(tmp_path).open("messages")
    with pytest.raises(UsageError, match="must be KEY=VALUE"):
        metromq("sql", "--spark", "SELECT 1", "--lake", str(tmp_path), "--conf", "spark.x")


def test_a_recorder_of_its_own_ships_the_rest_when_it_is_told_to_stop(tmp_path: Path) -> None:
    data, lake = tmp_path / "b1", Lake(tmp_path / "lake")
    journal = journal_of(data / "journal", 5)
    arguments = ["--data", str(data), "--lake", lake.root, "--broker", "b1", "--every", "3600"]
    recorder = Program([*COMMAND, "pipeline", "record", *arguments], tmp_path / "recorder.log")
    try:
        landing, key = Landing(lake.landing), JournalKey("b1", journal.name)
        until(lambda: landing.read_note(key).get("position") == 5, "the first file")
        journal.append_message(b"\0" * 33)
        journal.flush()
        assert recorder.stop() == 0
        assert landing.read_note(key)["position"] == 6
    finally:
        recorder.clean_up()
        journal.close()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_what_is_recorded_once_waits_for_no_other_recorder(tmp_path: Path) -> None:
    """That of a running broker would never end, and nothing was said."""
    journal_of(tmp_path / "b1" / "journal", 5).close()
    record = ["record", "--data", str(tmp_path / "b1"), "--broker", "b1", "--lake", str(tmp_path / "lake"), "--once"]
    with (
        recorder_lock(tmp_path / "b1", threading.Event()),
        pytest.raises(UsageError, match=r"another recorder .*stop it first, or the broker that started it"),
    ):
        metromq(*record, "--from", "0")
    assert metromq(*record, "--from", "0").exit_code == 0


@pytest.mark.usefixtures("shared")
def test_a_lake_of_an_old_recorder_is_repaired(tmp_path: Path) -> None:
    data, lake = tmp_path / "b1", str(tmp_path / "lake")
    journal_of(data / "journal", 40).close()
    with pytest.MonkeyPatch.context() as patch:
        without_notes(patch)
        metromq("record", "--data", str(data), "--lake", lake, "--broker", "b1", "--once")
        metromq("run", "--once", "--refresh", "0", "--lake", lake)
    assert metromq("check", "--lake", lake).exit_code == 1
    repaired = metromq("repair", "--lake", lake)
    assert repaired.exit_code == 0, repaired.stderr
    assert repaired.stdout.splitlines()[1].split()[0] == "b1"
    checked = metromq("check", "--lake", lake)
    assert (checked.exit_code, checked.stderr) == (0, "")
    assert metromq("refresh", "--lake", lake).exit_code == 0
    with pytest.raises(UsageError, match="no journal is at hand"):
        metromq("repair", "--lake", str(tmp_path))
