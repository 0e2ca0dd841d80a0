"""Which offsets may have been given out: after a power cut the journal's end does not tell, and none is given twice.

A file holds the system's boot and a number that no offset reaches before a larger one is on disk. What the kernel has
not written yet survives the end of the process but not the end of the system: when the boot is another one and the
journal ends before that number, the offsets between may be known to peers and to readers, and are left out.
"""

from pathlib import Path
from typing import Final

from metromq.files import replace_file

NAME: Final = "offsets"
BLOCK: Final = 1 << 20  # offsets reserved at a time
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


def boot() -> str:
    """Names the time from one start of the system to the next; where it is not known all are taken for one."""
    try:
        return _BOOT.read_text().strip() or "unknown"
    except OSError:
        return "unknown"


def reserve(directory: Path, next_offset: int) -> int:
    """Note durably that a block of offsets may be given out in this boot; the first one behind it."""
    _write(directory, next_offset + BLOCK)
    return next_offset + BLOCK


def release(directory: Path, next_offset: int) -> None:
    """Everything is on disk: no more were given out than the journal holds."""
    _write(directory, next_offset)


def _write(directory: Path, offset: int) -> None:
    replace_file(directory / NAME, f"{boot()} {offset}\n")


def perhaps_given(directory: Path) -> int:
    """Offsets below this one may have been given out in an earlier boot; 0: the journal's end tells."""
    try:
        words = (directory / NAME).read_text().split()
    except OSError:
        return 0
    return int(words[1]) if len(words) == 2 and words[1].isdigit() and words[0] != boot() else 0
