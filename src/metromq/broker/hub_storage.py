"""The hub's state on disk: recovery at the start, group commit, snapshots, retention, and the last word at the end."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from metromq.broker import logs
from metromq.broker.write_cycle import WriteCycle
from metromq.config import Config
from metromq.errors import JournalError, JournalFull
from metromq.journal import GroupCommit, Journal, set_aside
from metromq.protocol.session import Hub, Log, Snapshot, recover
from metromq.telemetry import held_position

LEAST_BYTES: Final = 1 << 16  # free; with less a disk counts as full, whatever `min_free_bytes` says
FULL: Final = "the disk is full: QoS 1 and 2 messages are refused until it has room"


class JournalLog(Log):
    """The journal as the hub sees it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def append_message(self, body: bytes) -> int:
        return self._journal.append_message(body)

    def append(self, kind: int, body: bytes) -> None:
        self._journal.append(kind, body)

    def read(self, offset: int) -> bytes:
        return self._journal.read(offset)

    def scan(self, offset: int) -> Iterator[tuple[int, int, bytes]]:
        return self._journal.scan(offset)

    def full(self) -> bool:
        return self._journal.failed or self._journal.full()

    def next_offset(self) -> int:
        return self._journal.next_offset

    def flush(self) -> None:
        self._journal.flush()


class HubStorage:
    """Owns the journal of one broker. Open it, make a hub on its `log`, then `begin`."""

    def __init__(self, config: Config, accept_damage: bool) -> None:
        self._config = config
        self._journal = Journal.open(
            journal_directory(config), config.journal.segment_bytes, accept_damage, config.journal.min_free_bytes
        )
        if self._journal.cut_bytes:
            logs.warning("cut off an incomplete last record", directory=config.data_dir, bytes=self._journal.cut_bytes)
        for damage in self._journal.damage:
            logs.error("journal damage", problem=damage)
        self.journal_id = self._journal.name
        self.log = JournalLog(self._journal)
        self.failure = ""  # why nothing is confirmed any more, until a restart
        self._is_full = False
        self._commit: GroupCommit | None = None
        self._snapshot_at = 0
        self._snapshot_needed = False
        self._snapshots = ThreadPoolExecutor(1, "snapshot")
        self._snapshot_job: asyncio.Future[None] | None = None  # the one that is being written: there is never another
        self._snapshot_bytes = 0  # how large the last one became

    def begin(self, cycle: WriteCycle, loop: asyncio.AbstractEventLoop) -> None:
        """Brings the hub to where it was, and commits what it does from now on."""
        self._cycle = cycle
        self._hub: Hub = cycle.hub
        journal = self._journal
        state, records = journal.replay()
        count = recover(self._hub, state, records, bool(journal.damage))
        self._snapshot_needed = bool(journal.damage)  # so that the next start need not look for what is lost
        self._snapshot_at = journal.size_bytes
        if count or state:
            logs.info(
                "recovered",
                records=count,
                sessions=len(self._hub.sessions.by_client_id),
                retained=len(self._hub.retained.messages),
                next_offset=journal.next_offset,
            )
        self._commit = GroupCommit(journal, self._config.durability, loop, self._committed, self._failed)
        cycle.commit = self._commit

    def _committed(self, position: int) -> None:
        self._cycle.now()
        self._hub.commits.committed(position)
        self._cycle.worked()

    def _failed(self, error: JournalError) -> None:
        journal = self._journal
        self._cycle.now()
        if isinstance(error, JournalFull):
            self._look_at_room(True)
            self._snapshot_needed = True  # what could not be written is in no record
        else:
            logs.error("the journal failed: QoS 1 and 2 messages are no longer confirmed", problem=error)
            self.failure = str(error)
        kept = journal.flushed if not journal.failed else self._hub.commits.committed_position
        self._cycle.seen_position = appended = journal.appended
        self._hub.commits.failed(kept, appended)  # who is told may append more, and others then wait for that
        self._cycle.worked()

    @property
    def problem(self) -> str:
        """For people; empty: all is well."""
        return self.failure or (FULL if self._is_full else "")

    def _look_at_room(self, is_full: bool) -> None:
        if is_full and not self._is_full:
            logs.error(FULL, directory=self._config.data_dir, min_free_bytes=self._config.journal.min_free_bytes)
        elif self._is_full and not is_full:
            logs.info("the disk has room again", directory=self._config.data_dir)
        self._is_full = is_full

    def tick(self, is_recorded: bool) -> None:
        """Snapshots, then retention, now and then."""
        try:
            self._look_at_room(self._journal.full(True) or self._journal.free_bytes < LEAST_BYTES)
            self._take_snapshot()
            self._retain(is_recorded)
        except (JournalError, OSError) as error:
            logs.error("journal housekeeping failed", problem=error)

    def _take_snapshot(self) -> None:
        journal = self._journal
        if self._snapshot_job is not None or journal.full():
            return  # the next tick asks again, and what has come meanwhile goes into one snapshot
        grown = journal.size_bytes - self._snapshot_at
        if grown < max(self._config.journal.snapshot_bytes, self._snapshot_bytes) and not self._snapshot_needed:
            return  # a large state is not written again for each small change
        self._snapshot_at = journal.size_bytes
        self._snapshot_needed = False
        if self._commit is not None:
            self._commit.flush()  # a write that fails must reach the hub before its state is taken
        write = journal.write_snapshot(self._counted(Snapshot(self._hub).pieces()))
        self._snapshot_job = asyncio.get_running_loop().run_in_executor(self._snapshots, write)
        self._snapshot_job.add_done_callback(self._snapshot_done)

    def _counted(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        size = 0
        for piece in pieces:
            size += len(piece)
            yield piece
        self._snapshot_bytes = size

    def _snapshot_done(self, job: "asyncio.Future[None]") -> None:
        self._snapshot_job = None
        problem = job.exception() if not job.cancelled() else None
        if problem is not None:
            logs.error("no snapshot was written; the next start will read more of the journal", problem=problem)

    def _retain(self, is_recorded: bool) -> None:
        """Never removes what a session or a living recorder still needs."""
        config, journal, now_s = self._config.journal, self._journal, self._hub.clock.wall_us / 1e6
        if not journal.too_much(config.keep_bytes, config.keep_s, now_s):
            return
        oldest = self._hub.oldest_needed()
        needed = oldest if oldest >= 0 else journal.next_offset
        recorded = held_position(self._config.data_dir, now_s, config.keep_s) if is_recorded else None
        needed = needed if recorded is None else min(needed, recorded)
        for name in journal.remove_before(needed, config.keep_bytes, config.keep_s, now_s):
            logs.info("removed an old segment", segment=name)
            self._snapshot_at = min(self._snapshot_at, journal.size_bytes)

    def gauges(self) -> dict[str, float]:
        journal = self._journal
        return {
            "journal_next_offset": journal.next_offset,
            "journal_first_offset": journal.first_offset,
            "journal_size_bytes": journal.size_bytes,
        }

    async def drain(self) -> None:
        """Everything so far is on disk, and those who wait for that have been told."""
        if self._commit is not None:
            await self._commit.close()

    async def close(self) -> None:
        """A snapshot for a quick start; after `drain` and the last change of the hub."""
        self._snapshots.shutdown()
        await self.drain()
        try:
            if self._commit is not None and not self.failure and not self._journal.full():
                self._journal.write_snapshot(Snapshot(self._hub).pieces())()
        except JournalError as error:
            logs.error("no final snapshot; the next start will read more of the journal", problem=error)
        finally:
            self._journal.close()


def journal_directory(config: Config) -> Path:
    return config.data_dir / "journal"


def set_aside_journal(config: Config) -> Path:
    """Moves a journal that cannot be used out of the way; where it is now."""
    return set_aside(journal_directory(config))
