"""Brings the statistics up to date with `messages` and `telemetry`: only what changed, in one transaction per table.

Each table remembers, in its own Delta log, which version of its sources it was made from. So a refresh that was killed
is simply made again, and a late file of last week recomputes the minutes it touches and nothing else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from metromq.pipeline.lake import Lake, TableFile
from metromq.pipeline.ranges import Ranges
from metromq.pipeline.schemas import TABLES
from metromq.pipeline.transforms import interest, planner
from metromq.pipeline.transforms.latency import latency
from metromq.pipeline.transforms.traffic import WINDOW_SECONDS, sites, traffic

PLANNER_HOURS: Final = 24
_MAX_RANGES: Final = 50  # more separate stretches of time are treated as one
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Change:
    """Files of a source that a table has not seen, some perhaps merged since, and the version to remember."""

    files: list[TableFile]
    version: int


def refresh(spark: SparkSession, lake: Lake, planner_hours: int = PLANNER_HOURS) -> list[str]:
    """Bring every table up to date; the names of those that changed."""
    changed = [name for name, step in _STEPS if step(spark, lake)]
    if refresh_planner(spark, lake, planner_hours):
        changed += ["planner_tau", "planner_dsd", "planner_dst", "delegation_inputs"]
    return changed


def change(lake: Lake, source: str, target: str) -> Change:
    """What a source got since the target was made from it."""
    version = int(lake.open(source).version())
    seen = lake.done(target, source)
    return Change(lake.files(source) if seen < 0 else lake.added(source, seen), version)


def refresh_traffic(spark: SparkSession, lake: Lake) -> bool:
    messages, telemetry = change(lake, "messages", "traffic"), change(lake, "telemetry", "traffic")
    minutes = _minutes(messages.files, "time")
    for first, last in _minutes(telemetry.files, "window_start"):
        minutes.add(first, last)
    minutes = _few(minutes)
    done = {"messages": messages.version, "telemetry": telemetry.version}
    if minutes.first is None:
        return False
    _learn_sites(spark, lake, telemetry)
    fresh = traffic(
        _rows(spark, lake, "messages", "time", minutes),
        _rows(spark, lake, "telemetry", "window_start", minutes),
        lake.read(spark, "sites"),
    )
    _replace(spark, lake, "traffic", fresh, minutes, done)
    return True


def _learn_sites(spark: SparkSession, lake: Lake, telemetry: Change) -> None:
    """`sites` keeps the newest word of every broker, so that minutes without telemetry know their site too."""
    minutes = _minutes(telemetry.files, "window_start")
    if minutes.first is None:
        return
    known = {row["broker"]: row for row in lake.arrow("sites").to_pylist()}
    heard = sites(_rows(spark, lake, "telemetry", "window_start", _few(minutes))).toArrow().to_pylist()
    news = [row for row in heard if row["broker"] not in known or known[row["broker"]]["since"] < row["since"]]
    moved = [row for row in news if row["broker"] not in known or known[row["broker"]]["site"] != row["site"]]
    if moved:
        merged = known | {row["broker"]: row for row in news}
        rows = spark.createDataFrame(pa.Table.from_pylist(list(merged.values()), TABLES["sites"].schema))
        lake.commit("sites", lake.write_files(rows.coalesce(1), "sites"), lake.files("sites"))


def refresh_latency(spark: SparkSession, lake: Lake) -> bool:
    """A late origin file completes links of any later minute: everything from the first changed minute on is anew."""
    messages = change(lake, "messages", "latency")
    minutes = _minutes(messages.files, "time")
    if minutes.first is None:
        return False
    latest = max(_minute(file.high["time"]) for file in lake.files("messages"))
    minutes = Ranges([(minutes.first, latest)])
    linked = _rows(spark, lake, "messages", "time", minutes).where(F.col("kind") == "link")
    fresh = latency(linked, lake.read(spark, "messages", _origin_files(lake, linked)))
    _replace(spark, lake, "latency", fresh, minutes, {"messages": messages.version})
    return True


def _origin_files(lake: Lake, linked: DataFrame) -> list[TableFile]:
    """The files that may hold where the links' messages came from: offsets tell."""
    spans = linked.groupBy("origin").agg(F.min("origin_offset").alias("low"), F.max("origin_offset").alias("high"))
    wanted = {row["origin"]: (row["low"], row["high"]) for row in spans.collect() if row["low"] is not None}
    return [
        file
        for file in lake.files("messages")
        if file.partition["broker"] in wanted and file.overlaps("offset", *wanted[file.partition["broker"]])
    ]


def _daily(name: str, make: Callable[[DataFrame], DataFrame]) -> Callable[[SparkSession, Lake], bool]:
    """A table that is made from the `traffic` of whole days."""

    def step(spark: SparkSession, lake: Lake) -> bool:
        source = change(lake, "traffic", name)
        days = {file.partition["day"] for file in source.files}
        if not days:
            return False
        rows = lake.read(spark, "traffic", [file for file in lake.files("traffic") if file.partition["day"] in days])
        old = [file for file in lake.files(name) if file.partition["day"] in days]
        added = lake.write_files(make(rows).coalesce(1), name)
        lake.commit(name, added, old, {"traffic": source.version})
        return True

    return step


def _similarity(rows: DataFrame) -> DataFrame:
    sets = interest.topic_sets(rows)
    return interest.similarity(sets, exact=interest.joined_pairs(sets) <= interest.EXACT_PAIRS)


_STEPS: Final[list[tuple[str, Callable[[SparkSession, Lake], bool]]]] = [
    ("traffic", refresh_traffic),
    ("latency", refresh_latency),
    ("locality", _daily("locality", interest.locality)),
    ("popularity", _daily("popularity", interest.popularity)),
    ("zipf", _daily("zipf", lambda rows: interest.zipf(interest.popularity(rows)))),
    ("similarity", _daily("similarity", _similarity)),
]


def refresh_planner(spark: SparkSession, lake: Lake, hours: int) -> bool:
    """The planner's inputs describe the last hours before the newest minute, whole."""
    source = change(lake, "traffic", "planner_tau")
    files = lake.files("traffic")
    if not source.files:
        return False
    newest = max(_minute(file.high["window_start"]) for file in files)
    minutes = Ranges([(newest - hours * 60 + 1, newest)])
    rows = _rows(spark, lake, "traffic", "window_start", minutes).cache()
    counted = _rows(spark, lake, "telemetry", "window_start", minutes)
    try:
        seconds = observed_seconds(rows)
        frames = {
            "planner_dsd": planner.dsd(counted, seconds),
            "planner_dst": planner.dst(counted, seconds),
            "delegation_inputs": planner.delegation_inputs(rows, seconds),
            "planner_tau": planner.tau(rows, seconds),  # last: its log says that all four are done
        }
        for name, frame in frames.items():
            lake.commit(name, lake.write_files(frame.coalesce(1), name), lake.files(name), {"traffic": source.version})
    finally:
        rows.unpersist()
    return True


def observed_seconds(rows: DataFrame) -> float:
    """From the start of the first minute to the end of the last."""
    span = rows.agg(F.unix_seconds(F.min("window_start")), F.unix_seconds(F.max("window_start"))).first()
    assert span is not None
    return float(span[1] - span[0] + WINDOW_SECONDS)


def _rows(spark: SparkSession, lake: Lake, name: str, column: str, minutes: Ranges) -> DataFrame:
    spans = [_span(*part) for part in minutes]
    files = [file for file in lake.files(name) if any(file.overlaps(column, first, last) for first, last in spans)]
    return lake.read(spark, name, files).where(_within(column, minutes))


def _replace(
    spark: SparkSession, lake: Lake, name: str, fresh: DataFrame, minutes: Ranges, done: dict[str, int]
) -> None:
    """Put new rows in the place of all rows of these minutes; files that hold other minutes too are written again."""
    spans = [_span(*part) for part in minutes]
    old = [
        file for file in lake.files(name) if any(file.overlaps("window_start", first, last) for first, last in spans)
    ]
    kept = lake.read(spark, name, old).where(~_within("window_start", minutes))
    added = lake.write_files(fresh.unionByName(kept), name)
    lake.commit(name, added, old, done)


def _within(column: str, minutes: Ranges) -> Column:
    parts = (F.col(column).between(*map(F.lit, _span(first, last))) for first, last in minutes)
    return reduce(lambda left, right: left | right, parts)


def _span(first: int, last: int) -> tuple[datetime, datetime]:
    """The moments from the start of one minute to the end of another."""
    minute = timedelta(seconds=WINDOW_SECONDS)
    return _EPOCH + first * minute, _EPOCH + (last + 1) * minute - timedelta(microseconds=1)


def _minutes(files: Sequence[TableFile], column: str) -> Ranges:
    return Ranges((_minute(file.low[column]), _minute(file.high[column])) for file in files)


def _minute(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(seconds=WINDOW_SECONDS)


def _few(minutes: Ranges) -> Ranges:
    parts = list(minutes)
    return minutes if len(parts) <= _MAX_RANGES else Ranges([(parts[0][0], parts[-1][1])])
