"""Brings the statistics up to date with `messages` and `telemetry`: only what changed, in one transaction per table.

Each table remembers, in its own Delta log, which version of its sources it was made from. So a refresh that was killed
is simply made again, and a late file of last week recomputes the minutes it touches and nothing else.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Final

import numpy as np
import pyarrow as pa
from deltalake.transaction import AddAction
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from metromq.errors import TableDamaged
from metromq.pipeline.lake import Lake, TableFile
from metromq.pipeline.ranges import Ranges
from metromq.pipeline.schemas import TABLES
from metromq.pipeline.transforms import interest, planner
from metromq.pipeline.transforms.latency import latency
from metromq.pipeline.transforms.traffic import WINDOW_SECONDS, by_hour, sites, traffic
from metromq.telemetry import CLOCK, SERVICE_DEVICE, SERVICE_TOPIC

PLANNER_HOURS: Final = 24
_MAX_RANGES: Final = 50  # separate stretches of time
_FEW_MINUTES: Final = 5
_HOURS: Final = "traffic_hours"
_TRAFFIC_KEY: Final = ("day", "window_start", "topic", "broker")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Change:
    """Files of a source that a table has not seen, some perhaps merged since, and the version to remember."""

    source: str
    files: list[TableFile]
    version: int
    everything: bool = False  # all files that there are


def refresh(spark: SparkSession, lake: Lake, planner_hours: int = PLANNER_HOURS) -> list[str]:
    """Bring every table up to date; the names of those that changed."""
    changed = [name for name, step in STEPS if step(spark, lake)]
    if refresh_planner(spark, lake, planner_hours):
        changed += ["planner_tau", "planner_dsd", "planner_dst", "delegation_inputs"]
    return changed


def change(lake: Lake, source: str, target: str, application: str = "") -> Change:
    """What a source got since the target was made from it, by the source's name or by the `application` it says."""
    version = int(lake.open(source).version())
    seen = lake.done(target, application or source)
    return Change(source, lake.files(source) if seen < 0 else lake.added(source, seen), version, seen < 0)


def refresh_traffic(spark: SparkSession, lake: Lake) -> bool:
    messages, telemetry = change(lake, "messages", "traffic"), change(lake, "telemetry", "traffic")
    changed = _changed(lake, messages, "time")
    for first, last in _changed(lake, telemetry, "window_start"):
        changed.add(first, last)
    if changed.first is None:
        return False
    newly_placed = _learn_sites(spark, lake, telemetry)
    for first, last in _minutes([f for f in lake.files("messages") if f.partition["broker"] in newly_placed], "time"):
        changed.add(first, last)  # what they recorded before they said where they stand
    kept = (lake.kept_from() - _EPOCH.date()).days * 24 * 60
    late = _few(Ranges((first, min(last, kept - 1)) for first, last in changed if first < kept))
    fresh = _few(Ranges((max(first, kept), last) for first, last in changed if last >= kept))
    minutes, frames = Ranges(late), []
    if late.first is not None:
        frames.append(_with_late(spark, lake, messages, telemetry, late))
    if fresh.first is not None:
        margin = _margin(lake)
        again, around = _wider(fresh, margin, 0, kept), _wider(fresh, margin, 2 * margin, kept)
        rows = traffic(
            _rows(spark, lake, "messages", "time", around),
            _rows(spark, lake, "telemetry", "window_start", around),
            lake.read(spark, "sites"),
        )
        frames.append(rows.where(_within("window_start", again)))
        minutes = Ranges([*late, *again])
    done = {"messages": messages.version, "telemetry": telemetry.version}
    _replace(spark, lake, "traffic", reduce(DataFrame.unionByName, frames), minutes, done)
    return True


def _with_late(spark: SparkSession, lake: Lake, messages: Change, telemetry: Change, late: Ranges) -> DataFrame:
    """Minutes whose other rows have expired cannot be made again: what came late is added to what `traffic` has."""
    came = traffic(
        lake.read(spark, "messages", messages.files).where(_within("time", late)),
        lake.read(spark, "telemetry", telemetry.files).where(_within("window_start", late)),
        lake.read(spark, "sites"),
    )
    both = _rows(spark, lake, "traffic", "window_start", late).unionByName(came)
    most = ("publishers", "subscribers")
    added = [item.name for item in TABLES["traffic"].schema if item.name not in (*_TRAFFIC_KEY, "site", *most)]
    return both.groupBy(*_TRAFFIC_KEY).agg(
        F.max("site").alias("site"),
        *(F.sum(name).alias(name) for name in added),
        *(F.max(name).alias(name) for name in most),
    )


def _margin(lake: Lake) -> int:
    """How many minutes a broker's window may reach beyond the minute in which it begins; 0 for the usual ones."""
    longest = max(map(lake.longest_window, lake.files("telemetry")), default=0.0)
    return 0 if longest == 0 or (longest <= WINDOW_SECONDS and WINDOW_SECONDS % longest == 0) else -int(-longest // 60)


def _wider(minutes: Ranges, before: int, after: int, kept: int) -> Ranges:
    return Ranges((max(first - before, kept), last + after) for first, last in minutes)


def _learn_sites(spark: SparkSession, lake: Lake, telemetry: Change) -> set[str]:
    """`sites` keeps the newest word of every broker, so that minutes without telemetry know their site too.

    Those that said it for the first time.
    """
    minutes = _changed(lake, telemetry, "window_start")
    if minutes.first is None:
        return set()
    known = {row["broker"]: row for row in lake.arrow("sites").to_pylist()}
    heard = sites(_rows(spark, lake, "telemetry", "window_start", _few(minutes))).toArrow().to_pylist()
    news = [row for row in heard if row["broker"] not in known or known[row["broker"]]["since"] < row["since"]]
    moved = [row for row in news if row["broker"] not in known or known[row["broker"]]["site"] != row["site"]]
    if moved:
        merged = known | {row["broker"]: row for row in news}
        rows = spark.createDataFrame(pa.Table.from_pylist(list(merged.values()), TABLES["sites"].schema))
        lake.commit("sites", lake.write_files(rows.coalesce(1), "sites"), lake.files("sites"))
    return {row["broker"] for row in moved} - known.keys()


def refresh_latency(spark: SparkSession, lake: Lake) -> bool:
    """Minutes of days that have expired stay as they are: percentiles cannot be added to."""
    messages = change(lake, "messages", "latency")
    kept = (lake.kept_from() - _EPOCH.date()).days * 24 * 60
    changed = _changed(lake, messages, "time")
    minutes = _few(Ranges((max(first, kept), last) for first, last in changed if last >= kept))
    if minutes.first is None:
        return False
    fresh = latency(_rows(spark, lake, "messages", "time", minutes), _clocks_about(spark, lake, minutes))
    _replace(spark, lake, "latency", fresh, minutes, {"messages": messages.version})
    return True


def refresh_windows(
    spark: SparkSession,
    lake: Lake,
    name: str,
    sources: Mapping[str, str],
    window: int,
    way: str,
    make: Callable[[dict[str, DataFrame]], DataFrame],
) -> bool:
    """A table whose windows, of so many minutes, are made of the same windows of its sources: those that changed.

    `sources` maps tables to their columns of time. `way` names how the rows are made: a new way makes all of them anew.
    """
    changes = {source: change(lake, source, name, f"{source}@{way}") for source in sources}
    raw = not sources.keys().isdisjoint(("messages", "telemetry"))  # what of them has expired cannot be made again
    kept = (lake.kept_from() - _EPOCH.date()).days * 24 * 60 if raw else 0
    minutes = Ranges()
    for source, column in sources.items():
        for first, last in _changed(lake, changes[source], column):
            if last >= kept:
                minutes.add(max(first - first % window, kept), last - last % window + window - 1)
    minutes = _few(minutes)
    if minutes.first is None:
        return False
    rows = {source: _rows(spark, lake, source, column, minutes) for source, column in sources.items()}
    fresh = make(rows).where(_within("window_start", minutes))
    done = {f"{source}@{way}": item.version for source, item in changes.items()}
    _replace(spark, lake, name, fresh, minutes, done)
    return True


def _clocks_about(spark: SparkSession, lake: Lake, minutes: Ranges) -> DataFrame:
    """What was said of clocks on the days of these minutes and those beside them: a wrong clock may have written
    another date."""
    numbers = {day for first, last in minutes for day in range(first // 1440 - 1, last // 1440 + 2)}
    days = {_EPOCH.date() + timedelta(days=number) for number in numbers}
    files = [file for file in lake.files("telemetry") if file.partition["day"] in days and _may_hold(file, [CLOCK])]
    return lake.read(spark, "telemetry", files)


def _daily(name: str, make: Callable[[DataFrame], DataFrame]) -> Callable[[SparkSession, Lake], bool]:
    """A table that is made from the traffic of whole days, by the hour: a day has too many minutes to read again."""

    def step(spark: SparkSession, lake: Lake) -> bool:
        source = change(lake, _HOURS, name)
        days = {file.partition["day"] for file in source.files}
        if not days:
            return False
        rows = lake.read(spark, _HOURS, [file for file in lake.files(_HOURS) if file.partition["day"] in days])
        old = [file for file in lake.files(name) if file.partition["day"] in days]
        added = lake.write_files(make(rows).coalesce(1), name)
        lake.commit(name, added, old, {_HOURS: source.version})
        return True

    return step


def refresh_hours(spark: SparkSession, lake: Lake) -> bool:
    return refresh_windows(
        spark, lake, _HOURS, {"traffic": "window_start"}, 60, "1", lambda rows: by_hour(rows["traffic"])
    )


def _similarity(rows: DataFrame) -> DataFrame:
    sets = interest.topic_sets(rows)
    return interest.similarity(sets, exact=interest.joined_pairs(sets) <= interest.EXACT_PAIRS)


STEPS: Final[list[tuple[str, Callable[[SparkSession, Lake], bool]]]] = [
    ("traffic", refresh_traffic),
    (_HOURS, refresh_hours),
    ("latency", refresh_latency),
    ("locality", _daily("locality", interest.locality)),
    ("popularity", _daily("popularity", interest.popularity)),
    ("zipf", _daily("zipf", lambda rows: interest.zipf(interest.popularity(rows)))),
    ("similarity", _daily("similarity", _similarity)),
]


def refresh_planner(spark: SparkSession, lake: Lake, hours: int) -> bool:
    """The planner's inputs describe the last hours before the newest minute, whole."""
    source = change(lake, "traffic", "planner_tau")
    if not source.files:
        return False
    last = lake.days("traffic")[-1]
    newest = max(_minute(file.high["window_start"]) for file in lake.files("traffic") if file.partition["day"] == last)
    first = newest - hours * 60 + 1
    subjects = (SERVICE_DEVICE, SERVICE_TOPIC)
    counted = _rows(spark, lake, "telemetry", "window_start", Ranges([(first, newest)]), subjects)
    rows = _last_hours(spark, lake, first, newest).cache()
    try:
        seconds = (newest - _oldest(spark, lake, rows, first) + 1) * float(WINDOW_SECONDS)
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


def _last_hours(spark: SparkSession, lake: Lake, first: int, newest: int) -> DataFrame:
    """Traffic by the hour; of the hour that is there in part only, by the minute."""
    whole = -(-first // 60) * 60
    hours = _rows(spark, lake, _HOURS, "window_start", Ranges([(whole, newest)]))
    if whole == first:
        return hours
    minutes = _rows(spark, lake, "traffic", "window_start", Ranges([(first, whole - 1)]))
    return minutes.select(*hours.columns).unionByName(hours)


def _oldest(spark: SparkSession, lake: Lake, rows: DataFrame, first: int) -> int:
    """The first minute of these rows; hours do not tell, but say where to look."""
    hour = max(first, _first_minute(rows))
    return _first_minute(_rows(spark, lake, "traffic", "window_start", Ranges([(hour, hour + 59)])))


def _first_minute(rows: DataFrame) -> int:
    found = rows.agg(F.unix_seconds(F.min("window_start"))).first()
    assert found is not None
    return int(found[0]) // WINDOW_SECONDS


def _rows(
    spark: SparkSession, lake: Lake, name: str, column: str, minutes: Ranges, subjects: Sequence[str] = ()
) -> DataFrame:
    """Rows of these minutes; of telemetry, if subjects are named, none is left out that has one of them."""
    files = [file for file in _touched(lake, name, column, minutes) if _may_hold(file, subjects)]
    return lake.read(spark, name, files).where(_within(column, minutes))


def _touched(lake: Lake, name: str, column: str, minutes: Ranges) -> list[TableFile]:
    spans = [_span(*part) for part in minutes]
    return [file for file in lake.files(name) if any(file.overlaps(column, first, last) for first, last in spans)]


def _may_hold(file: TableFile, subjects: Sequence[str]) -> bool:
    """Topics, which are many, are in other files than what is asked for here again and again."""
    return not subjects or any(file.overlaps("subject", subject, subject) for subject in subjects)


def _replace(
    spark: SparkSession, lake: Lake, name: str, fresh: DataFrame, minutes: Ranges, done: dict[str, int]
) -> None:
    """Put new rows in the place of all rows of these minutes. What files of them hold of other minutes is written
    again, to files of its own: together they would grow with every refresh until they are the whole day, and who
    follows this table would take all of it for new."""
    old = _touched(lake, name, "window_start", minutes)
    spans = [_span(*part) for part in minutes]
    mixed = [file for file in old if not any(_lies_in(file, *span) for span in spans)]
    moved: list[AddAction] = []
    if mixed:
        kept = lake.read(spark, name, mixed).where(~_within("window_start", minutes))
        moved = lake.write_files(kept.sortWithinPartitions("window_start"), name)
    added = lake.write_files(fresh.sortWithinPartitions("window_start"), name)
    lake.commit(name, added, old, done, moved=moved)


def _lies_in(file: TableFile, first: datetime, last: datetime) -> bool:
    low, high = file.low["window_start"], file.high["window_start"]
    return low is not None and high is not None and bool(first <= low and high <= last)


def _within(column: str, minutes: Ranges) -> Column:
    parts = (F.col(column).between(*map(F.lit, _span(first, last))) for first, last in minutes)
    return reduce(lambda left, right: left | right, parts)


def _span(first: int, last: int) -> tuple[datetime, datetime]:
    """The moments from the start of one minute to the end of another."""
    minute = timedelta(seconds=WINDOW_SECONDS)
    return _EPOCH + first * minute, _EPOCH + (last + 1) * minute - timedelta(microseconds=1)


def _changed(lake: Lake, news: Change, column: str) -> Ranges:
    """The minutes of new rows. A file whose moments lie far apart is asked for them: one message that was hours on
    its way is not hours of news."""
    if news.everything:
        return _minutes(news.files, column)
    minutes = Ranges()
    for file in news.files:
        for first, last in _exact_minutes(lake, news.source, file, column):
            minutes.add(first, last)
    return minutes


def _exact_minutes(lake: Lake, name: str, file: TableFile, column: str) -> Ranges:
    rough = _minutes([file], column)
    if len(rough) <= _FEW_MINUTES:
        return rough
    try:
        moments = lake.arrow(name, [file], (column,))[column].drop_null().cast(pa.int64()).to_numpy()
    except TableDamaged:  # merged and removed since; or it is told when its rows are read
        return rough
    return Ranges((minute, minute) for minute in np.unique(moments // (WINDOW_SECONDS * 1_000_000)).tolist())


def _minutes(files: Sequence[TableFile], column: str) -> Ranges:
    """From the first to the last. Files without statistics hold no moment: rows that older versions let in."""
    known = (file for file in files if file.low[column] is not None)
    return Ranges((_minute(file.low[column]), _minute(file.high[column])) for file in known)


def _minute(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(seconds=WINDOW_SECONDS)


def _few(minutes: Ranges) -> Ranges:
    """At most so many stretches: those that are nearest to each other become one."""
    holes = sorted(minutes.gaps(), key=lambda hole: hole[1] - hole[0])
    return Ranges([*minutes, *holes[: max(0, len(holes) - _MAX_RANGES + 1)]])
