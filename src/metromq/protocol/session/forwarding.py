"""The short way for QoS 0: runs of equal packets are forwarded as the publisher's own bytes."""

from metromq.protocol.wire.encoding import varint


def run_end(data: bytes, start: int, size: int, prefix: bytes, end: int) -> int:
    """Where the run ends of packets that are `size` bytes long and begin with `prefix` (fixed header and topic)."""
    length = len(prefix)
    position = start + size
    while position + size <= end and data[position : position + length] == prefix:
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
