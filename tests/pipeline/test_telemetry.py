"""Windows on their way from the broker to the recorder."""

from pathlib import Path

from metromq.pipeline.spool import spool_window, spooled
from metromq.pipeline.telemetry import LINK, TOPIC, TelemetryRow, TelemetryWindow, decode_window


def test_spool_keeps_windows_until_they_are_shipped(tmp_path: Path) -> None:
    rows = (TelemetryRow(TOPIC, "a/é", publications=3), TelemetryRow(LINK, "b2", delay_counts=(0, 1, 2)))
    window = TelemetryWindow("b1", "north", 10_000_000, 10.0, 7, rows)
    assert spooled(tmp_path) == []
    later = spool_window(tmp_path, TelemetryWindow("b1", "north", 20_000_000, 10.0, 8, rows))
    path = spool_window(tmp_path, window)
    assert spooled(tmp_path) == [path, later]
    assert decode_window(path.read_bytes()) == window
