"""What broker and recorder tell each other in the broker's data directory: telemetry windows, and what has landed."""

from pathlib import Path
from typing import Final

from metromq.errors import TelemetryDamaged
from metromq.files import replace_file
from metromq.telemetry.windows import TelemetryWindow, decode_window

FOLDER: Final = "telemetry"
POSITION: Final = "recorder.position"
UNREADABLE: Final = "unreadable"


def spool_window(data: Path, window: TelemetryWindow) -> Path:
    """For the broker: durable when it returns. It waits for the disk, so call it from a thread."""
    folder = data / FOLDER
    data.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)  # it says who publishes what
    target = folder / f"{window.start_us:020d}-{window.sequence:020d}.json"
    replace_file(target, window.encode())
    return target


def spooled(data: Path) -> list[Path]:
    """Windows that wait for the recorder, oldest first."""
    return sorted((data / FOLDER).glob("*.json"))


def drop_oldest(data: Path, most: int) -> None:
    """Of windows that nobody fetches, the newest stay."""
    for path in spooled(data)[:-most]:
        path.unlink(missing_ok=True)


def read_window(path: Path) -> TelemetryWindow:
    """Raises TelemetryDamaged, which says why."""
    try:
        return decode_window(path.read_bytes())
    except (OSError, ValueError) as error:
        raise TelemetryDamaged(f"{path} cannot be read: {error}") from error


def set_aside(path: Path, reason: str) -> Path:
    """Out of the way of the windows behind it, with the reason beside it; nothing is thrown away."""
    folder = path.parent / UNREADABLE
    folder.mkdir(exist_ok=True)
    (folder / f"{path.name}.reason").write_text(f"{reason}\n")
    return path.replace(folder / path.name)


def write_position(data: Path, offset: int) -> None:
    """Called by the recorder: everything before `offset` has landed."""
    data.mkdir(parents=True, exist_ok=True)
    replace_file(data / POSITION, str(offset))


def held_position(data: Path, now_s: float, patience_s: float) -> int | None:
    """The offset from which the journal must keep its records for the recorder; None: it said nothing for too long."""
    path = data / POSITION
    try:
        offset, said_s = int(path.read_text()), path.stat().st_mtime
    except (OSError, ValueError):
        return None
    return offset if now_s - said_s <= patience_s else None
