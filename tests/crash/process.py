"""A broker in a process of its own that can be killed and started again on the same data."""

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

DEADLINE_S = 60.0

CONFIG = """
durability = "{durability}"
data_dir = "{data}"

[[listeners]]
host = "127.0.0.1"
port = 0

[limits]
max_queued_messages = 1000000

[journal]
segment_bytes = 65536
snapshot_bytes = 65536
keep_bytes = 65536
"""


class BrokerProcess:
    """`metromq serve` with small segments, so that rolling, snapshots and retention are under way when it dies."""

    def __init__(self, directory: Path, durability: str) -> None:
        self._config = directory / "metromq.toml"
        self._config.write_text(CONFIG.format(durability=durability, data=directory / "data"))
        self._process: asyncio.subprocess.Process | None = None
        self._drain: asyncio.Task[None] | None = None
        self.log: list[str] = []

    async def start(self) -> int:
        """Until it listens; the port."""
        await self.launch()
        assert self._process is not None
        assert self._process.stderr is not None
        async with asyncio.timeout(DEADLINE_S):
            while True:
                line = (await self._process.stderr.readline()).decode()
                self.log.append(line)
                found = re.search(r"listening .*port=(\d+)", line)
                assert line, "the broker did not start:\n" + "".join(self.log[-30:])
                if found:
                    self._drain = asyncio.create_task(self._read_log(self._process.stderr))
                    return int(found.group(1))

    async def launch(self) -> None:
        program = "from metromq.cli.main import main; main()"
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program, "serve", "--config", str(self._config)),
            stderr=asyncio.subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if not name.startswith("METROMQ_")},
        )

    async def end(self, number: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            os.kill(process.pid, number)
        async with asyncio.timeout(DEADLINE_S):
            if self._drain is None:
                await process.communicate()
            else:
                await process.wait()
                await self._drain
        self._process = self._drain = None

    async def _read_log(self, stream: asyncio.StreamReader) -> None:
        while line := await stream.readline():
            self.log.append(line.decode())
