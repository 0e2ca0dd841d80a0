"""A busy machine is waited for, and at last the user is told what that means."""

import pytest

from metromq.errors import MetroError
from metromq.pipeline.patience import TRIES, patiently

LATE = "Job aborted: org.apache.spark.SparkException: Python worker failed to connect back."


def test_after_the_last_try_it_says_what_to_do() -> None:
    said: list[str] = []
    waits: list[float] = []

    def late() -> None:
        raise RuntimeError(LATE)

    with pytest.raises(MetroError, match=r"5 times.*too busy.*nothing is lost.*start the command again"):
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
