"""Reads the data types of MQTT from bytes; whatever is cut short or ill-formed is a Malformed Packet.

It is not `protocol.packing`, which reads our own formats: MQTT's numbers are big-endian, its lengths have two bytes,
its variable byte integers stop at four and must be in their shortest form, its strings hold no U+0000, and each refusal
is the peer's violation of a clause with a reason code, where our own formats know only damage.
"""

from typing import final

from metromq.errors import MalformedPacket


@final
class PacketReader:
    """A position in a packet's body. It never reads beyond `end`."""

    def __init__(self, body: bytes, position: int = 0, end: int = -1) -> None:
        self.body = body
        self.position = position
        self.end = len(body) if end < 0 else end

    def take(self, size: int) -> int:
        """Moves past `size` bytes and returns where they start."""
        start = self.position
        if start + size > self.end:
            raise MalformedPacket(f"packet ends early: {size} bytes needed at {start}, {self.end - start} left")
        self.position = start + size
        return start

    def u8(self) -> int:
        return self.body[self.take(1)]

    def u16(self) -> int:
        start = self.take(2)
        body = self.body
        return (body[start] << 8) | body[start + 1]

    def u32(self) -> int:
        start = self.take(4)
        body = self.body
        return (body[start] << 24) | (body[start + 1] << 16) | (body[start + 2] << 8) | body[start + 3]

    def varint(self) -> int:
        value = 0
        for shift in range(0, 28, 7):
            byte = self.u8()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if byte == 0 and shift:
                    raise MalformedPacket("variable byte integer is not in its shortest form [MQTT-1.5.5-1]")
                return value
        raise MalformedPacket("variable byte integer is longer than 4 bytes [MQTT-1.5.5-1]")

    def binary(self) -> bytes:
        size = self.u16()
        start = self.take(size)
        return self.body[start : start + size]

    def string(self) -> str:
        return text(self.binary())

    def rest(self) -> bytes:
        start = self.position
        self.position = self.end
        return self.body[start : self.end]

    def finish(self) -> None:
        """Nothing may be left over."""
        if self.position != self.end:
            raise MalformedPacket(f"{self.end - self.position} bytes are left over after the packet's last field")


def text(raw: bytes) -> str:
    """A UTF-8 Encoded String: no surrogates, no overlong forms, no U+0000; a byte order mark is kept [MQTT-1.5.4-3]."""
    try:
        value = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedPacket(f"string is not well-formed UTF-8 [MQTT-1.5.4-1]: {error}") from None
    if "\0" in value:
        raise MalformedPacket("string holds the null character U+0000 [MQTT-1.5.4-2]")
    return value
