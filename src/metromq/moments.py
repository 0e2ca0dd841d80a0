"""Moments as people write them: ages, times of day, offsets of a journal."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from metromq.errors import UsageError

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_AGE: Final = re.compile(r"(\d{1,9})([smhd])")
_OFFSET: Final = re.compile(r"offset:(\d{1,18})")


@dataclass(frozen=True, slots=True)
class Since:
    """Where a replay starts: at an offset of one journal, or at a time in all of them."""

    offset: int  # -1: by time
    time_us: int


def parse_since(text: str, now_us: int) -> Since:
    """`10m`, `2026-11-17T08:00:00Z` or `offset:1200`; UsageError says what is allowed."""
    age = _AGE.fullmatch(text)
    if age is not None:
        return Since(-1, max(0, now_us - int(age[1]) * _UNITS[age[2]] * 1_000_000))
    offset = _OFFSET.fullmatch(text)
    if offset is not None:
        return Since(int(offset[1]), 0)
    return Since(-1, time_of(text))


def time_of(text: str) -> int:
    """ISO 8601 as microseconds since 1970; without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{text!r} is no start of a replay: write an age (90s, 10m, 2h, 7d), a time (2026-11-17T08:00:00Z) or"
            " an offset in the broker's journal (offset:1200)"
        ) from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return round(found.timestamp() * 1_000_000)


def text_of(time_us: int) -> str:
    """As a topic level can hold it: with Z, not with +00:00."""
    return datetime.fromtimestamp(time_us / 1_000_000, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
