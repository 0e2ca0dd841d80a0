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
_LARGE: Final = 1 << 31  # bytes, beyond which offsets do not fit into 32 bits

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
    flags = head["flags"]
    cuts = _cuts(data, head, starts, ends, first_offset)
    parts = _Parts(data, cuts, count, first_offset)
    columns = {
        "broker": pa.repeat(pa.scalar(broker), count),
        "offset": offsets,
        "time": _times(head["time_us"].astype(np.int64)),
        "kind": _kinds(flags),
        "topic": parts.text("topic"),
        "payload": parts.bytes("payload"),
        "qos": (flags & layout.QOS).astype(np.int32),
        "retain": (flags & layout.RETAIN).astype(bool),
        "publisher": parts.text("publisher"),
        "origin": parts.text("origin"),
        "origin_offset": _origin_offsets(data, head, parts.begins("origin_head")),
        "properties": parts.bytes("properties"),
        "expires_at": _times(head["expires_us"].astype(np.int64), 0),
        "journal": pa.repeat(pa.scalar(journal), count),
        "arrived": _arrivals(data, head, parts.begins("arrived")),
    }
    return pa.table(columns, schema=LANDED_MESSAGES)


class _Parts:
    """All fields of all bodies, as one Arrow array over the bytes that came: columns are taken out of it."""

    def __init__(self, data: Ints, cuts: Ints, count: int, first_offset: int) -> None:
        # Numbers of 32 bits, where they are large enough, are what the columns have: nothing has to be converted.
        self._small = len(data) < _LARGE
        kind = pa.binary() if self._small else pa.large_binary()
        offsets = cuts.astype(np.int32) if self._small else cuts
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        self._fields = pa.Array.from_buffers(kind, count * _PARTS, buffers, null_count=0)
        self._cuts = cuts
        self._count = count
        self._first_offset = first_offset

    def begins(self, part: str) -> Ints:
        return self._cuts[layout.PARTS.index(part) : -1 : _PARTS]

    def bytes(self, part: str) -> Any:
        number = layout.PARTS.index(part)
        if (self._cuts[number:-1:_PARTS] == self._cuts[number + 1 :: _PARTS]).all():
            return _empty(self._count)  # most messages have no properties, and most no origin
        column = self._fields.take(pa.array(np.arange(number, self._count * _PARTS, _PARTS)))
        return column if self._small else column.cast(pa.binary())

    def text(self, part: str) -> Any:
        try:
            return self.bytes(part).cast(pa.string())  # the cast checks UTF-8
        except pa.ArrowInvalid as error:
            raise JournalError(
                f"a {part} in the messages from offset {self._first_offset} on is not UTF-8: {error}"
            ) from error


def _empty(count: int) -> Any:
    """So many values without a byte."""
    buffers = [None, pa.py_buffer(bytes(4 * (count + 1))), pa.py_buffer(b"")]
    return pa.Array.from_buffers(pa.binary(), count, buffers, null_count=0)


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
    for number, column in enumerate(columns):
        cuts[number:-1:_PARTS] = column
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
    return _times(times, 0)


def _times(times_us: Ints, none: int | None = None) -> Any:
    """`none`: the number that stands for no time."""
    if none is None:
        return pa.array(times_us).cast(TIME)
    missing = times_us == none
    return pa.nulls(len(times_us), TIME) if missing.all() else pa.array(times_us, mask=missing).cast(TIME)


def _gather(data: Ints, positions: Ints, dtype: Any) -> Ints:
    """What lies at each position; the caller knows that it is inside `data`."""
    if not len(positions):
        return np.empty(0, dtype)
    # One that begins at every byte. They are copied as bytes without a meaning, eight times as fast as field by field.
    everywhere = np.ndarray((len(data) - dtype.itemsize + 1,), f"V{dtype.itemsize}", data, strides=(1,))
    return everywhere[positions].view(dtype)


def _field(data: Ints, positions: Ints, dtype: Any, name: str) -> Ints:
    """One number of the struct at each position."""
    kind, start = dtype.fields[name]
    return data[positions + start] if kind == np.uint8 else _gather(data, positions + start, kind)


def _kinds(flags: Ints) -> Any:
    numbers = (flags >> layout.KIND_SHIFT & layout.KIND).astype(np.int8)
    if len(numbers) and (numbers == numbers[0]).all():
        return pa.repeat(pa.scalar(KINDS[numbers[0]]), len(numbers))
    return pa.DictionaryArray.from_arrays(numbers, list(KINDS)).cast(pa.string())


def _demand(fits: Ints, first_offset: int, rows: Ints | None = None) -> None:
    """`rows`: which bodies `fits` speaks of, unless of all."""
    if not fits.all():
        bad = int(np.argmin(fits))
        raise JournalError(
            f"message record near offset {first_offset + int(bad if rows is None else rows[bad])} "
            "is shorter than its own lengths say; is the journal damaged?"
        )
