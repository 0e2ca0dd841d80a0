"""Closes telemetry windows; while a lake is configured, keeps a recorder process running that ships the journal."""

import asyncio
import sys
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

from metromq.broker import logs
from metromq.broker.http_listener import HttpAnswer
from metromq.federation.host import WILL_SUFFIX, Host
from metromq.protocol.session import Hub, TopicCount
from metromq.supervising import Pace, ended_in_time, keep_running
from metromq.telemetry import (
    CLOCK,
    LINK,
    SITE,
    TOPIC,
    TOPIC_FROM,
    TelemetryRow,
    TelemetryWindow,
    drop_oldest,
    spool_window,
)

RESTART_S = 1.0
MAX_RESTART_S = 60.0
LOOK_EVERY = 1_000  # windows between two looks at how many wait
MOST_WAITING = 60_000  # a week of windows of ten seconds
MOST_RECENT_BYTES = 4 << 20  # of windows that are kept for whoever asks, the last ones
STOP_S = 30.0  # Python alone may need seconds to start on a small machine


class Telemetry:
    """Turns the hub's counts per topic into windows; (broker, start, sequence) names each for ever."""

    def __init__(self, hub: Hub, site: str, window_s: float, host: Host | None) -> None:
        self._hub = hub
        self._site = site
        self._host = host
        self._sequence = hub.clock.wall_us
        self._links: dict[str, tuple[int, int]] = {}
        hub.topic_counts.record(int(window_s * 1_000_000), hub.clock.wall_us)

    def take(self, force: bool = False) -> list[TelemetryWindow]:
        """The windows that have ended, each once; `force` closes the current one early, at a stop."""
        counts = self._hub.topic_counts
        if force:
            counts.turn(self._hub.clock.wall_us)
        closed, counts.closed = counts.closed, []
        found: list[TelemetryWindow] = []
        for window in closed:
            rows = [_topic_row(topic, count) for topic, count in window.topics.items()]
            rows += [row for topic, count in window.topics.items() for row in self._origin_rows(topic, count)]
            if window.connects or any(window.delays):
                delays = tuple(window.delays)
                rows.append(TelemetryRow(SITE, self._site, connects=window.connects, delay_counts=delays))
            rows += self._clock_rows() if rows else []
            rows += self._link_rows()  # links count without windows: what they sent since the last look
            self._sequence += 1
            if rows:
                seconds = counts.window_us / 1e6
                name = self._hub.name
                found.append(TelemetryWindow(name, self._site, window.start_us, seconds, self._sequence, tuple(rows)))
        return found

    def _origin_rows(self, topic: str, count: TopicCount) -> list[TelemetryRow]:
        brokers: dict[str, int] = {}
        for origin, deliveries in count.origins.items():
            broker = origin.removesuffix(WILL_SUFFIX) or self._hub.name
            brokers[broker] = brokers.get(broker, 0) + deliveries
        return [TelemetryRow(TOPIC_FROM, topic, broker, deliveries_local=count) for broker, count in brokers.items()]

    def _clock_rows(self) -> list[TelemetryRow]:
        """With whatever was counted in a window: the clocks by which the times of its messages are to be read."""
        if self._host is None:
            return []
        skews = ((peer, self._host.node.greetings.skews.of(peer)) for peer in self._host.links)
        return [TelemetryRow(CLOCK, peer, str(skew.ahead_us)) for peer, skew in skews if skew is not None]

    def _link_rows(self) -> list[TelemetryRow]:
        rows: list[TelemetryRow] = []
        for peer, link in self._host.links.items() if self._host is not None else ():
            messages, size = self._links.get(peer, (0, 0))
            self._links[peer] = (link.sent_messages, link.sent_bytes)
            if link.sent_messages > messages:
                delays = link.take_delays()
                sent, sent_bytes = link.sent_messages - messages, link.sent_bytes - size
                rows.append(TelemetryRow(LINK, peer, messages=sent, bytes=sent_bytes, delay_counts=delays))
        return rows


def _topic_row(topic: str, count: TopicCount) -> TelemetryRow:
    return TelemetryRow(
        TOPIC,
        topic,
        publications=count.publications,
        published_bytes=count.published_bytes,
        publishers=len(count.publishers),
        subscribers=count.most_subscribers,
        deliveries_local=count.deliveries_local,
        deliveries_remote=count.deliveries_remote,
        delivered_bytes=count.delivered_bytes,
        opened=count.opened,
        closed=count.closed,
    )


class Recording:
    """Owns the telemetry and the recorder process of one broker; without a lake, windows wait for whoever records."""

    def __init__(
        self, hub: Hub, data_dir: Path, lake: str | None, site: str, window_s: float, host: Host | None
    ) -> None:
        self._data_dir = data_dir
        self._lake = lake
        self._name = hub.name
        self._telemetry = Telemetry(hub, site, window_s, host)
        self._spooled = 0
        self._recent: deque[bytes] = deque()
        self._process: asyncio.subprocess.Process | None = None
        self._writer = ThreadPoolExecutor(1, "telemetry")  # the disk's pace is not the event loop's

    def tick(self, force: bool = False) -> None:
        for window in self._telemetry.take(force):
            self._recent.append(window.encode())
            while len(self._recent) > 1 and sum(map(len, self._recent)) > MOST_RECENT_BYTES:
                self._recent.popleft()
            self._writer.submit(self._write, window)

    def windows_page(self, query: Mapping[str, str]) -> HttpAnswer:
        """The last windows, the oldest first: the recorder takes those on disk away, and a manager may be elsewhere."""
        return HttpAnswer(b'{"windows":[' + b",".join(self._recent) + b"]}\n", "application/json")

    def _write(self, window: TelemetryWindow) -> None:
        try:
            spool_window(self._data_dir, window)
            self._spooled += 1
            if self._lake is None and self._spooled % LOOK_EVERY == 0:
                drop_oldest(self._data_dir, MOST_WAITING)
        except OSError as error:
            logs.error(f"a window of telemetry is lost: {error}", start_us=window.start_us, broker=self._name)

    async def run(self) -> NoReturn:
        """Restarts the recorder when it dies; it resumes from its own durable position."""
        if self._lake is None:
            await asyncio.Event().wait()
        await keep_running(self._start, self._ended, Pace(RESTART_S, MAX_RESTART_S, MAX_RESTART_S))

    async def _start(self) -> asyncio.subprocess.Process:
        self._process = await asyncio.create_subprocess_exec(*self._command("--with-parent"))
        return self._process

    def _ended(self, what: str, wait_s: float) -> None:
        logs.error(f"the recorder {what}; it will be restarted", seconds=wait_s, broker=self._name)

    def _command(self, *options: str) -> list[str]:
        data = ["--data", str(self._data_dir), "--lake", self._lake or "", "--broker", self._name]
        return [sys.executable, "-m", "metromq.cli.main", "pipeline", "record", *data, *options]

    async def stop(self) -> None:
        """After the journal is closed: the recorder ships the rest and ends."""
        self.tick(force=True)
        await asyncio.to_thread(self._writer.shutdown)
        if self._lake is None:
            return
        process = self._process
        if process is not None and process.returncode is None:
            process.terminate()
            await ended_in_time(process, STOP_S)
        if process is None or process.returncode != 0:  # none yet, or a signal met it before it could listen
            process = await asyncio.create_subprocess_exec(*self._command("--once"))
            await ended_in_time(process, STOP_S)
            if process.returncode != 0:
                logs.error("not everything was recorded; the next start will record the rest", broker=self._name)
