"""What a broker counted per topic, site and link in one window of time: how it travels from broker to recorder."""

import json
from dataclasses import asdict, dataclass
from typing import Annotated, Final

from metromq.constraints import Range
from metromq.errors import ConfigError
from metromq.reading import read_data

TOPIC: Final = "topic"
TOPIC_FROM: Final = "topic-from"  # deliveries of a topic (name) that clients of one broker (detail) published
SITE: Final = "site"
LINK: Final = "link"
CLOCK: Final = "clock"  # how far the clock of a peer (name) is ahead of this broker's, in microseconds (detail)
SERVICE_TOPIC: Final = "service-topic"  # MQTT bytes of a service (name) on a topic (detail): the planner's dst
SERVICE_DEVICE: Final = "service-device"  # user bytes of a service (name) at a device (detail): the planner's dsd


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
    start_us: Annotated[int, Range(0)]  # these two name files
    seconds: float
    sequence: Annotated[int, Range(0)]
    rows: tuple[TelemetryRow, ...]

    def encode(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()


def decode_window(data: bytes) -> TelemetryWindow:
    """Raises ValueError for what no broker wrote; what a newer one counts beyond this is left out."""
    try:
        return read_data(TelemetryWindow, json.loads(data), ignore_unknown=True)
    except (ConfigError, RecursionError) as error:
        raise ValueError(f"it is not a window of telemetry: {error}") from error
