"""Landing area to `messages` and `telemetry`: each row once, whatever comes twice, late, old or broken."""

import json
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from metromq.errors import MetroError, RowsElsewhere, UsageError
from metromq.pipeline import patience
from metromq.pipeline.ingest import INGEST, Ingest, Taken, fresh_slices
from metromq.pipeline.jobs import IngestOptions, lake_lock, run
from metromq.pipeline.keys import JournalKey
from metromq.pipeline.lake import Lake
from metromq.pipeline.landing import MESSAGES, TELEMETRY, LandedFile, Landing
from metromq.pipeline.landing_source import LandingReader, choose
from metromq.pipeline.maintain import ask
from metromq.pipeline.ranges import Ranges
from metromq.pipeline.recorder import window_table
from metromq.pipeline.refreshing import refresh
from metromq.pipeline.schemas import TIME
from metromq.protocol.session.records import decode_message
from metromq.telemetry.windows import TelemetryRow
from tests.pipeline.data import (
    DAY_US,
    PAYLOADS,
    T0_US,
    bodies,
    land,
    land_messages,
    land_window,
    link_message,
    plain_message,
    window,
)
from tests.pipeline.processes import until
from tests.pipeline.test_landing import damage_page

pytestmark = pytest.mark.timeout(600)


def take_all(spark: SparkSession, lake: Lake, landing: Landing) -> list[Taken]:
    taken: list[Taken] = []
    run(spark, lake, IngestOptions(once=True, refresh_seconds=0, landing=landing.root), taken.append)
    assert landing.files() == []
    return taken


def offsets(lake: Lake) -> dict[str, list[int]]:
    table = lake.arrow("messages", columns=("broker", "offset"))
    found: dict[str, list[int]] = {}
    for row in table.to_pylist():
        found.setdefault(row["broker"], []).append(row["offset"])
    return {broker: sorted(numbers) for broker, numbers in found.items()}


def number_of(text: str) -> float | None:
    """Twin of the `value` column."""
    found = json.loads(text)
    if isinstance(found, dict) and "value" in found:
        found = found["value"]
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def row_twin(body: bytes, offset: int) -> dict[str, Any]:
    """Twin of `to_messages` for what is not obvious."""
    made = decode_message(body).message
    levels = made.topic.split("/")
    while levels and not all(level in ("0", "1", "2", "3") for level in levels):
        levels.pop()
    area = "/".join(levels) or None
    try:
        text = made.payload.decode()
        json.loads(text)
    except ValueError:
        text = None
    return {
        "offset": offset,
        "topic": made.topic,
        "area": area,
        "cell": area and area.replace("/", ""),
        "payload": made.payload,
        "payload_json": text,
        "value": None if text is None else number_of(text),
        "origin": made.origin or None,
        "publisher": made.publisher,
    }


def test_rows_are_what_the_broker_wrote(spark: SparkSession, lake: Lake, landing: Landing) -> None:
    land(landing, "b1", 0, 200)
    (taken,) = take_all(spark, lake, landing)
    assert taken == Taken(200, 0, 0, (), {"b1": 200})
    expected = [row_twin(body, offset) for offset, body in enumerate(bodies(0, 200))]
    assert {row["payload"] for row in expected} == set(PAYLOADS)
    rows = sorted(lake.arrow("messages").to_pylist(), key=lambda row: int(row["offset"]))
    assert [{key: row[key] for key in expected[0]} for row in rows] == expected
    assert {(row["kind"], row["broker"], str(row["day"])) for row in rows} == {("publish", "b1", "2024-10-04")}
    assert take_all(spark, lake, landing) == []


def test_twice_overlapping_and_late(spark: SparkSession, lake: Lake, landing: Landing) -> None:
    land(landing, "b1", 100, 50)
    land(landing, "b2", 0, 10)
    take_all(spark, lake, landing)
    land(landing, "b1", 100, 50)  # shipped twice
    old = land(landing, "b1", 0, 60)  # late, and made days ago
    os.utime(landing.where(old), (1, 1))
    land(landing, "b1", 40, 80)  # overlaps the late one and what is there
    land(landing, "b1", 40, 80 + 100)  # a recorder that lost its note shipped a longer range
    taken = take_all(spark, lake, landing)
    assert (sum(item.messages for item in taken), sum(item.repeated_files for item in taken)) == (100 + 70, 1)
    assert offsets(lake) == {"b1": list(range(220)), "b2": list(range(10))}
    assert lake.coverage() == {JournalKey("b1"): Ranges([(0, 219)]), JournalKey("b2"): Ranges([(0, 9)])}


def test_a_broker_that_was_away_for_days(spark: SparkSession, lake: Lake, landing: Landing) -> None:
    days = [land_messages(landing, "b1", d * 3, [plain_message("a", T0_US + d * DAY_US)] * 3) for d in range(5)]
    land_messages(landing, "b2", 0, [plain_message("a", T0_US + 9 * DAY_US)])
    taken: list[Taken] = []
    run(spark, lake, IngestOptions(once=True, refresh_seconds=0, max_files=2), taken.append)
    assert sum(item.messages for item in taken) == 16
    assert len(taken) == 3
    assert offsets(lake) == {"b1": list(range(15)), "b2": [0]}
    assert len({str(row["day"]) for row in lake.arrow("messages").to_pylist()}) == 6
    assert days[0].rows == 3


def test_an_older_recorder(spark: SparkSession, lake: Lake, landing: Landing) -> None:
    file = land(landing, "b1", 0, 20)
    path = landing.where(file)
    old = pq.read_table(path).drop_columns(
        ["kind", "origin", "origin_offset", "properties", "expires_at", "journal", "arrived"]
    )
    pq.write_table(old.replace_schema_metadata({b"metromq.landing": b"1"}), path)
    take_all(spark, lake, landing)
    rows = lake.arrow("messages").to_pylist()
    assert {(row["kind"], row["origin"], row["origin_offset"], row["expires_at"]) for row in rows} == {
        ("publish", None, None, None)
    }
    assert len(rows) == 20


def test_broken_files_are_set_aside_and_the_stream_goes_on(spark: SparkSession, lake: Lake, landing: Landing) -> None:
    cut = Path(landing.where(land(landing, "b1", 0, 100)))
    cut.write_bytes(cut.read_bytes()[:-100])
    damage_page(Path(landing.where(land(landing, "b1", 100, 300))))
    empty = Path(landing.where(land(landing, "b1", 400, 1)))
    empty.write_bytes(b"")
    land(landing, "b1", 401, 50)
    land(landing, "b2", 0, 50)
    (taken,) = take_all(spark, lake, landing)
    assert taken.messages == 100
    assert [item.path.split("-")[1].lstrip("0") for item in taken.rejected] == ["", "400", "100"]
    assert offsets(lake) == {"b1": list(range(401, 451)), "b2": list(range(50))}
    assert len(landing.rejected()) == 3
    land(landing, "b1", 0, 401)  # the same offsets, recorded again
    take_all(spark, lake, landing)
    assert offsets(lake)["b1"] == list(range(451))


def test_a_copy_of_a_broken_file_in_the_same_batch(spark: SparkSession, lake: Lake, landing: Landing) -> None:
    damage_page(Path(landing.where(land(landing, "b1", 0, 300))))
    land(landing, "b1", 0, 301)
    (taken,) = take_all(spark, lake, landing)
    assert (taken.messages, len(taken.rejected)) == (301, 1)
    assert offsets(lake) == {"b1": list(range(301))}


def test_telemetry_comes_once(spark: SparkSession, lake: Lake, landing: Landing) -> None:
    rows = [TelemetryRow("topic", "a", publications=3, delay_counts=(1, 2)), TelemetryRow("link", "b2", messages=4)]
    first = window("b1", T0_US, rows)
    land_window(landing, first)
    land_window(landing, window("b1", T0_US, rows, sequence=7))  # another life of the broker in the same window
    assert take_all(spark, lake, landing) == [Taken(0, 2, 0, ())]
    land_window(landing, first)
    land_window(landing, window("b1", T0_US + DAY_US, rows))
    taken = take_all(spark, lake, landing)
    assert (sum(item.telemetry_files for item in taken), sum(item.repeated_files for item in taken)) == (1, 1)
    table = lake.arrow("telemetry")
    assert len(table) == 6
    topics = table.filter(pc.field("subject") == "topic").to_pylist()
    assert {(row["name"], row["publications"], tuple(row["delay_counts"])) for row in topics} == {("a", 3, (1, 2))}


def test_a_batch_that_was_committed_is_not_taken_twice(spark: SparkSession, lake: Lake, landing: Landing) -> None:
    """Killed between the Delta commit and Spark's own: the same batch comes again, files and all."""
    file = land(landing, "b1", 0, 10)
    data = Path(landing.where(file)).read_bytes()
    Ingest(spark, lake, landing, print).take_files([file])
    Path(landing.where(file)).write_bytes(data)
    again = Ingest(spark, lake, landing, print)
    assert again.take_files([file]).messages == 0
    assert again.take_files([file, LandedFile(MESSAGES, "b1", 10, 19)]).messages == 0
    assert offsets(lake) == {"b1": list(range(10))}
    assert lake.done("messages", INGEST) == 0


def test_a_file_that_came_again_is_not_deleted_unread(spark: SparkSession, lake: Lake, landing: Landing) -> None:
    """A batch held a good and a broken file; the driver died between the Delta commit and Spark's own. Meanwhile the
    broken one was shipped again, and the batch comes again."""
    good, broken = land(landing, "b1", 0, 10), land(landing, "b1", 10, 10)
    whole = Path(landing.where(broken)).read_bytes()
    Path(landing.where(broken)).write_bytes(b"")
    window_file = land_window(landing, window("b1", T0_US, [TelemetryRow("topic", "a", publications=1)]))
    telemetry = Path(landing.where(window_file)).read_bytes()
    Path(landing.where(window_file)).write_bytes(b"")
    files = [good, broken, window_file]
    assert len(Ingest(spark, lake, landing, print).take_files(files).rejected) == 2
    Path(landing.where(broken)).write_bytes(whole)
    Path(landing.where(window_file)).write_bytes(telemetry)
    taken = Ingest(spark, lake, landing, print).take_files(files)
    assert (taken.messages, taken.telemetry_files) == (10, 1)
    assert offsets(lake) == {"b1": list(range(20))}
    assert landing.files() == []


def poisoned(landing: Landing, first: int, column: str, values: Any) -> Path:
    """A file of ten messages with the right name, one of whose columns is not what it should be."""
    path = Path(landing.where(land(landing, "b1", first, 10)))
    table = pq.read_table(path)
    index = table.schema.get_field_index(column)
    pq.write_table(table.set_column(index, column, values), path)
    return path


def test_poison_is_set_aside_and_named(spark: SparkSession, lake: Lake, landing: Landing) -> None:
    poisoned(landing, 0, "topic", pa.array(range(10), pa.int64()))
    poisoned(landing, 10, "time", pa.array([None] * 10, TIME))
    poisoned(landing, 20, "time", pa.array([*[T0_US] * 9, None], TIME))
    land(landing, "b1", 30, 10)
    counted = window("b1", T0_US, [TelemetryRow("topic", "a", publications=1)])
    named = land_window(landing, counted)
    other = replace(named, last=named.last + 5)  # the same window under another number
    Path(landing.where(other)).write_bytes(Path(landing.where(named)).read_bytes())
    (taken,) = take_all(spark, lake, landing)
    assert (taken.messages, taken.telemetry_files) == (10, 1)
    assert sorted((item.path.split("-")[1].lstrip("0"), item.reason) for item in taken.rejected) == [
        ("", "its column 'topic' is int64, not string"),
        ("10", "its column 'time' has nulls"),
        ("1728000000000000", "its sequences are not those of its name"),
        ("20", "its column 'time' has nulls"),
    ]
    assert "traffic" in refresh(spark, lake)


FIRST_US = -62_104_060_800_000_000  # year 2
END_US = 253_370_764_800_000_000  # year 9999


def test_times_that_no_calendar_has_are_set_aside(spark: SparkSession, lake: Lake, landing: Landing) -> None:
    """Whoever reads a table in Python could not read them, and `run` ended with the names of good files."""
    wrong = {
        "time": (END_US, 2 * END_US, FIRST_US - 1, 2**63 - 1, -(2**63)),
        "expires_at": (2**63 - 1,),
        "arrived": (END_US,),
    }
    count = 0
    for column, moments in wrong.items():
        for moment in moments:
            poisoned(landing, count * 10, column, pa.array([*[T0_US] * 9, moment], TIME))
            count += 1
    edges = pa.array([FIRST_US, *[T0_US] * 8, END_US - 1], TIME)
    poisoned(landing, count * 10, "time", edges)
    poisoned(landing, count * 10 + 10, "expires_at", edges)
    land(landing, "b1", count * 10 + 20, 10)
    for moment in (END_US, 2**63 - 1, 10**20 - 1):
        file = LandedFile(TELEMETRY, "b1", moment, 0)
        rows = window_table(window("b1", T0_US, [TelemetryRow("topic", "a", publications=1)]))
        starts = pa.array([min(moment, 2**63 - 1)] * len(rows), TIME)
        landing.put(file, rows.set_column(rows.schema.get_field_index("window_start"), "window_start", starts))
    named = land_window(landing, window("b1", T0_US, [TelemetryRow("topic", "a", publications=1)]))
    Path(landing.where(replace(named, first=10**20 - 2))).write_bytes(Path(landing.where(named)).read_bytes())
    (taken,) = take_all(spark, lake, landing)
    assert (taken.messages, taken.telemetry_files) == (30, 1)
    assert sorted((item.path.split("/")[0], item.reason) for item in taken.rejected) == sorted(
        [
            ("messages", f"its column {name!r} has times outside the years 2 to 9998")
            for name in wrong
            for _ in wrong[name]
        ]
        + [("telemetry", "its column 'window_start' has times outside the years 2 to 9998")] * 3
        + [("telemetry", "its window_starts are not those of its name")]
    )
    assert "traffic" in refresh(spark, lake)
    assert len(ask(spark, lake, "SELECT time, day FROM messages ORDER BY time", 99).rows) == 30


ODD_NUMBERS: list[tuple[str, Any]] = [
    *(("window_seconds", odd) for odd in (0.0, -10.0, 1e-9, 1e9, 1e300, float("inf"), float("nan"), None)),
    *((name, odd) for name in ("publications", "published_bytes", "subscribers") for odd in (-1, 2**62, 2**63 - 1)),
    ("deliveries_local", -(2**63)),
    ("bytes", 2**63 - 1),
    ("messages", None),
]


def land_odd(landing: Landing, number: int, column: str, odd: Any) -> str:
    """A window of which one number is none that a broker counts; its name."""
    rows = [TelemetryRow("topic", f"t{n}", publications=1, subscribers=1, deliveries_local=1) for n in range(3)]
    counted = window("b2", T0_US + number * 10_000_000, rows)
    table = window_table(counted)
    index = table.schema.get_field_index(column)
    values = [*table[column].to_pylist()[1:], odd]
    file = LandedFile(TELEMETRY, counted.broker, counted.start_us, counted.sequence)
    landing.put(file, table.set_column(index, column, pa.array(values, table.schema.field(index).type)))
    return file.path


def test_numbers_that_no_broker_counts_are_set_aside(spark: SparkSession, lake: Lake, landing: Landing) -> None:
    """One of them ended `run`, or its sum spoilt everybody's statistics."""
    odd = {land_odd(landing, number, column, value): column for number, (column, value) in enumerate(ODD_NUMBERS)}
    for number, text in enumerate(("soon", "nan", "1e400", "9" * 30, ""), start=len(odd)):
        counted = window("b2", T0_US + number * 10_000_000, [TelemetryRow("clock", "b1", text)])
        odd[land_window(landing, counted).path] = "detail"
    good = [
        TelemetryRow("topic", "a", publications=3, subscribers=2, deliveries_local=6),
        TelemetryRow("clock", "b2", "-1500000"),
        TelemetryRow("topic-from", "a", "b1", deliveries_local=6),
    ]
    land_window(landing, window("b1", T0_US, good))
    land_messages(landing, "b1", 0, [link_message("a", T0_US, "b2", 0)])
    (taken,) = take_all(spark, lake, landing)
    assert (taken.messages, taken.telemetry_files) == (1, 1)
    assert {item.path: item.reason.split("'")[1] for item in taken.rejected} == odd
    assert {"traffic", "latency"} <= set(refresh(spark, lake))
    (row,) = lake.arrow("traffic").to_pylist()
    assert (row["broker"], row["publications"], row["deliveries_local"]) == ("b1", 3, 6)


def test_numbers_that_no_double_holds_have_no_value(spark: SparkSession, lake: Lake, landing: Landing) -> None:
    payloads = [b"1e400", b"-1e400", b'{"value": 1e999}', b"1e300", b"-7"]
    land_messages(landing, "b1", 0, [plain_message("a", T0_US, payload=payload) for payload in payloads])
    take_all(spark, lake, landing)
    found = {row["payload"]: row["value"] for row in lake.arrow("messages").to_pylist()}
    assert list(map(found.get, payloads)) == [None, None, None, 1e300, -7.0]


DEEP = (
    b"[" * 900 + b"]" * 900,
    b"[" * 900,
    b'{"a":' * 900 + b"1" + b"}" * 900,
    b'{"value":' * 900 + b"1" + b"}" * 900,
    b'[{"value":' * 450 + b"1" + b"}]" * 450,
    b' \n{"value": 1, "more": ' + b"[" * 900 + b"]" * 900 + b"}",
    b'["\\"", ' + b"[" * 900 + b"]" * 901,
    b"[" * 101 + b"]" * 101,
)
JUST_JSON = (
    b"[" * 100 + b"]" * 100,
    b'{"a":' * 100 + b"1" + b"}" * 100,
    b'{"value":' * 100 + b"1" + b"}" * 100,
    b"[" + b",".join([b'{"value": [1]}'] * 500) + b"]",
    b'{"value": 5, "text": "' + b"[" * 900 + b'"}',
    b'"' + b"[" * 900 + b'"',
)


def test_json_that_is_nested_too_deep_is_not_read(spark: SparkSession, lake: Lake, landing: Landing) -> None:
    """Java's stack would not hold it, and with it the whole of Spark ended: on every start again."""
    land_messages(landing, "b1", 0, [plain_message("a", T0_US, payload=payload) for payload in (*DEEP, *JUST_JSON)])
    (taken,) = take_all(spark, lake, landing)
    assert (taken.messages, taken.rejected) == (len(DEEP) + len(JUST_JSON), ())
    rows = sorted(lake.arrow("messages").to_pylist(), key=lambda row: int(row["offset"]))
    assert [row["payload"] for row in rows] == [*DEEP, *JUST_JSON]
    assert [row["payload_json"] for row in rows] == [None] * len(DEEP) + [payload.decode() for payload in JUST_JSON]
    assert [row["value"] for row in rows] == [None] * (len(DEEP) + 4) + [5.0, None]
    (answer,) = ask(spark, lake, "SELECT count(json) AS many, max(length(to_json(json))) AS most FROM messages", 9).rows
    assert (answer["many"], answer["most"]) == (len(JUST_JSON), 500 * 13 + 501)


def test_landed_files_go_when_all_else_is_durable(
    spark: SparkSession, lake: Lake, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers sync the files of the table (test_store has them), this process the commit that names them."""
    synced: set[str] = set()
    fsync, remove = os.fsync, landing.remove

    def noted(descriptor: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    def judged(files: Any) -> None:
        log = Path(lake.path("messages"), "_delta_log")
        assert {str(log), str(log / f"{lake.open('messages').version():020d}.json")} <= synced
        remove(files)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(landing, "remove", judged)
    file = land(landing, "b1", 0, 10)
    assert Ingest(spark, lake, landing, print).take_files([file]).messages == 10
    assert landing.files() == []


def test_rows_that_are_not_in_sight_are_not_loaded(
    spark: SparkSession, lake: Lake, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a worker writes to a disk of its own; test_cluster has such a worker."""
    adopt = lake._adopt

    def elsewhere(name: str, written: Any) -> Any:
        for file in written:
            lake.store.remove(f"{name}/{file.path}")
        return adopt(name, written)

    monkeypatch.setattr(lake, "_adopt", elsewhere)
    file = land(landing, "b1", 0, 10)
    with pytest.raises(RowsElsewhere, match="Spark wrote 10 rows of messages, but 0 of them are in"):
        Ingest(spark, lake, landing, print).take_files([file])
    assert landing.files() == [file]
    assert lake.files("messages") == []


def test_a_busy_machine_is_waited_for(
    spark: SparkSession, lake: Lake, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, failures = (
        lake.write_files,
        ["Python worker failed to connect back.", "Python worker failed to connect back."],
    )

    def unlucky(*arguments: Any) -> Any:
        if failures:
            raise PySparkException(failures.pop())
        return write(*arguments)

    monkeypatch.setattr(lake, "write_files", unlucky)
    monkeypatch.setattr(patience, "FIRST_WAIT_S", 0.001)
    said: list[str] = []
    file = land(landing, "b1", 0, 10)
    assert Ingest(spark, lake, landing, print, said.append).take_files([file]).messages == 10
    assert [words.split(";")[0] for words in said] == ["Spark could not start a Python worker in time"] * 2


def test_it_follows_until_it_is_told_to_stop(spark: SparkSession, lake: Lake, landing: Landing) -> None:
    """The stream, the statistics and the merging of small files, all at once and again and again."""
    stop = threading.Event()
    options = IngestOptions(trigger_seconds=0.1, refresh_seconds=0.1, compact_seconds=0.1)
    job = threading.Thread(target=run, args=(spark, lake, options, lambda taken: None, stop))
    job.start()
    try:
        for first in range(3):
            land_messages(landing, "b1", first, [plain_message("a", T0_US)])
            until(lambda: landing.files() == [], "the batch")
        until(lambda: lake.exists("traffic") and lake.arrow("traffic")["publications"].to_pylist() == [3], "statistics")
        until(lambda: len(lake.files("messages")) == 1, "merging")
    finally:
        stop.set()
        job.join()
    assert offsets(lake) == {"b1": [0, 1, 2]}


def test_a_stream_that_fails_says_why(spark: SparkSession, lake: Lake, landing: Landing) -> None:
    land(landing, "b1", 0, 10)

    def report(taken: Taken) -> None:
        raise ValueError("the moon")

    with pytest.raises(MetroError, match=r"the stream failed: .*ValueError: the moon"):
        run(spark, lake, IngestOptions(once=True, refresh_seconds=0), report)
    land(landing, "b1", 10, 10)
    take_all(spark, lake, landing)  # and goes on where it was
    assert offsets(lake) == {"b1": list(range(20))}


def test_one_ingest_per_lake(spark: SparkSession, lake: Lake) -> None:
    with (
        lake_lock(lake),
        pytest.raises(UsageError, match="another `metromq pipeline run`"),
        lake_lock(lake),
    ):
        raise AssertionError("two at a time")
    with lake_lock(lake):
        pass


FILES = st.lists(
    st.tuples(st.sampled_from(["b1", "b2"]), st.integers(0, 30), st.integers(0, 10), st.sampled_from(["", "a"])).map(
        lambda item: LandedFile(MESSAGES, item[0], item[1], item[1] + item[2], item[3])
    ),
    max_size=10,
)


@settings(deadline=None, max_examples=200)
@given(FILES, FILES)
def test_slices_hold_every_new_offset_once(before: list[LandedFile], files: list[LandedFile]) -> None:
    covered: dict[JournalKey, Ranges] = {}
    held: set[tuple[JournalKey, int]] = set()
    for file in before:
        covered.setdefault(file.key, Ranges()).add(file.first, file.last)
        held |= {(file.key, offset) for offset in range(file.first, file.last + 1)}
    slices = fresh_slices(files, covered)
    got = [(s.file.key, offset) for s in slices for first, last in s.ranges for offset in range(first, last + 1)]
    wanted = {(file.key, offset) for file in files for offset in range(file.first, file.last + 1)} - held
    assert len(got) == len(set(got)) == sum(s.rows for s in slices)
    assert set(got) == wanted


@settings(deadline=None, max_examples=100)
@given(FILES, st.integers(1, 40), st.integers(1, 8))
def test_brokers_take_turns(files: list[LandedFile], max_rows: int, max_files: int) -> None:
    waiting = sorted(set(files), key=lambda file: (file.broker, file.journal, file.first, file.last))
    chosen = choose(waiting, max_rows, max_files)
    assert len(chosen) <= max_files
    assert sum(file.rows for file in chosen[:-1]) < max_rows
    for broker in {file.broker for file in waiting}:
        own = [file for file in waiting if file.broker == broker]
        assert [file for file in chosen if file.broker == broker] == own[
            : sum(file.broker == broker for file in chosen)
        ]
    if len(chosen) > 1 and len({file.broker for file in waiting}) > 1:
        assert len({file.broker for file in chosen}) > 1
    assert bool(chosen) == bool(waiting)


def test_offsets_carry_their_files(landing: Landing) -> None:
    files = [land(landing, "b1", number * 5, 5) for number in range(3)]
    reader = LandingReader(landing, max_rows=10, max_files=99)
    start = reader.initialOffset()
    assert list(reader.partitions(start, start)) == []
    end = reader.latestOffset(start, None)
    (partition,) = reader.partitions(start, end)
    assert list(reader.read(partition)) == [(file.path,) for file in files[:2]]
    reader.prepareForTriggerAvailableNow()
    landing.remove(files[:2])
    land(landing, "b1", 50, 5)  # came after the run began
    rest = reader.latestOffset(end, None)
    assert json.loads(rest["files"]) == [files[2].path]
    landing.remove(files[2:])
    assert reader.latestOffset(rest, None) == rest
