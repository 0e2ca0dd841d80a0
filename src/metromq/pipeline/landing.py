"""The landing area, where recorders put files and Spark takes them: names carry the range, a rename makes them seen."""

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from metromq.errors import UsageError
from metromq.files import replace_file, replacing
from metromq.pipeline.schemas import LANDING_VERSION, VERSION_KEY

MESSAGES: Final = "messages"
TELEMETRY: Final = "telemetry"
REJECTED: Final = "rejected"
_NAME: Final = re.compile(r"(?P<broker>.+)-(?P<first>\d{20})-(?P<last>\d{20})\.parquet")
_BROKER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class LandedFile:
    """A file by its name: of messages, offsets first..last; of telemetry, window start and sequence."""

    kind: str
    broker: str
    first: int
    last: int

    @property
    def rows(self) -> int:
        return self.last - self.first + 1 if self.kind == MESSAGES else 1

    @property
    def path(self) -> str:
        return f"{self.kind}/{self.broker}/{self.broker}-{self.first:020d}-{self.last:020d}.parquet"


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
    match = _NAME.fullmatch(parts[-1])
    if len(parts) != 3 or match is None or match["broker"] != parts[1] or parts[0] not in (MESSAGES, TELEMETRY):
        return None
    first, last = int(match["first"]), int(match["last"])
    if parts[0] == MESSAGES and last < first:
        return None
    return LandedFile(parts[0], parts[1], first, last)


class Landing:
    """A directory on any file system that Arrow knows; local ones are written with fsync and rename."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")
        if "://" in root:
            self._fs, self._base = fs.FileSystem.from_uri(self.root)
        else:
            self.root = os.path.abspath(root)
            self._fs, self._base = fs.LocalFileSystem(), self.root
        self._local = isinstance(self._fs, fs.LocalFileSystem)

    def where(self, file: LandedFile) -> str:
        """The path as Spark wants it."""
        return f"{self.root}/{file.path}"

    def put(self, file: LandedFile, table: pa.Table) -> None:
        """Write `table` so that nobody ever sees half of it; putting the same file twice is harmless."""
        table = table.replace_schema_metadata({VERSION_KEY: str(LANDING_VERSION).encode()})
        target = f"{self._base}/{file.path}"
        self._fs.create_dir(target.rsplit("/", 1)[0], recursive=True)
        if not self._local:
            pq.write_table(table, target, filesystem=self._fs, **_WRITE)
            return
        with replacing(Path(target)) as out:
            pq.write_table(table, out, **_WRITE)

    def files(self) -> list[LandedFile]:
        """Every landed file, by kind, broker and first offset."""
        found: list[LandedFile] = []
        for kind in (MESSAGES, TELEMETRY):
            selector = fs.FileSelector(f"{self._base}/{kind}", recursive=True, allow_not_found=True)
            for info in self._fs.get_file_info(selector):
                file = parse_path(info.path.removeprefix(self._base).lstrip("/"))
                if file is not None and info.type == fs.FileType.File:
                    found.append(file)
        return sorted(found, key=lambda file: (file.kind, file.broker, file.first, file.last))

    def remove(self, files: Iterable[LandedFile]) -> None:
        for file in files:
            try:
                self._fs.delete_file(f"{self._base}/{file.path}")
            except FileNotFoundError:
                pass  # a run that was killed after its commit had already removed it

    def problem(self, file: LandedFile, deep: bool = False) -> str | None:
        """What is wrong with a file, or None; `deep` reads every page, else the footer is believed.

        Raises FileNotFoundError when the file is gone.
        """
        path = f"{self._base}/{file.path}"
        try:
            with self._fs.open_input_file(path) as source:
                parquet = pq.ParquetFile(source, page_checksum_verification=True)
                if file.kind == MESSAGES and (trouble := _misnamed(parquet.metadata, file)):
                    return trouble
                if deep:
                    for group in range(parquet.metadata.num_row_groups):
                        parquet.read_row_group(group)
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError) as error:
            return f"cannot be read: {error}"
        return None

    def set_aside(self, file: LandedFile, reason: str) -> Rejected:
        """Move a bad file out of the stream's way, its reason beside it."""
        target = f"{self._base}/{REJECTED}/{file.path}"
        self._fs.create_dir(target.rsplit("/", 1)[0], recursive=True)
        with self._fs.open_output_stream(f"{target}.reason") as out:
            out.write(reason.encode())
        self._fs.move(f"{self._base}/{file.path}", target)
        return Rejected(file.path, reason)

    def rejected(self) -> list[Rejected]:
        selector = fs.FileSelector(f"{self._base}/{REJECTED}", recursive=True, allow_not_found=True)
        found: list[Rejected] = []
        for info in self._fs.get_file_info(selector):
            if info.path.endswith(".reason"):
                with self._fs.open_input_stream(info.path) as source:
                    reason = source.read().decode()
                path = info.path.removeprefix(f"{self._base}/{REJECTED}/").removesuffix(".reason")
                found.append(Rejected(path, reason))
        return sorted(found, key=lambda item: item.path)

    def write_note(self, broker: str, note: dict[str, Any]) -> None:
        """The recorder's own position, replaced whole; the leading underscore hides it from Spark."""
        folder = f"{self._base}/{MESSAGES}/{broker}"
        self._fs.create_dir(folder, recursive=True)
        target, content = f"{folder}/_position.json", json.dumps(note).encode()
        if self._local:
            replace_file(Path(target), content)
            return
        with self._fs.open_output_stream(target) as out:
            out.write(content)

    def read_note(self, broker: str) -> dict[str, Any]:
        try:
            with self._fs.open_input_stream(f"{self._base}/{MESSAGES}/{broker}/_position.json") as source:
                note = json.loads(source.read())
        except FileNotFoundError:
            return {}
        assert isinstance(note, dict)
        return note

    def brokers(self) -> list[str]:
        """Every broker whose recorder has ever been here."""
        selector = fs.FileSelector(f"{self._base}/{MESSAGES}", allow_not_found=True)
        return sorted(info.base_name for info in self._fs.get_file_info(selector) if info.type == fs.FileType.Directory)


# Page checksums let the reader tell damaged pages from odd data; dictionaries and zstd level 1 keep the recorder cheap.
_WRITE: Final[dict[str, Any]] = {"compression": "zstd", "compression_level": 1, "write_page_checksum": True}


def _misnamed(metadata: Any, file: LandedFile) -> str | None:
    """Dense offsets let the footer prove that the file holds what its name says."""
    if metadata.num_rows != file.rows:
        return f"holds {metadata.num_rows} rows, but its name says {file.rows}"
    wanted = {"broker": (file.broker, file.broker), "offset": (file.first, file.last)}
    names = metadata.schema.to_arrow_schema().names
    for column, (low, high) in wanted.items():
        if column not in names:
            return f"has no column {column!r}"
        index = names.index(column)
        stats = [metadata.row_group(group).column(index).statistics for group in range(metadata.num_row_groups)]
        if any(item is None or not item.has_min_max for item in stats):
            return f"carries no statistics for {column!r}"
        if min(item.min for item in stats) != low or max(item.max for item in stats) != high:
            return f"its {column}s are not those of its name"
    return None
