"""What a broker counts per topic, site and link, in windows of time. Pure: the broker calls it, the recorder ships it."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final, final

DELAY_BUCKETS: Final = 32  # bucket i counts delays in [2^(i-1), 2^i) microseconds; the last takes everything longer
DEFAULT_WINDOW_US: Final = 10_000_000
MAX_TOPICS: Final = 100_000  # counts of further topics in the same window are added up under the empty name

TOPIC: Final = "topic"
SITE: Final = "site"
LINK: Final = "link"
SERVICE_TOPIC: Final = "service-topic"
SERVICE_DEVICE: Final = "service-device"


@dataclass(frozen=True)
class TelemetryRow:
    """The counts of one subject in one window; what does not apply is 0."""

    subject: str
    name: str
    detail: str = ""
    publications: int = 0
    published_bytes: int = 0
    publishers: int = 0
    subscribers: int = 0
    deliveries_local: int = 0
    deliveries_remote: int = 0
    delivered_bytes: int = 0
    opened: int = 0
    closed: int = 0
    connects: int = 0
    messages: int = 0
    bytes: int = 0
    delay_counts: tuple[int, ...] = ()


@dataclass(frozen=True)
class TelemetryWindow:
    """All that one life of one broker counted in one window; (broker, start_us, sequence) names it for ever."""

    broker: str
    site: str
    start_us: int
    seconds: float
    sequence: int
    rows: tuple[TelemetryRow, ...]

    def encode(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()


def decode_window(data: bytes) -> TelemetryWindow:
    fields = json.loads(data)
    rows = tuple(TelemetryRow(**{**row, "delay_counts": tuple(row["delay_counts"])}) for row in fields.pop("rows"))
    return TelemetryWindow(rows=rows, **fields)


@final
class _TopicCount:
    def __init__(self) -> None:
        self.publications = 0
        self.published_bytes = 0
        self.publishers: set[str] = set()
        self.subscribers = 0
        self.deliveries_local = 0
        self.deliveries_remote = 0
        self.delivered_bytes = 0
        self.opened = 0
        self.closed = 0


@final
class _LinkCount:
    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.delays = [0] * DELAY_BUCKETS


@final
class Telemetry:
    """Counts until `roll` closes the window. `life` tells lives of one broker apart: its start in microseconds."""

    def __init__(self, broker: str, site: str, life: int, window_us: int = DEFAULT_WINDOW_US) -> None:
        self.broker = broker
        self.site = site
        self.life = life
        self.window_us = window_us
        self._start_us = -1
        self._clear()

    def _clear(self) -> None:
        self._topics: dict[str, _TopicCount] = {}
        self._links: dict[str, _LinkCount] = {}
        self._services: dict[tuple[str, str, str], list[int]] = {}
        self._connects = 0
        self._delays = [0] * DELAY_BUCKETS
        self._waited = 0

    def published(self, topic: str, publisher: str, size: int) -> None:
        """A client of this site published `size` payload bytes."""
        count = self._topic(topic)
        count.publications += 1
        count.published_bytes += size
        count.publishers.add(publisher)

    def delivered(self, topic: str, local: int, remote: int, size: int) -> None:
        """One message of `size` bytes went to `local` clients here and to `remote` peer brokers."""
        count = self._topic(topic)
        count.deliveries_local += local
        count.deliveries_remote += remote
        count.delivered_bytes += local * size
        if local > count.subscribers:
            count.subscribers = local

    def subscribed(self, topic_filter: str, subscribers: int) -> None:
        """A client subscribed; `subscribers` is how many of this site now hold the filter."""
        count = self._topic(topic_filter)
        count.opened += 1
        if subscribers > count.subscribers:
            count.subscribers = subscribers

    def unsubscribed(self, topic_filter: str) -> None:
        self._topic(topic_filter).closed += 1

    def connected(self) -> None:
        self._connects += 1

    def queued(self, delay_us: int) -> None:
        """A message waited this long between its arrival and its first delivery."""
        self._delays[bucket_of(delay_us)] += 1
        self._waited += 1

    def linked(self, peer: str, messages: int, size: int, delay_us: int) -> None:
        """`messages` with `size` bytes were handed to a link, the oldest after `delay_us`."""
        count = self._links.get(peer)
        if count is None:
            count = self._links[peer] = _LinkCount()
        count.messages += messages
        count.bytes += size
        count.delays[bucket_of(delay_us)] += messages

    def service_consumed(self, service: str, topic: str, size: int) -> None:
        """A service got or sent `size` bytes of MQTT on `topic` (the planner's dst)."""
        self._service(SERVICE_TOPIC, service, topic, size)

    def service_served(self, service: str, device: str, size: int) -> None:
        """Users at `device` exchanged `size` bytes with a service outside MQTT (the planner's dsd)."""
        self._service(SERVICE_DEVICE, service, device, size)

    def roll(self, now_us: int, force: bool = False) -> TelemetryWindow | None:
        """The window that has ended, once; `force` closes the current one early, at a stop."""
        start = now_us - now_us % self.window_us
        if self._start_us < 0:
            self._start_us = start
        if start == self._start_us and not force:
            return None
        rows = tuple(self._rows())
        ended, self._start_us = self._start_us, start
        sequence = self.life
        if force:
            self.life += 1  # what still comes in this window is another record
        self._clear()
        if not rows:
            return None
        return TelemetryWindow(self.broker, self.site, ended, self.window_us / 1e6, sequence, rows)

    def _topic(self, topic: str) -> _TopicCount:
        count = self._topics.get(topic)
        if count is None:
            if len(self._topics) >= MAX_TOPICS:
                topic = ""
                count = self._topics.get(topic)
            if count is None:
                count = self._topics[topic] = _TopicCount()
        return count

    def _service(self, subject: str, service: str, detail: str, size: int) -> None:
        count = self._services.setdefault((subject, service, detail), [0, 0])
        count[0] += 1
        count[1] += size

    def _rows(self) -> Iterator[TelemetryRow]:
        for topic, count in self._topics.items():
            yield TelemetryRow(
                TOPIC,
                topic,
                publications=count.publications,
                published_bytes=count.published_bytes,
                publishers=len(count.publishers),
                subscribers=count.subscribers,
                deliveries_local=count.deliveries_local,
                deliveries_remote=count.deliveries_remote,
                delivered_bytes=count.delivered_bytes,
                opened=count.opened,
                closed=count.closed,
            )
        if self._connects or self._waited:
            yield TelemetryRow(SITE, self.site, connects=self._connects, delay_counts=tuple(self._delays))
        for peer, link in self._links.items():
            yield TelemetryRow(LINK, peer, messages=link.messages, bytes=link.bytes, delay_counts=tuple(link.delays))
        for (subject, service, detail), (messages, size) in self._services.items():
            yield TelemetryRow(subject, service, detail, messages=messages, bytes=size)


def bucket_of(delay_us: int) -> int:
    return min(max(delay_us, 0).bit_length(), DELAY_BUCKETS - 1)
