"""Two crude MQTT 3.1.1 clients, written apart from the broker's own wire, that keep their half of the QoS promises."""

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass

CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK = 2, 3, 4, 5, 6, 7, 9


def packet(first: int, body: bytes) -> bytes:
    length, size = len(body), b""
    while True:
        length, digit = divmod(length, 128)
        size += bytes([digit | (128 if length else 0)])
        if not length:
            return bytes([first]) + size + body


def text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode()


class CrudeClient:
    """A client with a persistent session; `run` serves one connection until the other side is gone."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.had_session = False
        self.lost_session = False
        self.running = False
        self._writer: asyncio.StreamWriter | None = None

    async def run(self, port: int) -> None:
        assert not self.running
        self.running = True
        try:
            reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
            self.send(0x10, text("MQTT") + bytes([4, 0]) + struct.pack(">H", 0) + text(self.client_id))
            await self._serve(reader)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            if self._writer is not None:
                self._writer.close()
            self._writer = None
            self.running = False

    def send(self, first: int, body: bytes) -> None:
        if self._writer is not None:
            self._writer.write(packet(first, body))

    def hang_up(self) -> None:
        """Cut the connection without a DISCONNECT."""
        if self._writer is not None:
            self._writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader) -> None:
        while True:
            (first,) = await reader.readexactly(1)
            length, shift = 0, 0
            while True:
                (digit,) = await reader.readexactly(1)
                length |= (digit & 127) << shift
                shift += 7
                if digit < 128:
                    break
            body = await reader.readexactly(length)
            if first >> 4 == CONNACK:
                assert body[1] == 0, f"CONNACK {body[1]} for {self.client_id}"
                self.lost_session |= self.had_session and not body[0]
                self.connected(bool(body[0]))
                self.had_session = True
            elif first >> 4 == SUBACK:
                self.subscribed(list(body[2:]))
            else:
                self.handle(first, body)

    def connected(self, session_present: bool) -> None:
        raise NotImplementedError

    def subscribed(self, codes: list[int]) -> None:
        raise NotImplementedError

    def handle(self, first: int, body: bytes) -> None:
        raise NotImplementedError


@dataclass
class Sending:
    """A message whose acknowledgement is awaited."""

    topic: str
    payload: bytes
    released: bool = False  # PUBREC came


class Publisher(CrudeClient):
    """Numbers its messages, keeps `window` of them under way, and sends again what was not confirmed."""

    def __init__(
        self, name: str, qos: int, topics: int, retain: bool, window: int, on_confirmed: Callable[[], None]
    ) -> None:
        super().__init__(f"publisher-{name}")
        self.name = name
        self.qos = qos
        self.retain = retain
        self.producing = True
        self.sent: list[tuple[str, bytes]] = []
        self.confirmed: set[int] = set()  # indexes in `sent` whose PUBACK or PUBREC came
        self.under_way: dict[int, Sending] = {}
        self._indexes: dict[int, int] = {}
        self._topics = topics
        self._window = window
        self._on_confirmed = on_confirmed
        self._next_id = 0

    def connected(self, session_present: bool) -> None:
        for packet_id, sending in self.under_way.items():  # [MQTT-4.4.0-1]: again, in the old order
            if sending.released:
                self.send(0x62, struct.pack(">H", packet_id))
            else:
                self._publish(packet_id, sending, dup=True)
        self._fill()

    def subscribed(self, codes: list[int]) -> None:
        raise AssertionError("a publisher subscribes to nothing")

    def handle(self, first: int, body: bytes) -> None:
        (packet_id,) = struct.unpack(">H", body[:2])
        kind = first >> 4
        if kind in (PUBACK, PUBREC) and packet_id in self.under_way:
            self.confirmed.add(self._indexes[packet_id])
            self._on_confirmed()
        if kind == PUBREC:
            if packet_id in self.under_way:
                self.under_way[packet_id].released = True
            self.send(0x62, struct.pack(">H", packet_id))
        elif kind in (PUBACK, PUBCOMP):
            self.under_way.pop(packet_id, None)
            self._fill()

    def _fill(self) -> None:
        while self.producing and len(self.under_way) < self._window:
            self._next_id = self._next_id % 65535 + 1
            if self._next_id in self.under_way:
                continue
            index = len(self.sent)
            topic = f"crash/{self.qos}/{self.name}/{index % self._topics}"
            sending = Sending(topic, b"%s %d" % (self.name.encode(), index))
            self.sent.append((topic, sending.payload))
            self._indexes[self._next_id] = index
            self.under_way[self._next_id] = sending
            self._publish(self._next_id, sending, dup=False)

    def _publish(self, packet_id: int, sending: Sending, dup: bool) -> None:
        first = 0x30 | self.qos << 1 | (8 if dup else 0) | (1 if self.retain else 0)
        self.send(first, text(sending.topic) + struct.pack(">H", packet_id) + sending.payload)


class Subscriber(CrudeClient):
    """Subscribes once in its life and writes down every message that it takes over from the broker."""

    def __init__(self, name: str, filters: dict[str, int]) -> None:
        super().__init__(f"subscriber-{name}")
        self.name = name
        self.filters = filters
        self.received: list[tuple[str, bytes]] = []
        self.seen: set[tuple[str, bytes]] = set()
        self.retained: list[tuple[str, bytes]] = []
        self.ready = asyncio.Event()
        self._held: set[int] = set()

    def has(self, count: int) -> bool:
        return len(self.seen) >= count

    def connected(self, session_present: bool) -> None:
        if session_present:
            self.ready.set()
            return
        self._held.clear()
        body = struct.pack(">H", 1) + b"".join(text(name) + bytes([qos]) for name, qos in self.filters.items())
        self.send(0x82, body)

    def subscribed(self, codes: list[int]) -> None:
        assert codes == list(self.filters.values())
        self.ready.set()

    def handle(self, first: int, body: bytes) -> None:
        kind, qos = first >> 4, first >> 1 & 3
        if kind == PUBREL:
            self._held.discard(struct.unpack(">H", body)[0])
            self.send(0x70, body)
        if kind != PUBLISH:
            return
        (length,) = struct.unpack_from(">H", body)
        topic, rest = body[2 : 2 + length].decode(), body[2 + length :]
        message = (topic, rest[2:] if qos else rest)
        packet_id = struct.unpack_from(">H", rest)[0] if qos else 0
        if qos != 2 or packet_id not in self._held:  # [MQTT-4.3.3-10]: a repeat under a held identifier is the same one
            (self.retained if first & 1 else self.received).append(message)
            self.seen.add(message)
        if qos == 2:
            self._held.add(packet_id)
        if qos:
            self.send(0x50 if qos == 2 else 0x40, rest[:2])
