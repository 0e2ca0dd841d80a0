"""Ranges against a plain set of numbers."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.pipeline.ranges import Ranges

PAIRS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 8)).map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=12
)


def numbers(ranges: list[tuple[int, int]]) -> set[int]:
    return {number for first, last in ranges for number in range(first, last + 1)}


@settings(deadline=None, max_examples=200)
@given(PAIRS, st.integers(0, 70), st.integers(0, 20))
def test_like_a_set(pairs: list[tuple[int, int]], first: int, more: int) -> None:
    ranges = Ranges()
    for low, high in pairs:
        ranges.add(low, high)
    held = numbers(pairs)
    assert numbers(list(ranges)) == held
    assert len(ranges) == len(held)
    assert numbers(ranges.missing(first, first + more)) == set(range(first, first + more + 1)) - held
    if held:
        assert (ranges.first, ranges.last) == (min(held), max(held))
        assert numbers(ranges.gaps()) == set(range(min(held), max(held))) - held
    parts = list(ranges)
    assert all(left[1] + 1 < right[0] for left, right in pairwise(parts))
    assert Ranges(pairs) == ranges


def test_a_range_must_not_end_before_it_begins() -> None:
    with pytest.raises(ValueError, match="ends before"):
        Ranges().add(3, 2)


def test_empty() -> None:
    assert (Ranges().first, Ranges().last, Ranges().gaps(), list(Ranges())) == (None, None, [], [])
