"""The name of a journal. Offsets start again in a new journal, so (journal, offset) names a record and an offset alone
does not: peers, the lake and Spark's checkpoints notice by it that a broker's data directory was replaced."""

import secrets
from pathlib import Path
from typing import Final

from metromq.files import replace_file

NAME: Final = "journal-id"  # in the journal's directory: whoever removes the journal removes its name


def new_id() -> str:
    return secrets.token_hex(7)


def read_id(directory: Path) -> str:
    """Of the journal in a directory; empty: it is older than names, and no broker has opened it since."""
    return _read(directory / NAME) or _read(directory.parent / NAME)


def ensure_id(directory: Path, has_records: bool) -> str:
    """For the writer. Brokers of cities once kept the name beside the journal: it is taken over with its records."""
    own, beside = directory / NAME, directory.parent / NAME
    found = _read(own)
    if not found:
        found = (_read(beside) if has_records else "") or new_id()
        replace_file(own, found)
    if has_records:
        beside.unlink(missing_ok=True)
    return found


def _read(path: Path) -> str:
    """Empty as well when a machine that lost power left the file empty."""
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return ""
