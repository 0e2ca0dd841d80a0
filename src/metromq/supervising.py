"""Keeps a process running: starts it again when it ends, the next time later, and ends it with patience."""

import asyncio
import signal
import time
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable
from typing import NoReturn


class Pace:
    """How long to wait before the next start: twice as long each time, and short again after a steady life."""

    def __init__(self, first_s: float, most_s: float, steady_s: float) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._steady_s = steady_s
        self._next_s = first_s

    def after(self, lived_s: float) -> float:
        if lived_s >= self._steady_s:
            self._next_s = self._first_s
        wait_s = self._next_s
        self._next_s = min(wait_s * 2, self._most_s)
        return wait_s


async def keep_running(
    start: Callable[[], Awaitable[Process]],
    ended: Callable[[str, float], None],
    pace: Pace,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> NoReturn:
    """Until it is cancelled. `ended` hears what happened to the process and in how many seconds the next starts.

    A process that cannot be started, because memory is short or its program is being replaced, counts as one that
    ended at once.
    """
    while True:
        lived_s = 0.0
        try:
            process = await start()
        except OSError as error:
            what = f"cannot be started: {error}"
        else:
            born = clock()
            what = how_it_ended(await process.wait())
            lived_s = clock() - born
        wait_s = pace.after(lived_s)
        ended(what, wait_s)
        await sleep(wait_s)


async def ended_in_time(process: Process, patience_s: float) -> bool:
    """Waits for a process that was told to stop; False: it had to be killed."""
    try:
        await asyncio.wait_for(process.wait(), patience_s)
    except TimeoutError:
        if process.returncode is None:
            process.kill()
        await process.wait()
        return False
    return True


def how_it_ended(code: int) -> str:
    if code >= 0:
        return f"exited with status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
