"""Journal bodies to Arrow columns, a whole batch at a time: no Python per message.

The twin is `protocol.session.records.decode_message`; the tests hold the two together.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from metromq.errors import JournalError
from metromq.pipeline.schemas import KINDS, LANDED_MESSAGES, TIME

_HEAD: Final = np.dtype(
    [
        ("time_us", "<u8"),
        ("flags", "u1"),
        ("expires_us", "<u8"),
        ("session", "<u4"),
        ("packet_id", "<u2"),
        ("topic", "<u2"),
        ("publisher", "<u2"),
        ("targets", "<u2"),
        ("properties", "<u4"),
    ]
)
_TARGET_BYTES: Final = 6
_ORIGIN_BYTES: Final = 9
_HAS_ORIGIN: Final = 32
_FIELDS: Final = 8  # head, topic, publisher, properties, targets, origin head, origin, payload

Ints = Any  # numpy arrays of integers


def decode_batch(broker: str, first_offset: int, bodies: Sequence[bytes]) -> pa.Table:
    """The bodies of messages `first_offset`, `first_offset` + 1, ... as one table of `LANDED_MESSAGES`."""
    count = len(bodies)
    lengths = np.fromiter(map(len, bodies), np.int64, count)
    ends = np.cumsum(lengths)
    starts = ends - lengths
    _demand(lengths >= _HEAD.itemsize, first_offset)
    data = np.frombuffer(b"".join(bodies), np.uint8)
    head = data[starts[:, None] + np.arange(_HEAD.itemsize)].view(_HEAD)[:, 0] if count else np.empty(0, _HEAD)
    cuts = _cuts(data, head, starts, ends, first_offset)
    fields = pa.Array.from_buffers(
        pa.large_binary(), count * _FIELDS, [None, pa.py_buffer(cuts), pa.py_buffer(data)], null_count=0
    )
    origin_heads = cuts[:-1].reshape(count, _FIELDS)[:, 5]
    columns = {
        "broker": pa.repeat(pa.scalar(broker), count),
        "offset": np.arange(first_offset, first_offset + count, dtype=np.int64),
        "time": pa.array(head["time_us"].astype(np.int64)).cast(TIME),
        "kind": pa.DictionaryArray.from_arrays((head["flags"] >> 3 & 3).astype(np.int8), list(KINDS)).cast(pa.string()),
        "topic": _text(fields, 1, "topic", first_offset),
        "payload": fields.take(_every(count, 7)).cast(pa.binary()),
        "qos": (head["flags"] & 3).astype(np.int32),
        "retain": (head["flags"] & 4).astype(bool),
        "publisher": _text(fields, 2, "publisher", first_offset),
        "origin": _text(fields, 6, "origin", first_offset),
        "origin_offset": _origin_offsets(data, head, origin_heads),
        "properties": fields.take(_every(count, 3)).cast(pa.binary()),
        "expires_at": pa.array(head["expires_us"].astype(np.int64), mask=head["expires_us"] == 0).cast(TIME),
    }
    return pa.table(columns, schema=LANDED_MESSAGES)


def _cuts(data: Ints, head: Ints, starts: Ints, ends: Ints, first_offset: int) -> Ints:
    """Where every field of every body begins: the offsets of one Arrow array that holds all fields in a row."""
    topic = starts + _HEAD.itemsize
    publisher = topic + head["topic"]
    properties = publisher + head["publisher"]
    targets = properties + head["properties"]
    _demand(targets <= ends, first_offset)
    origin_head = _skip_targets(data, targets, head["targets"].astype(np.int64), ends, first_offset)
    with_origin = head["flags"] & _HAS_ORIGIN != 0
    origin = origin_head + np.where(with_origin, _ORIGIN_BYTES, 0)
    _demand(origin <= ends, first_offset)
    sizes = np.zeros_like(origin)
    sizes[with_origin] = data[origin[with_origin] - 1]
    payload = origin + sizes
    _demand(payload <= ends, first_offset)
    cuts = np.empty(len(starts) * _FIELDS + 1, np.int64)
    cuts[-1] = ends[-1] if len(ends) else 0
    columns = (starts, topic, publisher, properties, targets, origin_head, origin, payload)
    cuts[:-1] = np.stack(columns, axis=1).reshape(-1)
    return cuts


def _skip_targets(data: Ints, position: Ints, left: Ints, ends: Ints, first_offset: int) -> Ints:
    """One step per target, for all bodies that still have one; a target's length is in its own last byte."""
    position = position.copy()
    todo = np.flatnonzero(left)
    while len(todo):
        _demand(position[todo] + _TARGET_BYTES <= ends[todo], first_offset)
        identifiers = data[position[todo] + _TARGET_BYTES - 1].astype(np.int64)
        position[todo] += _TARGET_BYTES + 4 * identifiers
        left[todo] -= 1
        todo = todo[left[todo] > 0]
    return position


def _origin_offsets(data: Ints, head: Ints, origin_heads: Ints) -> Ints:
    offsets = np.full(len(head), -1, np.int64)
    rows = np.flatnonzero(head["flags"] & _HAS_ORIGIN)
    if len(rows):
        offsets[rows] = data[origin_heads[rows][:, None] + np.arange(8)].view("<i8")[:, 0]
    return offsets


def _every(count: int, field: int) -> Ints:
    return np.arange(field, count * _FIELDS, _FIELDS)


def _text(fields: Any, field: int, name: str, first_offset: int) -> Any:
    column = fields.take(_every(len(fields) // _FIELDS, field))
    try:
        return column.cast(pa.string())  # the cast checks UTF-8
    except pa.ArrowInvalid as error:
        raise JournalError(f"a {name} in the messages from offset {first_offset} on is not UTF-8: {error}") from error


def _demand(fits: Ints, first_offset: int) -> None:
    if not fits.all():
        bad = first_offset + int(np.argmin(fits))
        raise JournalError(
            f"message record near offset {bad} is shorter than its own lengths say; is the journal damaged?"
        )
