"""The manager's statistics from a lake: the minutes of its table `traffic`, topic by broker."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from metromq.control.manager import Counts, Statistics
from metromq.errors import UsageError

MINUTE_S = 60.0


def lake_statistics(lake: str, span_s: float) -> Callable[[], Awaitable[Statistics]]:
    """Reads in a thread; a lake may be far away."""
    try:
        from metromq.pipeline import Lake
    except ImportError as error:
        raise UsageError("the lake needs an extra package: pip install 'metromq[pipeline]'") from error

    def read() -> Statistics:
        tables = Lake(lake)
        if not tables.exists("traffic"):
            raise UsageError(f"{lake} has no table traffic; run `metromq pipeline refresh --lake {lake}` first")
        files = tables.files("traffic")
        newest = max((str(file.high.get("window_start", "")) for file in files), default="")
        recent = [file for file in files if str(file.high.get("window_start", "")) >= newest[:10]]
        return of_minutes(tables.arrow("traffic", recent).to_pylist(), span_s, f"lake {lake}")

    async def ask() -> Statistics:
        return await asyncio.to_thread(read)

    return ask


def of_minutes(rows: Iterable[Mapping[str, Any]], span_s: float, source: str) -> Statistics:
    """The last minutes that the table has, as rates; a client that is there all the time counts once."""
    known = list(rows)
    if not known:
        return Statistics(source=source)
    newest = max(row["window_start"] for row in known)
    recent = [row for row in known if (newest - row["window_start"]).total_seconds() < span_s]
    seconds = max((newest - row["window_start"]).total_seconds() for row in recent) + MINUTE_S
    found: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for row in recent:
        found.setdefault(row["topic"], {}).setdefault(row["broker"], []).append(row)
    counts = {
        topic: {broker: _counts(parts, seconds) for broker, parts in by_broker.items()}
        for topic, by_broker in found.items()
    }
    return Statistics(counts, seconds, source)


def _counts(rows: list[Mapping[str, Any]], seconds: float) -> Counts:
    def total(name: str) -> float:
        return sum(row[name] or 0 for row in rows) / seconds

    return Counts(
        total("publications"),
        total("published_bytes"),
        max(row["publishers"] or 0 for row in rows),
        max(row["subscribers"] or 0 for row in rows),
        total("deliveries_local"),
        total("delivered_bytes"),
    )
