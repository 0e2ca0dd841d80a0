"""What crosses a network's boundary, counted by somebody who stands there: relays that know no more than MQTT."""

import asyncio
import struct

PUBLISH = 3
READ_BYTES = 1 << 16
HEAD = struct.Struct(">HI")  # of a tunnel's frame: port, length


class Publications:
    """Counts the PUBLISH packets of a stream of bytes, however it is cut."""

    def __init__(self) -> None:
        self.count = 0
        self._data = bytearray()

    def feed(self, data: bytes) -> int:
        """How many began in what came; they count when their head is whole."""
        before = self.count
        self._data += data
        while (size := self._packet_size()) and size <= len(self._data):
            self.count += self._data[0] >> 4 == PUBLISH
            del self._data[:size]
        return self.count - before

    def _packet_size(self) -> int:
        """0: its length is not there yet."""
        length = 0
        for place, byte in enumerate(self._data[1:5]):
            length |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return 2 + place + length
        return 0


class _Frames:
    """Counts the same inside a tunnel, where clients' streams are cut into frames."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._clients: dict[int, Publications] = {}

    def feed(self, data: bytes) -> int:
        self._data += data
        found = 0
        while len(self._data) >= HEAD.size:
            port, length = HEAD.unpack_from(self._data)
            if len(self._data) < HEAD.size + length:
                break
            packets = bytes(self._data[HEAD.size : HEAD.size + length])
            del self._data[: HEAD.size + length]
            if packets:
                found += self._clients.setdefault(port, Publications()).feed(packets)
            else:
                self._clients.pop(port, None)
        return found


class Boundary:
    """Passes on what connections carry, and counts the publications of both directions."""

    def __init__(self, target: int, is_tunnel: bool = False) -> None:
        self.count = 0
        self.port = 0
        self._target = target
        self._counter = _Frames if is_tunnel else Publications
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.ensure_future(self._pass_on(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        counter = self._counter()
        try:
            while data := await source.read(READ_BYTES):
                self.count += counter.feed(data)
                sink.write(data)
                await sink.drain()
        except OSError:
            pass  # who closed it is the business of both ends
        finally:
            sink.close()
