"""The short way for QoS 0: runs of equal packets are forwarded as the publisher's own bytes."""

from metromq.protocol.wire.encode import varint


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
    head = b"\x30" + varint(size - header - 1) + run[header:topic_end]
    if len(run) == size:
        return head + run[topic_end + 1 :]
    parts: list[bytes] = []
    position = 0
    while position < len(run):
        parts.append(head)
        parts.append(run[position + topic_end + 1 : position + size])
        position += size
    return b"".join(parts)


def to_newer(run: bytes, size: int, topic_end: int, header: int) -> bytes:
    """MQTT 3.1.1 packets as MQTT 5: an empty property list comes behind the topic."""
    head = b"\x30" + varint(size - header + 1) + run[header:topic_end] + b"\x00"
    if len(run) == size:
        return head + run[topic_end:]
    parts: list[bytes] = []
    position = 0
    while position < len(run):
        parts.append(head)
        parts.append(run[position + topic_end : position + size])
        position += size
    return b"".join(parts)
