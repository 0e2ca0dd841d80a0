"""What a broker does regularly falls on the same moments, on a clock of the test's own."""

import pytest

from metromq.broker.rhythm import BEAT_S, Rhythm


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_whoever_sleeps_long_enough_wakes_at_a_beat() -> None:
    clock = Clock()
    rhythm = Rhythm(clock)
    clock.now += 0.1
    assert rhythm.rest_s() == pytest.approx(BEAT_S - 0.1)
    assert rhythm.rest_s(0.2) == pytest.approx(BEAT_S - 0.1)


def test_whoever_cannot_wait_for_the_beat_does_not() -> None:
    clock = Clock()
    rhythm = Rhythm(clock)
    clock.now += 0.1
    assert rhythm.rest_s(0.05) == 0.05


def test_a_timer_that_was_early_sleeps_until_the_beat_after() -> None:
    clock = Clock()
    rhythm = Rhythm(clock)
    clock.now += BEAT_S - 0.001
    assert rhythm.rest_s() == pytest.approx(BEAT_S + 0.001)
