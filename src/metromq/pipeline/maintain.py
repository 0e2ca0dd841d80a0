"""Keeping a lake: prove that nothing is missing, merge small files, let old days go, ask a question."""

import re
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import write_deltalake

from metromq.errors import UsageError
from metromq.pipeline.content import SCRATCH, Content, judge
from metromq.pipeline.keys import JournalKey
from metromq.pipeline.known_tables import declare_own
from metromq.pipeline.lake import EXPIRED, Lake, TableFile, retried
from metromq.pipeline.landing import MESSAGES, Landing, parse_path
from metromq.pipeline.merging import merge
from metromq.pipeline.quick import Answer
from metromq.pipeline.ranges import Ranges
from metromq.pipeline.schemas import BUILT_IN, RAW, TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TARGET_BYTES: Final = 128 << 20
KEEP_HOURS: Final = 24  # files that no table names any more stay so long, for readers that began before
STAGING_SECONDS: Final = 86_400  # a killed job's half-written files are this old before they go


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets that `messages` does not hold, and what is known about them."""

    first: int
    last: int
    why: str  # waiting, rejected, lost, unused (left out after a power cut) or missing


@dataclass(frozen=True, slots=True)
class BrokerCheck:
    """What `check` found for one journal of one broker."""

    broker: str
    journal: str
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


def check(lake: Lake, landing: Landing, journals: dict[JournalKey, Path] | None = None) -> list[BrokerCheck]:
    """Reads every offset in `messages`: dense offsets turn a count into a proof. With `journals`, every row as well."""
    contents = judge(lake, journals) if journals is not None else {}
    rows, held = _held(lake)
    expired = lake.expired()
    waiting = [file for file in landing.files() if file.kind == MESSAGES]
    rejected = [file for item in landing.rejected() if (file := parse_path(item.path)) and file.kind == MESSAGES]
    keys = sorted({*held, *expired, *landing.noted(), *(file.key for file in (*waiting, *rejected))})
    found: list[BrokerCheck] = []
    for key in keys:
        reasons = {
            "waiting": Ranges((file.first, file.last) for file in waiting if file.key == key),
            "rejected": Ranges((file.first, file.last) for file in rejected if file.key == key),
        }
        place = (key, rows.get(key, 0), held.get(key, Ranges()), expired.get(key, Ranges()))
        found.append(replace(_check_journal(*place, landing.read_note(key), reasons), content=contents.get(key)))
    return found


def _held(lake: Lake) -> tuple[dict[JournalKey, int], dict[JournalKey, Ranges]]:
    rows: dict[JournalKey, int] = {}
    held: dict[JournalKey, Ranges] = {}
    for file in lake.files("messages") if lake.exists("messages") else []:
        read = lake.arrow("messages", [file], ("broker", "journal", "offset"))
        for journal, count in Counter(name or "" for name in read["journal"].to_pylist()).items():
            key = JournalKey(file.partition["broker"], journal)
            rows[key] = rows.get(key, 0) + count
        for journal, ranges in lake.offsets(file).items():
            for first, last in ranges:
                held.setdefault(JournalKey(file.partition["broker"], journal), Ranges()).add(first, last)
    return rows, held


def _check_journal(
    key: JournalKey, rows: int, held: Ranges, expired: Ranges, note: dict[str, Any], reasons: dict[str, Ranges]
) -> BrokerCheck:
    known = Ranges([*held, *expired])
    start = [number for number in (note.get("first"), known.first) if number is not None]
    end = [number for number in (note.get("position", 0) - 1, known.last) if number is not None]
    missing = Ranges(known.missing(min(start), max(end)) if start and end else [])
    for first, last in (part for span in reasons["rejected"] for part in known.missing(*span)):
        missing.add(first, last)  # beyond all that a recorder has noted, too
    reasons = {
        **reasons,
        "lost": Ranges((first, last) for first, last in note.get("lost", [])),
        "unused": Ranges((first, last) for first, last in note.get("unused", [])),
    }
    gaps = [gap for first, last in missing for gap in _explain(first, last, reasons)]
    return BrokerCheck(*key, rows, held.first, held.last, rows - len(held), len(expired), tuple(gaps))


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
    """Merge small files of every table, the user's own too; safe beside a running ingest."""
    declare_own(lake)
    done: list[Compacted] = []
    for name in list(lake.specs):
        if not lake.exists(name):
            continue
        before = len(lake.files(name))
        retried(lambda name=name: merge(lake, name, target_bytes))  # type: ignore[misc]
        _clean(lake, name, keep_hours)
        done.append(Compacted(name, before, len(lake.files(name))))
    return done


def expire(
    lake: Lake, older_than: timedelta, now: datetime, statistics: bool = False, keep_hours: int = KEEP_HOURS
) -> list[Expired]:
    """Let whole days go. Which offsets went is written down first, so that `check` and late copies know."""
    oldest = (now.astimezone(UTC) - older_than).date()
    names = [name for name, spec in lake.specs.items() if spec.partition_by[:1] == ("day",) and lake.exists(name)]
    done: list[Expired] = []
    for name in names:
        if name not in RAW and not statistics:
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
        lake.commit(name, [], old, {EXPIRED: oldest.toordinal()})
    return old


def _write_down(lake: Lake, files: list[TableFile], now: datetime) -> None:
    found: dict[JournalKey, Ranges] = {}
    for file in files:
        for journal, ranges in lake.offsets(file).items():
            for first, last in ranges:
                found.setdefault(JournalKey(file.partition["broker"], journal), Ranges()).add(first, last)
    rows = [
        {"broker": key.broker, "journal": key.journal, "first": first, "last": last, "at": now}
        for key, parts in found.items()
        for first, last in parts
    ]
    table = pa.Table.from_pylist(rows, TABLES["expired"].schema)
    write_deltalake(lake.open("expired"), table, mode="append", schema_mode="merge")


def _clean(lake: Lake, name: str, keep_hours: int) -> None:
    """Remove files that no version within `keep_hours` names, and what killed jobs left behind."""
    lake.open(name).vacuum(retention_hours=keep_hours, dry_run=False, enforce_retention_duration=False)
    remove_orphans(lake, [name])


def remove_orphans(lake: Lake, names: Iterable[str] = ()) -> list[str]:
    """What killed jobs left and no version of a table (all, unless some are named) names: half-written files, and
    whole ones never committed.

    Nobody knows whether another process is still at work on them, so they must be old first.
    """
    gone: list[str] = []
    for name in (name for name in names or lake.specs if lake.exists(name)):
        hours = max(int(STAGING_SECONDS // 3600), 0)
        table = lake.open(name)
        old = table.vacuum(retention_hours=hours, dry_run=True, enforce_retention_duration=False, full=True)
        gone += [f"{name}/{unquote(path)}" for path in old]
    lake.store.each(lake.store.remove, gone)
    left = [folder for folder in lake.store.folders() if folder.startswith(SCRATCH) and _is_old(lake, folder)]
    lake.store.each(lake.store.remove_folder, left)
    return gone + left


def _is_old(lake: Lake, folder: str) -> bool:
    return all(time.time() - file.changed_s > STAGING_SECONDS for file in lake.store.files(folder))


def views(spark: "SparkSession", lake: Lake) -> list[str]:
    """Every table as a temporary view of its name; `messages` gets its JSON as a VARIANT in the column `json`."""
    from pyspark.sql import functions as F

    names = [name for name in lake.specs if lake.exists(name)]
    for name in names:
        frame = lake.read(spark, name)
        if name == "messages":
            frame = frame.withColumn("json", F.try_parse_json("payload_json"))
        frame.createOrReplaceTempView(name)
    return names


def ask(spark: "SparkSession", lake: Lake, query: str, limit: int) -> Answer:
    """By Spark; `quick.ask_quickly` gives the same rows to the questions that it understands."""
    from pyspark.errors import AnalysisException, ParseException

    try:
        views(spark, lake)
        frame = _readable(spark.sql(query), query)
    except (AnalysisException, ParseException) as error:
        there = ", ".join(name for name in lake.specs if lake.exists(name))
        tables = there or "none yet: run `metromq pipeline run` first"
        raise UsageError(f"{str(error).strip().splitlines()[0]} (tables: {tables})") from error
    columns = [column.to_pylist() for column in frame.limit(limit).toArrow().columns]
    return Answer(
        list(frame.columns), [dict(zip(frame.columns, row, strict=True)) for row in zip(*columns, strict=True)]
    )


def _readable(frame: "DataFrame", query: str) -> "DataFrame":
    """VARIANTs as JSON text; `json` only for those who ask for it by name, for `payload_json` says the same."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import VariantType

    variants = {item.name for item in frame.schema if isinstance(item.dataType, VariantType)}
    if "json" in variants and not re.search(r"\bjson\b", query, re.IGNORECASE):
        frame = frame.drop("json")
    for name in variants & set(frame.columns):
        frame = frame.withColumn(name, F.to_json(name))
    return frame


@dataclass(frozen=True, slots=True)
class TableInfo:
    """What `metromq pipeline tables` says of a table."""

    table: str
    rows: int
    files: int
    own: bool
    purpose: str


def tables(lake: Lake) -> list[TableInfo]:
    """Every table that is there, the built-in ones first."""
    found: list[TableInfo] = []
    for name, spec in lake.specs.items():
        if lake.exists(name):
            files = lake.files(name)
            rows = sum(file.rows for file in files)
            found.append(TableInfo(name, rows, len(files), name not in BUILT_IN, spec.purpose))
    return found


def lake_or_usage_error(root: str | Path) -> Lake:
    """A lake that must be there already."""
    lake = Lake(root)
    if not lake.store.check().exists():
        raise UsageError(f"there is no lake at {root}; `metromq pipeline run --lake {root}` creates one")
    declare_own(lake)
    return lake
