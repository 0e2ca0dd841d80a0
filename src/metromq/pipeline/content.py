"""Compares the rows of `messages` with the brokers' journals, and writes rows that are wrong again.

The judge is the broker's own decoder, message by message: slow, and independent of the one that made the rows.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from metromq.errors import OffsetsGone
from metromq.federation.links import is_slip
from metromq.journal import JournalReader
from metromq.pipeline.keys import JournalKey
from metromq.pipeline.lake import Lake, TableFile, retried
from metromq.pipeline.ranges import Ranges
from metromq.pipeline.schemas import KINDS, LANDED_MESSAGES
from metromq.pipeline.table_files import Part, read_files, with_columns
from metromq.protocol.session import decode_message, layout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCRATCH: Final = "_repair-"  # how folders begin that a repair at work has in the lake
CHUNK_ROWS: Final = 20_000
CHUNK_BYTES: Final = 32 << 20
GROUP_ROWS: Final = 500_000  # of the files that one transaction replaces
_ROWS: Final = pa.schema([item for item in LANDED_MESSAGES if item.name != "broker"])
_COMPARED: Final = tuple(name for name in LANDED_MESSAGES.names if name not in ("broker", "journal", "offset"))
_NEWER: Final = (
    "kind",
    "origin",
    "origin_offset",
    "properties",
    "expires_at",
    "arrived",
)  # unknown to the first recorders
_KEY: Final = ["broker", "journal", "offset"]
_LENGTH: Final = layout.struct_of(layout.NOTE_LENGTH)

Spans = tuple[tuple[int, int], ...]
Flags = Any  # numpy arrays of bool


@dataclass(frozen=True, slots=True)
class Content:
    """What is known of one broker's rows, as ranges of offsets."""

    compared: int = 0
    wrong: Spans = ()  # the journal says something else
    foreign: Spans = ()  # the journal has another message there: it is not the journal of these rows
    gone: Spans = ()  # no journal is at hand, or it no longer holds them
    suspect: Spans = ()  # of those that are gone: rows as an old recorder wrote them wrong

    @property
    def right(self) -> bool:
        return not (self.wrong or self.foreign or self.suspect)


@dataclass(slots=True)
class _Tally:
    """A comparison at work; `out` gets the rows as they should be, where they are wrong."""

    key: JournalKey
    out: Any = None
    compared: int = 0
    wrong: Ranges = field(default_factory=Ranges)
    foreign: Ranges = field(default_factory=Ranges)
    gone: Ranges = field(default_factory=Ranges)
    suspect: Ranges = field(default_factory=Ranges)

    def done(self) -> Content:
        spans = (tuple(ranges) for ranges in (self.wrong, self.foreign, self.gone, self.suspect))
        return Content(self.compared, *spans)


@dataclass(frozen=True, slots=True)
class Repaired:
    """What `repair` did for one journal of one broker."""

    broker: str
    journal: str
    rows: int
    left: Content  # as it is now


Journals = dict[JournalKey, Path]
_Tallies = dict[JournalKey, _Tally]


def judge(lake: Lake, journals: Journals) -> dict[JournalKey, Content]:
    """Every row of `messages`, by journal."""
    tallies: _Tallies = {}
    for file in lake.files("messages") if lake.exists("messages") else []:
        _judge_file(lake, file, journals, tallies)
    return {key: tally.done() for key, tally in tallies.items()}


def repair(spark: "SparkSession", lake: Lake, journals: Journals) -> list[Repaired]:
    """Write wrong rows again from the journals; right rows stay as they are, and nothing is ever missing or twice."""
    rows: dict[JournalKey, int] = dict.fromkeys(journals, 0)
    for paths in _groups(lake, journals):
        for key, count in retried(lambda paths=paths: _replace(spark, lake, paths, journals)).items():  # type: ignore[misc]
            rows[key] += count
    left = judge(lake, journals)
    return [Repaired(*key, rows.get(key, 0), content) for key, content in sorted(left.items())]


def _groups(lake: Lake, journals: Journals) -> Iterator[set[str]]:
    """The paths of files that hold wrong rows, so many at a time as one transaction should replace."""
    group: set[str] = set()
    rows = 0
    brokers = {key.broker for key in journals}
    for file in lake.files("messages") if lake.exists("messages") else []:
        tallies: _Tallies = {}
        if file.partition["broker"] not in brokers:
            continue
        _judge_file(lake, file, journals, tallies)
        if not any(len(tally.wrong) for tally in tallies.values()):
            continue
        group.add(file.path)
        rows += file.rows
        if rows >= GROUP_ROWS:
            yield group
            group, rows = set(), 0
    if group:
        yield group


def _replace(spark: "SparkSession", lake: Lake, paths: set[str], journals: Journals) -> dict[JournalKey, int]:
    """One transaction: the files leave, their right rows and the rows written again come. The number of the latter."""
    from pyspark.sql import functions as F

    from metromq.pipeline.transforms.messages import to_messages

    files = [file for file in lake.files("messages") if file.path in paths]  # merged ones wait for the next call
    scratch = f"{SCRATCH}{uuid.uuid4().hex}"
    try:
        counts, parts = _write_again(lake, files, journals, scratch)
        if not counts:
            return {}
        landed = read_files(spark, lake.store, parts, LANDED_MESSAGES)
        again = to_messages(landed)
        kept = lake.read(spark, "messages", files).withColumn("journal", F.coalesce("journal", F.lit("")))
        kept = kept.join(landed.select(*_KEY), _KEY, "left_anti")
        lake.commit("messages", lake.write_files(kept.unionByName(again), "messages"), files)
        return counts
    finally:
        lake.store.remove_folder(scratch)


def _write_again(
    lake: Lake, files: Sequence[TableFile], journals: Journals, scratch: str
) -> tuple[dict[JournalKey, int], list[Part]]:
    """The wrong rows of the files as the journal has them, as Parquet: how many, by journal, and where."""
    wrong: dict[JournalKey, Ranges] = {}
    parts = [Part(f"{scratch}/{number}.parquet", file.rows) for number, file in enumerate(files)]
    for part, file in zip(parts, files, strict=True):
        tallies: _Tallies = {}
        with lake.store.writing(part.path) as sink, pq.ParquetWriter(sink, LANDED_MESSAGES) as out:
            _judge_file(lake, file, journals, tallies, out)
        for key, tally in tallies.items():
            for first, last in tally.wrong:
                wrong.setdefault(key, Ranges()).add(first, last)
    return {key: len(ranges) for key, ranges in wrong.items()}, parts


def _judge_file(lake: Lake, file: TableFile, journals: Journals, tallies: _Tallies, out: Any = None) -> None:
    source = lake.parquet("messages", file)
    there = [name for name in _ROWS.names if name in source.schema_arrow.names]
    readers: dict[JournalKey, JournalReader] = {}
    try:
        for batch in source.iter_batches(CHUNK_ROWS, columns=there):
            rows = with_columns(pa.table(batch), _ROWS)
            names = pc.fill_null(rows["journal"], "")
            for name in pc.unique(names).to_pylist():
                key = JournalKey(file.partition["broker"], name)
                if key in journals and key not in readers:
                    readers[key] = JournalReader(journals[key])
                tally = tallies.setdefault(key, _Tally(key, out))
                _judge_journal(rows.filter(pc.equal(names, name)).sort_by("offset"), readers.get(key), tally)
    finally:
        for reader in readers.values():
            reader.close()


def _judge_journal(rows: pa.Table, reader: JournalReader | None, tally: _Tally) -> None:
    known = _judge_rows(rows, reader, tally) if reader is not None else np.zeros(len(rows), bool)
    _note_gone(rows.filter(pa.array(~known)), tally)


def _judge_rows(rows: pa.Table, reader: JournalReader, tally: _Tally) -> Flags:
    """Which of the sorted rows the journal still holds."""
    offsets = rows["offset"].to_numpy()
    known = np.zeros(len(offsets), bool)
    for first, last in _spans(offsets):
        for start, bodies in _held(reader, first, last):
            low, high = np.searchsorted(offsets, (start, start + len(bodies)))
            known[low:high] = True
            _compare(rows.slice(low, high - low), start, bodies, tally)
    return known


def _held(reader: JournalReader, first: int, last: int) -> Iterator[tuple[int, list[bytes]]]:
    """What the journal holds of the offsets first..last, in runs."""
    while first <= last:
        try:
            records = reader.read(first, min(CHUNK_ROWS, last - first + 1), CHUNK_BYTES)
        except OffsetsGone as gone:
            first = gone.first
            continue
        if not records:
            return
        yield records[0][0], [body for _, body in records]
        first = records[-1][0] + 1


def _compare(rows: pa.Table, start: int, bodies: list[bytes], tally: _Tally) -> None:
    offsets = rows["offset"].to_numpy()
    twin = slow_table(tally.key, start, bodies).take(pa.array(offsets - start))
    foreign = _differs(rows, twin, "time")
    older = rows["properties"].is_null().to_numpy()
    wrong = np.zeros(len(offsets), bool)
    for name in _COMPARED:
        differs = _differs(rows, twin, name)
        wrong |= differs & ~older if name in _NEWER else differs
    tally.compared += len(offsets)
    wrong &= ~foreign
    _add(tally.foreign, offsets[foreign])
    _add(tally.wrong, offsets[wrong])
    if tally.out is not None:
        first_seen = np.concatenate(([True], np.diff(offsets) > 0))  # a row that is there twice comes back once
        tally.out.write_table(twin.filter(pa.array(wrong & first_seen)))


def _differs(rows: pa.Table, twin: pa.Table, name: str) -> Flags:
    one, other = (_plain(table[name]) for table in (rows, twin))
    return np.asarray(pc.not_equal(one, other))


def _plain(column: Any) -> Any:
    """Without nulls: null means the same on both sides."""
    column = column.combine_chunks()
    if pa.types.is_timestamp(column.type):
        return pc.fill_null(column.cast(pa.int64()), 0)
    if not column.null_count:
        return column
    empty: dict[Callable[[Any], bool], Any] = {pa.types.is_string: "", pa.types.is_binary: b"", pa.types.is_integer: -1}
    return pc.fill_null(column, next((value for fits, value in empty.items() if fits(column.type)), False))


def _note_gone(rows: pa.Table, tally: _Tally) -> None:
    """Nobody can say any more what they should be; but rows that an old recorder cut wrong tell by themselves."""
    if not len(rows):
        return
    offsets = rows["offset"].to_numpy()
    _add(tally.gone, offsets)
    nameless = pc.and_(pc.equal(rows["kind"], "link"), rows["origin"].is_null()).to_numpy()
    nameless &= ~rows["properties"].is_null().to_numpy()  # the first recorders knew no origin
    noted = np.fromiter(map(opens_with_note, rows["payload"].to_pylist()), bool, len(rows))
    _add(tally.suspect, offsets[nameless | noted])


def opens_with_note(payload: bytes) -> bool:
    """Whether a payload begins with what a link says beside a message, as rows did before the pipeline knew notes."""
    if len(payload) <= _LENGTH.size:
        return False
    (size,) = _LENGTH.unpack_from(payload)
    return 0 < size <= len(payload) - _LENGTH.size and is_slip(payload[_LENGTH.size : _LENGTH.size + size])


def slow_table(key: JournalKey, first: int, bodies: Sequence[bytes]) -> pa.Table:
    """As `decode.decode_batch`, by the broker's own decoder."""
    messages = [decode_message(body, first + number).message for number, body in enumerate(bodies)]
    columns = {
        "broker": [key.broker] * len(messages),
        "journal": [key.journal] * len(messages),
        "offset": [message.offset for message in messages],
        "time": [message.time_us for message in messages],
        "kind": [KINDS[message.kind] for message in messages],
        "expires_at": [message.expires_at_us or None for message in messages],
        "arrived": [message.arrived_us or None for message in messages],
    }
    for name in LANDED_MESSAGES.names:
        if name not in columns:
            columns[name] = [getattr(message, name) for message in messages]
    return pa.table([pa.array(columns[item.name], item.type) for item in LANDED_MESSAGES], schema=LANDED_MESSAGES)


def _spans(offsets: Any) -> list[tuple[int, int]]:
    found = Ranges()
    _add(found, offsets)
    return list(found)


def _add(ranges: Ranges, offsets: Any) -> None:
    """Sorted offsets, in any number."""
    if len(offsets):
        breaks = np.flatnonzero(np.diff(offsets) > 1)
        firsts = offsets[np.concatenate(([0], breaks + 1))]
        lasts = offsets[np.concatenate((breaks, [len(offsets) - 1]))]
        for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
            ranges.add(first, last)
