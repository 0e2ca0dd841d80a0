"""A broker notes that it is there, whatever its disk has room for."""

import os
import time
from pathlib import Path

from metromq.journal import last_present_us, note_presence
from metromq.journal.presence import PRESENCE_NAME
from tests.small_disk import small_disk

HOUR_S = 3600


def test_it_is_known_until_when_a_broker_was_there(tmp_path: Path) -> None:
    assert last_present_us(tmp_path) == 0
    note_presence(tmp_path)
    before = time.time() - HOUR_S
    os.utime(tmp_path / PRESENCE_NAME, (before, before))
    assert abs(last_present_us(tmp_path) / 1e6 - before) < 1
    note_presence(tmp_path)
    assert last_present_us(tmp_path) / 1e6 > before + HOUR_S / 2


def test_a_full_disk_is_no_hindrance(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 1 << 20) as disk:
        note_presence(disk.path)
        before = time.time() - HOUR_S
        os.utime(disk.path / PRESENCE_NAME, (before, before))
        disk.fill()
        note_presence(disk.path)
        assert last_present_us(disk.path) / 1e6 > before + HOUR_S / 2


def test_where_nothing_can_be_noted_nothing_is(tmp_path: Path) -> None:
    note_presence(tmp_path / "gone")
    assert last_present_us(tmp_path / "gone") == 0
