"""The networks a client can use: a TCP or TLS stream, or a WebSocket, behind one small interface."""

import asyncio
import contextlib
import ssl
from typing import Protocol, cast

import websockets
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as connect_websocket
from websockets.typing import Subprotocol

HIGH_WATER_BYTES = 1 << 18
CLOSE_TIMEOUT_S = 2.0


class Listener(Protocol):
    """Who gets what the network brings."""

    def received(self, data: bytes) -> None: ...
    def closed(self, error: Exception | None) -> None: ...
    def may_write(self, allowed: bool) -> None: ...


class Transport(Protocol):
    """A connection to the server."""

    def write(self, data: bytes) -> None: ...
    def read(self, allowed: bool) -> None:
        """Stops or resumes taking bytes from the network."""
        ...

    async def close(self) -> None:
        """Sends what is written, then closes; returns when the connection is gone, within a few seconds."""
        ...

    def abort(self) -> None: ...


class StreamTransport(asyncio.Protocol):
    """A TCP or TLS connection as an asyncio protocol."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._gone = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's are no subclasses
        transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._listener.received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._gone.done():
            self._gone.set_result(None)
        self._listener.closed(exc)

    def pause_writing(self) -> None:
        self._listener.may_write(False)

    def resume_writing(self) -> None:
        self._listener.may_write(True)

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def read(self, allowed: bool) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if allowed:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    async def close(self) -> None:
        if self._transport is None or self._gone.done():
            return
        # Closing with unread bytes resets the connection and may destroy what the server has not read yet, so we end
        # our half first and give the server a moment to end its own.
        self.read(True)
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()
        _, waiting = await asyncio.wait([self._gone], timeout=CLOSE_TIMEOUT_S)
        if waiting:
            self._transport.abort()
            await self._gone

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class WebSocketTransport:
    """A WebSocket with the subprotocol `mqtt` [MQTT-6.0.0-3]; packets travel in binary messages [MQTT-6.0.0-1]."""

    def __init__(self, socket: ClientConnection, listener: Listener) -> None:
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


async def open_stream(listener: Listener, host: str, port: int, tls: ssl.SSLContext | None) -> Transport:
    loop = asyncio.get_running_loop()
    _, transport = await loop.create_connection(lambda: StreamTransport(listener), host, port, ssl=tls)
    return transport


async def open_websocket(listener: Listener, host: str, port: int, tls: ssl.SSLContext | None, path: str) -> Transport:
    name = f"[{host}]" if ":" in host else host
    uri = f"{'wss' if tls else 'ws'}://{name}:{port}/{path.lstrip('/')}"
    # Compression and size limits are MQTT's business; a proxy of the environment must not catch a broker on loopback.
    socket = await connect_websocket(
        uri, ssl=tls, subprotocols=[Subprotocol("mqtt")], compression=None, max_size=None, proxy=None
    )
    return WebSocketTransport(socket, listener)
