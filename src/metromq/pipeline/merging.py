"""Merges small files of a table in order of time, so that a minute stays in few files, and in few groups of their rows.

delta-rs merges by size: files of a busy day then begin in the morning and end at night, and who wants a minute reads
the day. What is merged here holds nothing new, and its commits say so.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from metromq.pipeline.lake import Lake, TableFile
from metromq.pipeline.schemas import TableSpec
from metromq.pipeline.table_files import GROUP_ROWS, Part, read_part

_TOGETHER: Final = 16  # groups of files that one transaction replaces
Group = list[TableFile]


def merge(lake: Lake, name: str, target_bytes: int) -> None:
    """Files that are not full, up to full ones. Raises LakeConflict, or what delta-rs raises, when another process
    replaced some of them meanwhile: what was merged until then stays."""
    spec = lake.specs[name]
    if spec.time is None or not {item.name for item in lake.open(name).schema().fields} <= set(spec.schema.names):
        lake.open(name).optimize.compact(target_size=target_bytes)  # small, or of a newer version with other columns
        return
    groups = plan(lake.files(name), spec, target_bytes)
    for start in range(0, len(groups), _TOGETHER):
        some = groups[start : start + _TOGETHER]
        moved = [action for group in some for action in lake.write_here(_in_order(lake, spec, group), name)]
        lake.commit(name, [], [file for group in some for file in group], moved=moved)


def plan(files: Sequence[TableFile], spec: TableSpec, target_bytes: int) -> list[Group]:
    """Which files become one, or as many as their rows fill: neighbours in time, of one partition and one side."""
    places: dict[tuple[Any, ...], Group] = {}
    for file in files:
        place = (*file.partition.values(), _many(file, spec))
        if file.rows < spec.file_rows and file.size < target_bytes:
            places.setdefault(place, []).append(file)
    return [group for place in places.values() for group in _neighbours(place, spec, target_bytes) if len(group) > 1]


def _many(file: TableFile, spec: TableSpec) -> bool:
    """Whether it has rows that are kept apart because they are many; files of older versions have both."""
    return bool(spec.apart) and file.overlaps("subject", min(spec.apart), max(spec.apart))


def _neighbours(files: Group, spec: TableSpec, target_bytes: int) -> Iterator[Group]:
    group: Group = []
    for file in sorted(files, key=lambda file: _first(file, spec)):
        if group and (
            sum(item.rows for item in group) + file.rows > spec.file_rows
            or sum(item.size for item in group) + file.size > target_bytes
        ):
            yield group
            group = []
        group.append(file)
    yield group


def _first(file: TableFile, spec: TableSpec) -> tuple[bool, Any]:
    low = file.low.get(str(spec.time))
    return low is None, low


def _in_order(lake: Lake, spec: TableSpec, group: Group) -> Iterator[pa.RecordBatch]:
    """The rows of neighbours, as many as a group of rows has at a time, sorted."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for file in group:
        for batch in read_part(lake.store.inside(spec.name), Part(file.path, file.rows, file.partition), spec.schema):
            waiting.append(batch)
            rows += len(batch)
            if rows >= GROUP_ROWS:
                yield from _sorted(waiting, spec)
                waiting, rows = [], 0
    if waiting:
        yield from _sorted(waiting, spec)


def _sorted(batches: list[pa.RecordBatch], spec: TableSpec) -> list[pa.RecordBatch]:
    column = str(spec.time)
    order = [(column, "ascending")] + ([("offset", "ascending")] if "offset" in spec.stats else [])
    return list(pa.Table.from_batches(batches).sort_by(order).to_batches())
