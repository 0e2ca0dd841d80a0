"""Delays between processes of one machine: a process of relays, each of which carries one way in and out, later.

What a relay reads it writes a fixed time afterwards, in order, however much is under way; it never waits for one piece
before it reads the next, so a busy connection is as late as a quiet one.
"""

import asyncio
import multiprocessing
import socket
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import cast

from bench.machine import raise_file_limit

Pair = tuple[str, str]


class _End(asyncio.Protocol):
    """One end of a connection; what comes in here goes out at the other end."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._loop = asyncio.get_running_loop()
        self._under_way: deque[bytes | None] = deque()  # None: the end
        self._early: list[bytes | None] = []  # until the other end is there
        self._transport: asyncio.Transport | None = None
        self.other: _End | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._later(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._later(None)

    def _later(self, data: bytes | None) -> None:
        self._under_way.append(data)
        self._loop.call_later(self._delay_s, self._next)

    def _next(self) -> None:
        """The oldest, whichever timer says so: timers of one moment have no order, connections do."""
        data = self._under_way.popleft()
        if self.other is None:
            self._early.append(data)
        else:
            self.other.write(data)

    def joined(self, other: "_End") -> None:
        self.other, other.other = other, self
        for data in self._early:
            other.write(data)

    def write(self, data: bytes | None) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if data is None:
            self._transport.close()
        else:
            self._transport.write(data)


class _Near(_End):
    """The end that somebody has dialled: the relay dials the other one."""

    def __init__(self, port: int, delay_s: float) -> None:
        super().__init__(delay_s)
        self._port = port
        self._dialling: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._dialling = self._loop.create_task(self._dial())

    async def _dial(self) -> None:
        try:
            _, far = await self._loop.create_connection(lambda: _End(self._delay_s), "127.0.0.1", self._port)
        except OSError:
            self.write(None)
            return
        self.joined(far)


async def _serve(delays_s: Mapping[Pair, float], ports: Mapping[str, int], pipe: Connection) -> None:
    """Until it is told to begin, connections are refused: one that is taken and then lost would be tried again soon."""
    loop = asyncio.get_running_loop()
    doors = {pair: socket.socket() for pair in delays_s}
    for door in doors.values():
        door.bind(("127.0.0.1", 0))
    pipe.send({pair: door.getsockname()[1] for pair, door in doors.items()})
    await loop.run_in_executor(None, pipe.poll, None)
    pipe.recv()
    for pair, delay_s in delays_s.items():
        make = lambda port=ports[pair[1]], delay_s=delay_s: _Near(port, delay_s)  # noqa: E731
        await loop.create_server(make, sock=doors[pair])
    await loop.run_in_executor(None, pipe.poll, None)  # until the bench closes its end


def _run(delays_s: Mapping[Pair, float], ports: Mapping[str, int], pipe: Connection) -> None:
    raise_file_limit()
    asyncio.run(_serve(delays_s, ports, pipe))


@contextmanager
def delayed(
    delays_s: Mapping[Pair, float], ports: Mapping[str, int]
) -> Iterator[tuple[dict[Pair, int], Callable[[], None]]]:
    """Ports at which the second of a pair, which listens at its own port, is so far away from the first.

    Call what comes with them when everybody listens.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_run, args=(dict(delays_s), dict(ports), there), daemon=True)
    process.start()
    there.close()
    try:
        yield here.recv(), lambda: here.send("begin")
    finally:
        here.close()
        process.join(10)
        if process.is_alive():
            process.kill()
