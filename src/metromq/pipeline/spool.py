"""Telemetry windows between the broker that closes them and the recorder that ships them: one file each."""

import os
from pathlib import Path
from typing import Final

from metromq.pipeline.telemetry import TelemetryWindow

FOLDER: Final = "telemetry"  # beside the journal, in the broker's data directory


def spool_window(data: Path, window: TelemetryWindow) -> Path:
    """For the broker. A rename makes the file seen; a crash of the machine may cost the last windows, by design."""
    folder = data / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{window.start_us:020d}-{window.sequence:020d}.json"
    temporary = target.with_suffix(".tmp")
    temporary.write_bytes(window.encode())
    os.replace(temporary, target)
    return target


def spooled(data: Path) -> list[Path]:
    """Windows that wait for the recorder, oldest first."""
    return sorted((data / FOLDER).glob("*.json"))
