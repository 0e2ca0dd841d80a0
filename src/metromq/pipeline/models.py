"""Reads a directory of the user's own tables: `NAME.sql`, one SELECT, and `NAME.toml`, the columns of JSON payloads."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from metromq.documents import read_document
from metromq.errors import ConfigError, MetroError, UsageError
from metromq.pipeline.schemas import BUILT_IN
from metromq.protocol.topics import validate_filter
from metromq.reading import read_data

MINUTES: Final = {"m": 1, "h": 60, "d": 24 * 60}
TYPES: Final = ("string", "double", "bigint", "boolean")
FIXED: Final = ("window_start", "time", "topic", "publisher", "broker", "journal", "offset", "day")
REJECTED: Final = "_rejected"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_HEADER: Final = re.compile(r"^--\s*(key|window)\s*:\s*(.*?)\s*$", re.MULTILINE)
_WINDOW: Final = re.compile(r"(\d+)([mhd])")


@dataclass(frozen=True, slots=True)
class Model:
    """One SELECT: a row for each key in each window."""

    name: str
    sql: str
    key: tuple[str, ...]
    window_minutes: int

    @property
    def way(self) -> str:
        return _digest(f"{self.sql}|{self.key}|{self.window_minutes}")


@dataclass(frozen=True, slots=True)
class PayloadColumns:
    """What a file says: JSON payloads of the topics that a filter matches, and their fields."""

    # An MQTT topic filter, such as +/+/+/+/air/#.
    topics: str
    # Field of the JSON object -> string, double, bigint or boolean. Other fields are left out.
    columns: dict[str, str]
    # Fields that must be there and not null.
    required: tuple[str, ...] = ()

    def problems(self) -> Iterator[tuple[str, str]]:
        try:
            validate_filter(self.topics)
        except MetroError as error:
            yield "topics", str(error)
        if not self.columns:
            yield "columns", "a table needs at least one"
        for name, kind in self.columns.items():
            if kind not in TYPES:
                yield f"columns.{name}", f'must be one of {", ".join(TYPES)}, not "{kind}"'
            if not _NAME.fullmatch(name) or name in FIXED:
                yield f"columns.{name}", "must be of a-z, 0-9 and _, and not a column that every table has"
        for name in self.required:
            if name not in self.columns:
                yield "required", f'"{name}" is not one of the columns'


@dataclass(frozen=True, slots=True)
class Payloads:
    """A table of JSON payloads, and one of the payloads that do not fit it."""

    name: str
    declared: PayloadColumns
    window_minutes: int = field(default=1)

    @property
    def way(self) -> str:
        return _digest(repr(self.declared))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_models(folder: Path) -> list[Model | Payloads]:
    """Payloads first, so that models can read them; each kind by name. Raises UsageError, which names the file."""
    if not folder.is_dir():
        raise UsageError(f"there is no directory {folder} with models: make it, with a NAME.sql for each table")
    payloads = [_read_payloads(path) for path in sorted(folder.glob("*.toml"))]
    models = [_read_sql(path) for path in sorted(folder.glob("*.sql"))]
    found: list[Model | Payloads] = [*payloads, *models]
    names = [each.name for each in found] + [each.name + REJECTED for each in payloads]
    for name in names:
        if name in BUILT_IN or names.count(name) > 1:
            raise UsageError(f"{folder}: there is already a table {name}; take another name for the file")
    return found


def _named(path: Path) -> str:
    if not _NAME.fullmatch(path.stem):
        raise UsageError(f"{path}: the name of a table must be of a-z, 0-9 and _, and begin with a letter")
    return path.stem


def _read_payloads(path: Path) -> Payloads:
    try:
        return Payloads(_named(path), read_data(PayloadColumns, read_document(path), str(path)))
    except ConfigError as error:
        raise UsageError(str(error)) from error


def _read_sql(path: Path) -> Model:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read as UTF-8 text: {error}") from error
    said = dict(_HEADER.findall(text))
    for name, example in (("key", "topic, broker"), ("window", "1h")):
        if not said.get(name):
            raise UsageError(f"{path}: has no {name}; write a line such as `-- {name}: {example}` at its top")
    key = tuple(word.strip() for word in said["key"].split(",") if word.strip())
    return Model(_named(path), text, key, _window(path, said["window"]))


def _window(path: Path, text: str) -> int:
    match = _WINDOW.fullmatch(text)
    minutes = int(match[1]) * MINUTES[match[2]] if match else 0
    if not minutes or MINUTES["d"] % minutes:
        raise UsageError(f"{path}: window {text!r} must be minutes, hours or a day that divide a day: 5m, 1h, 1d")
    return minutes
