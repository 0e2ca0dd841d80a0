"""What must be stored first: acknowledgements and deliveries that wait until the journal has their records."""

from collections import deque
from typing import final

from mypy_extensions import mypyc_attr

from metromq.protocol.session.delivery import ENTRY_BYTES, Delivery
from metromq.protocol.session.log import Log
from metromq.protocol.session.session import Session
from metromq.protocol.session.settings import Settings


@mypyc_attr(allow_interpreted_subclasses=True)
class Waiter:
    """Something that goes on when the journal has what it waits for."""

    def committed(self) -> None:
        raise NotImplementedError

    def failed(self) -> None:
        """The records were not written (disk full) and are undone."""
        raise NotImplementedError


@final
class Pending:
    def __init__(self, position: int, offset: int, sessions: list[Session], waiter: Waiter | None) -> None:
        self.position = position
        self.offset = offset  # of the message among the records; -1: none
        self.sessions = sessions  # to pump
        self.waiter = waiter


class Commitment(Delivery):
    """Base of the hub: the line of those who wait for the journal."""

    def __init__(self, settings: Settings, log: Log | None, name: str) -> None:
        super().__init__(settings, log, name)
        self.pending: deque[Pending] = deque()
        self.void_from = 0
        self.void_until = -1
        if log is None:
            self.committed_offset = 1 << 62

    def when_committed(self, waiter: Waiter) -> None:
        """Calls the waiter when everything appended so far is as durable as the configuration asks."""
        position = self.position
        if position == self.void_until:  # the newest records were taken back: only those before them count
            position = self.void_from
        if self.log is None or self.committed_position >= position:
            waiter.committed()
        else:
            self.urgent = True
            self.pending.append(Pending(position, -1, [], waiter))

    def committed(self, position: int) -> None:
        """The journal has everything up to `position`."""
        self.committed_position = max(self.committed_position, position)
        pending = self.pending
        while pending and pending[0].position <= position:
            done = pending.popleft()
            if done.offset >= 0:
                self.committed_offset = done.offset
            for session in done.sessions:
                self.pump(session)
            if done.waiter is not None:
                done.waiter.committed()

    def failed(self, position: int, appended: int) -> None:
        """Of the `appended` records those after `position` were not written: they are undone, who waits is told."""
        lost: list[Pending] = []
        while self.pending and self.pending[-1].position > position:
            lost.append(self.pending.pop())
        for one in lost:  # the newest first
            if one.offset >= 0:
                self.newest_offset = one.offset - 1
            for session in one.sessions:
                _undo(session, one.offset)
        self.position = appended
        self.void_from = position
        self.void_until = appended
        for one in reversed(lost):  # acknowledgements keep their order [MQTT-4.6.0-2]
            if one.waiter is not None:
                one.waiter.failed()


def _undo(session: Session, offset: int) -> None:
    """Takes back the newest entry, whose message was not written; entries of other messages stay."""
    if session.spilled and session.spill_offset <= offset:
        session.spilled -= 1
        if not session.spilled:
            session.spilled_bytes = 0
        session.sequence -= 1
    elif session.queue and session.queue.last().offset == offset:
        entry = session.queue.pop()
        if entry.message is not None:
            session.queued_bytes -= len(entry.message.payload) + ENTRY_BYTES
        session.sequence -= 1
