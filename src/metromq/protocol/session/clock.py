"""The broker's time, as its shell tells it."""

from typing import final


@final
class Clock:
    """Stands still between two calls of `Hub.at`."""

    def __init__(self) -> None:
        self.now = 0.0  # monotonic seconds
        self.wall_us = 0  # microseconds since 1970
