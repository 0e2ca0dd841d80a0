"""Group commit: nothing is reported before it is as safe as asked, one sync serves many, failures reach the caller."""

import asyncio
import errno
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from metromq.errors import JournalError, JournalFull, UsageError
from metromq.journal import GroupCommit, Journal
from metromq.journal.commit import Mode


class Host:
    """What the broker's shell does with a group commit; remembers what it was told."""

    def __init__(self, journal: Journal | None, mode: Mode) -> None:
        self.committed: list[int] = []
        self.failures: list[JournalError] = []
        self.changed = asyncio.Event()
        self.commit = GroupCommit(journal, mode, asyncio.get_running_loop(), self.on_committed, self.on_failed)

    def on_committed(self, position: int) -> None:
        self.committed.append(position)
        self.changed.set()

    def on_failed(self, error: JournalError) -> None:
        self.failures.append(error)
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


class Gate:
    """Holds os.fdatasync back until it is told to go on, and counts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered = threading.Semaphore(0)
        self.released = threading.Semaphore(0)
        self._sync = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", self.fdatasync)

    def fdatasync(self, fd: int) -> None:
        self.entered.release()
        assert self.released.acquire(timeout=30)
        self._sync(fd)


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await story()

    asyncio.run(main())


def test_memory_commits_at_the_end_of_the_turn() -> None:
    async def story() -> None:
        host = Host(None, "memory")
        host.commit.commit_soon()
        host.commit.commit_soon()
        assert (host.committed, host.commit.position_appended) == ([], 2)
        await host.until(lambda: host.committed == [2])
        await host.commit.close()

    run(story)


def test_os_writes_one_group_per_turn(tmp_path: Path) -> None:
    async def story() -> None:
        journal = Journal.open(tmp_path)
        host = Host(journal, "os")
        for _ in range(10):
            journal.append_message(b"x")
            host.commit.commit_soon()
        assert journal.flushed == 0
        await host.until(lambda: host.committed == [10])
        assert (journal.flushed, journal.synced) == (10, 0)
        await host.commit.close()
        journal.close()

    run(story)


def test_fsync_gathers_the_next_group_while_the_disk_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        journal = Journal.open(tmp_path)
        host = Host(journal, "fsync")
        gate = Gate(monkeypatch)
        journal.append_message(b"first")
        host.commit.commit_soon()
        assert await asyncio.to_thread(gate.entered.acquire, timeout=30)
        for _ in range(50):
            journal.append_message(b"gathers")
            host.commit.commit_soon()
            await asyncio.sleep(0)
        assert journal.flushed == 51
        assert host.committed == []
        gate.released.release()
        await host.until(lambda: host.committed == [1])
        gate.released.release()
        await host.until(lambda: host.committed == [1, 51])
        assert journal.synced == 51
        await host.commit.close()
        gate.released.release(2)
        journal.close()

    run(story)


def test_appends_nobody_waits_for_start_no_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        journal = Journal.open(tmp_path)
        host = Host(journal, "fsync")
        gate = Gate(monkeypatch)
        gate.released.release(10)
        journal.append(6, b"acknowledged")
        host.commit.commit_soon(urgent=False)
        await asyncio.sleep(0)
        assert (journal.flushed, host.committed) == (1, [])
        assert not gate.entered.acquire(blocking=False)
        journal.append_message(b"urgent")
        host.commit.commit_soon()
        await host.until(lambda: host.committed == [2])
        journal.append(6, b"acknowledged")
        host.commit.commit_soon(urgent=False)
        await host.commit.close()
        assert host.committed == [2, 3]
        journal.close()

    run(story)


def test_a_flush_in_between_is_reported_like_any_other(tmp_path: Path) -> None:
    async def story() -> None:
        journal = Journal.open(tmp_path)
        host = Host(journal, "os")
        journal.append_message(b"x")
        host.commit.commit_soon()
        host.commit.flush()
        assert host.committed == [1]
        journal.append_message(b"y")
        await host.until(lambda: host.committed == [1, 2])
        await host.commit.close()
        journal.close()

    run(story)


def test_closing_reports_what_was_left(tmp_path: Path) -> None:
    async def story() -> None:
        modes: tuple[Mode, ...] = ("os", "fsync")
        for mode in modes:
            journal = Journal.open(tmp_path)
            host = Host(journal, mode)
            journal.append_message(b"x")
            host.commit.commit_soon()
            await host.commit.close()
            assert host.committed == [1]
            host.commit.commit_soon()
            await asyncio.sleep(0)
            journal.close()

    run(story)


def test_full_segments_are_synced_even_when_the_kernel_flushes(tmp_path: Path) -> None:
    async def story() -> None:
        journal = Journal.open(tmp_path, segment_bytes=1000)
        host = Host(journal, "os")
        for _ in range(30):
            journal.append_message(b"x" * 200)
            host.commit.commit_soon()
            await asyncio.sleep(0)
        await host.commit.close()
        assert journal.synced > 20
        assert host.committed[-1] == 30
        journal.close()

    run(story)


def test_a_full_disk_is_reported_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int, data: bytes, position: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def story() -> None:
        journal = Journal.open(tmp_path)
        host = Host(journal, "fsync")
        journal.append_message(b"kept")
        host.commit.commit_soon()
        await host.until(lambda: host.committed == [1])
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", refuse)
            journal.append_message(b"refused")
            host.commit.commit_soon()
            await host.until(lambda: bool(host.failures))
        (failure,) = host.failures
        assert isinstance(failure, JournalFull)
        assert failure.first_refused == 1
        assert journal.append_message(b"again") == 1
        host.commit.commit_soon()
        await host.until(lambda: host.committed == [1, 3])
        await host.commit.close()
        journal.close()

    run(story)


def test_a_failed_sync_commits_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    async def story() -> None:
        journal = Journal.open(tmp_path)
        host = Host(journal, "fsync")
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", fail)
            journal.append_message(b"x")
            host.commit.commit_soon()
            await host.until(lambda: bool(host.failures))
        await host.commit.close()
        assert host.committed == []
        assert "journal stopped" in str(host.failures[-1])
        journal.close()

    run(story)


def test_sync_in_a_thread_while_segments_roll(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, segment_bytes=500)
    stop = threading.Event()
    problems: list[BaseException] = []

    def sync() -> None:
        try:
            while not stop.is_set():
                journal.sync()
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=sync)
    thread.start()
    for index in range(2000):
        journal.append_message(b"%d" % index)
        if index % 5 == 0:
            journal.flush()
    stop.set()
    thread.join()
    assert problems == []
    journal.close()
    journal = Journal.open(tmp_path, segment_bytes=500)
    assert [body for _, _, body in journal.replay()[1]] == [b"%d" % index for index in range(2000)]
    journal.close()


def test_modes_and_journals_must_fit(tmp_path: Path) -> None:
    async def story() -> None:
        journal = Journal.open(tmp_path)
        for wrong, mode in ((None, "os"), (journal, "memory"), (journal, "sometimes")):
            with pytest.raises(UsageError, match="durability"):
                Host(wrong, cast(Mode, mode))
        journal.close()

    run(story)
