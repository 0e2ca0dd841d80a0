"""What `run` has loaded and what still waits, for a line on the screen and for Prometheus."""

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from metromq.pipeline.ingest import Taken
from metromq.pipeline.landing import MESSAGES, Landing

RATE_SECONDS: Final = 10.0  # the rate is that of so many seconds
NAMED: Final = 4  # brokers that a line names; the ones that lag most


class Progress:
    """Told of each batch; `waiting` asks the landing area, so that it also sees what nobody has begun to load."""

    def __init__(self, landing: Landing, clock: Callable[[], float]) -> None:
        self._landing = landing
        self._clock = clock
        self._lock = threading.Lock()
        self._recent: deque[tuple[float, int]] = deque()
        self.rows: Counter[str] = Counter()
        self.batches = 0
        self.rejected = 0
        self.began = clock()

    def took(self, taken: Taken) -> None:
        with self._lock:
            self.rows.update(taken.brokers)
            self.batches += 1
            self.rejected += len(taken.rejected)
            self._recent.append((self._clock(), taken.messages))

    def rate(self) -> float:
        """Rows per second, of the last ten."""
        now = self._clock()
        with self._lock:
            while self._recent and self._recent[0][0] < now - RATE_SECONDS:
                self._recent.popleft()
            return sum(count for _, count in self._recent) / max(1.0, min(RATE_SECONDS, now - self.began))

    def waiting(self) -> dict[str, int]:
        """Rows that have landed and are not loaded yet, of every broker that was ever seen here."""
        found = dict.fromkeys(self.rows, 0)
        for file in self._landing.files():
            if file.kind == MESSAGES:
                found[file.broker] = found.get(file.broker, 0) + file.rows
        return found

    def line(self) -> str:
        return line(sum(self.rows.values()), self.rate(), self.waiting())


def line(rows: int, rate: float, waiting: Mapping[str, int]) -> str:
    """`12,000 rows, 1,500 rows/s; waiting: b01 320, b07 12, 14 others none`."""
    late = sorted(((count, name) for name, count in waiting.items() if count), reverse=True)
    parts = [f"{name} {count:,}" for count, name in late[:NAMED]]
    if len(late) > NAMED:
        parts.append(f"{len(late) - NAMED} others {sum(count for count, _ in late[NAMED:]):,}")
    rest = len(waiting) - len(late)
    if rest:
        parts.append(f"{rest} others none" if late else "none")
    return f"{rows:,} rows, {rate:,.0f} rows/s; waiting: {', '.join(parts) or 'none'}"


class Metrics:
    """A collector for Prometheus: reads a Progress when it is asked."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        progress = self._progress
        rows = CounterMetricFamily("metromq_pipeline_rows", "Rows loaded into messages", labels=["broker"])
        waiting = GaugeMetricFamily("metromq_pipeline_waiting_rows", "Rows landed, not loaded yet", labels=["broker"])
        for broker, count in sorted(progress.rows.items()):
            rows.add_metric([broker], count)
        for broker, count in sorted(progress.waiting().items()):
            waiting.add_metric([broker], count)
        yield rows
        yield waiting
        yield GaugeMetricFamily("metromq_pipeline_rows_per_second", "Rows of the last ten seconds", progress.rate())
        yield CounterMetricFamily("metromq_pipeline_batches", "Batches loaded", progress.batches)
        yield CounterMetricFamily("metromq_pipeline_rejected_files", "Files set aside", progress.rejected)


def serve_metrics(progress: Progress, host: str, port: int) -> tuple[Callable[[], None], int]:
    """An HTTP listener for /metrics: how to close it, and its port (0 lets the system choose)."""
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    registry.register(Metrics(progress))
    server, thread = start_http_server(port, host, registry)

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return close, int(server.server_port)
