"""Landed files to rows of `messages`: Spark judges the payloads, all other columns stay in its workers.

A column costs more on its way from Java to a worker of Python than to read and to write it. So Java gets payloads only
and says of each whether it is JSON and which number it has; the worker reads the file itself, and puts both together.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from metromq.errors import MetroError
from metromq.pipeline.nesting import without_deep
from metromq.pipeline.schemas import LANDED_MESSAGES, TABLES
from metromq.pipeline.store import Store
from metromq.pipeline.table_files import Part, read_part, shared_out

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Span = tuple[int, int]  # offsets, first and last
Batches = Iterator[pa.RecordBatch]

_JUDGED: Final = pa.schema([("offset", pa.int64()), ("payload", pa.binary())])
_SENT: Final = "task int, offset bigint, payload binary"


@dataclass(frozen=True, slots=True)
class Landed:
    """What the tasks of a job read: the same in the same order whenever they read it."""

    store: Store
    tasks: tuple[tuple[Part, ...], ...]
    spans: Mapping[str, Sequence[Span]]  # of files of which only some rows are wanted, by path

    def read(self, task: int, schema: pa.Schema) -> Iterator[pa.Table]:
        for part in self.tasks[task]:
            for batch in read_part(self.store, part, schema):
                yield self._wanted(pa.table(batch), part.path)

    def _wanted(self, rows: pa.Table, path: str) -> pa.Table:
        if path not in self.spans:
            return rows
        offset = rows["offset"]
        chosen = [
            pc.and_(pc.greater_equal(offset, first), pc.less_equal(offset, last)) for first, last in self.spans[path]
        ]
        inside = chosen[0]
        for other in chosen[1:]:
            inside = pc.or_(inside, other)
        return rows.filter(inside)


def landed(spark: "SparkSession", store: Store, parts: Sequence[Part], spans: Mapping[str, Sequence[Span]]) -> Landed:
    tasks = shared_out(parts, spark.sparkContext.defaultParallelism)
    return Landed(store, tuple(map(tuple, tasks)), spans)


def judged(spark: "SparkSession", files: Landed) -> "DataFrame":
    """Of every row its task, its offset, whether its payload is JSON, and its value."""
    from pyspark.sql import functions as F

    from metromq.pipeline.transforms.messages import parsed

    def read(numbers: Batches) -> Batches:
        for batch in numbers:
            for task in batch.column(0).to_pylist():
                for rows in files.read(task, _JUDGED):
                    number = pa.repeat(pa.scalar(task, pa.int32()), len(rows))
                    rows = rows.set_column(1, "payload", without_deep(rows["payload"]))
                    yield from rows.add_column(0, "task", number).to_batches()

    count = len(files.tasks)
    payloads = spark.range(0, count, 1, count).mapInArrow(read, _SENT)
    return parsed(payloads).select("task", "offset", F.col("payload_json").isNotNull().alias("is_json"), "value")


def completing(files: Landed) -> Callable[[Batches], Batches]:
    """For the worker that writes: from what was judged to whole rows of the table."""

    def complete(batches: Batches) -> Batches:
        found = [batch for batch in batches if batch.num_rows]
        if not found:
            return
        verdicts = pa.Table.from_batches(found)
        at = 0
        for rows in files.read(verdicts["task"][0].as_py(), LANDED_MESSAGES):
            verdict = verdicts.slice(at, len(rows))
            if not rows["offset"].equals(verdict["offset"]):
                raise MetroError("landed rows came in another order when they were read again")
            at += len(rows)
            yield from message_rows(rows, verdict["is_json"], verdict["value"]).to_batches()
        if at != len(verdicts):
            raise MetroError(f"{len(verdicts)} landed rows were {at} when they were read again")

    return complete


def message_rows(rows: pa.Table, is_json: Any, value: Any) -> pa.Table:
    """As `transforms.messages.to_messages`, in Arrow, with Spark's verdict on the payloads."""
    area = _areas(rows["topic"].combine_chunks())
    payload = rows["payload"].combine_chunks()
    is_json = is_json.combine_chunks()
    columns = {name: rows[name] for name in LANDED_MESSAGES.names} | {
        "kind": pc.fill_null(rows["kind"], "publish"),
        "journal": pc.fill_null(rows["journal"], ""),
        "origin": _without(rows["origin"], ""),
        "origin_offset": _without(rows["origin_offset"], -1),
        "area": area,
        "cell": pc.replace_substring(area, "/", ""),
        "payload_json": pc.if_else(is_json, payload, pa.scalar(None, pa.binary())).cast(pa.string()),
        "value": value,
        "day": rows["time"].cast(pa.date32()),
    }
    schema = TABLES["messages"].schema
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _without(column: Any, nothing: str | int) -> Any:
    """The value that stands for none as null."""
    return pc.if_else(pc.equal(column, nothing), pa.scalar(None, column.type), column)


def _areas(topics: Any) -> Any:
    """By topic, of which there are far fewer than messages."""
    from metromq.pipeline.transforms.messages import AREA

    names = topics.dictionary_encode()
    found = pc.extract_regex(names.dictionary, AREA.replace("(", "(?P<area>", 1))
    return pc.struct_field(found, "area").take(names.indices)
