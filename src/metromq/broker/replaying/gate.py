"""Between replay and live: live messages wait while old ones are sent, and what was replayed does not come twice."""

import zlib
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from metromq.broker.replaying.packets import PacketWriter
from metromq.protocol.session import LiveGate, Message
from metromq.protocol.topics import matches
from metromq.protocol.wire import MQTT5

MOST_HELD_BYTES = 16 << 20  # live messages that wait for one replay; beyond that they are read from the journals
OVERHEAD_BYTES = 500  # of one that waits


class Stage(Enum):
    """What becomes of live messages."""

    OLD = "old"  # they are in the journals, and will be read there; those that are not, wait
    HOLDING = "holding"  # all wait
    OVERFLOWN = "overflown"  # as OLD: too many waited
    LIVE = "live"


@dataclass(frozen=True, slots=True)
class Replayed:
    """What has been sent already, by the names that live messages carry."""

    limits: dict[str, int] = field(default_factory=dict)  # origin: everything before this offset
    seen: frozenset[tuple[str, int]] = frozenset()  # and these
    loose: Counter[tuple[str, int, str, int]] = field(default_factory=Counter)  # QoS 0 has no offset on links
    journals: dict[str, int] = field(default_factory=dict)  # which journal of an origin the offsets count in

    @classmethod
    def told(cls, told: dict[str, Any], journal_number: Callable[[str], int]) -> "Replayed":
        """From what the replay process says."""
        return cls(
            told["limits"],
            frozenset((origin, offset) for origin, offset in told["seen"]),
            Counter((origin, time_us, topic, check) for origin, time_us, topic, check in told["loose"]),
            {origin: journal_number(origin) for origin in told["limits"]},
        )

    def holds(self, message: Message, journal_number: Callable[[str], int]) -> bool:
        """Whether a live message was replayed. What clients publish here never was: the journal was read only as far as
        it reached when live messages began to wait."""
        origin, offset = message.origin, message.origin_offset
        if not origin:
            return False
        if offset < 0:
            key = (origin, message.time_us, message.topic, zlib.crc32(message.payload))
            found = self.loose[key] > 0
            self.loose[key] -= found
            return found
        if journal_number(origin) != self.journals.get(origin):
            return False  # it began anew since
        return offset < self.limits.get(origin, 0) or (origin, offset) in self.seen


class Following:
    """The live side of one replay. It writes with `write`, which says whether the network takes more for now."""

    def __init__(
        self,
        name: str,
        topic_filter: str,
        packets: PacketWriter,
        version: int,
        own_name: str,
        next_offset: Callable[[], int],
        journal_number: Callable[[str], int],
    ) -> None:
        self.name = name  # of the subscription, as the client wrote it
        self.topic_filter = topic_filter
        self.stage = Stage.OLD
        self.held: deque[tuple[Message, int]] = deque()
        self._held_bytes = 0
        self._replayed = Replayed()
        self._packets = packets
        self._version = version
        self._own_name = own_name
        self._next_offset = next_offset
        self._journal_number = journal_number
        self.write: Callable[[bytes], None] = lambda data: None
        self.wall_us: Callable[[], int] = lambda: 0

    def hold(self) -> None:
        self.stage = Stage.HOLDING

    def replayed(self, told: dict[str, Any]) -> None:
        self._replayed = Replayed.told(told, self._journal_number)

    def takes(self, message: Message) -> bool:
        offset = self._offset(message)
        if self.stage is Stage.LIVE:
            return self._pass_on(message, offset)
        if offset < 0 or self.stage is Stage.HOLDING:
            self._keep(message, offset)
        return True

    def _keep(self, message: Message, offset: int) -> None:
        self.held.append((message, offset))
        self._held_bytes += len(message.payload) + OVERHEAD_BYTES
        if self._held_bytes > MOST_HELD_BYTES:
            if self.stage is Stage.HOLDING:  # from now on they are read in the journals again
                self.stage = Stage.OVERFLOWN
                self.held = deque(one for one in self.held if one[1] < 0)
                self._held_bytes = sum(len(one[0].payload) + OVERHEAD_BYTES for one in self.held)
            while self._held_bytes > MOST_HELD_BYTES:  # QoS 0 is delivered at most once
                self._held_bytes -= len(self.held.popleft()[0].payload) + OVERHEAD_BYTES

    def release_one(self) -> None:
        """Sends the first that waits, unless it was replayed."""
        message, offset = self.held.popleft()
        self._held_bytes -= len(message.payload) + OVERHEAD_BYTES
        if not self._replayed.holds(message, self._journal_number):
            self._send(message, offset)

    def _pass_on(self, message: Message, offset: int) -> bool:
        if self._replayed.holds(message, self._journal_number):
            return True
        if offset < 0 or self._version != MQTT5:
            return False  # there is nothing to add: the usual way
        self._send(message, offset)
        return True

    def _send(self, message: Message, offset: int) -> None:
        data = self._packets.write(message, message.origin or self._own_name, offset, self.wall_us())
        if data is not None:
            self.write(data)

    def _offset(self, message: Message) -> int:
        """Where it stands in its origin's journal; a client's message is written there right after this question."""
        if message.origin:
            return message.origin_offset
        if message.offset >= 0 or message.qos == 0:
            return message.offset
        return self._next_offset()


class Gate(LiveGate):
    """All replays of one session."""

    def __init__(self) -> None:
        super().__init__()
        self.followings: list[Following] = []

    def takes(self, message: Message) -> bool:
        for following in self.followings:
            if matches(following.topic_filter, message.topic):
                return following.takes(message)
        return False
