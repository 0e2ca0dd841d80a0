"""Files that are whole or not there: written under another name, then put in place in one step."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

# Temporary names end so; they are hidden, so that neither Spark nor a glob for finished files takes them for one.
UNFINISHED = ".tmp"


@contextmanager
def replacing(path: Path, durable: bool = True, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` when the block ends, and leaves no trace when it fails.

    `durable` syncs the file before it is seen and its directory after, so that a machine that loses power has the old
    file or the new one, never an empty one. Without it only other processes are safe from half a file: it is for what
    can be made again. `mode` is what the umask may leave of the permissions, from the first byte on.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{UNFINISHED}")
    try:
        with open(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "w+b") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_directory(path.parent)


def replace_file(path: Path, content: bytes | str, durable: bool = True, mode: int = 0o666) -> None:
    """`path` with this content, whole or not at all; see `replacing`."""
    with replacing(path, durable, mode) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def sync_directory(directory: Path) -> None:
    """Makes the names in a directory durable: what was created, renamed and removed."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
