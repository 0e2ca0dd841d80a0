"""A busy machine is waited for, and at last the user is told what that means."""

from typing import Any

import pytest

from metromq.errors import MetroError
from metromq.pipeline import keep_running
from metromq.pipeline.patience import FIRST_WAIT_S, TRIES, patiently

LATE = "Job aborted: org.apache.spark.SparkException: Python worker failed to connect back."


def test_after_the_last_try_it_says_what_to_do() -> None:
    said: list[str] = []
    waits: list[float] = []

    def late() -> None:
        raise RuntimeError(LATE)

    with pytest.raises(MetroError, match=r"5 times.*too busy.*nothing is lost.*start it again"):
        patiently(late, said.append, waits.append)
    assert len(said) == len(waits) == TRIES - 1
    assert waits == sorted(waits)


def test_another_fault_is_not_waited_for() -> None:
    def broken() -> None:
        raise ValueError("the moon")

    said: list[str] = []
    with pytest.raises(ValueError, match="the moon"):
        patiently(broken, said.append)
    assert said == []


class Query:
    """A streaming query that ends because a process started too late, or well; `progress` is what it did until then."""

    def __init__(self, progress: object, is_late: bool) -> None:
        self.lastProgress = progress
        self._is_late = is_late

    def awaitTermination(self) -> None:
        if self._is_late:
            raise RuntimeError(LATE)


def test_a_query_that_gets_on_may_be_late_for_ever() -> None:
    """Only in a row the tries count: after a batch a query begins with the shortest pause again."""
    waits: list[float] = []
    lives: Any = [Query(progress, True) for progress in (None, None, *["a batch"] * 2 * TRIES, None)] + [
        Query(1, False)
    ]
    ended = keep_running(lambda: lives.pop(0), lambda text: None, waits.append)
    assert (ended.lastProgress, lives) == (1, [])
    one = FIRST_WAIT_S
    assert waits == [one, 2 * one, *[one] * 2 * TRIES, 2 * one]


def test_a_query_that_never_gets_on_ends() -> None:
    lives: Any = [Query(None, True) for _ in range(2 * TRIES)]
    with pytest.raises(MetroError, match="too busy"):
        keep_running(lambda: lives.pop(0), lambda text: None, lambda wait_s: None)
    assert len(lives) == TRIES


def test_a_query_that_fails_otherwise_ends_at_once() -> None:
    def broken() -> Any:
        raise ValueError("the moon")

    with pytest.raises(ValueError, match="the moon"):
        keep_running(broken)
