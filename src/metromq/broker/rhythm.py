"""What a broker does regularly falls on the same moments: waking up costs more than what it wakes for."""

import time
from collections.abc import Callable
from typing import Final

BEAT_S: Final = 0.25
EARLY_S: Final = 0.005  # timers of event loops count milliseconds, and may be a little early


class Rhythm:
    """Beats since it was made, so that the brokers of one machine do not all wake at once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()

    def rest_s(self, longest_s: float = BEAT_S) -> float:
        """How long to sleep: until the next beat, unless that would be too late."""
        to_beat_s = BEAT_S - (self._clock() - self._began) % BEAT_S
        if to_beat_s < EARLY_S:
            to_beat_s += BEAT_S
        return to_beat_s if to_beat_s <= longest_s + EARLY_S else longest_s
