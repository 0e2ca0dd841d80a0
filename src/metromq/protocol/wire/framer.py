"""Cuts a stream of bytes into packets: first byte and body."""

from typing import final

from metromq.errors import MalformedPacket, PeerViolation
from metromq.protocol.reasons import PACKET_TOO_LARGE


def packet_bounds(data: bytes, position: int, max_packet_bytes: int, padded: bool = False) -> tuple[int, int]:
    """Where the body of the packet at `position` starts and where it stops.

    (0, n): the fixed header is not all there, look again when `n` is within the data. A stop beyond the data says that
    the body is not. The limit counts whole packets, header included, as MQTT 5's Maximum Packet Size does, and a packet
    over it is refused as soon as its header is known. `padded` allows a Remaining Length with more bytes than it needs.
    """
    end = len(data)
    start = position + 1
    length = 0
    shift = 0
    while True:
        if start >= end:
            return 0, start + 1
        byte = data[start]
        start += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 21:
            raise MalformedPacket("the Remaining Length has more than four bytes [MQTT-1.5.5-1]")
    if byte == 0 and shift and not padded:
        raise MalformedPacket("the Remaining Length is not in its shortest form [MQTT-1.5.5-1]")
    stop = start + length
    if stop - position > max_packet_bytes:
        raise PeerViolation(
            PACKET_TOO_LARGE,
            f"packet of {stop - position} bytes is over the limit of {max_packet_bytes} [MQTT-3.2.2-15]",
        )
    return start, stop


@final
class Framer:
    """Feed it what the network gives, in pieces of any size, and take whole packets out.

    A padded Remaining Length is read: 3.1.1 does not demand the shortest form, and the value is unambiguous.
    """

    def __init__(self, max_packet_bytes: int) -> None:
        self.max_packet_bytes = max_packet_bytes
        self._chunk = b""  # bytes that hold whole packets
        self._position = 0
        self._partial = bytearray()  # a packet that is not whole yet; grows in place, so many small reads stay cheap
        self._needed = 0  # size at which the partial packet is worth another look

    @property
    def is_empty(self) -> bool:
        """Whether every byte that it was fed has come out in a packet."""
        return not self._partial and self._position >= len(self._chunk)

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
        position = self._position
        if position >= len(chunk):
            return None
        start, stop = packet_bounds(chunk, position, self.max_packet_bytes, True)
        if start == 0 or stop > len(chunk):
            self._partial += chunk[position:]  # kept aside until what is missing is there
            self._needed = stop - position
            self._chunk = b""
            self._position = 0
            return None
        self._position = stop
        return chunk[position], chunk[start:stop]
