"""Restarts: when the next start comes, what is told about the last one, and how a process is ended."""

import asyncio
import sys
from collections.abc import Iterator

import pytest

from metromq.supervising import Pace, ended_in_time, how_it_ended, keep_running


def test_waits_double_up_to_the_longest_and_start_anew_after_a_steady_life() -> None:
    pace = Pace(0.5, 3.0, 30.0)
    assert [pace.after(lived_s) for lived_s in (0.0, 29.9, 1.0, 1.0, 1.0)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert [pace.after(30.0), pace.after(0.0)] == [0.5, 1.0]


class EndOfTest(Exception):
    pass


async def process(code: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.PIPE
    )


def test_every_end_is_told_and_the_next_start_waits() -> None:
    clock = 0.0
    told: list[tuple[str, float]] = []
    pace = Pace(1.0, 8.0, 60.0)
    lives: Iterator[str | OSError] = iter(
        ["exit(3)", "import os; os.abort()", OSError(12, "Cannot allocate memory"), "exit(0)"]
    )

    async def start() -> asyncio.subprocess.Process:
        life = next(lives, None)
        if life is None:
            raise EndOfTest
        if isinstance(life, OSError):
            raise life
        return await process(life)

    async def sleep(seconds: float) -> None:
        nonlocal clock
        clock += seconds

    def now() -> float:
        nonlocal clock
        clock += 10.0
        return clock

    async def main() -> None:
        with pytest.raises(EndOfTest):
            await keep_running(start, lambda what, wait_s: told.append((what, wait_s)), pace, now, sleep)

    asyncio.run(main())
    assert told == [
        ("exited with status 3", 1.0),
        ("was killed by SIGABRT", 2.0),
        ("cannot be started: [Errno 12] Cannot allocate memory", 4.0),
        ("exited with status 0", 8.0),
    ]


def test_who_does_not_stop_is_killed() -> None:
    async def main() -> None:
        deaf = await process("import signal; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); input()")
        assert deaf.stdout is not None
        await deaf.stdout.readline()
        deaf.terminate()
        assert not await ended_in_time(deaf, 0.05)
        assert deaf.returncode == -9
        willing = await process("input()")
        willing.terminate()
        assert await ended_in_time(willing, 30.0)

    asyncio.run(main())


def test_signals_have_names() -> None:
    assert how_it_ended(0) == "exited with status 0"
    assert how_it_ended(-15) == "was killed by SIGTERM"
    assert how_it_ended(-99) == "was killed by signal 99"
