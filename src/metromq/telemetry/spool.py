"""What broker and recorder tell each other in the broker's data directory: telemetry windows, and what has landed."""

import os
from pathlib import Path
from typing import Final

from metromq.telemetry.windows import TelemetryWindow

FOLDER: Final = "telemetry"
POSITION: Final = "recorder.position"


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


def write_position(data: Path, offset: int) -> None:
    """Called by the recorder: everything before `offset` has landed."""
    temporary = data / f"{POSITION}.tmp"
    data.mkdir(parents=True, exist_ok=True)
    temporary.write_text(str(offset))
    os.replace(temporary, data / POSITION)


def held_position(data: Path, now_s: float, patience_s: float) -> int | None:
    """The offset from which the journal must keep its records for the recorder; None: it said nothing for too long."""
    path = data / POSITION
    try:
        offset, said_s = int(path.read_text()), path.stat().st_mtime
    except (OSError, ValueError):
        return None
    return offset if now_s - said_s <= patience_s else None
