"""Group commit: decides when what was appended may be acknowledged, and keeps the disk off the event loop.

All appends of one loop turn are written together at its end. With "fsync" a worker thread then syncs; while it does,
the next group gathers, and its sync starts as soon as the running one is done. With "os" a group is committed when it
is written. With "memory" there is no journal and everything is committed at the end of the turn.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Literal, final

from metromq.errors import JournalError, JournalFull, UsageError
from metromq.journal.journal import Journal

Mode = Literal["memory", "os", "fsync"]
MODES: Final = ("memory", "os", "fsync")


@final
class GroupCommit:
    """Positions count appended records; `on_committed(position)` says that all up to `position` are as safe as asked.

    `on_failed` gets JournalFull when some messages had no room (the journal goes on; refuse those from its
    `first_refused` on), and any other JournalError when the journal stopped for good.
    """

    def __init__(
        self,
        journal: Journal | None,
        mode: Mode,
        loop: asyncio.AbstractEventLoop,
        on_committed: Callable[[int], None],
        on_failed: Callable[[JournalError], None],
    ) -> None:
        if mode not in MODES or (journal is None) != (mode == "memory"):
            raise UsageError(f'durability "{mode}": choose one of {", ".join(MODES)}; only "memory" has no journal')
        self._journal = journal
        self._mode = mode
        self._loop = loop
        self._on_committed = on_committed
        self._on_failed = on_failed
        self._counted = 0
        self._committed = 0
        self._scheduled = False
        self._urgent_position = 0  # the newest position that somebody waits for
        self._worker = None if journal is None else ThreadPoolExecutor(1, "journal-sync")
        self._syncing = False
        self._idle: asyncio.Future[None] | None = None
        self._closed = False

    @property
    def position_appended(self) -> int:
        """The position of the newest append; it is what a waiting acknowledgement compares with."""
        return self._counted if self._journal is None else self._journal.appended

    def commit_soon(self, urgent: bool = True) -> None:
        """Call after appending: writes at the end of this turn. Only urgent appends start a sync of their own."""
        if self._journal is None:
            self._counted += 1
        if urgent:
            self._urgent_position = self.position_appended
        if not self._scheduled and not self._closed:
            self._scheduled = True
            self._loop.call_soon(self._end_turn)

    def flush(self) -> None:
        """Write now what was appended, instead of at the end of the turn; failures are reported as always."""
        self._write()

    async def close(self) -> None:
        """Write and sync what is left, report it, and end the worker; the journal itself stays open."""
        self._urgent_position = self.position_appended
        self._write()
        if self._syncing:
            self._idle = self._loop.create_future()
            await self._idle
        self._closed = True
        if self._worker is not None:
            self._worker.shutdown()

    def _end_turn(self) -> None:
        self._scheduled = False
        self._write()

    def _write(self) -> None:
        if self._closed:
            return
        journal = self._journal
        if journal is None:
            self._report(self._counted)
            return
        try:
            journal.flush()
        except JournalFull as error:
            self._on_failed(error)
        except JournalError as error:
            self._on_failed(error)
            return
        if self._mode == "os":
            self._report(journal.flushed)
        self._sync_if_due(journal)

    def _sync_if_due(self, journal: Journal) -> None:
        waited_for = self._mode == "fsync" and min(self._urgent_position, journal.flushed) > self._committed
        if self._syncing or self._worker is None or not (waited_for or journal.rolled):
            return
        self._syncing = True
        self._worker.submit(self._sync, journal, journal.flushed)

    def _sync(self, journal: Journal, position: int) -> None:
        problem: JournalError | None = None
        try:
            journal.sync()
        except JournalError as error:
            problem = error
        self._loop.call_soon_threadsafe(self._synced, journal, position, problem)

    def _synced(self, journal: Journal, position: int, problem: JournalError | None) -> None:
        self._syncing = False
        if problem is not None:
            self._on_failed(problem)
        else:
            if self._mode == "fsync":
                self._report(position)
            self._sync_if_due(journal)
        if self._idle is not None and not self._syncing and not self._idle.done():
            self._idle.set_result(None)

    def _report(self, position: int) -> None:
        if position > self._committed:
            self._committed = position
            self._on_committed(position)
