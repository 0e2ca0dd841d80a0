"""The manager's log on disk: one line per record, appended and synced. It is also the audit log.

When it is long it begins anew, with a snapshot and the newest records as history. The new file takes the place of the
old one in one step, so a crash at any moment leaves the one or the other.
"""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from metromq.control.core import Record, decode_record, encode_record
from metromq.errors import MetroError, UsageError
from metromq.files import UNFINISHED, replacing, sync_directory

LOG_FILE = "manager.log.jsonl"
LOCK_FILE = "manager.lock"  # not the log itself: another file takes its place


class LogDamaged(MetroError):
    """A line of the log cannot be read; the message says which."""


class RecordLog:
    """Open it once per process: a second manager of the same directory is refused."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / LOG_FILE
        self.lines = 0
        self._lock = os.fdopen(os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise UsageError(f"another manager runs in {directory}: stop it first") from None
        for left in directory.glob(f".{LOG_FILE}.*{UNFINISHED}"):  # of a manager that was killed at it
            left.unlink(missing_ok=True)
        is_new = not self.path.exists()
        self._file = self._opened()
        if is_new:
            sync_directory(directory)

    def _opened(self) -> BinaryIO:
        opened = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return os.fdopen(opened, "r+b", buffering=0)

    def read(self) -> list[Record]:
        """Everything; a last line that a power cut left half is cut off, for nobody was told of it."""
        self._file.seek(0)
        data = self._file.read()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            self._file.truncate(whole)
            os.fsync(self._file.fileno())
        self._file.seek(0, os.SEEK_END)
        found = list(_records(data[:whole], self.path))
        self.lines = len(found)
        return found

    def append(self, records: list[Record]) -> None:
        """Durable when it returns."""
        if records:
            data = b"".join(encode_record(record) + b"\n" for record in records)
            if self._file.write(data) != len(data):
                raise OSError(f"{self.path} was not written whole")
            os.fdatasync(self._file.fileno())
            self.lines += len(records)

    def begin_anew(self, snapshot: Record, history: list[Record]) -> None:
        """The snapshot must hold all that was appended."""
        try:
            with replacing(self.path, mode=0o600) as file:
                for record in (snapshot, *history):
                    file.write(encode_record(record) + b"\n")
        finally:  # whatever failed: appends go to the file that has the name, or nowhere
            self._file.close()
            self._file = self._opened()
            self._file.seek(0, os.SEEK_END)
        self.lines = 1 + len(history)

    def close(self) -> None:
        self._file.close()
        self._lock.close()


def _records(data: bytes, path: Path) -> Iterator[Record]:
    for number, line in enumerate(data.splitlines(), 1):
        try:
            yield decode_record(line)
        except ValueError as error:
            raise LogDamaged(f"{path} line {number}: {error}") from error
