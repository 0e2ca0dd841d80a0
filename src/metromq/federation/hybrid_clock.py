"""Hybrid logical time: the fastest clock of the city, as far as this broker has heard of it.

Brokers' clocks may differ by minutes. What decides between two CONNECTs of a client, or two values of a topic, must
follow what happened: whoever has heard of one stamps the next one later, and goes on with the time that it heard.
"""

from collections.abc import Callable
from typing import final


@final
class HybridClock:
    def __init__(self, wall_us: Callable[[], int] | None = None) -> None:
        self._wall_us = wall_us or (lambda: 0)
        self._ahead_us = 0  # of our own clock
        self._last_us = 0

    def stamp_us(self) -> int:
        """The time of something that happens now."""
        self._last_us = max(self._last_us + 1, self._wall_us() + self._ahead_us)
        return self._last_us

    def heard(self, time_us: int) -> None:
        """Something has happened at this time, somewhere."""
        self._last_us = max(self._last_us, time_us)
        wall_us = self._wall_us()
        if wall_us:
            self._ahead_us = max(self._ahead_us, time_us - wall_us)
