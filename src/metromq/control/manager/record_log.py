"""The manager's log on disk: one line per record, appended and synced, never changed. It is also the audit log."""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from metromq.control.core import Record, decode_record, encode_record
from metromq.errors import MetroError, UsageError
from metromq.files import sync_directory

LOG_FILE = "manager.log.jsonl"


class LogDamaged(MetroError):
    """A line of the log cannot be read; the message says which."""


class RecordLog:
    """Open it once per process: a second manager of the same directory is refused."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / LOG_FILE
        is_new = not self.path.exists()
        opened = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._file: BinaryIO = os.fdopen(opened, "r+b", buffering=0)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise UsageError(f"another manager runs in {directory}: stop it first") from None
        if is_new:
            sync_directory(directory)

    def read(self) -> list[Record]:
        """Everything; a last line that a power cut left half is cut off, for nobody was told of it."""
        self._file.seek(0)
        data = self._file.read()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            self._file.truncate(whole)
            os.fsync(self._file.fileno())
        self._file.seek(0, os.SEEK_END)
        return list(_records(data[:whole], self.path))

    def append(self, records: list[Record]) -> None:
        """Durable when it returns."""
        if records:
            data = b"".join(encode_record(record) + b"\n" for record in records)
            if self._file.write(data) != len(data):
                raise OSError(f"{self.path} was not written whole")
            os.fdatasync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def _records(data: bytes, path: Path) -> Iterator[Record]:
    for number, line in enumerate(data.splitlines(), 1):
        try:
            yield decode_record(line)
        except ValueError as error:
            raise LogDamaged(f"{path} line {number}: {error}") from error
