"""Where brokers' journals lie: as the user says, or as the recorders wrote it down beside what they landed."""

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metromq.errors import UsageError
from metromq.pipeline.landing import Landing


def journals(path: str, broker: str | None = None) -> dict[str, Path]:
    """Brokers by name: `path` is the data directory of one (`broker` names it), or holds one directory per broker."""
    root = Path(path)
    if (root / "journal").is_dir():
        return {broker or root.name: root / "journal"}
    found = {folder.parent.name: folder for folder in sorted(root.glob("*/journal")) if folder.is_dir()}
    if not found:
        raise UsageError(f"{path} holds no journal: give a broker's data directory, or one that holds several")
    return found


def named_journals(given: Sequence[str]) -> dict[str, Path]:
    """Directories as `--data` takes them: DIR, or BROKER=DIR where the directory is not named like its broker."""
    found: dict[str, Path] = {}
    for text in given:
        broker, equals, path = text.partition("=")
        found |= journals(path, broker) if equals else journals(text)
    return found


def whereabouts(journal: Path) -> dict[str, Any]:
    """What a recorder notes of the journal that it follows."""
    return {"host": socket.gethostname(), "journal": str(journal.absolute())}


def noted_journals(landing: Landing) -> dict[str, Path]:
    """Journals on this machine, by the recorders' notes; a broker elsewhere is not among them."""
    found: dict[str, Path] = {}
    for broker in landing.brokers():
        note = landing.read_note(broker)
        if note.get("host") == socket.gethostname() and Path(note["journal"]).is_dir():
            found[broker] = Path(note["journal"])
    return found
