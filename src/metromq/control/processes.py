"""Keeps programs running on this machine: starts them, waits until they answer, starts again what dies, stops them all.

Every program gets a pipe as standard input that nobody writes to. When this process ends, however it ends, the pipe
ends too, and that tells the program to stop.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

from metromq.errors import MetroError
from metromq.supervising import Pace, ended_in_time, keep_running

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
class ProcessSpec:
    """Something to keep running. `is_ready` is asked, with the process number, until it says yes."""

    name: str
    kind: str  # broker; later also manager, proxy, service
    command: tuple[str, ...]
    log: Path
    is_ready: Callable[[int], Awaitable[bool]]
    is_wanted: Callable[[], bool] = lambda: True  # asked before it is started again


class Keeper:
    """One program's life."""

    def __init__(self, program: ProcessSpec, tell: Callable[[str], None]) -> None:
        self.program = program
        self.state = STOPPED
        self.pid = 0
        self.starts = 0
        self._tell = tell
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[NoReturn] | None = None

    async def start(self) -> None:
        """Until it is ready for the first time; raises StartFailed."""
        if not await self._wait_ready(await self._spawn()):
            raise StartFailed(f"{self.program.name} did not start.\n{self._log_tail()}")
        self.state = UP
        pace = Pace(FIRST_DELAY_S, LAST_DELAY_S, STEADY_S)
        self._task = asyncio.create_task(keep_running(self._again, self._ended, pace))

    async def _spawn(self) -> asyncio.subprocess.Process:
        with self._open_log() as log:
            self._process = process = await asyncio.create_subprocess_exec(
                *self.program.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us; we tell the programs in our own time
            )
        self.pid = process.pid
        self.state = STARTING
        self.starts += 1
        return process

    def _open_log(self) -> BinaryIO:
        self.program.log.parent.mkdir(parents=True, exist_ok=True)
        return open(self.program.log, "ab")

    async def _wait_ready(self, process: asyncio.subprocess.Process) -> bool:
        try:
            async with asyncio.timeout(READY_PATIENCE_S):
                while process.returncode is None:
                    if await self.program.is_ready(self.pid):
                        return True
                    await asyncio.sleep(READY_POLL_S)
        except TimeoutError:
            pass
        return False

    async def _again(self) -> asyncio.subprocess.Process:
        """The process that `start` has seen ready, or a new one that was given its time to get ready."""
        if self.state == UP and self._process is not None:
            return self._process
        if not self.program.is_wanted():
            self.state = STOPPED
            await asyncio.Event().wait()  # until this keeper is stopped
        process = await self._spawn()
        if await self._wait_ready(process):
            self.state = UP
            self._tell(f"{self.program.name} is back as process {self.pid}")
        elif process.returncode is None:
            self._tell(f"{self.program.name} does not answer; see {self.program.log}")
        return process

    def _ended(self, what: str, wait_s: float) -> None:
        self.pid, self.state = 0, WAITING
        if self.program.is_wanted():
            self._tell(f"{self.program.name} {what}; restarting it in {wait_s:g} s")
        else:
            self._tell(f"{self.program.name} has left the city, and {what}")

    def terminate(self) -> None:
        if self._task is not None:
            self._task.cancel()
        process = self._process
        if process is not None and process.returncode is None:
            try:
                os.kill(process.pid, signal.SIGTERM)
            except ProcessLookupError:
                pass

    async def stopped(self) -> None:
        """After `terminate`, or instead of it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        process = self._process
        if process is None:
            return
        if not await ended_in_time(process, STOP_PATIENCE_S):
            self._tell(f"{self.program.name} did not stop and was killed")
        self.pid, self.state = 0, STOPPED

    def _log_tail(self) -> str:
        try:
            lines = self.program.log.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join([f"The end of {self.program.log}:", *(f"  {line}" for line in lines[-LOG_TAIL_LINES:])])


class Supervisor:
    """`tell` gets one sentence for every event that a user should know."""

    def __init__(self, programs: tuple[ProcessSpec, ...], tell: Callable[[str], None]) -> None:
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
