"""What one receiver must still get (the queue, what is under way, what only the journal holds), and how that fills and
empties."""

from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i32

from metromq.protocol.packing import Packer
from metromq.protocol.session import records
from metromq.protocol.session.commits import Commits
from metromq.protocol.session.hub_settings import HubSettings
from metromq.protocol.session.message import Message
from metromq.protocol.session.output import LinkOutput

ENTRY_BYTES: Final = 200  # what an entry costs beside its message, for the byte limits

SENT: Final = 1  # PUBLISH is out, PUBACK or PUBREC is awaited
RELEASED: Final = 2  # PUBREL is out, PUBCOMP is awaited
HELD: Final = 3  # PUBREC came, PUBREL goes out when the journal has it


@final
class Entry:
    """A QoS 1 or 2 message on its way to one receiver.

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


# A QoS 1 packet under way to a session that ends with its connection: it is never sent again.
PASSED: Final = Entry(-1, 1, (), 0, None)
PASSED.state = SENT

_NOTHING: Final[list[Entry]] = []
_NONE_UNDER_WAY: Final[dict[int, Entry]] = {}  # of all receivers to which nothing is; stays empty


@final
class EntryQueue:
    """First in, first out. A deque costs 600 bytes even when it is empty, and most receivers never wait for anything:
    until something comes they share one empty list."""

    def __init__(self) -> None:
        self._items = _NOTHING
        self._head = 0  # items before it are gone

    def __len__(self) -> int:
        return len(self._items) - self._head

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._items[self._head :])

    def first(self) -> Entry:
        return self._items[self._head]

    def append(self, entry: Entry) -> None:
        if self._items is _NOTHING:
            self._items = [entry]
        else:
            self._items.append(entry)

    def appendleft(self, entry: Entry) -> None:
        if self._head:
            self._head -= 1
            self._items[self._head] = entry
        elif self._items is _NOTHING:
            self._items = [entry]
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


class Backlog:
    """What a client's session, or a link to a peer, must still receive."""

    def __init__(self, number: int) -> None:
        self.number = number  # by which the journal's records name it
        self._queue: EntryQueue | None = None  # once something has waited
        self.queued_bytes = 0
        self._inflight = _NONE_UNDER_WAY
        self.sequence = 0  # entries ever queued
        self.spilled = 0  # entries that are only in the journal, behind those in `queue`
        self.spill_offset = 0  # where the first of them is
        self.spill_sequence = 0
        self.spilled_bytes = 0
        # Side by side, since every client has them:
        self.doubtful: i32 = 0  # how many of the first may have been sent before the broker crashed
        self._passed: i32 = 0  # the last so many entries are packets that were passed on, and are under way
        self.durable = False  # recorded in the journal

    def behind(self) -> bool:
        """Whether messages wait, so that a new one must wait in the journal too."""
        return self.waiting() > 0

    def waiting(self) -> int:
        return self.spilled + (len(self._queue) if self._queue is not None else 0)

    @property
    def queue(self) -> EntryQueue:
        """What waits in memory."""
        queue = self._queue
        if queue is None:
            queue = self._queue = EntryQueue()
        return queue

    def unsettled(self) -> int:
        """Messages that wait or are under way."""
        return self.waiting() + self.under_way()

    def under_way(self) -> int:
        """How many messages are."""
        return len(self._inflight) + self._passed

    @property
    def inflight(self) -> dict[int, Entry]:
        """What is under way, by packet identifier, in the order in which it was sent."""
        if self._inflight is _NONE_UNDER_WAY:
            self._inflight = {}
        if self._passed:
            for sequence in range(self.sequence - self._passed + 1, self.sequence + 1):
                self._inflight[packet_id_of(sequence)] = PASSED
            self._passed = 0
        return self._inflight

    def take_inflight(self) -> list[Entry]:
        """What was under way, in order; nothing is any more."""
        entries = list(self.inflight.values()) if self.under_way() else []
        self._inflight = _NONE_UNDER_WAY
        return entries

    def next_is_free(self) -> bool:
        """Whether no message under way has the next packet identifier."""
        return self._passed < 65535 and packet_id_of(self.sequence + 1) not in self._inflight

    def next_packet_id(self) -> int:
        if self._passed:
            _ = self.inflight  # those passed on are no longer the last
        self.sequence += 1
        return packet_id_of(self.sequence)

    def most_to_pass(self, window: int) -> int:
        """How many packets may be passed on with identifiers that follow each other."""
        return 1 if self._inflight else min(window - self._passed, 65535 - (self.sequence + 1) % 65535)

    def passes_on(self, count: int) -> int:
        """The identifier of the first of some packets that are passed on (`PASSED`). These are counted, not listed:
        most clients confirm in order what they get [MQTT-4.6.0-2]."""
        first = packet_id_of(self.sequence + 1)
        self.sequence += count
        self._passed += count
        return first

    def confirms_passed(self, packet_id: int) -> bool:
        """Takes the confirmation of the oldest of those; False: it is none, or another."""
        if self._passed and packet_id == packet_id_of(self.sequence - self._passed + 1):
            self._passed -= 1
            return True
        return False

    def oldest_offset(self) -> int:
        """The oldest message the journal must keep for this receiver; -1: none."""
        oldest = -1
        for entry in self._inflight.values():
            if entry.offset >= 0 and (oldest < 0 or entry.offset < oldest):
                oldest = entry.offset
        for entry in self._queue or ():
            if entry.offset >= 0:
                if oldest < 0 or entry.offset < oldest:
                    oldest = entry.offset
                break
        if self.spilled and (oldest < 0 or self.spill_offset < oldest):
            oldest = self.spill_offset
        return oldest

    def undo(self, offset: int) -> None:
        """Takes back the newest entry, whose message was not written; entries of other messages stay."""
        if self.spilled and self.spill_offset <= offset:
            self.spilled -= 1
            if not self.spilled:
                self.spilled_bytes = 0
            self.sequence -= 1
        elif self.queue and self.queue.last().offset == offset:
            entry = self.queue.pop()
            if entry.message is not None:
                self.queued_bytes -= _bytes_of(entry.message)
            self.sequence -= 1

    def unspill(self, message: Message, target: records.Target) -> None:
        """The first that is only in the journal comes to the end of the queue."""
        self.spill_sequence += 1
        packet_id = packet_id_of(self.spill_sequence)
        entry = Entry(message.offset, target.flags, target.identifiers, packet_id, message, target.note)
        if self.doubtful:
            self.doubtful -= 1
            entry.dup = True
        self.queue.append(entry)
        cost = _bytes_of(message)
        self.queued_bytes += cost
        self.spilled -= 1
        self.spilled_bytes = max(0, self.spilled_bytes - cost)  # an older release counted less

    def clear(self) -> None:
        self._queue = None
        self.take_inflight()
        self.spilled = 0


def _bytes_of(message: Message) -> int:
    """What holds memory while it waits: a topic may be all of it."""
    return ENTRY_BYTES + len(message.topic) + len(message.properties) + len(message.payload)


@final
class LinkBacklog(Backlog):
    """What a peer broker must still get; the output is there while the link is up."""

    def __init__(self, number: int, peer: str) -> None:
        super().__init__(number)
        self.peer = peer
        self.output: LinkOutput | None = None


def packet_id_of(sequence: int) -> int:
    return sequence % 65535 + 1


def sequence_of(packet_id: int, newest: int) -> int:
    """The last number up to `newest` that has this packet identifier; beyond it, where the count was set back since."""
    sequence = newest - (newest + 1 - packet_id) % 65535
    return sequence if sequence > 0 else sequence + 65535


@final
class Backlogs:
    """Works on the backlogs of clients and of links alike."""

    def __init__(self, settings: HubSettings, commits: Commits) -> None:
        self.next_number = 1  # for the next backlog
        self._settings = settings
        self._commits = commits

    def take_number(self) -> int:
        number = self.next_number
        self.next_number += 1
        return number

    def saw_number(self, number: int) -> None:
        """A backlog with this number came back after a restart."""
        self.next_number = max(self.next_number, number + 1)

    def has_room(self, backlog: Backlog) -> bool:
        settings = self._settings
        return (
            backlog.waiting() < settings.max_queued_messages
            and backlog.queued_bytes + backlog.spilled_bytes < settings.max_queued_bytes
        )

    def enqueue(
        self, backlog: Backlog, message: Message, flags: int, identifiers: tuple[int, ...], note: bytes = b""
    ) -> None:
        cost = _bytes_of(message)
        if (
            self._commits.log is not None
            and message.offset >= 0
            and (backlog.spilled or self._must_spill(backlog, message.offset))
        ):
            if not backlog.spilled:
                backlog.spill_offset = message.offset
                backlog.spill_sequence = backlog.sequence
            backlog.spilled += 1
            backlog.spilled_bytes += cost
            backlog.sequence += 1
            return
        backlog.queue.append(Entry(message.offset, flags, identifiers, backlog.next_packet_id(), message, note))
        backlog.queued_bytes += cost

    def _must_spill(self, backlog: Backlog, offset: int) -> bool:
        """Copies of one message (through several shares) stay together: a page begins with a new message."""
        return self._page_full(backlog) and (not backlog.queue or backlog.queue.last().offset != offset)

    def _page_full(self, backlog: Backlog) -> bool:
        """Whether as much is in memory as may be; the rest waits in the journal."""
        settings = self._settings
        return len(backlog.queue) >= settings.memory_entries or backlog.queued_bytes >= settings.memory_bytes

    def refill(self, backlog: Backlog, least: int = 0) -> None:
        """Takes the next page of what waits in the journal, and at least so many entries if there are."""
        log = self._commits.log
        assert log is not None
        for message, targets in records.waiting_for(log.scan(backlog.spill_offset), backlog.number):
            backlog.spill_offset = message.offset
            if least <= 0 and self._page_full(backlog):
                return
            for target in targets:
                least -= 1
                backlog.unspill(message, target)
            backlog.spill_offset += 1  # the scan may end before the last: what is not flushed is not seen
            if not backlog.spilled:
                backlog.spilled_bytes = 0
                return

    def load_all(self, backlog: Backlog) -> None:
        """Brings everything that waits in the journal into the queue, for a session that leaves or a link that ends."""
        log = self._commits.log
        if backlog.spilled and log is not None:
            log.flush()
            self.refill(backlog, backlog.spilled)

    def load(self, entry: Entry) -> Message:
        message = entry.message
        if message is None:
            log = self._commits.log
            assert log is not None
            message = records.decode_message(log.read(entry.offset), entry.offset).message
            entry.message = message
        return message

    def next_entry(self, backlog: Backlog) -> Entry | None:
        """The first that waits and is stored; None: there is none."""
        if not backlog.queue:
            if not backlog.spilled:
                return None
            self.refill(backlog)
            if not backlog.queue:
                return None
        entry = backlog.queue.first()
        return None if entry.offset > self._commits.committed_offset else entry

    def pop(self, backlog: Backlog) -> Message:
        """Takes the first entry out of the queue; its message."""
        message = self.load(backlog.queue.popleft())
        backlog.queued_bytes -= _bytes_of(message)
        return message

    def requeue_inflight(self, backlog: Backlog) -> None:
        """What was under way waits again, before all else."""
        for entry in reversed(backlog.take_inflight()):
            backlog.queue.appendleft(entry)
            backlog.queued_bytes += self.entry_bytes(entry)

    def entry_bytes(self, entry: Entry) -> int:
        return _bytes_of(self.load(entry))

    def abandon(self, backlog: Backlog, entry: Entry) -> None:
        """Someone else takes care of this message."""
        backlog.inflight.pop(entry.packet_id, None)
        if backlog.queue.remove(entry):
            backlog.queued_bytes -= self.entry_bytes(entry)
        self.note(records.ACKNOWLEDGED, backlog, entry.packet_id)

    def note(self, kind: int, backlog: Backlog, packet_id: int, urgent: bool = False) -> None:
        """Records what happened to one packet, for a receiver that outlives its connection."""
        if backlog.durable:
            self._commits.append(kind, Packer().u32(backlog.number).u16(packet_id).done(), urgent)
