"""Which payloads are nested too deep for Java, whose stack holds every level of JSON: if it is full, Spark ends."""

import re
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# Spark 4.3 reads 128 levels of arrays or objects with a stack of 256 kB, and fails somewhere beyond 250 with the 1 MB
# that a thread of Java has unless somebody chose. People write ten.
LEVELS: Final = 100

_ESCAPED: Final = re.compile(rb"\\.", re.DOTALL)
_AT_ONCE: Final = 1000  # payloads that are in memory twice
_QUOTE: Final = ord('"')
# Only what opens so can be deep. A byte order mark, or wider characters, some parsers of JSON take and others not.
_CONTAINER: Final = re.compile(rb"[\x00-\x20\xef\xbb\xbf]*[\[{]")
_STEPS: Final = np.zeros(256, np.int8)
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1


def is_deep(payload: bytes) -> bool:
    """Whether a parser of JSON would be more than `LEVELS` deep somewhere before it ends or finds an error."""
    if payload.count(b"[") + payload.count(b"{") <= LEVELS or not _CONTAINER.match(payload):
        return False
    found = np.frombuffer(_ESCAPED.sub(b"", payload) if b"\\" in payload else payload, np.uint8)
    in_string = np.cumsum(found == _QUOTE, dtype=np.uint8) & 1
    depths = np.cumsum(np.where(in_string, 0, _STEPS[found]), dtype=np.int64)
    return bool(depths.max(initial=0) > LEVELS)


def without_deep(payloads: Any) -> Any:
    """An Arrow array of payloads, null in place of those that are too deep. Most are too short, and cost nothing."""
    long = pc.indices_nonzero(pc.greater(pc.binary_length(payloads), LEVELS))
    deep: list[int] = []
    for start in range(0, len(long), _AT_ONCE):
        numbers = long.slice(start, _AT_ONCE)
        pairs = zip(numbers.to_pylist(), payloads.take(numbers).to_pylist(), strict=True)
        deep += [number for number, payload in pairs if is_deep(payload)]
    if not deep:
        return payloads
    mask = np.zeros(len(payloads), bool)
    mask[deep] = True
    return pc.if_else(pa.array(mask), pa.scalar(None, payloads.type), payloads)
