"""What a client needs of a network, and the TCP or TLS stream that gives it."""

import asyncio
import ssl
from dataclasses import dataclass
from typing import Protocol, cast

HIGH_WATER_BYTES = 1 << 18
CLOSE_TIMEOUT_S = 2.0


class ByteListener(Protocol):
    """Who gets what the network brings."""

    def received(self, data: bytes) -> None: ...
    def closed(self, error: Exception | None) -> None: ...
    def may_write(self, allowed: bool) -> None: ...


class ByteTransport(Protocol):
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

    def __init__(self, listener: ByteListener) -> None:
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

    def peer_certificate(self) -> dict[str, object]:
        """What the server's verified certificate says; empty without TLS."""
        return (self._transport.get_extra_info("peercert") if self._transport is not None else None) or {}

    async def close(self) -> None:
        if self._transport is None or self._gone.done():
            return
        # Closing with unread bytes resets the connection and may destroy what the server has not read yet, so we end
        # our half first and give the server a moment to end its own.
        self.read(True)
        try:
            if self._transport.can_write_eof():
                self._transport.write_eof()
            else:
                self._transport.close()
        except OSError:  # the server was quicker
            self._transport.abort()
        _, waiting = await asyncio.wait([self._gone], timeout=CLOSE_TIMEOUT_S)
        if waiting:
            self._transport.abort()
            await self._gone

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where the server is and how to get there."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    # The local address to connect from; None lets the system choose.
    bind_address: str | None = None

    @property
    def local(self) -> tuple[str, int] | None:
        return (self.bind_address, 0) if self.bind_address else None


async def open_stream(listener: ByteListener, place: ServerAddress) -> StreamTransport:
    loop = asyncio.get_running_loop()
    _, transport = await loop.create_connection(
        lambda: StreamTransport(listener), place.host, place.port, ssl=place.tls, local_addr=place.local
    )
    return transport
