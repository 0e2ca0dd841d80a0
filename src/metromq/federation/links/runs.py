"""Runs: QoS 0 packets of one topic and one size, passed between brokers as the publisher sent them."""

import struct
from typing import Final, final

from metromq.errors import MalformedPacket

_HEAD: Final = struct.Struct("<BHH")  # MQTT 5 packets, origin, note


@final
class Run:
    """`header` and `topic_end` are positions in each packet of `size` bytes."""

    def __init__(self, newer: bool, origin: str, note: bytes, packets: bytes) -> None:
        self.newer = newer
        self.origin = origin  # the broker at which the messages were published
        self.note = note
        self.packets = packets
        self.size = 0
        self.header = 0
        self.topic_end = 0

    def topic(self) -> bytes:
        return self.packets[self.header + 2 : self.topic_end]

    def payloads(self) -> list[bytes]:
        start = self.topic_end + (1 if self.newer else 0)
        return [
            self.packets[position + start : position + self.size] for position in range(0, len(self.packets), self.size)
        ]


def encode_run(newer: bool, origin: str, note: bytes, packets: bytes) -> bytes:
    name = origin.encode()
    return b"".join((_HEAD.pack(newer, len(name), len(note)), name, note, packets))


def decode_run(data: bytes) -> Run:
    try:
        newer, n_origin, n_note = _HEAD.unpack_from(data)
        start = _HEAD.size + n_origin
        end = start + n_note
        run = Run(bool(newer), data[_HEAD.size : start].decode(), data[start:end], data[end:])
        _measure(run)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedPacket(f"a run of a link cannot be decoded: {error}") from error
    return run


def _measure(run: Run) -> None:
    packets = run.packets
    length, shift, position = 0, 0, 1
    while True:
        byte = packets[position]
        position += 1
        length |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    run.header = position
    run.size = position + length
    run.topic_end = position + 2 + (packets[position] << 8 | packets[position + 1])
    if packets[0] != 0x30 or len(packets) % run.size or run.topic_end + run.newer > run.size:
        raise MalformedPacket("a run of a link is not made of whole QoS 0 packets")
