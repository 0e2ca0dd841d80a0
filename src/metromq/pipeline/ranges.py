"""Sets of whole numbers kept as sorted, disjoint, closed ranges: which offsets of a broker the lake already holds."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class Ranges:
    """Closed ranges [first, last], merged when they touch; every operation costs the ranges it meets."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in sorted(ranges):
            self.add(first, last)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._firsts, self._lasts, strict=True))

    def __len__(self) -> int:
        """How many numbers are in the set, not how many ranges."""
        return sum(self._lasts) - sum(self._firsts) + len(self._firsts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and list(self) == list(other)

    def __repr__(self) -> str:
        return f"Ranges({list(self)})"

    def add(self, first: int, last: int) -> None:
        if last < first:
            raise ValueError(f"a range ends before it begins: {first}..{last}")
        low = bisect_left(self._lasts, first - 1)
        high = bisect_right(self._firsts, last + 1)
        if low < high:
            first = min(first, self._firsts[low])
            last = max(last, self._lasts[high - 1])
        self._firsts[low:high] = [first]
        self._lasts[low:high] = [last]

    def missing(self, first: int, last: int) -> list[tuple[int, int]]:
        """The parts of [first, last] that are not in the set, in order."""
        holes: list[tuple[int, int]] = []
        index = bisect_left(self._lasts, first)
        while first <= last:
            if index == len(self._firsts) or self._firsts[index] > last:
                holes.append((first, last))
                break
            if self._firsts[index] > first:
                holes.append((first, self._firsts[index] - 1))
            first = self._lasts[index] + 1
            index += 1
        return holes

    def gaps(self) -> list[tuple[int, int]]:
        """What is missing between the smallest and the largest number."""
        return [(last + 1, first - 1) for last, first in zip(self._lasts, self._firsts[1:], strict=False)]

    @property
    def first(self) -> int | None:
        return self._firsts[0] if self._firsts else None

    @property
    def last(self) -> int | None:
        return self._lasts[-1] if self._lasts else None
