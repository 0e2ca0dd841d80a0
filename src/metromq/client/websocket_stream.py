"""The WebSocket as a client's network; imported only when asked for, since its library takes time to load."""

import asyncio
import contextlib

import websockets
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from metromq.client.transports import CLOSE_TIMEOUT_S, HIGH_WATER_BYTES, ByteListener, ByteTransport, ServerAddress


class WebSocketTransport:
    """A WebSocket with the subprotocol `mqtt` [MQTT-6.0.0-3]; packets travel in binary messages [MQTT-6.0.0-1]."""

    def __init__(self, socket: ClientConnection, listener: ByteListener) -> None:
        self._socket = socket
        self._listener = listener
        self._out: list[bytes] = []
        self._size = 0
        self._written = asyncio.Event()
        self._closing = False
        self._reading = asyncio.Event()
        self._reading.set()
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]

    def write(self, data: bytes) -> None:
        self._out.append(data)
        if self._size <= HIGH_WATER_BYTES < self._size + len(data):
            self._listener.may_write(False)
        self._size += len(data)
        self._written.set()

    def read(self, allowed: bool) -> None:
        if allowed:
            self._reading.set()
        else:
            self._reading.clear()

    async def close(self) -> None:
        self._closing = True
        self._written.set()
        self._reading.set()
        _, waiting = await asyncio.wait(self._tasks, timeout=CLOSE_TIMEOUT_S)
        if waiting:
            self.abort()
            await asyncio.wait(self._tasks)

    def abort(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._socket.transport.abort()

    async def _read(self) -> None:
        error: Exception | None = None
        try:
            while True:
                await self._reading.wait()
                data = await self._socket.recv(decode=False)
                self._listener.received(bytes(data))
        except websockets.ConnectionClosed as closed:
            error = closed if isinstance(closed, websockets.ConnectionClosedError) else None
        finally:
            self._closing = True
            self._written.set()
            self._listener.closed(error)

    async def _write(self) -> None:
        with contextlib.suppress(websockets.ConnectionClosed):
            while True:
                await self._written.wait()
                self._written.clear()
                data, self._out = b"".join(self._out), []
                was_full, self._size = self._size > HIGH_WATER_BYTES, 0
                if data:
                    await self._socket.send(data)
                if was_full:
                    self._listener.may_write(True)
                if self._closing and not self._out:
                    break
        await self._socket.close()


async def open_websocket(listener: ByteListener, place: ServerAddress, path: str) -> ByteTransport:
    name = f"[{place.host}]" if ":" in place.host else place.host
    uri = f"{'wss' if place.tls else 'ws'}://{name}:{place.port}/{path.lstrip('/')}"
    # Compression and size limits are MQTT's business; a proxy of the environment must not catch a broker on loopback.
    socket = await connect(
        uri,
        ssl=place.tls,
        subprotocols=[Subprotocol("mqtt")],
        compression=None,
        max_size=None,
        proxy=None,
        local_addr=place.local,
    )
    return WebSocketTransport(socket, listener)
