"""What must be stored first: the journal's records in order, and the line of those who wait for them."""

from collections import deque
from typing import Final, final

from mypy_extensions import mypyc_attr

from metromq.protocol.session.log import Log

EVERYTHING: Final = 1 << 62  # without a journal every message counts as stored


@mypyc_attr(allow_interpreted_subclasses=True)
class Waiter:
    """Something that goes on when the journal has what it waits for; it stands in one line at most."""

    position: int = 0  # how many records the journal must have; `Commits` sets both
    offset: int = -1  # of the message among those records; -1: none

    def committed(self) -> None:
        raise NotImplementedError

    def undo(self) -> None:
        """The message was not written (disk full); called from the newest to the oldest, before any `failed`."""

    def failed(self) -> None:
        """The records were not written (disk full) and are undone."""
        raise NotImplementedError


@final
class _Nobody(Waiter):
    """Stands in line for a message that has no receiver, so that its offset is known to be stored."""

    def committed(self) -> None:
        pass

    def failed(self) -> None:
        pass


@final
class Commits:
    """Appends to the journal, if there is one, and lets those go on who wait for it."""

    def __init__(self, log: Log | None) -> None:
        self.log = log
        self.position = 0  # records appended so far
        self.urgent = False  # something appended waits for an acknowledgement
        self.committed_position = 0
        self.committed_offset = -1 if log is not None else EVERYTHING
        self.newest_offset = -1  # of the messages appended so far
        self.waiting: deque[Waiter] = deque()
        self._void_from = 0
        self._void_until = -1

    def append(self, kind: int, body: bytes, urgent: bool = False) -> None:
        log = self.log
        if log is not None:
            log.append(kind, body)
            self.position += 1
            if urgent:
                self.urgent = True

    def append_message(self, body: bytes) -> int:
        """Gives a message that nobody waits for to the journal, which there must be; returns its offset."""
        log = self.log
        assert log is not None
        self.newest_offset = log.append_message(body)
        self.position += 1
        return self.newest_offset

    def store(self, body: bytes, waiter: Waiter | None, urgent: bool = True) -> int:
        """Gives a message to the journal, which there must be, and the waiter a place in line; returns its offset."""
        offset = self.append_message(body)
        if waiter is None:
            waiter = _Nobody()
        waiter.position = self.position
        waiter.offset = offset
        self.waiting.append(waiter)
        if urgent:
            self.urgent = True
        return offset

    def when_committed(self, waiter: Waiter) -> None:
        """Calls the waiter when everything appended so far is as durable as the configuration asks."""
        position = self.position
        if position == self._void_until:  # the newest records were taken back: only those before them count
            position = self._void_from
        if self.log is None or self.committed_position >= position:
            waiter.committed()
        else:
            self.urgent = True
            waiter.position = position
            self.waiting.append(waiter)

    def committed(self, position: int) -> None:
        """The journal has everything up to `position`."""
        self.committed_position = max(self.committed_position, position)
        waiting = self.waiting
        while waiting and waiting[0].position <= position:
            waiter = waiting.popleft()
            if waiter.offset >= 0:
                self.committed_offset = waiter.offset
            waiter.committed()

    def failed(self, position: int, appended: int) -> None:
        """Of the `appended` records those after `position` were not written: they are undone, who waits is told."""
        lost: list[Waiter] = []
        while self.waiting and self.waiting[-1].position > position:
            lost.append(self.waiting.pop())
        for waiter in lost:  # the newest first
            if waiter.offset >= 0:
                self.newest_offset = waiter.offset - 1
            waiter.undo()
        self.position = appended
        self._void_from = position
        self._void_until = appended
        for waiter in reversed(lost):  # acknowledgements keep their order [MQTT-4.6.0-2]
            waiter.failed()

    def recovered(self) -> None:
        """What was read after a restart is stored."""
        self.committed_position = self.position
        self.committed_offset = self.newest_offset
