"""One client's session: subscriptions, the queue of what it must still receive, and what is under way."""

from collections.abc import Iterator
from typing import Final, final

from metromq.protocol.session.message import Message
from metromq.protocol.session.outlet import Outlet
from metromq.protocol.session.seen_ids import SeenIds
from metromq.protocol.wire.packets import Will

NEVER: Final = 0xFFFFFFFF  # a session expiry interval that does not end [MQTT-3.1.2-23]

SENT: Final = 1  # PUBLISH is out, PUBACK or PUBREC is awaited
RELEASED: Final = 2  # PUBREL is out, PUBCOMP is awaited
HELD: Final = 3  # PUBREC came, PUBREL goes out when the journal has it


@final
class Grant:
    """A subscription as granted: one filter of one session."""

    def __init__(
        self,
        session: "Session",
        filter: str,
        share: str,
        qos: int,
        no_local: bool,
        retain_as_published: bool,
        retain_handling: int,
        identifier: int,
    ) -> None:
        self.session = session
        self.filter = filter  # without `$share/group/`
        self.share = share  # the group's name; empty: not shared
        self.qos = qos
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.retain_handling = retain_handling
        self.identifier = identifier  # 0: none

    def full_filter(self) -> str:
        return f"$share/{self.share}/{self.filter}" if self.share else self.filter


@final
class Entry:
    """A QoS 1 or 2 message on its way to one session.

    Packet identifiers follow the order of the queue, so that after a crash each message gets the identifier it had
    before, and a QoS 2 subscriber recognises a repeat.
    """

    def __init__(
        self,
        offset: int,
        flags: int,
        identifiers: tuple[int, ...],
        packet_id: int,
        message: Message | None,
        note: bytes = b"",
    ) -> None:
        self.offset = offset  # in the journal; -1: only in memory
        self.flags = flags  # as in records.Target: bits 0-1 QoS, bit 2 RETAIN
        self.identifiers = identifiers
        self.packet_id = packet_id
        self.message = message  # None: to be read from the journal
        self.note = note  # for links, as in records.Target
        self.state = 0
        self.dup = False  # it may have been sent before


@final
class EntryQueue:
    """First in, first out. A deque costs 600 bytes even when it is empty, and most sessions wait for nothing."""

    def __init__(self) -> None:
        self._items: list[Entry] = []
        self._head = 0  # items before it are gone

    def __len__(self) -> int:
        return len(self._items) - self._head

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._items[self._head :])

    def first(self) -> Entry:
        return self._items[self._head]

    def append(self, entry: Entry) -> None:
        self._items.append(entry)

    def appendleft(self, entry: Entry) -> None:
        if self._head:
            self._head -= 1
            self._items[self._head] = entry
        else:
            self._items.insert(0, entry)

    def popleft(self) -> Entry:
        head = self._head
        entry = self._items[head]
        head += 1
        if head == len(self._items):
            self._items.clear()
            head = 0
        elif head >= 64 and head * 2 >= len(self._items):  # each item is moved at most once on average
            del self._items[:head]
            head = 0
        self._head = head
        return entry

    def pop(self) -> Entry:
        entry = self._items.pop()
        if self._head == len(self._items):
            self.clear()
        return entry

    def remove(self, entry: Entry) -> bool:
        """Takes the entry out; False: it is not here. `in` and `__contains__` are of no use: compiled they differ."""
        for place in range(self._head, len(self._items)):
            if self._items[place] is entry:
                del self._items[place]
                return True
        return False

    def last(self) -> Entry:
        return self._items[-1]

    def clear(self) -> None:
        self._items.clear()
        self._head = 0


@final
class Session:
    """State that outlives a connection [MQTT-4.1.0-1]."""

    def __init__(self, number: int, client_id: str) -> None:
        self.number = number
        self.client_id = client_id
        self.username = ""  # the user whose session it is; empty: of clients without one
        self.opened_us = 0  # when that user opened it; 0: before this was recorded
        self.outlet: Outlet | None = None  # the connection, while there is one
        self.expiry_s = 0
        self.durable = False  # recorded in the journal
        self.closed = False
        self.detached_at = 0.0  # monotonic; meaningful while outlet is None
        self.detached_wall_us = 0
        self.will: Will | None = None
        self.will_at = 0.0  # monotonic moment at which a delayed will is published; 0: none is waiting
        self.grants: dict[str, Grant] = {}
        self.queue = EntryQueue()
        self.queued_bytes = 0
        self.inflight: dict[int, Entry] = {}
        self.window = 65535  # how many the client takes at once
        self.sequence = 0  # entries ever queued
        self.spilled = 0  # entries that are only in the journal, behind those in `queue`
        self.spill_offset = 0  # where the first of them is
        self.spill_sequence = 0
        self.spilled_bytes = 0
        self.doubtful = 0  # how many of the first may have been sent before the broker crashed
        self.suspect = 0  # so many of the first that wait were queued under other rights than those in force
        self.incoming: dict[int, None] = {}  # a small set: QoS 2 packet identifiers received and not yet released
        self.dropped = 0
        # In a city only:
        self.seen: SeenIds | None = None  # what it has had; None: it does not roam, or has left for another broker
        self.roamed = False  # it came from another broker once, so that messages may reach it by two ways
        self.arriving = False  # it still comes from another broker: nothing is sent before what is older has come
        self.is_stale = False  # its client went on elsewhere: it must be told that this is a new session
        self.departed_to = ""  # the broker that its client went on to; what still comes is passed on
        self.departed_us = 0  # the CONNECT there
        self.claimed_us = 0  # the CONNECT by which it is here; of two brokers with the session the later one has it
        self.arrival = 0  # number of the move that brought it here
        self.clean_us = 0  # when it was opened by a clean start; older sessions of the client are void

    def behind(self) -> bool:
        """Whether messages wait, so that a new one must wait in the journal too."""
        return self.spilled > 0 or len(self.queue) > 0

    def waiting(self) -> int:
        return len(self.queue) + self.spilled

    def next_packet_id(self) -> int:
        self.sequence += 1
        return packet_id_of(self.sequence)

    def oldest_offset(self) -> int:
        """The oldest message the journal must keep for this session; -1: none."""
        oldest = -1
        for entry in self.inflight.values():
            if entry.offset >= 0 and (oldest < 0 or entry.offset < oldest):
                oldest = entry.offset
        for entry in self.queue:
            if entry.offset >= 0:
                if oldest < 0 or entry.offset < oldest:
                    oldest = entry.offset
                break
        if self.spilled and (oldest < 0 or self.spill_offset < oldest):
            oldest = self.spill_offset
        return oldest


def packet_id_of(sequence: int) -> int:
    return sequence % 65535 + 1
