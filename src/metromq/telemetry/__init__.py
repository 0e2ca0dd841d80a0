"""What brokers count and how it reaches the recorder: windows of counts, and the spool in a broker's data directory."""

from metromq.telemetry.spool import (
    drop_oldest,
    held_position,
    read_window,
    set_aside,
    spool_window,
    spooled,
    write_position,
)
from metromq.telemetry.windows import (
    CLOCK,
    LINK,
    SERVICE_DEVICE,
    SERVICE_TOPIC,
    SITE,
    TOPIC,
    TOPIC_FROM,
    TelemetryRow,
    TelemetryWindow,
    decode_window,
)

__all__ = [
    "CLOCK",
    "LINK",
    "SERVICE_DEVICE",
    "SERVICE_TOPIC",
    "SITE",
    "TOPIC",
    "TOPIC_FROM",
    "TelemetryRow",
    "TelemetryWindow",
    "decode_window",
    "drop_oldest",
    "held_position",
    "read_window",
    "set_aside",
    "spool_window",
    "spooled",
    "write_position",
]
