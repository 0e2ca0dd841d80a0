"""A file system of a few megabytes that a test can fill and empty: the full disk is real."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class SmallDisk:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    @property
    def free_bytes(self) -> int:
        status = os.statvfs(self.path)
        return status.f_bavail * status.f_frsize

    def fill(self, left_bytes: int = 0) -> None:
        """Until so much is left; the broker may write meanwhile, so it is tried until that is so."""
        while self.free_bytes > left_bytes:
            with self._ballast.open("ab") as file:
                os.posix_fallocate(file.fileno(), file.tell(), self.free_bytes - left_bytes)

    def empty(self) -> None:
        self._ballast.unlink()


@contextmanager
def small_disk(path: Path, size_bytes: int) -> Iterator[SmallDisk]:
    path.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(path)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small file system")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
