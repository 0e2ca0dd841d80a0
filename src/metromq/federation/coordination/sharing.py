"""What is worked out once for all that ask: the brokers of one process, or one broker again and again; no I/O."""

from collections.abc import Callable
from typing import Generic, TypeVar, final

Given = TypeVar("Given")
Found = TypeVar("Found")


@final
class Shared(Generic[Given, Found]):
    """A function of something large that never changes.

    It is recognised by identity: to compare a list of thousands of members would take as long as the work itself.
    """

    def __init__(self, work: Callable[[Given], Found], most: int = 8) -> None:
        self._work = work
        self._most = most
        self._known: list[tuple[Given, Found]] = []  # the latest first

    def of(self, given: Given) -> Found:
        for known, found in self._known:
            if known is given:
                return found
        found = self._work(given)
        self._known = [(given, found), *self._known[: self._most - 1]]
        return found
