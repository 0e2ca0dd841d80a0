"""The short way for QoS 0: runs of equal packets are forwarded as the publisher's own bytes."""

from typing import Final, final

from mypy_extensions import i64

from metromq.protocol.wire.encoding import varint

NEWER_BYTES: Final = 2  # by which a packet grows at most as MQTT 5: the empty property list, and a longer length


def run_end(data: bytes, start: int, size: int, prefix: bytes, end: int) -> int:
    """Where the run ends of packets that are `size` bytes long and begin with `prefix` (fixed header and topic)."""
    length = len(prefix)
    position = start + size
    while position + size <= end and data[position : position + length] == prefix:
        position += size
    return position


def is_plain(data: bytes, start: i64, end: i64) -> bool:
    """Whether this part of a topic is for sure in order: ASCII without wildcards and the null character."""
    for at in range(start, end):
        byte = data[at]
        if byte >= 0x80 or byte == 0x2B or byte == 0x23 or byte == 0:
            return False
    return True


def is_other_level(data: bytes, start: i64, end: i64, names: list[bytes]) -> bool:
    """Whether this part of a topic is for sure in order, one level, and none of these."""
    for at in range(start, end):
        byte = data[at]
        if byte >= 0x80 or byte == 0x2B or byte == 0x23 or byte == 0x2F or byte == 0:
            return False
    size = end - start
    return not any(len(name) == size and data[start:end] == name for name in names)


def alike_end(data: bytes, start: i64, size: i64, head: bytes, topic_end: i64, end: i64) -> int:
    """Where the stretch ends of QoS 1 packets like the one that starts there: as long, with the same `head` (up to
    somewhere in the topic), then anything that a topic may have, and a packet identifier behind it."""
    length: i64 = len(head)
    position = start + size
    while (
        position + size <= end
        and data[position : position + length] == head
        and is_plain(data, position + length, position + topic_end)
        and (data[position + topic_end] or data[position + topic_end + 1])
    ):
        position += size
    return position


def to_older(run: bytes, size: int, topic_end: int, header: int) -> bytes:
    """MQTT 5 packets without properties as MQTT 3.1.1: the property length goes.

    `topic_end` and `header` (length of the fixed header) are positions in each packet of `size` bytes.
    """
    head = b"\x30" + varint(size - header - 1)
    if len(head) != header:  # the fixed header becomes shorter, too
        head += run[header:topic_end]
        return head + head.join([run[at + topic_end + 1 : at + size] for at in range(0, len(run), size)])
    packets = bytearray(run)
    del packets[topic_end::size]
    count = len(run) // size
    for index in range(1, header):
        packets[index :: size - 1] = head[index : index + 1] * count
    return bytes(packets)


def to_newer(run: bytes, size: int, topic_end: int, header: int) -> bytes:
    """MQTT 3.1.1 packets as MQTT 5: an empty property list comes behind the topic."""
    head = b"\x30" + varint(size - header + 1) + run[header:topic_end] + b"\x00"
    return head + head.join([run[at + topic_end : at + size] for at in range(0, len(run), size)])


@final
class Piece:
    """QoS 0 packets one behind the other that have one route, and what they are."""

    def __init__(self, start: int, header: int, topic_end: int, size: int) -> None:
        self.start = start  # in the bytes that came
        self.header = header  # positions in the first packet, and its size
        self.topic_end = topic_end
        self.size = size
        self.largest = size  # of all packets
        self.count = 0
        self.runs = 0  # a run: packets of one topic and one size
        self.head_bytes = 0  # what is no payload

    def add(self, count: int, size: int, head_bytes: int) -> None:
        self.runs += 1
        self.count += count
        self.head_bytes += count * head_bytes
        if size > self.largest:
            self.largest = size


def next_packet(data: bytes, position: int, end: int, first: int) -> tuple[int, int]:
    """Where the body of the packet at `position` starts and stops, if it is whole, begins with the byte `first` and has
    a length of one or two bytes in its shortest form; else stop is 0."""
    if position + 2 > end or data[position] != first:
        return 0, 0
    start = position + 2
    length = data[position + 1]
    if length >= 128:
        if start >= end or data[start] == 0 or data[start] >= 128:
            return 0, 0
        length += (data[start] << 7) - 128
        start += 1
    return (start, start + length) if start + length <= end else (0, 0)


def packets_of(medley: bytes) -> list[bytes]:
    """Packets that stand one behind the other, each by itself."""
    packets: list[bytes] = []
    position = 0
    while position < len(medley):
        _, stop = _body(medley, position)
        packets.append(medley[position:stop])
        position = stop
    return packets


def medley_to_other(medley: bytes, newer: bool) -> bytes:
    """QoS 0 packets of any topics and sizes in the other version: of MQTT 5 without properties (`newer`) as MQTT 3.1.1,
    or the other way."""
    pieces: list[bytes] = []
    position = 0
    while position < len(medley):
        start, stop = _body(medley, position)
        topic_end = start + 2 + ((medley[start] << 8) | medley[start + 1])
        if newer:
            pieces += [b"\x30", varint(stop - start - 1), medley[start:topic_end], medley[topic_end + 1 : stop]]
        else:
            pieces += [b"\x30", varint(stop - start + 1), medley[start:topic_end], b"\x00", medley[topic_end:stop]]
        position = stop
    return b"".join(pieces)


def payload_bytes(packet: bytes, newer: bool) -> int:
    """Of one QoS 0 packet without properties."""
    start, stop = _body(packet, 0)
    return stop - start - 2 - ((packet[start] << 8) | packet[start + 1]) - (1 if newer else 0)


def _body(data: bytes, position: int) -> tuple[int, int]:
    """Where the body of a whole packet starts, and where it stops."""
    start = position + 1
    length = shift = 0
    while True:
        byte = data[start]
        length |= (byte & 127) << shift
        start += 1
        if byte < 128:
            return start, start + length
        shift += 7
