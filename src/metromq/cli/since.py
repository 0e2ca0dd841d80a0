"""`metromq sub --since`: asks for a replay, and after a lost connection goes on where it was."""

import time
from collections import OrderedDict
from typing import Final

from metromq.client import Message
from metromq.errors import UsageError
from metromq.moments import Since, parse_since, text_of, time_of
from metromq.protocol.replay import ID_PROPERTY, NOTICE_TOPIC, SINCE_PREFIX, TIME_PROPERTY

REMEMBERED: Final = 100_000  # messages that are recognised when they come again
MARGIN_US: Final = 10_000_000  # brokers' clocks differ, and so does the order in which their messages come


class Replay:
    """What to subscribe to, and which messages have been shown."""

    def __init__(self, start: str) -> None:
        self._start = as_level(start)
        self._shown: OrderedDict[str, None] = OrderedDict()
        self._newest_us = 0

    def topic(self, topic_filter: str) -> str:
        start = text_of(self._newest_us - MARGIN_US) if self._newest_us else self._start
        return f"{SINCE_PREFIX}{start}/{topic_filter}"

    def is_new(self, message: Message) -> bool:
        """False: it was shown before the connection was lost."""
        said = dict(message.properties.user)
        name = said.get(ID_PROPERTY)
        if name is None:
            return True
        self._newest_us = max(self._newest_us, time_of(said[TIME_PROPERTY]))
        if name in self._shown:
            return False
        self._shown[name] = None
        if len(self._shown) > REMEMBERED:
            self._shown.popitem(last=False)
        return True


def is_notice(message: Message) -> bool:
    """What the broker says of the replay itself."""
    return message.topic == NOTICE_TOPIC


def as_level(start: str) -> str:
    """An age and an offset as they are; a time in UTC, because a topic filter cannot hold the + of a zone."""
    since: Since = parse_since(start, time.time_ns() // 1000)
    if start[-1:] in "smhd" or since.offset >= 0:
        return start
    return text_of(since.time_us)


def check_version(version: str | None) -> str:
    """Only MQTT 5 has the properties by which a message is recognised that comes again."""
    if version not in (None, "5", "mqttv5"):
        raise UsageError("--since needs MQTT 5: leave -V out")
    return "mqttv5"
