"""How backlogs fill and empty: their limits, and the pages of the journal that hold what memory does not."""

from typing import final

from metromq.protocol.packing import Packer
from metromq.protocol.session import records
from metromq.protocol.session.backlog import ENTRY_BYTES, Backlog, Entry, packet_id_of
from metromq.protocol.session.commits import Commits
from metromq.protocol.session.hub_settings import HubSettings
from metromq.protocol.session.message import Message


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
        cost = len(message.payload) + ENTRY_BYTES
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
        for kind, offset, body in log.scan(backlog.spill_offset):
            if kind != records.MESSAGE:
                continue
            record = records.decode_message(body, offset)
            found = False
            for target in record.targets:
                if target.number != backlog.number:
                    continue
                if not found:
                    found = True
                    backlog.spill_offset = offset
                    if least <= 0 and self._page_full(backlog):
                        return
                least -= 1
                _unspill(backlog, record.message, target)
            if found:
                backlog.spill_offset = offset + 1  # the scan may end before the last: what is not flushed is not seen
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
        backlog.queued_bytes -= len(message.payload) + ENTRY_BYTES
        return message

    def requeue_inflight(self, backlog: Backlog) -> None:
        """What was under way waits again, before all else."""
        for entry in reversed(backlog.take_inflight()):
            backlog.queue.appendleft(entry)
            backlog.queued_bytes += self.entry_bytes(entry)

    def entry_bytes(self, entry: Entry) -> int:
        return len(self.load(entry).payload) + ENTRY_BYTES

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


def _unspill(backlog: Backlog, message: Message, target: records.Target) -> None:
    """One entry from the journal to the end of the queue."""
    backlog.spill_sequence += 1
    packet_id = packet_id_of(backlog.spill_sequence)
    entry = Entry(message.offset, target.flags, target.identifiers, packet_id, message, target.note)
    if backlog.doubtful:
        backlog.doubtful -= 1
        entry.dup = True
    backlog.queue.append(entry)
    cost = len(message.payload) + ENTRY_BYTES
    backlog.queued_bytes += cost
    backlog.spilled -= 1
    backlog.spilled_bytes -= cost
