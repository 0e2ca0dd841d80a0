"""Rows to and from Parquet files, by Arrow, in Spark's workers: what they share is the store and nothing else.

Spark's own readers and writers know no object store without jars that PyPI does not have. On a path its reader stays:
it takes only the columns and pages that a query asks for.
"""

import itertools
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from metromq.pipeline.schemas import TableSpec
from metromq.pipeline.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_ROWS: Final = 65_536
GROUP_ROWS: Final = 131_072  # of a file; readers skip groups without a moment that they want
GAP_US: Final = 3_600_000_000
TASK_ROWS: Final = 1_000_000  # larger files are read by several tasks
BUFFER_BYTES: Final = 64 << 20  # a task's rows in memory before they go to the files
OPEN_FILES: Final = 16  # of one task at a time; each keeps 10 MB on their way to an object store
NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
Complete = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_WRITTEN: Final = "path string, size bigint, partition string, stats string"


@dataclass(frozen=True, slots=True)
class Part:
    """A file to read, or every n-th group of its rows."""

    path: str
    rows: int
    values: dict[str, Any] = field(default_factory=dict)  # columns that are the same in all rows and not in the file
    number: int = 0
    of: int = 1


@dataclass(frozen=True, slots=True)
class Written:
    """A file that a worker wrote."""

    path: str
    size: int
    partition: dict[str, str | None]
    stats: str


def read_files(spark: "SparkSession", store: Store, parts: Sequence[Part], schema: pa.Schema) -> "DataFrame":
    """The rows of files with the columns of a schema; null where a file is older than a column."""
    from pyspark.sql.pandas.types import from_arrow_schema

    wanted = from_arrow_schema(schema)
    if not parts:
        return spark.createDataFrame([], wanted)
    if store.local:
        paths = [store.at(part.path) for part in parts]
        return spark.read.schema(wanted).option("basePath", store.root).parquet(*paths).select(*schema.names)
    tasks = shared_out(parts, spark.sparkContext.defaultParallelism)
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(_reading(store, tasks, schema), wanted)


def shared_out(parts: Sequence[Part], tasks: int) -> list[list[Part]]:
    """About as many rows for each task; the largest first, each to the task that has least."""
    pieces = [piece for part in parts for piece in _pieces(part)]
    piles: list[list[Part]] = [[] for _ in range(min(tasks, len(pieces)))]
    rows = [0] * len(piles)
    for piece in sorted(pieces, key=lambda piece: -piece.rows):
        least = rows.index(min(rows))
        piles[least].append(piece)
        rows[least] += max(piece.rows, 1)
    return piles


def _pieces(part: Part) -> list[Part]:
    count = max(1, -(-part.rows // TASK_ROWS))
    return [Part(part.path, part.rows // count, part.values, number, count) for number in range(count)]


def _reading(
    store: Store, tasks: Sequence[Sequence[Part]], schema: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for part in tasks[number]:
                    yield from read_part(store, part, schema)

    return read


def read_part(store: Store, part: Part, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with store.open(part.path) as source:
        parquet = pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=True)
        there = [name for name in schema.names if name in parquet.schema_arrow.names]
        groups = list(range(part.number, parquet.metadata.num_row_groups, part.of))
        for batch in parquet.iter_batches(BATCH_ROWS, groups, there):
            yield from with_columns(pa.table(batch), schema, part.values).to_batches()


def with_columns(rows: pa.Table, schema: pa.Schema, values: dict[str, Any] | None = None) -> pa.Table:
    """The rows with these columns: as they are, with the same value in all, or null."""

    def column(item: pa.Field) -> Any:
        if item.name in rows.column_names:
            return rows[item.name].cast(item.type)
        value = (values or {}).get(item.name)
        return pa.nulls(len(rows), item.type) if value is None else pa.repeat(pa.scalar(value, item.type), len(rows))

    return pa.table([column(item) for item in schema], schema=schema)


def write_files(frame: "DataFrame", store: Store, spec: TableSpec, complete: Complete | None = None) -> list[Written]:
    """Workers write the rows to new files of a table, which nobody sees before a commit names them.

    `complete` makes whole rows of the frame's, in the worker that writes them; without it they are whole.
    Files of a task that failed and was repeated are named by no one and stay until orphans are removed.
    """
    batch = uuid.uuid4().hex
    rows = frame if complete else frame.select(*spec.schema.names)
    written = rows.mapInArrow(_writing(store, spec, batch, complete), _WRITTEN).collect()
    return [Written(row["path"], row["size"], json.loads(row["partition"]), row["stats"]) for row in written]


def _writing(store: Store, spec: TableSpec, batch: str, complete: Complete | None) -> Complete:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for written in TaskWriter(store, spec, batch).write(complete(batches) if complete else batches):
            row = [written.path], [written.size], [json.dumps(written.partition)], [written.stats]
            yield pa.record_batch([pa.array(value) for value in row], ["path", "size", "partition", "stats"])

    return write


class TaskWriter:
    """One task's rows: a file for each partition of the table that they fall into, or several if there are many.

    Where rows of a table whose minutes are replaced come in order of time, a gap of an hour begins another file: who
    reads what is new would take all between for new, too.
    """

    def __init__(self, store: Store, spec: TableSpec, batch: str) -> None:
        self._store = store
        self._spec = spec
        self._batch = batch
        self._inner = pa.schema([item for item in spec.schema if item.name not in spec.partition_by])
        self._rows: dict[_Place, list[pa.Table]] = {}
        self._open: dict[_Place, _OpenFile] = {}
        self._last: dict[_Place, Any] = {}  # moments that were written last

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Written]:
        buffered = 0
        for batch in batches:
            rows = with_columns(pa.table(batch), self._spec.schema)
            for key, part in divided(rows, self._spec.partition_by):
                for side, some in self._apart(part.select(self._inner.names)):
                    self._rows.setdefault(_Place(key, side), []).append(some)
            buffered += rows.nbytes
            if buffered >= BUFFER_BYTES:
                yield from self._flush()
                buffered = 0
        yield from self._flush()
        yield from self._close()

    def _apart(self, rows: pa.Table) -> Iterator[tuple[bool, pa.Table]]:
        if not self._spec.apart:
            yield False, rows
            return
        many = pc.is_in(rows["subject"], pa.array(self._spec.apart))
        for side, chosen in ((False, pc.invert(many)), (True, many)):
            some = rows.filter(chosen)
            if len(some):
                yield side, some

    def _flush(self) -> Iterator[Written]:
        for place, tables in self._rows.items():
            for number, rows in enumerate(self._runs(place, pa.concat_tables(tables))):
                if number:
                    yield from self._close(place)
                yield from self._add(place, rows)
        self._rows.clear()

    def _add(self, place: "_Place", rows: pa.Table) -> Iterator[Written]:
        while True:
            if place not in self._open:
                if len(self._open) >= OPEN_FILES:
                    yield from self._close()
                self._open[place] = _OpenFile(self._store, self._path(place.key), self._inner)
            file = self._open[place]
            room = self._spec.file_rows - file.rows
            file.add(rows.slice(0, room))
            rows = rows.slice(room)
            if file.rows >= self._spec.file_rows:
                yield from self._close(place)
            if not len(rows):
                return

    def _runs(self, place: "_Place", rows: pa.Table) -> Iterator[pa.Table]:
        """The rows, cut where time leaps; the first part continues the file that is open."""
        if not self._spec.replaced or not len(rows):
            yield rows
            return
        moments = rows[str(self._spec.time)].cast(pa.int64()).to_numpy()
        before = self._last.get(place, moments[0])
        self._last[place] = moments[-1]
        leaps = np.flatnonzero(np.diff(moments, prepend=before) > GAP_US).tolist()
        for start, end in itertools.pairwise([0, *leaps, len(rows)]):
            yield rows.slice(start, end - start)

    def _path(self, key: tuple[Any, ...]) -> str:
        folders = [f"{column}={_folder(value)}/" for column, value in zip(self._spec.partition_by, key, strict=True)]
        return f"{self._spec.name}/{''.join(folders)}{self._batch}-{uuid.uuid4().hex[:12]}.parquet"

    def _close(self, only: "_Place | None" = None) -> Iterator[Written]:
        for place in [only] if only is not None else list(self._open):
            file = self._open.pop(place, None)
            if file is None:
                continue
            metadata, size = file.close()
            partition = dict(zip(self._spec.partition_by, map(_text, place.key), strict=True))
            path = file.path.removeprefix(f"{self._spec.name}/")
            yield Written(path, size, partition, statistics(self._spec, metadata))


class _Place(NamedTuple):
    """Rows that share a file: the values of the table's partition, and whether they are those that are many."""

    key: tuple[Any, ...]
    many: bool


class _OpenFile:
    """A Parquet file that is being written."""

    def __init__(self, store: Store, path: str, schema: pa.Schema) -> None:
        self.path = path
        self.rows = 0
        self._stack = ExitStack()
        self._found: list[Any] = []
        self._sink = self._stack.enter_context(store.appending(path))
        self._writer = pq.ParquetWriter(self._sink, schema, compression="zstd", metadata_collector=self._found)

    def add(self, rows: pa.Table) -> None:
        self._writer.write_table(rows, GROUP_ROWS)
        self.rows += len(rows)

    def close(self) -> tuple[Any, int]:
        """The footer, and the size in bytes."""
        self._writer.close()
        size = int(self._sink.tell())
        self._stack.close()
        return self._found[0], size


def divided(rows: pa.Table, columns: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """The rows by their values in some columns."""
    keys = rows.select(columns).group_by(columns).aggregate([]).to_pylist() if columns else [{}]
    for key in keys:
        part = rows
        for column, value in key.items() if len(keys) > 1 else ():
            chosen = pc.is_null(part[column]) if value is None else pc.equal(part[column], pa.scalar(value))
            part = part.filter(chosen)
        yield tuple(key[column] for column in columns), part


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _folder(value: Any) -> str:
    return NO_VALUE if value is None else quote(str(value), safe="")


def statistics(spec: TableSpec, metadata: Any) -> str:
    """As a Delta log has them."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for column in spec.stats:
        smallest, largest, empty = bounds(metadata, column)
        if smallest is not None:
            low[column], high[column] = _as_json(smallest), _as_json(largest)
        if empty is not None:
            nulls[column] = empty
    return json.dumps({"numRecords": metadata.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls})


def bounds(metadata: Any, column: str) -> tuple[Any, Any, int | None]:
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
