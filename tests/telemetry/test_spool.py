"""Windows on their way from the broker to the recorder."""

import os
from pathlib import Path

import pytest

from metromq.errors import TelemetryDamaged
from metromq.telemetry.spool import (
    POSITION,
    held_position,
    read_window,
    set_aside,
    spool_window,
    spooled,
    write_position,
)
from metromq.telemetry.windows import LINK, TOPIC, TelemetryRow, TelemetryWindow, decode_window


def test_spool_keeps_windows_until_they_are_shipped(tmp_path: Path) -> None:
    rows = (TelemetryRow(TOPIC, "a/é", publications=3), TelemetryRow(LINK, "b2", delay_counts=(0, 1, 2)))
    window = TelemetryWindow("b1", "north", 10_000_000, 10.0, 7, rows)
    assert spooled(tmp_path) == []
    later = spool_window(tmp_path, TelemetryWindow("b1", "north", 20_000_000, 10.0, 8, rows))
    path = spool_window(tmp_path, window)
    assert spooled(tmp_path) == [path, later]
    assert decode_window(path.read_bytes()) == window


def test_the_journal_waits_for_the_recorder_but_not_for_ever(tmp_path: Path) -> None:
    assert held_position(tmp_path, 0.0, 100.0) is None  # there never was a recorder
    write_position(tmp_path, 42)
    os.utime(tmp_path / POSITION, (1000.0, 1000.0))
    assert held_position(tmp_path, 1100.0, 100.0) == 42
    assert held_position(tmp_path, 1101.0, 100.0) is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Expecting value"),  # what a machine that lost power left of a file that was not synced
        (b'{"broker":"b1","rows":[', "Expecting value"),
        (b"\xff\xff\xff", "codec can't decode"),
        (b"[]", "no window of telemetry"),
        (b'{"broker":"b1","rows":[{"subject":"topic"}]}', "no window of telemetry"),
    ],
)
def test_a_file_that_cannot_be_read_is_set_aside_with_its_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "telemetry").mkdir()
    path = tmp_path / "telemetry" / f"{5:020d}-{1:020d}.json"
    path.write_bytes(content)
    with pytest.raises(TelemetryDamaged, match=reason) as caught:
        read_window(path)
    assert str(path) in str(caught.value)
    aside = set_aside(path, str(caught.value))
    assert spooled(tmp_path) == []
    assert aside.read_bytes() == content
    assert reason in aside.with_name(f"{aside.name}.reason").read_text()
