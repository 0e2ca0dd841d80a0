"""A client of packets on a real socket, for tests that need to see or withhold each one."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from metromq.protocol.wire.decoding import Framer, decode
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import MQTT5, Connack, Connect, Packet, Publish, Suback, Subscribe, Subscription

P = TypeVar("P", bound=Packet)


class WireClient:
    """Reads only when asked; what the broker sends meanwhile stays in the network."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int) -> None:
        self.reader = reader
        self.writer = writer
        self.version = version
        self.framer = Framer(1 << 28)
        self.closed = False

    def send(self, *packets: Packet) -> None:
        self.writer.write(b"".join(encode(packet, self.version) for packet in packets))

    async def next(self) -> Packet | None:
        """The next packet; None: the broker has closed."""
        while (frame := self.framer.next()) is None:
            try:
                data = await self.reader.read(65536)
            except ConnectionError:
                data = b""
            if not data:
                self.closed = True
                return None
            self.framer.feed(data)
        return decode(frame[0], frame[1], self.version, False)

    async def expect(self, kind: type[P]) -> P:
        packet = await self.next()
        assert isinstance(packet, kind), packet
        return packet

    async def messages(self, count: int) -> list[Publish]:
        return [await self.expect(Publish) for _ in range(count)]

    async def subscribe(self, filter: str, qos: int) -> None:
        self.send(Subscribe(1, [Subscription(filter, qos)]))
        assert (await self.expect(Suback)).reason_codes == [qos]


@asynccontextmanager
async def wire_client(port: int, connect: Connect, receive_buffer_bytes: int = 0) -> AsyncIterator[WireClient]:
    """A connection with its CONNACK read; small buffers make a reader that stalls at once."""
    link = socket.socket()
    if receive_buffer_bytes:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    link.setblocking(False)
    await asyncio.get_running_loop().sock_connect(link, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=link, limit=4096 if receive_buffer_bytes else 65536)
    client = WireClient(reader, writer, connect.version or MQTT5)
    client.send(connect)
    assert (await client.expect(Connack)).reason_code == 0
    try:
        yield client
    finally:
        writer.close()
