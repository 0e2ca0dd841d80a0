"""A journal that cannot be used is moved aside whole, next to those of before, and never from under a broker."""

import os
from pathlib import Path

import pytest

from metromq.errors import JournalError
from metromq.journal import set_aside
from metromq.journal.journal import lock_directory


def _journal(place: Path, content: bytes) -> Path:
    directory = place / "journal"
    directory.mkdir()
    (directory / "0.seg").write_bytes(content)
    return directory


def test_each_gets_a_name_of_its_own(tmp_path: Path) -> None:
    names = [set_aside(_journal(tmp_path, content)).name for content in (b"first", b"second")]
    assert names == ["journal.damaged-1", "journal.damaged-2"]
    assert [(tmp_path / name / "0.seg").read_bytes() for name in names] == [b"first", b"second"]
    assert not (tmp_path / "journal").exists()


def test_one_that_a_broker_uses_stays(tmp_path: Path) -> None:
    directory = _journal(tmp_path, b"alive")
    lock_fd = lock_directory(directory)
    try:
        with pytest.raises(JournalError):
            set_aside(directory)
    finally:
        os.close(lock_fd)
    assert (directory / "0.seg").read_bytes() == b"alive"
    assert set_aside(directory).name == "journal.damaged-1"
