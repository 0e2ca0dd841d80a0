"""The lake: Delta tables without connector jars. Spark reads and writes the Parquet files, delta-rs keeps the log."""

import json
import os
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
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

from metromq.errors import LakeConflict, RowsElsewhere
from metromq.files import sync_directory
from metromq.pipeline.keys import JournalKey
from metromq.pipeline.ranges import Ranges
from metromq.pipeline.schemas import TABLES, TableSpec

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

    def overlaps(self, column: str, first: Any, last: Any) -> bool:
        """False only when the statistics prove that no value of `column` is in [first, last]."""
        low, high = self.low.get(column), self.high.get(column)
        return low is None or high is None or (low <= last and high >= first)


class Lake:
    """All tables under one directory."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).absolute()
        self._tables: dict[str, DeltaTable] = {}
        self._windows: dict[str, float] = {}  # longest windows of files whose statistics do not tell
        self._offsets: dict[str, dict[str, Ranges]] = {}  # of files whose statistics do not tell

    def path(self, name: str) -> Path:
        return self.root / name

    @property
    def landing(self) -> str:
        return str(self.root / "landing")

    def exists(self, name: str) -> bool:
        return bool(DeltaTable.is_deltatable(str(self.path(name))))

    def open(self, name: str) -> DeltaTable:
        """The table as it is now; made empty when it is not there yet."""
        table = self._tables.get(name)
        if table is not None:
            table.update_incremental()
            return table
        spec = TABLES[name]
        try:
            table = DeltaTable(str(self.path(name)))
        except TableNotFoundError:
            table = DeltaTable.create(
                str(self.path(name)),
                spec.schema,
                mode="ignore",
                partition_by=list(spec.partition_by),
                description=spec.purpose,
                configuration=_CONFIGURATION,
            )
        self._tables[name] = table
        return table

    def files(self, name: str, version: int | None = None) -> list[TableFile]:
        """Every live file of a table, with what its statistics say; `version` looks back."""
        spec = TABLES[name]
        table = self.open(name) if version is None else DeltaTable(str(self.path(name)), version=version)
        actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        return [
            TableFile(
                unquote(action["path"]),
                action["num_records"] or 0,
                {column: action[f"partition.{column}"] for column in spec.partition_by},
                {column: action.get(f"min.{column}") for column in spec.stats},
                {column: action.get(f"max.{column}") for column in spec.stats},
                {column: action.get(f"null_count.{column}") for column in spec.stats},
            )
            for action in actions
        ]

    def added(self, name: str, since: int) -> list[TableFile]:
        """Files with new rows of all versions after `since`, live or merged; all live ones if the log forgot."""
        spec = TABLES[name]
        found: list[TableFile] = []
        for version in range(since + 1, int(self.open(name).version()) + 1):
            try:
                commit = (self.path(name) / "_delta_log" / f"{version:020d}.json").read_text()
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
    ) -> None:
        """One Delta transaction: files in, files out, and which batch of which application that was."""
        remove = list(remove)
        spec = TABLES[name]
        live = {file.path for file in self.files(name)} if remove else set()
        if not all(file.path in live for file in remove):
            raise LakeConflict(f"{self.path(name)} was changed by someone else in the meantime; try again")
        table = self.open(name) if not remove else self._tables[name]  # removals are judged by the version just seen
        since = int(table.version())
        self._evolve(table, spec)
        now = int(datetime.now(UTC).timestamp() * 1000)
        actions: list[AddAction | RemoveAction] = [*add, *(RemoveAction(file.path, True, now) for file in remove)]
        properties = CommitProperties(app_transactions=[Transaction(app, batch) for app, batch in (done or {}).items()])
        table.create_write_transaction(
            actions, "append", spec.schema, list(spec.partition_by), commit_properties=properties
        )
        self._sync_log(name, since)

    def _evolve(self, table: DeltaTable, spec: TableSpec) -> None:
        """A table of an older version gets the columns that are new; its rows have null there."""
        known = {item.name for item in table.schema().fields}
        new = [item for item in Schema.from_arrow(spec.schema).fields if item.name not in known]
        if new:
            table.alter.add_columns(new)

    def _sync_log(self, name: str, since: int) -> None:
        """delta-rs does not sync; what rows came from may go only when a power cut cannot undo the commit."""
        log = self.path(name) / "_delta_log"
        for version in range(since, int(self.open(name).version()) + 1):
            try:
                sync_file(log / f"{version:020d}.json")
            except FileNotFoundError:
                pass  # old enough that a checkpoint stands for it
        sync_directory(log)

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

    def kept_from(self) -> date:
        """The first day whose raw rows are all here; of earlier ones `expire` took some or all."""
        ordinals = [self.done(name, EXPIRED) for name in ("messages", "telemetry") if self.exists(name)]
        return date.fromordinal(max([1, *ordinals]))

    def longest_window(self, file: TableFile) -> float:
        """Of a file of `telemetry`, in seconds: by its statistics, or by its footer where those are older."""
        known = file.high.get("window_seconds")
        if known is None and file.path not in self._windows:
            metadata = pq.read_metadata(self.path("telemetry") / file.path)
            _, high, _ = _bounds(metadata, "window_seconds")
            self._windows[file.path] = 3600.0 if high is None else float(high)
        return float(known) if known is not None else self._windows[file.path]

    def _ranges_of(self, file: TableFile) -> dict[str, Ranges]:
        low, high = file.low["offset"], file.high["offset"]
        journal = _only_journal(file)
        if journal is not None and low is not None and high - low + 1 == file.rows:
            return {journal: Ranges([(low, high)])}
        if file.path not in self._offsets:
            self._offsets[file.path] = offset_ranges(self.path("messages") / file.path)
        return self._offsets[file.path]

    def arrow(self, name: str, files: Sequence[TableFile] | None = None, columns: Sequence[str] = ()) -> pa.Table:
        """A small table, or some of its files; columns of newer versions that a file does not have are null.

        Read file by file: `DeltaTable.to_pyarrow_table` ends short processes with an abort, half of the times.
        """
        spec = TABLES[name]
        schema = pa.schema([spec.schema.field(column) for column in columns or spec.schema.names])
        tables = [schema.empty_table()]
        for file in self.files(name) if files is None else files:
            wanted = [column for column in schema.names if column not in spec.partition_by]
            rows = read_columns(pq.ParquetFile(self.path(name) / file.path), pa.schema(map(schema.field, wanted)))
            for column in spec.partition_by:
                if column in schema.names:
                    value = pa.scalar(file.partition[column], schema.field(column).type)
                    rows = rows.append_column(schema.field(column), pa.repeat(value, len(rows)))
            tables.append(rows.select(schema.names))
        return pa.concat_tables(tables)

    def read(self, spark: "SparkSession", name: str, files: Sequence[TableFile] | None = None) -> "DataFrame":
        """A table, or some of its files, as a DataFrame: a snapshot, whatever is committed meanwhile."""
        from pyspark.sql.pandas.types import from_arrow_schema
        from pyspark.sql.types import StructType

        spec = TABLES[name]
        chosen = self.files(name) if files is None else files
        schema: StructType = from_arrow_schema(spec.schema)
        if not chosen:
            return spark.createDataFrame([], schema)
        base = self.path(name)
        frame = (
            spark.read.schema(schema).option("basePath", str(base)).parquet(*(str(base / file.path) for file in chosen))
        )
        return frame.select(*spec.schema.names)

    def write_files(self, frame: "DataFrame", name: str) -> list[AddAction]:
        """Spark writes the rows as Parquet beside the table's files; nobody sees them before `commit`."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        spec = TABLES[name]
        batch = uuid.uuid4().hex
        staging = self.path(name) / f"_staging-{batch}"
        seen = Observation()
        counted = frame.select(*spec.schema.names).observe(seen, F.count(F.lit(1)).alias("rows"))
        writer = counted.write.mode("error")
        if spec.partition_by:
            writer = writer.partitionBy(*spec.partition_by)
        writer.parquet(str(staging))
        return self._adopt(spec, staging, batch, int(seen.get["rows"]))

    def _adopt(self, spec: TableSpec, staging: Path, batch: str, rows: int) -> list[AddAction]:
        """Move the files of a finished job to their place and describe them; durable when this returns.

        `rows`: how many the job has written, by its own count. A worker that does not see this directory writes them
        to its own disk, and Spark calls that a success.
        """
        table = self.path(spec.name)
        visible = sum(pq.read_metadata(path).num_rows for path in staging.rglob("part-*.parquet"))
        if visible != rows:
            _remove_tree(staging)
            raise RowsElsewhere(
                f"Spark wrote {rows} rows of {spec.name}, but {visible} of them are in {self.root}: do all workers see "
                "this directory under the same path? Nothing was loaded and nothing was removed"
            )
        added: list[AddAction] = []
        changed: set[Path] = set()
        for number, source in enumerate(sorted(staging.rglob("part-*.parquet"))):
            folder = source.parent.relative_to(staging)
            target = table / folder / f"{batch}-{number:05d}.parquet"
            metadata = pq.read_metadata(source)
            if metadata.num_rows:
                target.parent.mkdir(parents=True, exist_ok=True)
                sync_file(source)
                os.rename(source, target)
                changed |= {target.parent, *target.parent.parents[: len(folder.parts)]}
                added.append(_addition(spec, table, target, metadata))
        for directory in changed:
            sync_directory(directory)
        _remove_tree(staging)
        return added


def sync_file(path: Path) -> None:
    """Any process may make durable what any other wrote."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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


def _addition(spec: TableSpec, table: Path, target: Path, metadata: Any) -> AddAction:
    status = target.stat()
    relative = target.relative_to(table)
    values = {part.split("=", 1)[0]: unquote(part.split("=", 1)[1]) for part in relative.parent.parts}
    partition = {key: None if value == "__HIVE_DEFAULT_PARTITION__" else value for key, value in values.items()}
    return AddAction(
        str(relative), status.st_size, partition, int(status.st_mtime * 1000), True, _statistics(spec, metadata)
    )


def _statistics(spec: TableSpec, metadata: Any) -> str:
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for column in spec.stats:
        smallest, largest, empty = _bounds(metadata, column)
        if smallest is not None:
            low[column], high[column] = _as_json(smallest), _as_json(largest)
        if empty is not None:
            nulls[column] = empty
    return json.dumps({"numRecords": metadata.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls})


def _bounds(metadata: Any, column: str) -> tuple[Any, Any, int | None]:
    """The smallest and the largest value of a column and how many are null, as far as a footer tells."""
    names = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
    index = names.index(column)
    stats = [metadata.row_group(group).column(index).statistics for group in range(metadata.num_row_groups)]
    known = [item for item in stats if item is not None and item.has_min_max]
    nulls = sum(item.null_count for item in stats) if all(item and item.has_null_count for item in stats) else None
    if not known:
        return None, None, nulls
    return min(item.min for item in known), max(item.max for item in known), nulls


def _as_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return value.isoformat() if isinstance(value, date) else value


def read_columns(source: Any, schema: pa.Schema) -> pa.Table:
    """These columns of a Parquet file, null where the file is older than a column."""
    there = set(source.schema_arrow.names)
    rows = source.read(columns=[name for name in schema.names if name in there])
    return with_columns(rows, schema)


def with_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    arrays = [
        rows[item.name].cast(item.type) if item.name in rows.column_names else pa.nulls(len(rows), item.type)
        for item in schema
    ]
    return pa.table(arrays, schema=schema)


def offset_ranges(path: Path) -> dict[str, Ranges]:
    """The exact offsets in a file of `messages`, in any order, by journal."""
    rows = read_columns(pq.ParquetFile(path), pa.schema([("offset", pa.int64()), ("journal", pa.string())]))
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


def _remove_tree(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()
