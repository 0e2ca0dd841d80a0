"""When a journal's broker was last there: the age of an empty file that it touches while it lives.

A broker that is killed notes no end, and a quiet one writes nothing for hours before: its newest record says little. To
touch a file needs no room on a full disk.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

PRESENCE_NAME: Final = "present"


def note_presence(directory: Path) -> None:
    path = directory / PRESENCE_NAME
    try:
        os.utime(path)
    except OSError:
        with suppress(OSError):  # a disk that is full from the beginning has no place for its name: later
            path.touch()


def last_present_us(directory: Path) -> int:
    """In microseconds since 1970; 0: nobody noted it."""
    try:
        return (directory / PRESENCE_NAME).stat().st_mtime_ns // 1000
    except OSError:
        return 0
