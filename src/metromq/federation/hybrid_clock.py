"""Hybrid logical time: close to the wall clock, and later than everything this broker has heard of.

Brokers' clocks may differ by minutes. What decides between two CONNECTs of a client, or two values of a topic, must
follow what happened: whoever has heard of one stamps the next one later.
"""

from typing import final


@final
class HybridClock:
    def __init__(self) -> None:
        self._last_us = 0

    def stamp_us(self, wall_us: int) -> int:
        """The time of something that happens now."""
        self._last_us = max(self._last_us + 1, wall_us)
        return self._last_us

    def heard(self, time_us: int) -> None:
        """Something has happened at this time, somewhere."""
        self._last_us = max(self._last_us, time_us)

    def latest_us(self) -> int:
        return self._last_us
