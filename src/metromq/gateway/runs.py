"""Runs of QoS 0 PUBLISH packets in what the network gave: they go on as they are, unparsed beyond the topic."""

from typing import Final

QOS0_PUBLISH: Final = 0x30  # the first byte, but for RETAIN
NOT_RETAIN: Final = 0xFE
MODERATE_BYTES: Final = 1 << 16  # larger ones are put together elsewhere, where that costs no copies
SHORTEST: Final = 5  # first byte, length, and a topic of one byte


def run_end(data: bytes, at: int) -> int:
    """Where the run of whole QoS 0 PUBLISH packets ends that begins at `at`; `at` itself: there is none."""
    size = len(data)
    while at + SHORTEST <= size and data[at] & NOT_RETAIN == QOS0_PUBLISH:
        length = data[at + 1]
        start = at + 2
        if length > 0x7F:
            start, length = _long(data, at)
        end = start + length
        if start == 0 or end > size:
            return at
        at = end
    return at


def is_begun(data: bytes, at: int) -> bool:
    """Whether a QoS 0 PUBLISH of moderate size begins at `at` whose end is still to come."""
    left = len(data) - at
    if left <= 0 or data[at] & NOT_RETAIN != QOS0_PUBLISH:
        return False
    if left < 2:
        return True
    start, length = (at + 2, data[at + 1]) if data[at + 1] <= 0x7F else _long(data, at)
    return left < 5 if start == 0 else left < start - at + length <= MODERATE_BYTES


def same_way(data: bytes, at: int, stop: int, ways: dict[bytes, str], is_mqtt5: bool) -> tuple[int, str, bytes]:
    """Within a run: where the packets end that go the same way as the first, and that way.

    The first packet's topic comes third, and the end is `at`, if its way is not known yet; it is empty if the packet
    must be looked at: it has properties, or is malformed.
    """
    way = ""
    first = at
    while at < stop:
        length = data[at + 1]
        start = at + 2
        if length > 0x7F:
            start, length = _long(data, at)
        end = start + length
        if length < 3:
            return at, way, b""
        name_end = start + 2 + (data[start] << 8 | data[start + 1])
        if name_end > end or (is_mqtt5 and (name_end >= end or data[name_end] != 0)):
            return at, way, b""
        name = data[start + 2 : name_end]
        found = ways.get(name)
        if found is None:
            return at, way, name
        if at == first:
            way = found
        elif found != way:
            return at, way, name
        at = end
    return at, way, b""


def _long(data: bytes, at: int) -> tuple[int, int]:
    """Start of the body and its length, of a packet whose length has several bytes; start 0: not all are there."""
    length, shift, place = 0, 0, at + 1
    while place < len(data) and shift <= 21:
        byte = data[place]
        length |= (byte & 0x7F) << shift
        place += 1
        if byte < 0x80:
            return place, length
        shift += 7
    return 0, 0
