"""Relays: every connection of a live storm runs through one, and can be cut, held up or slowed, one way or both."""

import asyncio

CHUNK_BYTES = 1 << 16


class Way:
    """One direction between two ends; several relays may share it."""

    def __init__(self) -> None:
        self.delay_s = 0.0
        self.free = asyncio.Event()
        self.free.set()

    def mend(self) -> None:
        self.delay_s = 0.0
        self.free.set()

    async def carry(self, wire: "Wire", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Whatever is read is written later, in order, and so is the end."""
        try:
            while data := await reader.read(CHUNK_BYTES):
                await asyncio.sleep(self.delay_s)
                await self.free.wait()
                writer.write(data)
                await writer.drain()
            await self.free.wait()
        except OSError:
            pass
        if not wire.has_slipped:
            writer.close()


class Wire:
    """One connection through a relay."""

    def __init__(self, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self._near = near
        self._far = far
        self.has_slipped = False

    def slip(self) -> None:
        """The near end is gone, and the far end is not told."""
        self.has_slipped = True
        self._near.transport.abort()

    def abort(self) -> None:
        self._near.transport.abort()
        self._far.transport.abort()


class Relay:
    """Takes connections at `port` and carries them to `target`."""

    def __init__(self, there: Way, back: Way) -> None:
        self.target: tuple[str, int] | None = None
        self.is_cut = False
        self.port = 0
        self._there = there
        self._back = back
        self._wires: set[Wire] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        self.cut()
        if self._server is not None:
            self._server.close()

    def cut(self) -> None:
        self.is_cut = True
        for wire in self._wires:
            wire.abort()

    def slip(self) -> None:
        for wire in self._wires:
            wire.slip()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self.is_cut or self.target is None:
                raise ConnectionRefusedError
            far_reader, far_writer = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        wire = Wire(writer, far_writer)
        if self.is_cut:
            wire.abort()
        self._wires.add(wire)
        there = self._there.carry(wire, reader, far_writer)
        await asyncio.gather(there, self._back.carry(wire, far_reader, writer))
        self._wires.discard(wire)
