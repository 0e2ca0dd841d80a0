"""Frames of a tunnel between a proxy and an edge broker: [port, length, packets], many clients over one connection.

The port is that of the client's own connection to the central broker. The first frame of a port opens it, and one
without bytes closes it.
"""

import struct
from collections.abc import Iterator
from typing import Final, final

from metromq.errors import ProtocolViolation

_HEAD: Final = struct.Struct("!HI")
MAX_FRAME_BYTES: Final = 1 << 28


def pack(port: int, data: bytes) -> bytes:
    return _HEAD.pack(port, len(data)) + data


@final
class FrameReader:
    """Feed it what the network gives, and take whole frames out."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        self._data += data
        while len(self._data) >= _HEAD.size:
            port, length = _HEAD.unpack_from(self._data)
            if length > MAX_FRAME_BYTES:
                raise ProtocolViolation(f"a frame of {length} bytes is no frame of a tunnel")
            end = _HEAD.size + length
            if len(self._data) < end:
                return
            body = bytes(self._data[_HEAD.size : end])
            del self._data[:end]
            yield port, body
