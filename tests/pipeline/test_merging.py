"""Files of a table are small, in order of time, and what is many is apart: merged by no one's size."""

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from metromq.pipeline import merging
from metromq.pipeline.lake import Lake, TableFile
from metromq.pipeline.maintain import compact
from metromq.pipeline.merging import plan
from metromq.pipeline.schemas import TABLES

MORNING = datetime(2026, 1, 1, tzinfo=UTC)


def made(name: str, rows: Sequence[dict[str, Any]]) -> pa.Table:
    schema = TABLES[name].schema
    return pa.Table.from_pylist([dict.fromkeys(schema.names) | {"day": MORNING.date()} | row for row in rows], schema)


def small_lake(root: Path, rows: int) -> Lake:
    lake = Lake(root)
    lake.specs = {name: replace(spec, file_rows=rows) for name, spec in lake.specs.items()}
    return lake


def put(lake: Lake, name: str, rows: Sequence[dict[str, Any]]) -> None:
    lake.commit(name, lake.write_here(made(name, rows).to_batches(), name))


def span(file: TableFile) -> tuple[Any, Any]:
    column = "time" if "time" in file.low else "window_start"
    return file.low[column], file.high[column]


def message(broker: str, offset: int) -> dict[str, Any]:
    return {"broker": broker, "offset": offset, "time": MORNING + timedelta(seconds=offset), "journal": "j"}


@pytest.mark.parametrize("together", [1, 16])
def test_neighbours_in_time_become_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: int) -> None:
    """A day of two brokers in files of many sizes, which come in any order: afterwards a minute is in one of each."""
    monkeypatch.setattr(merging, "_TOGETHER", together)
    monkeypatch.setattr(merging, "GROUP_ROWS", 7)
    lake, dice = small_lake(tmp_path / "lake", 100), random.Random(1)
    pieces, offset = [], 0
    while offset < 1_000:
        count = dice.randrange(1, 30)
        pieces += [[message(broker, n) for n in range(offset, offset + count)] for broker in ("b1", "b2")]
        offset += count
    for piece in dice.sample(pieces, len(pieces)):
        put(lake, "messages", piece)
    before, version = lake.arrow("messages"), int(lake.open("messages").version())
    compact(lake)
    files = lake.files("messages")
    assert lake.added("messages", version) == []  # nothing is new
    assert (
        lake.arrow("messages")
        .sort_by([("broker", "ascending"), ("offset", "ascending")])
        .equals(before.sort_by([("broker", "ascending"), ("offset", "ascending")]))
    )
    assert len(files) < len(pieces) / 2
    for broker in ("b1", "b2"):
        own = sorted((file for file in files if file.partition["broker"] == broker), key=span)
        assert all(file.rows <= 100 for file in own)
        assert all(left.high["time"] < right.low["time"] for left, right in pairwise(own))
        assert sum(left.rows + right.rows <= 100 for left, right in pairwise(own)) == 0
    version = int(lake.open("messages").version())
    compact(lake)
    assert int(lake.open("messages").version()) == version  # nothing is left to do


def test_full_files_stay(tmp_path: Path) -> None:
    lake = small_lake(tmp_path / "lake", 10)
    put(lake, "messages", [message("b1", n) for n in range(25)])
    assert sorted(file.rows for file in lake.files("messages")) == [5, 10, 10]
    put(lake, "messages", [message("b1", 25)])
    (group,) = plan(lake.files("messages"), lake.specs["messages"], 1 << 20)
    assert sorted(file.rows for file in group) == [1, 5]
    assert plan(lake.files("messages"), lake.specs["messages"], 1) == []  # by their bytes they are full as well


def test_telemetry_of_topics_is_apart(tmp_path: Path) -> None:
    """Clocks and services are asked for again and again; they are not among the topics, before and after a merge."""
    lake = Lake(tmp_path / "lake")
    subjects = ("topic", "clock", "topic-from", "site", "service-topic", "link", "service-device")
    for minute in range(3):
        moment = MORNING + timedelta(minutes=minute)
        put(lake, "telemetry", [{"subject": subject, "window_start": moment} for subject in subjects])
    for expected in (6, 2):
        files = lake.files("telemetry")
        assert len(files) == expected
        for subject in subjects:
            many = subject.startswith("topic")
            named = [file for file in files if file.overlaps("subject", subject, subject)]
            assert sum(file.rows for file in named) == 3 * (2 if many else 5)
        compact(lake)


def test_a_leap_in_time_begins_another_file(tmp_path: Path) -> None:
    """Of a table whose minutes are made again: else all between would seem to be new to who follows it."""
    lake = Lake(tmp_path / "lake")
    minutes = [0, 1, 2, 300, 301, 600]
    put(lake, "traffic", [{"window_start": MORNING + timedelta(minutes=minute)} for minute in minutes])
    found = sorted((low - MORNING, high - MORNING) for low, high in map(span, lake.files("traffic")))
    assert [(low.seconds // 60, high.seconds // 60) for low, high in found] == [(0, 2), (300, 301), (600, 600)]


def test_columns_of_a_newer_version_stay(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    newer = replace(TABLES["messages"], schema=TABLES["messages"].schema.append(pa.field("new", pa.string())))
    lake.specs["messages"] = newer
    for offset in range(2):
        rows = made("messages", [message("b1", offset)]).append_column("new", pa.array([f"x{offset}"]))
        lake.commit("messages", lake.write_here(rows.to_batches(), "messages"))
    compact(Lake(lake.root))
    assert len(lake.files("messages")) == 1
    assert sorted(lake.arrow("messages")["new"].to_pylist()) == ["x0", "x1"]
