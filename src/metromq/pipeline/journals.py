"""Where brokers' journals lie: as the user says, or as the recorders wrote it down beside what they landed."""

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metromq.errors import UsageError
from metromq.journal import JournalReader, read_id
from metromq.pipeline.keys import JournalKey
from metromq.pipeline.landing import MESSAGES, Landing


def journals(path: str, broker: str | None = None) -> dict[str, Path]:
    """Brokers by name: `path` is the data directory of one (`broker` names it), or holds one directory per broker."""
    root = Path(path)
    if (root / "journal").is_dir():
        return {broker or root.name: root / "journal"}
    found = {folder.parent.name: folder for folder in sorted(root.glob("*/journal")) if folder.is_dir()}
    if not found:
        raise UsageError(f"{path} holds no journal: give a broker's data directory, or one that holds several")
    return found


def key_of(landing: Landing, broker: str, journal: Path) -> JournalKey:
    """As what the lake knows the journal in a directory. Rows without a name are of the broker's first journal: of the
    one whose recorder went on with them, and that is one that reaches as far as they do."""
    name = read_id(journal)
    key, unnamed = JournalKey(broker, name), JournalKey(broker)
    if not name or landing.read_note(key) or landed_position(landing, key):
        return key
    note = landing.read_note(unnamed)
    position = landed_position(landing, unnamed)
    if note.get("id", name) != name or (not note and not position):
        return key
    reader = JournalReader(journal)
    try:
        return unnamed if reader.bounds()[1] >= position else key
    finally:
        reader.close()


def landed_position(landing: Landing, key: JournalKey) -> int:
    """The offset to record next: a file that landed counts even if the note about it was never written."""
    position: int = landing.read_note(key).get("position", 0)
    return max([position, *(file.last + 1 for file in landing.files() if file.kind == MESSAGES and file.key == key)])


def named_journals(landing: Landing, given: Sequence[str]) -> dict[JournalKey, Path]:
    """Directories as `--data` takes them: DIR, or BROKER=DIR where the directory is not named like its broker."""
    found: dict[JournalKey, Path] = {}
    for text in given:
        broker, equals, path = text.partition("=")
        folders = journals(path, broker) if equals else journals(text)
        found |= {key_of(landing, name, folder): folder for name, folder in folders.items()}
    return found


def whereabouts(journal: Path) -> dict[str, Any]:
    """What a recorder notes of the journal that it follows."""
    return {"host": socket.gethostname(), "journal": str(journal.absolute())}


def noted_journals(landing: Landing) -> dict[JournalKey, Path]:
    """Journals on this machine, by the recorders' notes; a broker elsewhere is not among them."""
    found: dict[JournalKey, Path] = {}
    for key in landing.noted():
        note = landing.read_note(key)
        if note.get("host") == socket.gethostname() and Path(note["journal"]).is_dir():
            folder = Path(note["journal"])
            found[key_of(landing, key.broker, folder)] = folder  # there may be another journal by now
    return found
