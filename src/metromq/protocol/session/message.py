"""One application message inside the broker, whoever it came from and wherever it goes."""

from typing import Final, final

KIND_PUBLISH: Final = 0  # a client of this broker published it
KIND_LINK: Final = 1  # a peer broker sent it
KIND_REPLAY: Final = 2  # a retained message, written again for one session that subscribed later
KIND_WILL: Final = 3  # the broker published it for a client that was lost


@final
class Message:
    """Immutable by convention; a plain class because mypyc makes those cheapest."""

    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: bytes = b"",
        expires_at_us: int = 0,
        time_us: int = 0,
        publisher: str = "",
        kind: int = KIND_PUBLISH,
        origin: str = "",
        origin_offset: int = -1,
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.properties = (
            properties  # encoded PUBLISH properties that travel unchanged: no expiry, alias or subscription id
        )
        self.expires_at_us = expires_at_us  # 0: never
        self.time_us = time_us  # when this broker accepted it, microseconds since 1970
        self.publisher = publisher  # client id
        self.kind = kind
        self.origin = origin  # the broker it was first published at; empty: this one
        self.origin_offset = origin_offset  # its offset in the origin's journal; -1: none or this one's own
        self.arrived_us = 0  # when a peer's copy came here, by the clock of this broker; `time_us` stays its origin's
        self.offset = -1  # in this broker's journal; -1: not journalled

    def named(self, broker: str) -> "Message":
        """The same message with its origin, by which other brokers recognise it; `broker` is where it is now."""
        copy = Message(self.topic, self.payload, self.qos, self.retain, self.properties)
        copy.expires_at_us = self.expires_at_us
        copy.time_us = self.time_us
        copy.publisher = self.publisher
        copy.origin = self.origin or broker
        copy.origin_offset = self.origin_offset if self.origin else self.offset
        return copy
