"""Moves a journal that cannot be used out of the way, whole, so that nothing is lost for whoever can still read it."""

import os
from pathlib import Path

from metromq.errors import JournalError
from metromq.files import sync_directory
from metromq.journal.journal import lock_directory

MOST_ATTEMPTS = 1000


def set_aside(directory: Path) -> Path:
    """Renames the journal's directory; the new name. Fails while a broker is using it."""
    lock_fd = lock_directory(directory)
    try:
        aside = _free_name(directory)
        directory.rename(aside)
        sync_directory(directory.parent)
        return aside
    except OSError as error:
        raise JournalError(f"{directory} cannot be set aside: {error.strerror}") from error
    finally:
        os.close(lock_fd)


def _free_name(directory: Path) -> Path:
    for attempt in range(1, MOST_ATTEMPTS):
        aside = directory.with_name(f"{directory.name}.damaged-{attempt}")
        if not aside.exists():
            return aside
    raise JournalError(f"{directory} was set aside a thousand times; remove the old ones")
