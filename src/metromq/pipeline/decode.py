"""Journal bodies to Arrow columns, a whole batch at a time: no Python per message.

The twin is `protocol.session.records.decode_message`; the tests hold the two together.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from metromq.errors import JournalError
from metromq.pipeline.schemas import KINDS, LANDED_MESSAGES, TIME
from metromq.protocol.session import layout


def _dtype(fields: layout.Fields) -> Any:
    """Packed, as `struct` reads them."""
    return np.dtype([(name, f"<{code}") for name, code in fields])


_HEAD: Final = _dtype(layout.HEAD)
_TARGET: Final = _dtype(layout.TARGET)
_IDENTIFIER: Final = _dtype(layout.IDENTIFIER)
_NOTE_LENGTH: Final = _dtype(layout.NOTE_LENGTH)
_ORIGIN_HEAD: Final = _dtype(layout.ORIGIN_HEAD)
_USED: Final = _dtype(layout.USED)
_ARRIVAL: Final = _dtype(layout.ARRIVAL)
_PARTS: Final = len(layout.PARTS)

Ints = Any  # numpy arrays of integers


def decode_batch(broker: str, first_offset: int, bodies: Sequence[bytes], journal: str = "") -> pa.Table:
    """The bodies of messages `first_offset`, `first_offset` + 1, ... as one table of `LANDED_MESSAGES`."""
    count = len(bodies)
    offsets = np.arange(first_offset, first_offset + count, dtype=np.int64)
    return decode_records(broker, offsets, np.fromiter(map(len, bodies), np.int64, count), b"".join(bodies), journal)


def decode_records(broker: str, offsets: Ints, lengths: Ints, joined: bytes, journal: str = "") -> pa.Table:
    """The same of bodies that stand in a row, with any offsets."""
    count = len(lengths)
    first_offset = int(offsets[0]) if count else 0
    ends = np.cumsum(lengths)
    starts = ends - lengths
    _demand(lengths >= _HEAD.itemsize, first_offset)
    data = np.frombuffer(joined, np.uint8)
    head = _gather(data, starts, _HEAD)
    cuts = _cuts(data, head, starts, ends, first_offset)
    fields = pa.Array.from_buffers(
        pa.large_binary(), count * _PARTS, [None, pa.py_buffer(cuts), pa.py_buffer(data)], null_count=0
    )
    begins = cuts[:-1].reshape(count, _PARTS)
    origin_heads, arrivals = (begins[:, layout.PARTS.index(part)] for part in ("origin_head", "arrived"))
    columns = {
        "broker": pa.repeat(pa.scalar(broker), count),
        "offset": offsets,
        "time": pa.array(head["time_us"].astype(np.int64)).cast(TIME),
        "kind": _kinds(head["flags"]),
        "topic": _text(fields, "topic", first_offset),
        "payload": fields.take(_every(count, "payload")).cast(pa.binary()),
        "qos": (head["flags"] & layout.QOS).astype(np.int32),
        "retain": (head["flags"] & layout.RETAIN).astype(bool),
        "publisher": _text(fields, "publisher", first_offset),
        "origin": _text(fields, "origin", first_offset),
        "origin_offset": _origin_offsets(data, head, origin_heads),
        "properties": fields.take(_every(count, "properties")).cast(pa.binary()),
        "expires_at": pa.array(head["expires_us"].astype(np.int64), mask=head["expires_us"] == 0).cast(TIME),
        "journal": pa.repeat(pa.scalar(journal), count),
        "arrived": _arrivals(data, head, arrivals),
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
    with_origin = np.flatnonzero(head["flags"] & layout.ORIGIN)
    origin = origin_head.copy()
    origin[with_origin] += _ORIGIN_HEAD.itemsize
    _demand(origin <= ends, first_offset)
    uses = origin.copy()
    uses[with_origin] += _field(data, origin_head[with_origin], _ORIGIN_HEAD, "name")
    arrived = uses + _USED.itemsize * ((head["flags"] & layout.USES) > 0)
    payload = arrived + _ARRIVAL.itemsize * ((head["flags"] & layout.ARRIVED) > 0)
    _demand(payload <= ends, first_offset)
    cuts = np.empty(len(starts) * _PARTS + 1, np.int64)
    cuts[-1] = ends[-1] if len(ends) else 0
    columns = (starts, topic, publisher, properties, targets, origin_head, origin, uses, arrived, payload)
    cuts[:-1] = np.stack(columns, axis=1).reshape(-1)
    return cuts


def _skip_targets(data: Ints, position: Ints, left: Ints, ends: Ints, first_offset: int) -> Ints:
    """One step per target, for all bodies that still have one."""
    position = position.copy()
    todo = np.flatnonzero(left)
    while len(todo):
        at = position[todo]
        _demand(at + _TARGET.itemsize <= ends[todo], first_offset, todo)
        flags, identifiers = _field(data, at, _TARGET, "flags"), _field(data, at, _TARGET, "identifiers")
        at += _TARGET.itemsize + _IDENTIFIER.itemsize * identifiers.astype(np.int64)
        position[todo] = _skip_notes(data, at, flags, ends[todo], first_offset, todo)
        left[todo] -= 1
        todo = todo[left[todo] > 0]
    return position


def _skip_notes(data: Ints, position: Ints, flags: Ints, ends: Ints, first_offset: int, rows: Ints) -> Ints:
    """Behind one target of each body: most have no note, those of links do."""
    noted = np.flatnonzero(flags & layout.NOTE)
    at = position[noted]
    _demand(at + _NOTE_LENGTH.itemsize <= ends[noted], first_offset, rows[noted])
    position[noted] += _NOTE_LENGTH.itemsize + _field(data, at, _NOTE_LENGTH, "bytes").astype(np.int64)
    return position


def _origin_offsets(data: Ints, head: Ints, origin_heads: Ints) -> Ints:
    offsets = np.full(len(head), -1, np.int64)
    rows = np.flatnonzero(head["flags"] & layout.ORIGIN)
    offsets[rows] = _field(data, origin_heads[rows], _ORIGIN_HEAD, "offset")
    return offsets


def _arrivals(data: Ints, head: Ints, positions: Ints) -> Any:
    times = np.zeros(len(head), np.int64)
    rows = np.flatnonzero(head["flags"] & layout.ARRIVED)
    times[rows] = _field(data, positions[rows], _ARRIVAL, "time_us").astype(np.int64)
    return pa.array(times, mask=times == 0).cast(TIME)


def _gather(data: Ints, positions: Ints, dtype: Any) -> Ints:
    """What lies at each position; the caller knows that it is inside `data`."""
    if not len(positions):
        return np.empty(0, dtype)
    return data[positions[:, None] + np.arange(dtype.itemsize)].view(dtype)[:, 0]


def _field(data: Ints, positions: Ints, dtype: Any, name: str) -> Ints:
    """One number of the struct at each position."""
    kind, start = dtype.fields[name]
    return data[positions + start] if kind == np.uint8 else _gather(data, positions + start, kind)


def _kinds(flags: Ints) -> Any:
    numbers = (flags >> layout.KIND_SHIFT & layout.KIND).astype(np.int8)
    return pa.DictionaryArray.from_arrays(numbers, list(KINDS)).cast(pa.string())


def _every(count: int, part: str) -> Ints:
    return np.arange(layout.PARTS.index(part), count * _PARTS, _PARTS)


def _text(fields: Any, part: str, first_offset: int) -> Any:
    column = fields.take(_every(len(fields) // _PARTS, part))
    try:
        return column.cast(pa.string())  # the cast checks UTF-8
    except pa.ArrowInvalid as error:
        raise JournalError(f"a {part} in the messages from offset {first_offset} on is not UTF-8: {error}") from error


def _demand(fits: Ints, first_offset: int, rows: Ints | None = None) -> None:
    """`rows`: which bodies `fits` speaks of, unless of all."""
    if not fits.all():
        bad = int(np.argmin(fits))
        raise JournalError(
            f"message record near offset {first_offset + int(bad if rows is None else rows[bad])} "
            "is shorter than its own lengths say; is the journal damaged?"
        )
