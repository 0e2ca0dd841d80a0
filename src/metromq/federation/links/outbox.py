"""The sending end of a link: what waits for the peer, in order, and what of it is on its way.

QoS 1 and 2 messages wait until they are acknowledged; each is a reference to a place in the journal, so the list can be
rebuilt after a crash. QoS 0 messages wait only as long as the link is up.
"""

from collections import deque
from collections.abc import Callable
from typing import final

from metromq.federation.links.batch import LinkMessage

MAX_BATCH_MESSAGES = 512
MAX_BATCH_BYTES = 256 * 1024


@final
class Outbox:
    def __init__(self, window: int = 4) -> None:
        self.waiting: deque[LinkMessage] = deque()  # in order, sent ones first
        self.fleeting: deque[LinkMessage] = deque()  # QoS 0
        self._window = window
        self._sent = 0  # how many of `waiting` are on their way
        self._batches: deque[tuple[int, int]] = deque()  # last sequence and size of each batch on its way

    def __len__(self) -> int:
        return len(self.waiting)

    def add(self, entry: LinkMessage) -> None:
        (self.waiting if entry.message.qos else self.fleeting).append(entry)

    def next_batch(self) -> list[LinkMessage]:
        """The next durable messages to send; empty when nothing waits or the window is full."""
        if len(self._batches) >= self._window or self._sent == len(self.waiting):
            return []
        batch: list[LinkMessage] = []
        size = 0
        while self._sent + len(batch) < len(self.waiting) and len(batch) < MAX_BATCH_MESSAGES:
            entry = self.waiting[self._sent + len(batch)]
            size += len(entry.message.payload) + len(entry.message.topic)
            if batch and size > MAX_BATCH_BYTES:
                break
            batch.append(entry)
        self._sent += len(batch)
        self._batches.append((batch[-1].sequence, len(batch)))
        return batch

    def fleeting_batch(self) -> list[LinkMessage]:
        batch: list[LinkMessage] = []
        while self.fleeting and len(batch) < MAX_BATCH_MESSAGES:
            batch.append(self.fleeting.popleft())
        return batch

    def acknowledged(self) -> int:
        """The oldest batch on its way has been committed by the peer; returns its last sequence."""
        sequence, count = self._batches.popleft()
        for _ in range(count):
            self.waiting.popleft()
        self._sent -= count
        return sequence

    def resume(self, cursor: int) -> None:
        """The link is up again, and the peer has everything up to `cursor`: send the rest anew."""
        self._batches.clear()
        self._sent = 0
        while self.waiting and self.waiting[0].sequence <= cursor:
            self.waiting.popleft()

    def lost(self) -> None:
        """The link is down."""
        self._batches.clear()
        self._sent = 0
        self.fleeting.clear()

    def take(self, chosen: Callable[[LinkMessage], bool]) -> list[LinkMessage]:
        """Removes and returns what waits and is chosen; only while the link is down."""
        taken = [entry for entry in self.waiting if chosen(entry)]
        gone = {entry.sequence for entry in taken}
        self.waiting = deque(entry for entry in self.waiting if entry.sequence not in gone)
        return taken
