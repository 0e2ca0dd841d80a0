"""The life of the process that reads the journal: started when it is first needed, and again when it ended."""

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any, Final

from metromq.broker import logs
from metromq.broker.replaying import channel

MODULE: Final = "metromq.broker.replaying.worker"
PIPE_BYTES: Final = 4 << 20
STOP_S: Final = 5.0


class ReplayProcess:
    """`heard` gets what it says (kind, job, body); `ended` is called when nothing more will come of any job."""

    def __init__(
        self, setup: dict[str, Any], heard: Callable[[int, int, bytes], None], ended: Callable[[], None]
    ) -> None:
        self._setup = setup
        self._heard = heard
        self._ended = ended
        self._process: asyncio.subprocess.Process | None = None
        self._running: asyncio.Task[None] | None = None
        self._unsent: list[bytes] = []  # while it is starting

    def send(self, data: bytes) -> None:
        if self._running is None or self._running.done():
            self._unsent = []
            self._running = asyncio.create_task(self._run())
        process = self._process
        if process is None or process.stdin is None:
            self._unsent.append(data)
        elif process.returncode is None:
            process.stdin.write(data)

    async def _run(self) -> None:
        try:
            self._process = process = await self._start()
            assert process.stdout is not None
            while True:
                self._heard(*await channel.read_note(process.stdout))
        except (asyncio.IncompleteReadError, OSError) as error:
            logs.error("the replay process ended; it is started again when it is needed", problem=error)
        finally:
            self._process = None
            self._ended()

    async def _start(self) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", MODULE, stdin=pipe, stdout=pipe, limit=PIPE_BYTES
        )
        assert process.stdin is not None
        process.stdin.write(channel.note(channel.SETUP, 0, json.dumps(self._setup).encode()))
        process.stdin.write(b"".join(self._unsent))
        self._unsent = []
        return process

    async def close(self) -> None:
        process = self._process
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        if process is None or process.returncode is not None:
            return
        if process.stdin is not None:
            process.stdin.close()  # by which it knows
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
