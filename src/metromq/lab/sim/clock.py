"""Virtual time: what is to happen, in order."""

import heapq
from collections.abc import Callable
from typing import final


@final
class VirtualClock:
    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0  # things of one moment happen in the order in which they were asked for

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._due, (self.now + seconds, self._number, action))

    def run(self, seconds: float) -> None:
        """Lets so much time pass."""
        end = self.now + seconds
        while self._due and self._due[0][0] <= end:
            self.now, _, action = heapq.heappop(self._due)
            action()
        self.now = end

    def run_until(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """Lets time pass until the condition holds; False: it did not within the limit."""
        end = self.now + limit_s
        while not condition():
            if not self._due or self._due[0][0] > end:
                self.now = end
                return condition()
            self.now, _, action = heapq.heappop(self._due)
            action()
        return True
