"""Index files beside full segments: what a walk over the segment would find, so that a first read need not walk it.

An index file can always be made again from its segment, so it is neither synced nor trusted: it counts only if its
checksum, and the segment's salt and size, are right. Records that are read through it are checked as always.
"""

import os
import struct
from array import array
from pathlib import Path
from typing import Final
from zlib import crc32

from metromq.files import replace_file
from metromq.journal.segment import Segment

_HEAD: Final = struct.Struct("<8sIQQqI")
_MAGIC: Final = b"MetroIdx"
_U32: Final = struct.Struct("<I")


def index_path(segment: Segment) -> str:
    return segment.path.removesuffix(".seg") + ".idx"


def save_index(segment: Segment) -> None:
    """Write what is known of a segment that gets no more records; a failure only costs time later."""
    if segment.skipped:  # which an index does not tell
        return
    marks = array("Q", segment.marks).tobytes() + array("Q", segment.positions).tobytes()
    head = _HEAD.pack(_MAGIC, segment.salt, segment.size, segment.count, segment.resume, len(segment.marks))
    data = head + marks
    path = index_path(segment)
    try:
        replace_file(Path(path), data + _U32.pack(crc32(data)), durable=False)
    except OSError:
        pass


def load_index(segment: Segment) -> bool:
    """Fill the segment's index from its file; False when there is none that fits."""
    try:
        with open(index_path(segment), "rb") as file:
            data = file.read()
    except OSError:
        return False
    if len(data) < _HEAD.size + 4 or crc32(data[:-4]) != _U32.unpack_from(data, len(data) - 4)[0]:
        return False
    magic, salt, size, count, resume, length = _HEAD.unpack_from(data)
    if (magic, salt, size) != (_MAGIC, segment.salt, segment.size) or len(data) != _HEAD.size + 16 * length + 4:
        return False
    numbers = array("Q")
    numbers.frombytes(data[_HEAD.size : -4])
    segment.marks = numbers[:length].tolist()
    segment.positions = numbers[length:].tolist()
    segment.count = count
    segment.resume = resume
    segment.walked = segment.size
    return True


def remove_index(segment: Segment) -> None:
    try:
        os.unlink(index_path(segment))
    except OSError:
        pass
