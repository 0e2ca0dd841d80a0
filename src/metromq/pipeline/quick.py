"""Answers plain questions in a second: DuckDB reads the tables' files, and no Java has to start."""

import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from metromq.errors import UsageError
from metromq.pipeline import plain_sql
from metromq.pipeline.lake import Lake, TableFile
from metromq.pipeline.plain_sql import NotPlain

_MISSING: Final = re.compile(r'Referenced (?:column|table) "(?P<name>[^"]+)" not found')
_WHOLE: Final = pa.decimal128(38, 0)  # how DuckDB hands over a sum of whole numbers
_RETURNED: Final = (
    *(pa.string(), pa.int64(), pa.int32(), pa.float64(), pa.bool_(), pa.date32(), pa.binary(), _WHOLE),
    pa.list_(pa.int64()),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows for people and programs; moments have their time zone, UTC."""

    columns: list[str]
    rows: list[dict[str, Any]]


def ask_quickly(lake: Lake, query: str, limit: int, memory: str) -> Answer:
    """Raises NotPlain when only Spark knows; `memory` as Spark writes it, such as 1g."""
    try:
        import duckdb
    except ImportError as error:
        raise NotPlain("to do without DuckDB (pip install 'metromq[pipeline]')") from error
    with _connection(memory) as connection:
        plain = plain_sql.quoted(query)
        ((text,),) = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [plain]).fetchall()
        tree = json.loads(text)
        plain_sql.check(query, tree)
        _register(connection, lake, plain_sql.tables(tree))
        try:
            table = connection.sql(plain).limit(limit).to_arrow_table()
        except duckdb.BinderException as error:
            unknown = _MISSING.search(str(error))
            if unknown is not None:
                raise UsageError(f"{str(error).splitlines()[0]} (columns: {_known_columns(lake, tree)})") from error
            raise NotPlain("something that DuckDB understands otherwise") from error
        except duckdb.Error as error:
            raise NotPlain(f"something that DuckDB cannot do: {str(error).splitlines()[0]}") from error
    return _answer(table, plain_sql.column_names(tree, table.column_names))


@contextmanager
def _connection(memory: str) -> Iterator[Any]:
    import duckdb

    with tempfile.TemporaryDirectory(prefix="metromq-sql-") as scratch:
        settings = {
            "TimeZone": "UTC",
            "default_null_order": "nulls_first_on_asc_last_on_desc",  # as Spark
            "temp_directory": scratch,
            "memory_limit": f"{memory}b" if memory[-1:].isalpha() else f"{memory}mb",
        }
        with duckdb.connect() as connection:
            for name, value in settings.items():
                connection.execute(f"SET {name} = '{value}'")
            yield connection


def _register(connection: Any, lake: Lake, names: set[str]) -> None:
    there = [name for name in lake.specs if lake.exists(name)]
    for name in sorted(names):
        if name not in there:
            known = ", ".join(there) or "none yet: run `metromq pipeline run` first"
            raise UsageError(f"there is no table {name} (tables: {known})")
        connection.register(name, dataset(lake, name))


def dataset(lake: Lake, name: str) -> Any:
    """A table as Arrow scans it: only the columns and the days that a question needs."""
    spec = lake.specs[name]
    files = lake.files(name)
    if not files:
        return spec.schema.empty_table()
    return ds.FileSystemDataset.from_paths(
        [file.path for file in files],
        schema=spec.schema,
        format=ds.ParquetFileFormat(),
        filesystem=lake.store.inside(name).tree,
        partitions=[_partition(file) for file in files],
    )


def _partition(file: TableFile) -> Any:
    """What all rows of a file have in common."""
    parts = [
        ds.field(name).is_null() if value is None else ds.field(name) == value for name, value in file.partition.items()
    ]
    return reduce(lambda left, right: left & right, parts, pc.scalar(True))


def _answer(table: pa.Table, names: Sequence[str]) -> Answer:
    for field in table.schema:
        if field.type not in _RETURNED and not getattr(field.type, "tz", None):
            raise NotPlain(f"an answer of the type {field.type}")
    columns = [_values(column) for column in table.columns]
    return Answer(list(names), [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)])


def _values(column: Any) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return [None if value is None else int(value) for value in values] if column.type == _WHOLE else values


def _known_columns(lake: Lake, tree: Any) -> str:
    return "; ".join(f"{name}: {', '.join(lake.specs[name].schema.names)}" for name in sorted(plain_sql.tables(tree)))
