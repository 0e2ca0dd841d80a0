"""Virtual time: what is to happen, in order."""

import heapq
from collections.abc import Callable
from typing import final


class Due:
    """Something that is to happen. What happens most often has a class of its own, which costs less than a lambda."""

    def happen(self) -> None:
        raise NotImplementedError


@final
class _Call(Due):
    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action

    def happen(self) -> None:
        self._action()


@final
class VirtualClock:
    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Due]] = []
        self._number = 0  # things of one moment happen in the order in which they were asked for

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self.add(seconds, _Call(action))

    def add(self, seconds: float, due: Due) -> None:
        """The same for what is an object already."""
        self._number += 1
        heapq.heappush(self._due, (self.now + seconds, self._number, due))

    def run(self, seconds: float) -> None:
        """Lets so much time pass."""
        end = self.now + seconds
        while self._due and self._due[0][0] <= end:
            self._next()
        self.now = end

    def run_until(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """Lets time pass until the condition holds; False: it did not within the limit."""
        end = self.now + limit_s
        while not condition():
            if not self._due or self._due[0][0] > end:
                self.now = end
                return condition()
            self._next()
        return True

    def _next(self) -> None:
        self.now, _, due = heapq.heappop(self._due)
        due.happen()
