"""Byte streams to peers over TCP or TLS."""

import asyncio
import ssl
from collections.abc import Callable

from metromq.broker.stream import common_name
from metromq.broker.write_cycle import WriteCycle
from metromq.client import ServerAddress, open_stream
from metromq.federation.links import CONNECT_TIMEOUT_S, Line

Address = tuple[str, int]


class TcpDialler:
    """Dials; every event of a stream is a turn of the broker."""

    def __init__(self, address: Callable[[str], Address], tls: ssl.SSLContext | None, cycle: WriteCycle) -> None:
        self._address = address  # of a peer, as the city is now
        self._tls = tls
        self._cycle = cycle
        self._tasks: set[asyncio.Task[None]] = set()

    def dial(self, peer: str, line: Line) -> None:
        task = asyncio.create_task(self._dial(peer, line))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _dial(self, peer: str, line: Line) -> None:
        ear = _Ear(line, self._cycle)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                stream = await open_stream(ear, ServerAddress(*self._address(peer), self._tls))
        except (OSError, TimeoutError) as error:
            ear.failed(str(error) or type(error).__name__)
            return
        name = common_name(stream.peer_certificate())
        if self._tls is not None and name != peer:
            stream.abort()
            ear.failed(f"the certificate there names {name or 'nobody'}, not {peer}")
            return
        self._cycle.now()
        line.connected(stream)
        self._cycle.worked()

    async def stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Ear:
    """Hears one connection for its line."""

    def __init__(self, line: Line, cycle: WriteCycle) -> None:
        self._line = line
        self._cycle = cycle

    def received(self, data: bytes) -> None:
        self._cycle.now()
        self._line.received(data)
        self._cycle.worked()

    def closed(self, error: Exception | None) -> None:
        self.failed(str(error or ""))

    def failed(self, problem: str) -> None:
        self._cycle.now()
        self._line.closed(problem)
        self._cycle.worked()

    def may_write(self, allowed: bool) -> None:
        self._cycle.now()
        self._line.may_write(allowed)
        self._cycle.worked()
