"""Which records of a journal somebody gets who asks for a replay: by filter, origin, time and rights; no I/O."""

from collections.abc import Callable
from typing import Final, final

from metromq.protocol.replay import OWN
from metromq.protocol.session import layout
from metromq.protocol.session.message import KIND_LINK, KIND_REPLAY, Message
from metromq.protocol.session.records import decode_message
from metromq.protocol.topics.names import matches

INTERNAL: Final = b"$metromq/"  # what brokers tell each other of themselves
REMEMBERED: Final = 50_000  # topics about which the decision is kept

_HEAD: Final = layout.struct_of(layout.HEAD)


def local_time_us(body: bytes) -> int:
    """When the record was written, by the clock of the broker that wrote it."""
    message = decode_message(body).message
    return message.arrived_us or message.time_us


@final
class Selection:
    """`topic_filter` empty: all topics; `origin` as in a request; `may_read` None: everything may be read.

    Without a filter and an origin every record is asked for, so that those who copy a journal get it whole.
    """

    def __init__(
        self, topic_filter: str, origin: str, since_us: int, may_read: Callable[[str], bool] | None = None
    ) -> None:
        self._filter = topic_filter
        self._origin = origin
        self._since_us = since_us
        self._may_read = may_read
        self._topics: dict[bytes, bool] = {}

    def takes_all(self) -> bool:
        return not self._filter and not self._origin and self._since_us < 0 and self._may_read is None

    def of(self, records: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        return [record for record in records if self._takes(record[1])]

    def _takes(self, body: bytes) -> bool:
        time_us, flags, _, _, _, n_topic, _, _, _ = _HEAD.unpack_from(body)
        if time_us < self._since_us:
            return False
        topic = body[_HEAD.size : _HEAD.size + n_topic]
        chosen = self._topics.get(topic)
        if chosen is None:
            chosen = self._chooses(topic)
            if len(self._topics) > REMEMBERED:
                self._topics.clear()
            self._topics[topic] = chosen
        return chosen and self._is_from(flags, body)

    def _chooses(self, topic: bytes) -> bool:
        if topic.startswith(INTERNAL) and (self._filter or self._origin or self._may_read is not None):
            return False
        name = topic.decode()
        if self._filter and not matches(self._filter, name):
            return False
        return self._may_read is None or self._may_read(name)

    def _is_from(self, flags: int, body: bytes) -> bool:
        origin = self._origin
        kind = (flags >> layout.KIND_SHIFT) & layout.KIND
        if not origin:
            return kind != KIND_REPLAY or not self._filter
        if origin == OWN:
            return kind != KIND_LINK and kind != KIND_REPLAY
        return kind == KIND_LINK and decode_message(body).message.origin == origin


@final
class Replayed:
    """A message of a replay, and by what the city knows it."""

    def __init__(self, message: Message, broker: str, offset: int) -> None:
        """`broker` wrote the record with that `offset`."""
        self.message = message
        self.origin = message.origin or broker
        self.offset = message.origin_offset if message.origin else offset
        self.time_us = message.time_us


def replayed(broker: str, offset: int, body: bytes) -> Replayed:
    return Replayed(decode_message(body, offset).message, broker, offset)
