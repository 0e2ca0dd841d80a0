"""The lake: Delta tables without connector jars, on a path or an object store; delta-rs keeps their logs."""

import json
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from metromq.errors import LakeConflict, RowsElsewhere, TableDamaged
from metromq.pipeline.keys import JournalKey
from metromq.pipeline.ranges import Ranges
from metromq.pipeline.schemas import TABLES, TableSpec
from metromq.pipeline.store import store_at
from metromq.pipeline.table_files import (
    Complete,
    Part,
    TaskWriter,
    Written,
    bounds,
    read_files,
    with_columns,
    write_files,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
_RETRIES: Final = 5

EXPIRED: Final = "metromq-expired"  # an application whose number is the first day (its ordinal) that was kept

# A commit a second makes many log entries: a checkpoint every 50 keeps opening fast, a week of history is enough.
_CONFIGURATION: Final = {
    "delta.checkpointInterval": "50",
    "delta.logRetentionDuration": "interval 7 days",
    "delta.enableExpiredLogCleanup": "true",
}


@dataclass(frozen=True, slots=True)
class TableFile:
    """One live Parquet file of a table; `low` and `high` hold the columns of `TableSpec.stats`."""

    path: str  # relative to the table
    rows: int
    partition: dict[str, Any]
    low: dict[str, Any]
    high: dict[str, Any]
    nulls: dict[str, int | None] = field(default_factory=dict)
    size: int = 0

    def overlaps(self, column: str, first: Any, last: Any) -> bool:
        """False only when the statistics prove that no value of `column` is in [first, last]."""
        low, high = self.low.get(column), self.high.get(column)
        return low is None or high is None or (low <= last and high >= first)


class Lake:
    """All tables under one directory or URI. It has many methods because each thing in it has a place of its own."""

    def __init__(self, root: str | Path) -> None:
        self.store = store_at(root)
        self.root = self.store.root
        self.specs = dict(TABLES)  # of all tables that are known here, the user's own too
        self._tables: dict[str, DeltaTable] = {}
        self._windows: dict[str, float] = {}  # longest windows of files whose statistics do not tell
        self._offsets: dict[str, dict[str, Ranges]] = {}  # of files whose statistics do not tell

    def declare(self, spec: TableSpec) -> None:
        """A table of the user's own, beside the built-in ones."""
        assert spec.name not in TABLES
        self.specs[spec.name] = spec

    def path(self, name: str) -> str:
        """The address of a table."""
        return self.store.at(name)

    @property
    def landing(self) -> str:
        return self.store.at("landing")

    def exists(self, name: str) -> bool:
        return bool(DeltaTable.is_deltatable(self.path(name), self.store.delta_options))

    def open(self, name: str) -> DeltaTable:
        """The table as it is now; made empty when it is not there yet."""
        table = self._tables.get(name)
        if table is not None:
            table.update_incremental()
            return table
        spec = self.specs[name]
        try:
            table = DeltaTable(self.path(name), storage_options=self.store.delta_options)
        except TableNotFoundError:
            table = DeltaTable.create(
                self.path(name),
                spec.schema,
                mode="ignore",
                partition_by=list(spec.partition_by),
                description=spec.purpose,
                configuration=_CONFIGURATION,
                storage_options=self.store.delta_options,
            )
        self._tables[name] = table
        return table

    def files(self, name: str, version: int | None = None) -> list[TableFile]:
        """Every live file of a table, with what its statistics say; `version` looks back."""
        spec = self.specs[name]
        table = self.open(name) if version is None else self._at_version(name, version)
        actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        return [
            TableFile(
                unquote(action["path"]),
                action["num_records"] or 0,
                {column: action[f"partition.{column}"] for column in spec.partition_by},
                {column: action.get(f"min.{column}") for column in spec.stats},
                {column: action.get(f"max.{column}") for column in spec.stats},
                {column: action.get(f"null_count.{column}") for column in spec.stats},
                action["size_bytes"],
            )
            for action in actions
        ]

    def _at_version(self, name: str, version: int) -> DeltaTable:
        return DeltaTable(self.path(name), version=version, storage_options=self.store.delta_options)

    def added(self, name: str, since: int) -> list[TableFile]:
        """Files with new rows of all versions after `since`, live or merged; all live ones if the log forgot."""
        spec = self.specs[name]
        found: list[TableFile] = []
        for version in range(since + 1, int(self.open(name).version()) + 1):
            try:
                commit = self.store.read(f"{name}/_delta_log/{version:020d}.json")
            except FileNotFoundError:
                return self.files(name)
            actions = (json.loads(line).get("add") for line in commit.splitlines())
            found += [_logged(spec, action) for action in actions if action is not None and action["dataChange"]]
        return found

    def done(self, name: str, application: str) -> int:
        """The newest batch of an application that a table holds; -1: none."""
        version = self.open(name).transaction_version(application)
        return -1 if version is None else int(version)

    def commit(
        self,
        name: str,
        add: Sequence[AddAction],
        remove: Iterable[TableFile] = (),
        done: dict[str, int] | None = None,
        after: dict[str, int] | None = None,
        moved: Sequence[AddAction] = (),
    ) -> None:
        """One Delta transaction: files in, files out, and which batch of which application that was.

        `moved`: files in that hold nothing new, only rows of files that go out.
        `after`: what `done` of applications must still be; if another process moved it on, nothing is committed.
        """
        remove = list(remove)
        spec = self.specs[name]
        live = {file.path for file in self.files(name)} if remove else set()
        if not all(file.path in live for file in remove):
            raise LakeConflict(f"{self.path(name)} was changed by someone else in the meantime; try again")
        for application, turn in (after or {}).items():
            if self.done(name, application) != turn:
                raise self._overtaken(name)
        seen = bool(remove or after)  # what was judged by the version just seen is committed on it
        table = self._tables[name] if seen else self.open(name)
        since = int(table.version())
        self._evolve(table, spec)
        now = int(datetime.now(UTC).timestamp() * 1000)
        changes = bool(add or done or not moved)
        removed = (RemoveAction(file.path, changes, now) for file in remove)
        same = (replace(action, data_change=False) for action in moved)
        actions: list[AddAction | RemoveAction] = [*add, *same, *removed]
        properties = CommitProperties(app_transactions=[Transaction(app, batch) for app, batch in (done or {}).items()])
        try:
            table.create_write_transaction(
                actions, "append", spec.schema, list(spec.partition_by), commit_properties=properties
            )
        except CommitFailedError as error:
            raise self._overtaken(name) if after else error from error
        self._sync_log(name, since)

    def _overtaken(self, name: str) -> LakeConflict:
        return LakeConflict(f"another run has written to {self.path(name)} in the meantime; this one ends")

    def _evolve(self, table: DeltaTable, spec: TableSpec) -> None:
        """A table of an older version gets the columns that are new; its rows have null there."""
        known = {item.name for item in table.schema().fields}
        new = [item for item in Schema.from_arrow(spec.schema).fields if item.name not in known]
        if new:
            table.alter.add_columns(new)

    def _sync_log(self, name: str, since: int) -> None:
        """delta-rs does not sync; what rows came from may go only when a power cut cannot undo the commit."""
        versions = range(since, int(self.open(name).version()) + 1)
        self.store.sync(f"{name}/_delta_log", [f"{version:020d}.json" for version in versions])

    def coverage(self) -> dict[JournalKey, Ranges]:
        """Per journal, the offsets that `messages` holds or held before they expired."""
        covered: dict[JournalKey, Ranges] = {}
        for file in self.files("messages"):
            for journal, ranges in self._ranges_of(file).items():
                _add(covered, JournalKey(file.partition["broker"], journal), ranges)
        for key, ranges in self.expired().items():
            _add(covered, key, ranges)
        return covered

    def expired(self) -> dict[JournalKey, Ranges]:
        """What `expire` took out, which is not missing."""
        found: dict[JournalKey, Ranges] = {}
        for row in self.arrow("expired").to_pylist() if self.exists("expired") else []:
            _add(found, JournalKey(row["broker"], row["journal"] or ""), [(row["first"], row["last"])])
        return found

    def days(self, name: str) -> list[date]:
        """Of a table that is parted by day, oldest first; without those that have not come yet, which a wrong clock
        wrote, if there are others."""
        found = sorted({file.partition["day"] for file in self.files(name)}) if self.exists(name) else []
        tomorrow = datetime.now(UTC).date() + timedelta(days=1)
        return [day for day in found if day <= tomorrow] or found

    def kept_from(self) -> date:
        """The first day whose raw rows are all here; of earlier ones `expire` took some or all."""
        ordinals = [self.done(name, EXPIRED) for name in ("messages", "telemetry") if self.exists(name)]
        return date.fromordinal(max([1, *ordinals]))

    def longest_window(self, file: TableFile) -> float:
        """Of a file of `telemetry`, in seconds: by its statistics, or by its footer where those are older."""
        known = file.high.get("window_seconds")
        if known is None and file.path not in self._windows:
            with self.parquet("telemetry", file) as source:
                _, high, _ = bounds(source.metadata, "window_seconds")
            self._windows[file.path] = 3600.0 if high is None else float(high)
        return float(known) if known is not None else self._windows[file.path]

    def _ranges_of(self, file: TableFile) -> dict[str, Ranges]:
        low, high = file.low["offset"], file.high["offset"]
        journal = _only_journal(file)
        if journal is not None and low is not None and high - low + 1 == file.rows:
            return {journal: Ranges([(low, high)])}
        if file.path not in self._offsets:
            self._offsets[file.path] = self.offsets(file)
        return self._offsets[file.path]

    def parquet(self, name: str, file: TableFile) -> Any:
        """A file of a table, to read from; close it."""
        try:
            return pq.ParquetFile(self.store.open(f"{name}/{file.path}"))
        except (FileNotFoundError, pa.ArrowInvalid) as error:
            reason = "is gone" if isinstance(error, FileNotFoundError) else f"cannot be read ({error})"
            raise TableDamaged(f"the table {name} has lost rows: its file {file.path} {reason}") from error

    def offsets(self, file: TableFile) -> dict[str, Ranges]:
        """The exact offsets in a file of `messages`, by journal."""
        with self.parquet("messages", file) as source:
            return offset_ranges(source)

    def arrow(self, name: str, files: Sequence[TableFile] | None = None, columns: Sequence[str] = ()) -> pa.Table:
        """A small table, or some of its files; columns of newer versions that a file does not have are null.

        Read file by file: `DeltaTable.to_pyarrow_table` ends short processes with an abort, half of the times.
        """
        spec = self.specs[name]
        schema = pa.schema([spec.schema.field(column) for column in columns or spec.schema.names])
        tables = [schema.empty_table()]
        for file in self.files(name) if files is None else files:
            with self.parquet(name, file) as source:
                tables.append(read_columns(source, schema, file.partition))
        return pa.concat_tables(tables)

    def read(self, spark: "SparkSession", name: str, files: Sequence[TableFile] | None = None) -> "DataFrame":
        """A table, or some of its files, as a DataFrame: a snapshot, whatever is committed meanwhile."""
        chosen = self.files(name) if files is None else files
        parts = [Part(file.path, file.rows, file.partition) for file in chosen]
        return read_files(spark, self.store.inside(name), parts, self.specs[name].schema)

    def write_files(self, frame: "DataFrame", name: str, complete: Complete | None = None) -> list[AddAction]:
        """Workers write the rows as Parquet beside the table's files; nobody sees them before `commit`.

        `complete` makes whole rows of the frame's in the workers."""
        return self._adopt(name, write_files(frame, self.store, self.specs[name], complete))

    def write_here(self, rows: Iterable[pa.RecordBatch], name: str) -> list[AddAction]:
        """The same in this process, without Spark."""
        return self._adopt(name, list(TaskWriter(self.store, self.specs[name], uuid.uuid4().hex).write(rows)))

    def _adopt(self, name: str, written: Sequence[Written]) -> list[AddAction]:
        """The files as a commit names them, if all are there: a worker that does not see a directory of this machine
        writes to its own disk, and Spark calls that a success."""
        sizes = self.store.sizes([f"{name}/{file.path}" for file in written])
        there = [file for file, size in zip(written, sizes, strict=True) if size == file.size]
        if len(there) < len(written):
            rows, visible = (sum(json.loads(file.stats)["numRecords"] for file in files) for files in (written, there))
            raise RowsElsewhere(
                f"Spark wrote {rows} rows of {name}, but {visible} of them are in {self.root}: do all workers see "
                "this directory under the same path? Nothing was loaded and nothing was removed"
            )
        now = int(datetime.now(UTC).timestamp() * 1000)
        return [AddAction(file.path, file.size, file.partition, now, True, file.stats) for file in written]


def retried(work: Callable[[], T]) -> T:
    """Again, when a running job changed the same rows meanwhile."""
    for _ in range(_RETRIES - 1):
        try:
            return work()
        except (CommitFailedError, LakeConflict):
            continue
    return work()


def _logged(spec: TableSpec, action: dict[str, Any]) -> TableFile:
    """A file as a commit describes it."""
    stats = json.loads(action.get("stats") or "{}")

    def bounds(side: str) -> dict[str, Any]:
        return {column: _typed(spec, column, stats.get(side, {}).get(column)) for column in spec.stats}

    partition = {column: _typed(spec, column, value) for column, value in action["partitionValues"].items()}
    return TableFile(
        unquote(action["path"]), stats.get("numRecords", 0), partition, bounds("minValues"), bounds("maxValues")
    )


def _typed(spec: TableSpec, column: str, text: Any) -> Any:
    kind = spec.schema.field(column).type
    if text is None or not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        return text
    return datetime.fromisoformat(text) if pa.types.is_timestamp(kind) else date.fromisoformat(text)


def read_columns(source: Any, schema: pa.Schema, values: dict[str, Any] | None = None) -> pa.Table:
    """These columns of a Parquet file; `values` are of columns that are not in it."""
    there = set(source.schema_arrow.names)
    rows = source.read(columns=[name for name in schema.names if name in there])
    return with_columns(rows, schema, values)


def offset_ranges(source: Any) -> dict[str, Ranges]:
    """The exact offsets in a file of `messages`, in any order, by journal."""
    rows = read_columns(source, pa.schema([("offset", pa.int64()), ("journal", pa.string())]))
    journals = pc.fill_null(rows["journal"], "")
    found: dict[str, Ranges] = {}
    for journal in pc.unique(journals).to_pylist():
        offsets = np.sort(rows["offset"].filter(pc.equal(journals, journal)).to_numpy())
        breaks = np.flatnonzero(np.diff(offsets) > 1)
        firsts = offsets[np.concatenate(([0], breaks + 1))]
        lasts = offsets[np.concatenate((breaks, [len(offsets) - 1]))]
        found[journal] = Ranges(zip(firsts.tolist(), lasts.tolist(), strict=True))
    return found


def _only_journal(file: TableFile) -> str | None:
    """The journal of all rows of a file; None: the statistics do not tell, or there are several."""
    low, high = file.low.get("journal"), file.high.get("journal")
    if low is None:
        return ""  # rows of the first recorders, which knew no journal
    return str(low) if low == high and file.nulls.get("journal") == 0 else None


def _add(covered: dict[JournalKey, Ranges], key: JournalKey, ranges: Iterable[tuple[int, int]]) -> None:
    into = covered.setdefault(key, Ranges())
    for first, last in ranges:
        into.add(first, last)
