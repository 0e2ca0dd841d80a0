"""What a broker counts per topic while somebody records it: a dictionary of counts for each window of time.

A message costs one look-up by topic and a few additions; the fast path for lone messages is closed meanwhile.
"""

from typing import Final, final

MAX_TOPICS: Final = 100_000  # counts of further topics are added up under the empty name,
MAX_TOPIC_LENGTHS: Final = 32 << 20  # and when the names are longer than this together
DELAY_BUCKETS: Final = 32  # bucket i counts delays in [2^(i-1), 2^i) microseconds; the last takes everything longer


@final
class TopicCount:
    def __init__(self) -> None:
        self.publications = 0
        self.published_bytes = 0
        self.deliveries_local = 0
        self.deliveries_remote = 0
        self.delivered_bytes = 0
        self.most_subscribers = 0
        self.opened = 0
        self.closed = 0
        self.publishers: set[str] = set()
        self.origins: dict[str, int] = {}  # deliveries to clients, by the broker of the publisher; empty: this one

    def published(self, publisher: str, messages: int, payload_bytes: int) -> None:
        self.publications += messages
        self.published_bytes += payload_bytes
        self.publishers.add(publisher)

    def delivered(self, receivers: int, peers: int, messages: int, payload_bytes: int, origin: str) -> None:
        """`messages` with `payload_bytes` together went to so many clients here and to so many peers; a client of
        `origin` published them."""
        self.deliveries_local += receivers * messages
        self.deliveries_remote += peers * messages
        self.delivered_bytes += receivers * payload_bytes
        if receivers:
            self.origins[origin] = self.origins.get(origin, 0) + receivers * messages
        if receivers > self.most_subscribers:
            self.most_subscribers = receivers


@final
class Window:
    """What was counted in one window of time, from `start_us` on."""

    def __init__(self, start_us: int, topics: dict[str, TopicCount], connects: int, delays: list[int]) -> None:
        self.start_us = start_us
        self.topics = topics
        self.connects = connects
        self.delays = delays  # between acceptance and sending, QoS 1 and 2


@final
class TopicCounts:
    """Counts nothing before `record`. The hub's clock turns the windows: a message counts in that of its own time."""

    def __init__(self) -> None:
        self.recording = False
        self.window_us = 0
        self.closed: list[Window] = []  # for whoever records them
        self.start_us = 0
        self.until_us = 0
        self.topics: dict[str, TopicCount] = {}
        self.connects = 0
        self.delays: list[int] = []
        self._lengths = 0

    def record(self, window_us: int, wall_us: int) -> None:
        """From now on; somebody takes what is in `closed`."""
        self.recording = True
        self.window_us = window_us
        self._begin(wall_us)

    def _begin(self, wall_us: int) -> None:
        self.start_us = wall_us - wall_us % self.window_us
        self.until_us = self.start_us + self.window_us
        self.topics = {}
        self._lengths = 0
        self.connects = 0
        self.delays = [0] * DELAY_BUCKETS

    def turn(self, wall_us: int) -> None:
        """Closes the window; the next is the one that `wall_us` lies in."""
        self.closed.append(Window(self.start_us, self.topics, self.connects, self.delays))
        self._begin(wall_us)

    def of(self, topic: str) -> TopicCount:
        count = self.topics.get(topic)
        if count is None:
            self._lengths += len(topic)
            if len(self.topics) >= MAX_TOPICS or self._lengths > MAX_TOPIC_LENGTHS:
                topic = ""
                count = self.topics.get(topic)
            if count is None:
                count = TopicCount()
                self.topics[topic] = count
        return count

    def waited(self, delay_us: int) -> None:
        self.delays[min(max(delay_us, 0).bit_length(), DELAY_BUCKETS - 1)] += 1
