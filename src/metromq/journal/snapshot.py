"""Snapshot files: the whole state at one position of the journal, so that a restart need not replay from the start."""

import os
import re
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final, final
from zlib import crc32

from metromq.files import replacing

KEPT: Final = 2  # the newest may turn out damaged; then the one before it still works

_NAME: Final = re.compile(r"(\d{8})-(\d{20})\.snap")
_HEAD: Final = struct.Struct("<8sIIQQQI")
_CRC: Final = struct.Struct("<I")  # the last field
_MAGIC: Final = b"MetroSnp"
_VERSION: Final = 2
_SEEDED: Final = 1  # the version whose checksum begins with the header: there the length had to be known before


@final
class Position:
    """A place between two records: segment, byte in it, and the offset that the next message gets."""

    def __init__(self, number: int, byte: int, next_offset: int) -> None:
        self.number = number
        self.byte = byte
        self.next_offset = next_offset


def snapshot_name(position: Position) -> str:
    return f"{position.number:08d}-{position.byte:020d}.snap"


def list_snapshots(directory: Path) -> list[tuple[int, int, str]]:
    """(segment number, byte, name), newest first."""
    found: list[tuple[int, int, str]] = []
    for name in os.listdir(directory):
        match = _NAME.fullmatch(name)
        if match is not None:
            found.append((int(match.group(1)), int(match.group(2)), name))
    found.sort(reverse=True)
    return found


def write_snapshot(directory: Path, position: Position, state: Iterable[bytes]) -> list[int]:
    """Write durably, then keep only the newest ones; the segment numbers of those that are kept, newest first.

    The pieces are written as they are made, so that other threads get their turn between two.
    """
    name = snapshot_name(position)
    crc = 0
    length = 0
    with replacing(directory / name) as file:
        file.write(bytes(_HEAD.size))
        for piece in state:
            crc = crc32(piece, crc)
            length += len(piece)
            file.write(piece)
        front = _HEAD.pack(_MAGIC, _VERSION, position.number, position.byte, position.next_offset, length, 0)
        crc = crc32(front, crc)
        file.seek(0)
        file.write(front[: -_CRC.size] + _CRC.pack(crc))
    found = list_snapshots(directory)
    for _, _, old in found[KEPT:]:
        (directory / old).unlink(missing_ok=True)
    return [number for number, _, _ in found[:KEPT]]


def read_snapshot(path: Path) -> tuple[Position, bytes] | None:
    """None when the file is damaged."""
    data = path.read_bytes()
    if len(data) < _HEAD.size:
        return None
    magic, version, number, byte, next_offset, length, crc = _HEAD.unpack_from(data)
    state = data[_HEAD.size :]
    front = _HEAD.pack(magic, version, number, byte, next_offset, length, 0)
    if magic != _MAGIC or version not in (_SEEDED, _VERSION) or length != len(state):
        return None
    if crc != (crc32(state, crc32(front)) if version == _SEEDED else crc32(front, crc32(state))):
        return None
    position = Position(number, byte, next_offset)
    return (position, state) if snapshot_name(position) == path.name else None
