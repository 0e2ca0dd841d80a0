"""Answers of `metromq pipeline`, as a table for people or as JSON for programs."""

import json
import os
import re
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

_NO_EDGE = 100_000
_NUMBER = re.compile(r"-?[0-9][0-9,.e+-]*")


def output(as_json: bool, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    if as_json:
        click.echo(json.dumps(list(rows), default=plain))
    else:
        show(columns, [list(row.values()) for row in rows])


def plain(value: Any) -> Any:
    """What JSON does not know, and people want to read: bytes as text, moments in ISO 8601, the rest as it prints."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="backslashreplace")
    return value.isoformat() if isinstance(value, datetime) else str(value)


def show(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    table = Table(box=None, pad_edge=False)
    for index, column in enumerate(columns):
        numeric = any(_NUMBER.fullmatch(str(row[index])) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold", no_wrap=index == 0)
    for row in rows:
        table.add_row(*(Text("" if value is None else str(plain(value))) for value in row))
    # Programs and files have no edge at which a line must break; a terminal has, and COLUMNS may say where.
    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _NO_EDGE
    Console(width=wide).print(table)
