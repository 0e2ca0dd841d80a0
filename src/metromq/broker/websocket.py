"""A client over WebSocket, on the `websockets` library."""

import asyncio
import logging
from functools import partial
from http import HTTPStatus
from typing import cast, final

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.protocol import Protocol, State
from websockets.typing import Subprotocol

from metromq.broker.doorstep import Knock, TlsDoor
from metromq.broker.origins import Origins
from metromq.broker.stream import common_name
from metromq.broker.write_cycle import WriteCycle, Writer
from metromq.config import Listener
from metromq.protocol.session import Access, Connection, Peer


@final
class WebSocketWriter(Writer):
    """One task reads, one writes; while a write waits for the network the client counts as paused."""

    def __init__(self, cycle: WriteCycle, connection: Connection, socket: ServerConnection) -> None:
        super().__init__(cycle, connection)
        self.socket = socket
        self.wake = asyncio.Event()

    def flush(self) -> None:
        if self.paused:
            self.account(self.output.waiting_bytes)
        self.wake.set()

    def is_open(self) -> bool:
        return self.socket.state is not State.CLOSED

    def abort(self) -> None:
        self.socket.transport.abort()

    async def write(self) -> None:
        output = self.output
        while True:
            await self.wake.wait()
            self.wake.clear()
            data = output.take()
            if data:
                self.paused = True
                self.account(len(data))
                output.sent(len(data))
                await self.socket.send(data)
                self.paused = False
                self.cycle.hub.counters.bytes_sent += len(data)
                output.sent(0)
                self.account(0)
                self.cycle.now()
                self.connection.drained()
                self.cycle.worked()
            if output.closing and not output.first:
                await self.socket.close()
                return

    async def read(self) -> None:
        connection = self.connection
        async for data in self.socket:
            if isinstance(data, str):  # [MQTT-6.0.0-1]
                await self.socket.close(1003, "MQTT needs binary frames")
                return
            self.cycle.now()
            connection.receive(data)
            self.cycle.hub.delivery.take_slow()  # who is too fast is not slowed down here
            self.cycle.worked()


def greeted(cycle: WriteCycle, tls: TlsDoor | None) -> type[ServerConnection]:
    """Connections that count as newcomers from their first moment, through TLS and the upgrade to WebSocket."""
    newcomers = cycle.hub.connections.newcomers

    class Greeted(ServerConnection):
        knock: Knock | None = None

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            if self.knock is not None:
                super().connection_made(transport)
                return
            bare = cast(asyncio.Transport, transport)
            self.knock = Knock(bare)
            if tls is not None:
                self.knock.secured_by(tls, bare, self)
            newcomers.came(self.knock)
            if tls is None:
                super().connection_made(transport)

        def not_secured(self) -> None:
            assert self.knock is not None
            newcomers.gone(self.knock)

        def connection_lost(self, exc: Exception | None) -> None:
            self.not_secured()
            super().connection_lost(exc)
            _let_go(self.protocol)

    return Greeted


def _let_go(protocol: Protocol) -> None:
    """What parses holds what it parses for, also through the error that ended it: so nothing would free itself."""
    protocol.parser.close()
    error: BaseException | None
    for error in (protocol.parser_exc, protocol.handshake_exc):
        while error is not None:
            error.__traceback__ = None
            error = error.__cause__ or error.__context__


def _check_origin(origins: Origins, socket: ServerConnection, request: Request) -> Response | None:
    if origins.may_connect(request.headers.get_all("Origin"), request.headers.get("Host", "")):
        return None
    return socket.respond(HTTPStatus.FORBIDDEN, "pages of this origin need an entry in websocket_origins\n")


def _logger() -> logging.Logger:
    """Without what strangers can cause: each bad request would be a page in the log."""
    logger = logging.getLogger("metromq.websocket")
    logger.setLevel(logging.WARNING)
    logger.addFilter(_is_ours)
    return logger


def _is_ours(record: logging.LogRecord) -> bool:
    return record.getMessage() != "opening handshake failed"


async def serve_websocket(
    cycle: WriteCycle, access: Access, listener: Listener, anonymous_allowed: bool, tls: TlsDoor | None
) -> Server:
    """Opens the door; clients must offer the subprotocol `mqtt` [MQTT-6.0.0-3]."""

    async def handle(socket: ServerConnection) -> None:
        address = socket.remote_address
        peer = Peer(f"{address[0]}:{address[1]}", anonymous_allowed, "", listener.kind)
        if listener.use_identity_as_username:
            peer.needs_identity = True
            peer.identity = common_name(socket.transport.get_extra_info("peercert") or {})
        peer.newcomer = getattr(socket, "knock", None)
        cycle.now()
        writer = WebSocketWriter(cycle, Connection(cycle.hub, access, peer), socket)
        writing = asyncio.create_task(writer.write())
        try:
            await writer.read()
        except ConnectionClosed:
            pass
        finally:
            cycle.now()
            writer.connection.lost()
            cycle.worked()
            writer.account(0)
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            writer.part()

    return await serve(
        handle,
        listener.host,
        listener.port,
        create_connection=greeted(cycle, tls),
        process_request=partial(_check_origin, Origins(listener)),
        logger=_logger(),
        open_timeout=cycle.hub.settings.connect_timeout_s,
        subprotocols=[Subprotocol("mqtt"), Subprotocol("mqttv3.1")],
        max_size=cycle.hub.settings.max_packet_size_bytes + 5,
        compression=None,
        ping_interval=None,  # MQTT has its own keepalive
        server_header=None,
    )
