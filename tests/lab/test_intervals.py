"""Intervals hold what they promise: the true value is inside in about 95 of 100 cases, counted."""

import math

import numpy as np
import pytest

from metromq.lab.intervals import of_mean, of_share


@pytest.mark.parametrize("count", [2, 5, 20, 60])
def test_the_mean_is_inside_as_often_as_promised(count: int) -> None:
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(2000):
        found = of_mean(rng.normal(7.0, 3.0, count).tolist())
        assert found.instances == count
        inside += found.low <= 7.0 <= found.high
    assert 0.935 <= inside / 2000 <= 0.965


@pytest.mark.parametrize(("share", "count"), [(0.05, 100), (0.4, 100), (0.9, 50)])
def test_the_share_is_inside_as_often_as_promised(share: float, count: int) -> None:
    rng = np.random.default_rng(2)
    inside = 0
    for hits in rng.binomial(count, share, 2000).tolist():
        found = of_share(hits, count)
        inside += found.low <= 100 * share <= found.high
    assert 0.92 <= inside / 2000 <= 0.985


def test_edges() -> None:
    one = of_mean([4.0])
    assert (one.value, one.low, one.high) == (4.0, -math.inf, math.inf)
    none, all_ = of_share(0, 100), of_share(100, 100)
    assert (none.value, none.low) == (0.0, 0.0)
    assert 3 < none.high < 4  # 95 % sure that it is rarer than this, not that it never happens
    assert (all_.value, all_.high) == (100.0, 100.0)


def test_a_share_lies_in_its_interval_whatever_the_count() -> None:
    """Rounding put three of three above their own interval, and a plot refuses that."""
    for count in range(1, 200):
        for hits in (0, 1, count - 1, count):
            found = of_share(hits, count)
            assert 0.0 <= found.low <= found.value <= found.high <= 100.0, (hits, count)
