"""Cuts a stream of bytes into packets: first byte and body."""

from typing import final

from metromq.errors import MalformedPacket, PeerViolation
from metromq.protocol.wire.reasons import PACKET_TOO_LARGE


@final
class Framer:
    """Feed it what the network gives, in pieces of any size, and take whole packets out.

    The limit counts whole packets, header included, as MQTT 5's Maximum Packet Size does. A packet over the limit is
    refused as soon as its header is known, so that nobody can make us store what we would refuse anyway.
    """

    def __init__(self, max_packet_bytes: int) -> None:
        self.max_packet_bytes = max_packet_bytes
        self._chunk = b""  # bytes that hold whole packets
        self._position = 0
        self._partial = bytearray()  # a packet that is not whole yet; grows in place, so many small reads stay cheap
        self._needed = 0  # size at which the partial packet is worth another look

    def feed(self, data: bytes) -> None:
        if self._partial:
            self._partial += data
            if len(self._partial) < self._needed:
                return
            data = bytes(self._partial)
            self._partial.clear()
            self._needed = 0
        if self._position < len(self._chunk):
            self._chunk = self._chunk[self._position :] + data
        else:
            self._chunk = data
        self._position = 0

    def next(self) -> tuple[int, bytes] | None:
        """The first byte and the body of the next whole packet, or None until more bytes are fed."""
        chunk = self._chunk
        start = self._position
        available = len(chunk) - start
        if available < 2:
            self._wait(2)
            return None
        size = chunk[start + 1]
        header = 2
        if size >= 0x80:
            size &= 0x7F
            header = self._long_header(start, available)
            if header == 0:
                return None
            for index in range(2, header):
                size |= (chunk[start + index] & 0x7F) << (7 * (index - 1))
        total = header + size
        if total > self.max_packet_bytes:
            raise PeerViolation(
                PACKET_TOO_LARGE,
                f"packet of {total} bytes is over the limit of {self.max_packet_bytes} [MQTT-3.2.2-15]",
            )
        if available < total:
            self._wait(total)
            return None
        end = start + total
        self._position = end
        return chunk[start], chunk[start + header : end]

    def _long_header(self, start: int, available: int) -> int:
        """The size of a fixed header with 2 to 4 bytes of Remaining Length; 0 when it is not all there yet."""
        for index in range(2, 5):
            if index >= available:
                self._wait(index + 1)
                return 0
            if self._chunk[start + index] < 0x80:
                return index + 1
        raise MalformedPacket("Remaining Length is longer than 4 bytes [MQTT-1.5.5-1]")

    def _wait(self, needed: int) -> None:
        """Keeps the unfinished packet aside until `needed` bytes of it are there."""
        if self._position < len(self._chunk):
            self._partial += self._chunk[self._position :]
            self._chunk = b""
            self._position = 0
            self._needed = needed
