"""Faults of a busy machine, which pass: Spark's Python workers that did not start in time. Try again, less and less."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from metromq.errors import MetroError

T = TypeVar("T")
TRIES: Final = 5
FIRST_WAIT_S: Final = 2.0
_PASSING: Final = (
    "Python worker failed to connect back",
    "Timed out while waiting for the Python worker",
    "Streaming Runner initialization failed. Socket connection timeout",
    "Streaming Runner initialization failed during initial config communication",
)

Say = Callable[[str], None]


def passes(error: BaseException) -> bool:
    """Whether the same work may well succeed in a moment."""
    return any(words in str(error) for words in _PASSING)


def patiently(work: Callable[[], T], say: Say, sleep: Callable[[float], object] = time.sleep) -> T:
    """The result of `work`, which may be repeated: nothing of it counts before it has succeeded."""
    attempt = 0
    while True:
        try:
            return work()
        except Exception as error:
            if not passes(error):
                raise
            if attempt == TRIES - 1:
                raise MetroError(
                    f"Spark could not start a Python worker in time, {TRIES} times: this machine is too busy; "
                    "nothing is lost, start the command again later"
                ) from error
            wait_s = FIRST_WAIT_S * 2**attempt
            say(f"Spark could not start a Python worker in time; trying again in {wait_s:g} s")
            sleep(wait_s)
            attempt += 1
