"""Rates out of counters: a few samples, a second apart."""

from collections import deque
from collections.abc import Mapping

SPAN_S = 5.0  # long enough to be steady, short enough to follow what a person sees


class Meter:
    """Takes a sample about once a second."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Mapping[str, int]]] = deque()

    def sample(self, now: float, counters: Mapping[str, int]) -> None:
        samples = self._samples
        samples.append((now, counters))
        while now - samples[0][0] > SPAN_S and len(samples) > 2:
            samples.popleft()

    def rate(self, name: str) -> float:
        """Per second, over the last few seconds; 0 until there are two samples."""
        if len(self._samples) < 2:
            return 0.0
        (then, before), (now, after) = self._samples[0], self._samples[-1]
        return (after.get(name, 0) - before.get(name, 0)) / (now - then) if now > then else 0.0
