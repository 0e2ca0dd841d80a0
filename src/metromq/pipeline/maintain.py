"""Keeping a lake: prove that nothing is missing, merge small files, let old days go, ask a question."""

import shutil
import time
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

from metromq.errors import UsageError
from metromq.pipeline.content import Content, judge
from metromq.pipeline.lake import Lake, TableFile, offset_ranges, retried
from metromq.pipeline.landing import MESSAGES, Landing, parse_path
from metromq.pipeline.ranges import Ranges
from metromq.pipeline.schemas import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TARGET_BYTES: Final = 128 << 20
KEEP_HOURS: Final = 24  # files that no table names any more stay so long, for readers that began before
STAGING_SECONDS: Final = 86_400  # a killed job's half-written files are this old before they go
_RAW: Final = ("messages", "telemetry")


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets that `messages` does not hold, and what is known about them."""

    first: int
    last: int
    why: str  # waiting, rejected, lost, unused (left out after a power cut) or missing


@dataclass(frozen=True, slots=True)
class BrokerCheck:
    """What `check` found for one broker."""

    broker: str
    rows: int
    first: int | None
    last: int | None
    repeated: int
    expired: int
    gaps: tuple[Gap, ...]
    content: Content | None = None  # None: only offsets were looked at

    @property
    def whole(self) -> bool:
        """Nothing is lost, there twice or wrong; what waits in the landing area is on its way."""
        right = self.content is None or self.content.right
        return right and self.repeated == 0 and all(gap.why in ("waiting", "unused") for gap in self.gaps)


@dataclass(frozen=True, slots=True)
class Compacted:
    table: str
    files_before: int
    files_after: int


@dataclass(frozen=True, slots=True)
class Expired:
    table: str
    files: int
    rows: int


def check(lake: Lake, landing: Landing, journals: dict[str, Path] | None = None) -> list[BrokerCheck]:
    """Reads every offset in `messages`: dense offsets turn a count into a proof. With `journals`, every row as well."""
    contents = judge(lake, journals) if journals is not None else {}
    rows, held = _held(lake)
    expired: dict[str, Ranges] = {}
    for row in lake.arrow("expired").to_pylist() if lake.exists("expired") else []:
        expired.setdefault(row["broker"], Ranges()).add(row["first"], row["last"])
    brokers = sorted({*held, *expired, *landing.brokers()})
    found = [
        _check_broker(broker, rows.get(broker, 0), held.get(broker, Ranges()), expired.get(broker, Ranges()), landing)
        for broker in brokers
    ]
    return [replace(item, content=contents.get(item.broker)) for item in found]


def _held(lake: Lake) -> tuple[dict[str, int], dict[str, Ranges]]:
    rows: dict[str, int] = {}
    held: dict[str, Ranges] = {}
    for file in lake.files("messages") if lake.exists("messages") else []:
        broker, path = file.partition["broker"], lake.path("messages") / file.path
        rows[broker] = rows.get(broker, 0) + pq.read_metadata(path).num_rows
        for first, last in offset_ranges(path):
            held.setdefault(broker, Ranges()).add(first, last)
    return rows, held


def _check_broker(broker: str, rows: int, held: Ranges, expired: Ranges, landing: Landing) -> BrokerCheck:
    note = landing.read_note(broker)
    known = Ranges([*held, *expired])
    start = [number for number in (note.get("first"), known.first) if number is not None]
    end = [number for number in (note.get("position", 0) - 1, known.last) if number is not None]
    missing = known.missing(min(start), max(end)) if start and end else []
    reasons = {
        "waiting": Ranges(
            (file.first, file.last) for file in landing.files() if file.kind == MESSAGES and file.broker == broker
        ),
        "rejected": Ranges(
            (file.first, file.last)
            for item in landing.rejected()
            if (file := parse_path(item.path)) is not None and file.kind == MESSAGES and file.broker == broker
        ),
        "lost": Ranges((first, last) for first, last in note.get("lost", [])),
        "unused": Ranges((first, last) for first, last in note.get("unused", [])),
    }
    gaps = [gap for first, last in missing for gap in _explain(first, last, reasons)]
    return BrokerCheck(broker, rows, held.first, held.last, rows - len(held), len(expired), tuple(gaps))


def _explain(first: int, last: int, reasons: dict[str, Ranges]) -> list[Gap]:
    """Cut a hole into parts by what is known of them."""
    rest = [(first, last)]
    gaps: list[Gap] = []
    for why, ranges in reasons.items():
        left: list[tuple[int, int]] = []
        for low, high in rest:
            unknown = ranges.missing(low, high)
            left += unknown
            gaps += [Gap(a, b, why) for a, b in Ranges(unknown).missing(low, high)]
        rest = left
    gaps += [Gap(low, high, "missing") for low, high in rest]
    return sorted(gaps, key=lambda gap: gap.first)


def compact(lake: Lake, target_bytes: int = TARGET_BYTES, keep_hours: int = KEEP_HOURS) -> list[Compacted]:
    """Merge small files of every table; safe beside a running ingest."""
    done: list[Compacted] = []
    for name in TABLES:
        if not lake.exists(name):
            continue
        before = len(lake.files(name))
        retried(lambda name=name: lake.open(name).optimize.compact(target_size=target_bytes))  # type: ignore[misc]
        _clean(lake, name, keep_hours)
        done.append(Compacted(name, before, len(lake.files(name))))
    return done


def expire(
    lake: Lake, older_than: timedelta, now: datetime, statistics: bool = False, keep_hours: int = KEEP_HOURS
) -> list[Expired]:
    """Let whole days go. Which offsets went is written down first, so that `check` and late copies know."""
    oldest = (now.astimezone(UTC) - older_than).date()
    names = [name for name, spec in TABLES.items() if spec.partition_by[:1] == ("day",) and lake.exists(name)]
    done: list[Expired] = []
    for name in names:
        if name not in _RAW and not statistics:
            continue
        old = retried(lambda name=name: _expire_table(lake, name, oldest, now))  # type: ignore[misc]
        _clean(lake, name, keep_hours)
        done.append(Expired(name, len(old), sum(file.rows for file in old)))
    return done


def _expire_table(lake: Lake, name: str, oldest: date, now: datetime) -> list[TableFile]:
    old = [file for file in lake.files(name) if file.partition["day"] < oldest]
    if old and name == "messages":
        _write_down(lake, old, now)
    if old:
        lake.commit(name, [], old)
    return old


def _write_down(lake: Lake, files: list[TableFile], now: datetime) -> None:
    ranges: dict[str, Ranges] = {}
    for file in files:
        for first, last in offset_ranges(lake.path("messages") / file.path):
            ranges.setdefault(file.partition["broker"], Ranges()).add(first, last)
    rows = [
        {"broker": broker, "first": first, "last": last, "at": now}
        for broker, parts in ranges.items()
        for first, last in parts
    ]
    write_deltalake(lake.open("expired"), pa.Table.from_pylist(rows, TABLES["expired"].schema), mode="append")


def _clean(lake: Lake, name: str, keep_hours: int) -> None:
    """Remove files that no version within `keep_hours` names, and what killed jobs left behind."""
    lake.open(name).vacuum(retention_hours=keep_hours, dry_run=False, enforce_retention_duration=False)
    for folder in lake.path(name).glob("_staging-*"):
        if time.time() - folder.stat().st_mtime > STAGING_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)


def views(spark: "SparkSession", lake: Lake) -> list[str]:
    """Every table as a temporary view of its name; `messages` gets its JSON as a VARIANT in the column `json`."""
    from pyspark.sql import functions as F

    names = [name for name in TABLES if lake.exists(name)]
    for name in names:
        frame = lake.read(spark, name)
        if name == "messages":
            frame = frame.withColumn("json", F.try_parse_json("payload_json"))
        frame.createOrReplaceTempView(name)
    return names


def ask(spark: "SparkSession", lake: Lake, query: str) -> "DataFrame":
    from pyspark.errors import AnalysisException, ParseException

    names = views(spark, lake)
    try:
        return spark.sql(query)
    except (AnalysisException, ParseException) as error:
        tables = ", ".join(names) or "none yet: run `metromq pipeline run` first"
        raise UsageError(f"{str(error).splitlines()[0]} (tables: {tables})") from error


def lake_or_usage_error(path: Path) -> Lake:
    """A lake that must be there already."""
    if not path.is_dir():
        raise UsageError(
            f"{path} is no lake: there is no such directory; `metromq pipeline run --lake {path}` makes one"
        )
    return Lake(path)
