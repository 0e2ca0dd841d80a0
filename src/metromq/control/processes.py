"""Keeps programs running on this machine: starts them, waits until they answer, starts again what dies, stops them all.

Every program gets a pipe as standard input that nobody writes to. When this process ends, however it ends, the pipe
ends too, and that tells the program to stop.
"""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from metromq.errors import MetroError

FIRST_DELAY_S = 0.5
LAST_DELAY_S = 30.0
STEADY_S = 30.0  # who lived this long gets the first delay again
READY_POLL_S = 0.05
READY_PATIENCE_S = 60.0  # sixteen brokers on one busy core
STOP_PATIENCE_S = 15.0
LOG_TAIL_LINES = 8

STARTING, UP, WAITING, STOPPED = "starting", "up", "waiting", "stopped"


class StartFailed(MetroError):
    """A program ended or stayed silent before it was ready; the message has the end of its log."""


@dataclass(frozen=True, slots=True)
class Program:
    """Something to keep running. `is_ready` is asked, with the process number, until it says yes."""

    name: str
    kind: str  # broker; later also manager, proxy, service
    command: tuple[str, ...]
    log: Path
    is_ready: Callable[[int], Awaitable[bool]]


class Keeper:
    """One program's life."""

    def __init__(self, program: Program, tell: Callable[[str], None]) -> None:
        self.program = program
        self.state = STOPPED
        self.pid = 0
        self.starts = 0
        self._tell = tell
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Until it is ready for the first time; raises StartFailed."""
        await self._spawn()
        if not await self._wait_ready():
            raise StartFailed(f"{self.program.name} did not start.\n{self._log_tail()}")
        self.state = UP
        self._task = asyncio.create_task(self._keep())

    async def _spawn(self) -> None:
        with self._open_log() as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.program.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us; we tell the programs in our own time
            )
        self.pid = self._process.pid
        self.state = STARTING
        self.starts += 1

    def _open_log(self) -> BinaryIO:
        self.program.log.parent.mkdir(parents=True, exist_ok=True)
        return open(self.program.log, "ab")

    async def _wait_ready(self) -> bool:
        assert self._process is not None
        try:
            async with asyncio.timeout(READY_PATIENCE_S):
                while self._process.returncode is None:
                    if await self.program.is_ready(self.pid):
                        return True
                    await asyncio.sleep(READY_POLL_S)
        except TimeoutError:
            pass
        return False

    async def _keep(self) -> None:
        delay_s = FIRST_DELAY_S
        name = self.program.name
        while True:
            born = time.monotonic()
            assert self._process is not None
            code = await self._process.wait()
            self.pid, self.state = 0, WAITING
            if time.monotonic() - born >= STEADY_S:
                delay_s = FIRST_DELAY_S
            self._tell(f"{name} {_end(code)}; restarting it in {delay_s:g} s")
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, LAST_DELAY_S)
            await self._spawn()
            if await self._wait_ready():
                self.state = UP
                self._tell(f"{name} is back as process {self.pid}")
            elif self._process.returncode is None:
                self._tell(f"{name} does not answer; see {self.program.log}")

    def terminate(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._signal(signal.SIGTERM)

    async def stopped(self) -> None:
        """After `terminate`, or instead of it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        process = self._process
        if process is None:
            return
        try:
            async with asyncio.timeout(STOP_PATIENCE_S):
                await process.wait()
        except TimeoutError:
            self._tell(f"{self.program.name} did not stop; killing it")
            self._signal(signal.SIGKILL)
            await process.wait()
        self.pid, self.state = 0, STOPPED

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            try:
                os.kill(self._process.pid, number)
            except ProcessLookupError:
                pass

    def _log_tail(self) -> str:
        try:
            lines = self.program.log.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join([f"The end of {self.program.log}:", *(f"  {line}" for line in lines[-LOG_TAIL_LINES:])])


class Supervisor:
    """`tell` gets one sentence for every event that a user should know."""

    def __init__(self, programs: tuple[Program, ...], tell: Callable[[str], None]) -> None:
        self.keepers = {program.name: Keeper(program, tell) for program in programs}

    async def start(self, ready: Callable[[Keeper], None]) -> None:
        """All at once; `ready` is called for each that answers. When one fails, all are stopped and it is raised."""
        tasks = [asyncio.create_task(self._start(keeper, ready)) for keeper in self.keepers.values()]
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.stop()
            raise

    async def _start(self, keeper: Keeper, ready: Callable[[Keeper], None]) -> None:
        await keeper.start()
        ready(keeper)

    async def stop(self) -> None:
        for keeper in self.keepers.values():
            keeper.terminate()
        await asyncio.gather(*(keeper.stopped() for keeper in self.keepers.values()))


def _end(code: int) -> str:
    if code >= 0:
        return f"exited with status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
