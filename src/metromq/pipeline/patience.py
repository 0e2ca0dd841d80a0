"""Faults of a busy machine, which pass: Spark's Python workers that did not start in time. Try again, less and less."""

import time
from collections.abc import Callable
from logging import getLogger
from typing import TYPE_CHECKING, Final, TypeVar

from metromq.errors import MetroError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

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
_LOG: Final = getLogger("metromq")


def passes(error: BaseException) -> bool:
    """Whether the same work may well succeed in a moment."""
    return any(words in str(error) for words in _PASSING)


def patiently(
    work: Callable[[], T],
    say: Say,
    sleep: Callable[[float], object] = time.sleep,
    got_on: Callable[[], bool] = lambda: False,
) -> T:
    """The result of `work`, which may be repeated: nothing of it counts before it has succeeded.

    `got_on`: whether the last try did something of use before it failed, so that tries count anew.
    """
    attempt = 0
    while True:
        try:
            return work()
        except Exception as error:
            if not passes(error):
                raise
            if got_on():
                attempt = 0
            if attempt == TRIES - 1:
                raise MetroError(
                    f"Spark could not start a Python worker in time, {TRIES} times: this machine is too busy; "
                    "nothing is lost, start it again later"
                ) from error
            wait_s = FIRST_WAIT_S * 2**attempt
            say(f"Spark could not start a Python worker in time; trying again in {wait_s:g} s")
            sleep(wait_s)
            attempt += 1


def keep_running(
    start: Callable[[], "StreamingQuery"], say: Say = _LOG.warning, sleep: Callable[[float], object] = time.sleep
) -> "StreamingQuery":
    """Wait until a user's streaming query ends, and start it again, at its checkpoint, where it ended because Spark
    could not start a Python process in time. `start` does all from `readStream` on, for Spark may give up there too.
    """
    started: list[StreamingQuery] = []

    def work() -> "StreamingQuery":
        started.clear()
        started.append(start())
        started[0].awaitTermination()
        return started[0]

    def got_on() -> bool:
        return any(query.lastProgress is not None for query in started)

    return patiently(work, say, sleep, got_on)
