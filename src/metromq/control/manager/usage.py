"""The manager's own telemetry: what services use of topics and what users use of services, for the planner's tables."""

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from metromq.control.core import ServiceState
from metromq.control.manager.counting import is_topic
from metromq.protocol.topics import matches
from metromq.telemetry import (
    SERVICE_DEVICE,
    SERVICE_TOPIC,
    TOPIC,
    TelemetryRow,
    TelemetryWindow,
    drop_oldest,
    spool_window,
)

NAME = "manager"
MOST_LINE_BYTES = 1 << 20
MOST_WAITING = 60_000
MOST_BYTES = 1 << 60


class ServiceUsage:
    """Adds up between two windows. MQTT traffic of a service is what is published to the topics that it uses: it gets
    each message once. User traffic services tell themselves, a JSON object per line in a file that they are given."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._topics: dict[tuple[str, str], int] = {}
        self._users: dict[tuple[str, str], int] = {}
        self._read: dict[str, int] = {}
        self._since = time.time()
        self._sequence = time.time_ns() // 1000
        directory.mkdir(parents=True, exist_ok=True)

    def file_of(self, service: str) -> Path:
        return self._directory / f"{service}.usage.jsonl"

    def saw(self, windows: Iterable[TelemetryWindow], services: Mapping[str, ServiceState]) -> None:
        for row in (row for window in windows for row in window.rows):
            if row.subject == TOPIC and row.published_bytes and is_topic(row.name):
                for name, state in services.items():
                    if any(matches(one, row.name) for one in state.spec.topics):
                        key = name, row.name
                        self._topics[key] = self._topics.get(key, 0) + row.published_bytes

    def read_users(self, services: Iterable[str]) -> None:
        for name in services:
            for device, size in self._told(name):
                self._users[name, device] = self._users.get((name, device), 0) + size

    def _told(self, name: str) -> Iterable[tuple[str, int]]:
        try:
            with open(self.file_of(name), "rb") as file:
                file.seek(self._read.get(name, file.seek(0, 2)))  # what was there before is of an earlier manager
                data = file.read(MOST_LINE_BYTES)
                whole = data.rfind(b"\n") + 1
                self._read[name] = file.tell() - len(data) + whole
        except OSError:
            self._read.setdefault(name, 0)
            return
        for line in data[:whole].splitlines():
            try:
                said = json.loads(line)
                device, size = str(said["device"]), int(said["bytes"])
            except (ValueError, KeyError, TypeError):
                continue  # a service may write what it likes
            if 0 < size < MOST_BYTES:
                yield device, size

    def window(self, now: float) -> TelemetryWindow | None:
        """What was added up since the last one; None: nothing was."""
        rows = [TelemetryRow(SERVICE_TOPIC, name, topic, bytes=size) for (name, topic), size in self._topics.items()]
        rows += [TelemetryRow(SERVICE_DEVICE, name, device, bytes=size) for (name, device), size in self._users.items()]
        since, self._since = self._since, now
        self._topics, self._users = {}, {}
        if not rows:
            return None
        self._sequence += 1
        return TelemetryWindow(NAME, NAME, int(since * 1e6), max(now - since, 1e-3), self._sequence, tuple(rows))


def spool(data: Path, window: TelemetryWindow) -> None:
    """In the central broker's directory: its recorder ships everything there, and it has the only one for certain."""
    spool_window(data, window)
    drop_oldest(data, MOST_WAITING)
