"""The landing area, where recorders put files and Spark takes them: names carry the range, and no file is seen half."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from metromq.errors import UsageError
from metromq.pipeline.keys import JournalKey
from metromq.pipeline.schemas import LANDED_MESSAGES, LANDED_TELEMETRY, LANDING_VERSION, TIME, VERSION_KEY
from metromq.pipeline.store import store_at
from metromq.telemetry import CLOCK

MESSAGES: Final = "messages"
TELEMETRY: Final = "telemetry"
REJECTED: Final = "rejected"
GONE: Final = "is not there"
_REASON: Final = ".reason"  # beside a rejected file
_NAME: Final = re.compile(r"(?:(?P<journal>[0-9a-f]{1,16})-)?(?P<first>\d{20})-(?P<last>\d{20})\.parquet")
_NOTE: Final = re.compile(r"_position(?:-(?P<journal>[0-9a-f]+))?\.json")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Python's calendar has the years 1 to 9999, and statistics look at the days beside a message's.
_FIRST_US: Final = (datetime(2, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
_END_US: Final = (datetime(9999, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
MOST_COUNTED: Final = 1 << 48  # of anything in a window; the sums of thousands of such rows still are numbers
_LEAST_S: Final = 1e-3
MOST_WINDOW_S: Final = 7 * 86400.0  # a manager that slept tells of all that time
_CLOCK: Final = re.compile(r"-?[0-9]{1,17}(\.[0-9]{1,9})?")  # microseconds, of some thousand years
_BROKER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class LandedFile:
    """A file by its name: of messages, offsets first..last of a journal; of telemetry, window start and sequence."""

    kind: str
    broker: str
    first: int
    last: int
    journal: str = ""

    @property
    def key(self) -> JournalKey:
        return JournalKey(self.broker, self.journal)

    @property
    def rows(self) -> int:
        return self.last - self.first + 1 if self.kind == MESSAGES else 1

    @property
    def path(self) -> str:
        journal = f"{self.journal}-" if self.journal else ""
        return f"{self.kind}/{self.broker}/{self.broker}-{journal}{self.first:020d}-{self.last:020d}.parquet"


@dataclass(frozen=True, slots=True)
class Rejected:
    """A file that was set aside, and why."""

    path: str
    reason: str


def check_broker_name(broker: str) -> str:
    if not _BROKER.fullmatch(broker):
        raise UsageError(f"broker name {broker!r} cannot name files; use letters, digits, '.', '_' and '-'")
    return broker


def parse_path(path: str) -> LandedFile | None:
    """None: not a file that a recorder made (a temporary name, a position, something of someone else)."""
    parts = PurePosixPath(path).parts
    if len(parts) != 3 or parts[0] not in (MESSAGES, TELEMETRY) or not parts[2].startswith(f"{parts[1]}-"):
        return None
    match = _NAME.fullmatch(parts[2].removeprefix(f"{parts[1]}-"))
    if match is None or (parts[0] == TELEMETRY and match["journal"]):
        return None
    first, last = int(match["first"]), int(match["last"])
    if parts[0] == MESSAGES and last < first:
        return None
    return LandedFile(parts[0], parts[1], first, last, match["journal"] or "")


class Landing:
    """A directory or a place in an object store."""

    def __init__(self, root: str) -> None:
        self.store = store_at(root)
        self.root = self.store.root

    def where(self, file: LandedFile) -> str:
        """The file's address."""
        return self.store.at(file.path)

    def put(self, file: LandedFile, table: pa.Table) -> None:
        """Write `table` so that nobody ever sees half of it; putting the same file twice is harmless."""
        table = table.replace_schema_metadata({VERSION_KEY: str(LANDING_VERSION).encode()})
        with self.store.writing(file.path) as out:
            pq.write_table(table, out, **_WRITE)

    def remove_unfinished(self, broker: str) -> None:
        """What a recorder of this broker left half-written when it was killed; for one that is alone."""
        for kind in (MESSAGES, TELEMETRY):
            self.store.remove_unfinished(f"{kind}/{broker}")

    def files(self) -> list[LandedFile]:
        """Every landed file, by kind, broker and first offset."""
        stored = [info for kind in (MESSAGES, TELEMETRY) for info in self.store.files(kind)]
        found = [file for info in stored if (file := parse_path(info.path)) is not None]
        return sorted(found, key=lambda file: (file.kind, file.broker, file.journal, file.first, file.last))

    def remove(self, files: Iterable[LandedFile]) -> None:
        """Those that are gone were removed by a run that was killed after its commit."""
        self.store.each(self.store.remove, [file.path for file in files])

    def problem(self, file: LandedFile, deep: bool = False) -> str | None:
        """What is wrong with a file, or None; `deep` reads every page, else the footer is believed."""
        try:
            with self.store.open(file.path) as source:
                parquet = pq.ParquetFile(source, page_checksum_verification=True)
                trouble = _misshapen(parquet, file.kind) or _misnamed(parquet.metadata, file)
                if trouble:
                    return trouble
                if deep:
                    for group in range(parquet.metadata.num_row_groups):
                        parquet.read_row_group(group)
        except FileNotFoundError:
            return GONE
        except (pa.ArrowException, OSError) as error:
            return f"cannot be read: {error}"
        return None

    def set_aside(self, file: LandedFile, reason: str) -> Rejected:
        """Move a bad file out of the stream's way, its reason beside it."""
        target = f"{REJECTED}/{file.path}"
        self.store.put(f"{target}{_REASON}", reason.encode())
        self.store.move(file.path, target)
        return Rejected(file.path, reason)

    def rejected(self) -> list[Rejected]:
        reasons = sorted(info.path for info in self.store.files(REJECTED) if info.path.endswith(_REASON))
        return [
            Rejected(path.removeprefix(f"{REJECTED}/").removesuffix(_REASON), self.store.read(path).decode())
            for path in reasons
        ]

    def write_note(self, key: JournalKey, note: dict[str, Any]) -> None:
        """The recorder's own position, replaced whole."""
        self.store.put(_note_path(key), json.dumps(note).encode())

    def read_note(self, key: JournalKey) -> dict[str, Any]:
        try:
            note = json.loads(self.store.read(_note_path(key)))
        except FileNotFoundError:
            return {}
        assert isinstance(note, dict)
        return note

    def noted(self) -> list[JournalKey]:
        """Every journal that a recorder has ever followed here."""
        paths = [PurePosixPath(info.path) for info in self.store.files(MESSAGES)]
        return sorted(
            JournalKey(path.parent.name, match["journal"] or "")
            for path in paths
            if (match := _NOTE.fullmatch(path.name)) is not None
        )


# Page checksums let the reader tell damaged pages from odd data; dictionaries and zstd level 1 keep the recorder cheap.
_WRITE: Final[dict[str, Any]] = {"compression": "zstd", "compression_level": 1, "write_page_checksum": True}


def _note_path(key: JournalKey) -> str:
    name = f"_position-{key.journal}.json" if key.journal else "_position.json"
    return f"{MESSAGES}/{key.broker}/{name}"


def _misshapen(parquet: Any, kind: str) -> str | None:
    """Columns that recorders always wrote are there, of the right type and without nulls; newer ones may be missing."""
    schema, metadata = parquet.schema_arrow, parquet.metadata
    wanted, needed = (LANDED_MESSAGES, _ALWAYS) if kind == MESSAGES else (LANDED_TELEMETRY, _COUNTED)
    for item in wanted:
        if item.name not in schema.names:
            if item.name in needed:
                return f"has no column {item.name!r}"
            continue
        found = schema.field(item.name).type
        if found != item.type:
            return f"its column {item.name!r} is {found}, not {item.type}"
        if item.name in needed and _nulls(parquet, metadata, item.name):
            return f"its column {item.name!r} has nulls"
        if item.type == TIME and not _in_calendar(parquet, metadata, item.name):
            return f"its column {item.name!r} has times outside the years 2 to 9998"
    return _miscounted(parquet, metadata) if kind == TELEMETRY else None


def _miscounted(parquet: Any, metadata: Any) -> str | None:
    """Numbers that no broker counts would end the statistics of all, by overflow, or spoil them."""
    for item in LANDED_TELEMETRY:
        if item.type == pa.int64():
            low, high = _extremes(parquet, metadata, item.name)
            if low < 0 or (high > MOST_COUNTED and item.name != "sequence"):
                return f"its column {item.name!r} has numbers that no broker counts, from {low} to {high}"
    rows = parquet.read(columns=["window_seconds", "subject", "detail"])  # the footer does not tell what is no number
    for seconds in rows["window_seconds"].unique().to_pylist():
        if not _LEAST_S <= seconds <= MOST_WINDOW_S:
            return f"its column 'window_seconds' has {seconds:g}, which is no length of a window"
    clocks = rows.filter(pc.equal(rows["subject"], CLOCK))
    for said in clocks["detail"].unique().to_pylist() if "detail" in clocks.column_names else []:
        if said is None or not _CLOCK.fullmatch(said):
            return f"its column 'detail' has {said!r} for how far a clock is ahead"
    return None


_ALWAYS: Final = frozenset(("broker", "offset", "time", "topic", "payload", "qos", "retain", "publisher"))
_COUNTED: Final = frozenset(item.name for item in LANDED_TELEMETRY if item.name not in ("detail", "delay_counts"))


def _nulls(parquet: Any, metadata: Any, column: str) -> bool:
    """The footer tells, or the pages do."""
    stats = _statistics(metadata, column)
    if all(item is not None and item.has_null_count for item in stats):
        return any(item.null_count for item in stats)
    return bool(parquet.read(columns=[column])[column].null_count)


def _in_calendar(parquet: Any, metadata: Any, column: str) -> bool:
    """Other times cannot be a `datetime`, nor a day of the table."""
    low, high = _extremes(parquet, metadata, column)
    return low >= _FIRST_US and high < _END_US


def _extremes(parquet: Any, metadata: Any, column: str) -> tuple[int, int]:
    """The least and the largest number of a column, of times in microseconds: the others need a `datetime`."""
    stats = _statistics(metadata, column)
    if all(item is not None and item.has_min_max for item in stats):
        bounds = [bound for item in stats for bound in (item.min_raw, item.max_raw)]
    else:  # nothing but nulls, or no statistics
        found = pc.min_max(parquet.read(columns=[column])[column].cast(pa.int64())).as_py()
        bounds = [bound for bound in found.values() if bound is not None]
    return min(bounds, default=0), max(bounds, default=0)


def _statistics(metadata: Any, column: str) -> list[Any]:
    """Of each group of rows, or None."""
    index = [metadata.schema.column(number).path for number in range(metadata.num_columns)].index(column)
    return [metadata.row_group(group).column(index).statistics for group in range(metadata.num_row_groups)]


def _misnamed(metadata: Any, file: LandedFile) -> str | None:
    """Dense offsets let the footer prove that the file holds what its name says."""
    if file.kind == MESSAGES and metadata.num_rows != file.rows:
        return f"holds {metadata.num_rows} rows, but its name says {file.rows}"
    wanted: dict[str, tuple[Any, Any]] = {"broker": (file.broker, file.broker)}
    if file.kind == MESSAGES:
        wanted |= {"offset": (file.first, file.last)}
        wanted |= {"journal": (file.journal, file.journal)} if file.journal else {}
    elif file.first >= _END_US:  # no file that is in shape holds it
        return "its window_starts are not those of its name"
    else:
        start = _EPOCH + timedelta(microseconds=file.first)
        wanted |= {"window_start": (start, start), "sequence": (file.last, file.last)}
    names = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
    for column, (low, high) in wanted.items():
        if column not in names:
            return f"has no column {column!r}"
        stats = _statistics(metadata, column)
        if any(item is None or not item.has_min_max for item in stats):
            return f"carries no statistics for {column!r}"
        if stats and (min(item.min for item in stats) != low or max(item.max for item in stats) != high):
            return f"its {column}s are not those of its name"
    return None
