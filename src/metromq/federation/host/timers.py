"""Things to do later, without a clock of its own."""

import heapq
from collections.abc import Callable
from typing import final


@final
class Timers:
    def __init__(self) -> None:
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0  # those of one moment run in the order in which they were set

    def at(self, when: float, action: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._due, (when, self._number, action))

    def next_at(self) -> float | None:
        """When the next one is due; None: there is nothing to do."""
        return self._due[0][0] if self._due else None

    def run(self, now: float) -> None:
        """Does everything whose time has come."""
        while self._due and self._due[0][0] <= now:
            heapq.heappop(self._due)[2]()
