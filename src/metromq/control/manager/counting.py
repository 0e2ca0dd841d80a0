"""Traffic as the manager knows it: the windows that brokers closed lately, or whatever a lake says."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from metromq.control.city_status import NoAnswer, get
from metromq.control.core import Counts, Statistics
from metromq.control.data_directory import running_here
from metromq.errors import ConfigError
from metromq.reading import read_data
from metromq.telemetry import TOPIC, TelemetryRow, TelemetryWindow

LakeReader = Callable[[], Awaitable[Statistics]]


class OwnCounters:
    """Asks every broker that runs here for its last windows, and keeps those of the last seconds."""

    def __init__(self, data: Path, span_s: float) -> None:
        self._data = data
        self.span_s = span_s
        self._windows: dict[tuple[str, int, int], TelemetryWindow] = {}

    async def look(self) -> list[TelemetryWindow]:
        """The windows that are new."""
        places = running_here(self._data)
        answers = await asyncio.gather(*(_windows(place.http) for place in places))
        fresh: list[TelemetryWindow] = []
        oldest = (time.time() - self.span_s) * 1e6
        for window in (window for answer in answers for window in answer):
            key = window.broker, window.start_us, window.sequence
            if key not in self._windows and window.start_us + window.seconds * 1e6 > oldest:
                self._windows[key] = window
                fresh.append(window)
        self._windows = {
            key: window for key, window in self._windows.items() if window.start_us + window.seconds * 1e6 > oldest
        }
        return fresh

    def statistics(self) -> Statistics:
        return added_up(self._windows.values(), "counters of the brokers")


async def _windows(http: str) -> list[TelemetryWindow]:
    try:
        raw = json.loads(await get(http, "/windows"))
        return [read_data(TelemetryWindow, one, ignore_unknown=True) for one in raw["windows"]]
    except (NoAnswer, ValueError, KeyError, ConfigError):
        return []  # it counts nothing, or is busy


def is_topic(name: str) -> bool:
    return bool(name) and not name.startswith("$") and "+" not in name and "#" not in name


def added_up(windows: Iterable[TelemetryWindow], source: str) -> Statistics:
    """Rates over the time that the windows span; a client that is there all the time counts once."""
    known = list(windows)
    if not known:
        return Statistics()
    first = min(window.start_us for window in known)
    last = max(window.start_us + window.seconds * 1e6 for window in known)
    seconds = max((last - first) / 1e6, 1e-3)
    rows: dict[str, dict[str, list[TelemetryRow]]] = {}
    for window in known:
        for row in window.rows:
            if row.subject == TOPIC and is_topic(row.name):
                rows.setdefault(row.name, {}).setdefault(window.broker, []).append(row)
    counts = {
        topic: {broker: _counts(found, seconds) for broker, found in by_broker.items()}
        for topic, by_broker in rows.items()
    }
    return Statistics(counts, seconds, source)


def _counts(rows: list[TelemetryRow], seconds: float) -> Counts:
    return Counts(
        sum(row.publications for row in rows) / seconds,
        sum(row.published_bytes for row in rows) / seconds,
        max(row.publishers for row in rows),
        max(row.subscribers for row in rows),
        sum(row.deliveries_local for row in rows) / seconds,
        sum(row.delivered_bytes for row in rows) / seconds,
    )
