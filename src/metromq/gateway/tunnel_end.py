"""The end of tunnels beside an edge broker: each port of each tunnel becomes a connection to the broker."""

import asyncio
import contextlib

from metromq.errors import ConfigError, MetroError
from metromq.gateway.tunnel import FrameReader, pack

READ_BYTES = 1 << 16


class TunnelEnd:
    def __init__(self, listen: tuple[str, int], broker: tuple[str, int]) -> None:
        self._listen = listen
        self._broker = broker
        self._server: asyncio.Server | None = None
        self.port = 0

    async def open(self) -> None:
        host, port = self._listen
        try:
            self._server = await asyncio.start_server(self._serve, host, port)
        except OSError as error:
            raise ConfigError(f"listen {host}:{port}", f"cannot listen: {error.strerror}") from error
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _Served(self._broker, reader, writer).run()


class _Served:
    """One proxy's tunnel."""

    def __init__(self, broker: tuple[str, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._broker = broker
        self._reader = reader
        self._writer = writer
        self._ports: dict[int, asyncio.StreamWriter] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        frames = FrameReader()
        try:
            while data := await self._reader.read(READ_BYTES):
                for port, packet in frames.feed(data):
                    await self._take(port, packet)
        except (OSError, MetroError):
            pass  # the proxy opens another one
        finally:
            for writer in self._ports.values():
                writer.close()
            self._writer.close()

    async def _take(self, port: int, packet: bytes) -> None:
        if not packet:
            writer = self._ports.pop(port, None)
            if writer is not None:
                writer.close()
            return
        if port not in self._ports and not await self._open(port):
            return
        self._ports[port].write(packet)
        with contextlib.suppress(OSError):
            await self._ports[port].drain()

    async def _open(self, port: int) -> bool:
        try:
            reader, writer = await asyncio.open_connection(*self._broker)
        except OSError:
            self._writer.write(pack(port, b""))  # the broker is gone
            return False
        self._ports[port] = writer
        task = asyncio.ensure_future(self._bring_back(port, reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def _bring_back(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(READ_BYTES):
                self._writer.write(pack(port, data))
                await self._writer.drain()
        if self._ports.get(port) is writer:
            del self._ports[port]
            with contextlib.suppress(OSError):
                self._writer.write(pack(port, b""))
        writer.close()
