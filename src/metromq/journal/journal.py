"""The broker's durable log: appended on the event loop, written once per turn, synced from a thread, read by offset.

Only MESSAGE records are numbered; their offsets are dense but for gaps that damage or a power
cut left, and never given twice. What happens when the disk is full:
`flush` keeps every record that reached the file whole, takes back the offsets of the messages that did not, keeps
control records for the next `flush` (the state they describe has changed already) and raises JournalFull, which names
the first message to refuse. The file is never left torn.
"""

import errno
import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from threading import Lock
from typing import Final, final

from metromq.errors import JournalError, JournalFull
from metromq.files import sync_directory
from metromq.journal.codec import GAP, MESSAGE, SKIP, encode_record
from metromq.journal.identity import ensure_id
from metromq.journal.index import remove_index, save_index
from metromq.journal.recovery import Recovered, create_segment, recover, skip
from metromq.journal.reservation import perhaps_given, release, reserve
from metromq.journal.segment import Segment
from metromq.journal.shelf import Shelf
from metromq.journal.snapshot import Position, write_snapshot

LOCK_NAME: Final = "journal.lock"
RESERVE_LATER: Final = 1024  # messages until offsets are reserved again after it failed
ROOM_CALLS: Final = 256  # `full` asks the file system again after so many calls

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


@final
class Journal:
    """One writer per directory. All methods belong to one thread, but `sync` and a snapshot's job may run in others.

    It has many methods and attributes because it guards one invariant, that offsets, files and what is synced agree;
    what can be told apart from that is in `shelf`, `segment`, `snapshot` and `recovery`.
    """

    def __init__(
        self, directory: Path, name: str, lock_fd: int, found: Recovered, segment_bytes: int, min_free_bytes: int
    ) -> None:
        self.directory = directory
        self.name = name  # of this journal, for ever
        self.damage = found.damage  # what was lost and accepted, or found and not needed: for the log
        self.cut_bytes = found.cut_bytes  # length of the torn tail that was cut
        self._lock_fd = lock_fd
        self._segment_bytes = segment_bytes
        self._min_free_bytes = min_free_bytes
        self._shelf = Shelf(str(directory), True)
        for segment in found.segments:
            self._shelf.add(segment)
        self._current: Segment = found.segments[-1]
        self._salt = self._current.salt
        self._fd = os.open(self._current.path, os.O_WRONLY | os.O_CLOEXEC)
        self._replay_from = found.replay_from()
        self._state: bytes | None = found.state
        self._snapshot_numbers: list[int] = found.snapshot_numbers

        self.next_offset = self._current.end_offset
        self.appended = 0  # records since open; flushed and synced count the same records
        self.flushed = 0
        self.synced = 0
        self._reserved = self.next_offset  # offsets before it may be given out
        self._flushed_offset = self.next_offset
        self._buffer: list[bytes] = []
        self._buffered_messages: list[bytes] = []
        self._buffered_bytes = 0

        self._free_bytes = 0
        self._room_calls = ROOM_CALLS
        self._room_bytes = 0

        self._failure = ""
        self._closed = False
        self._state_lock = Lock()  # short: guards what `sync` takes over from the loop
        self._sync_lock = Lock()  # long: held while the disk works
        self._retired: list[int] = []  # write handles of rolled segments that are not synced yet
        self._directory_changed = True

    @classmethod
    def open(
        cls,
        directory: Path,
        segment_bytes: int = 64 << 20,
        accept_damage: bool = False,
        min_free_bytes: int = 64 << 20,
    ) -> "Journal":
        try:
            _make_durably(directory)
            lock_fd = lock_directory(directory)
            try:
                found = recover(directory, accept_damage)
                name = ensure_id(directory, bool(found.segments))
                if not found.segments:
                    found.segments.append(create_segment(directory, 1, 0))
                elif found.segments[-1].resume >= 0:  # nothing may follow a gap in its segment
                    _continue(directory, found)
                given = perhaps_given(directory)
                if given > found.segments[-1].end_offset:
                    skip(found.segments[-1], given)
                    _continue(directory, found)
                return cls(directory, name, lock_fd, found, segment_bytes, min_free_bytes)
            except BaseException:
                os.close(lock_fd)
                raise
        except OSError as error:
            raise JournalError(
                f"{error.filename or directory}: cannot open the journal: {error.strerror}; "
                "check that the data directory is writable and the disk has room"
            ) from error

    # Writing

    def append_message(self, body: bytes) -> int:
        """Buffer a message; its offset. Nothing is promised until it was flushed (and synced)."""
        if self.next_offset >= self._reserved:
            self._reserve()
        record = encode_record(MESSAGE, body, self._salt)
        self._current.note(self._current.size + self._buffered_bytes)
        self._buffer.append(record)
        self._buffered_messages.append(body)
        self._buffered_bytes += len(record)
        self.appended += 1
        offset = self.next_offset
        self.next_offset = offset + 1
        return offset

    def _reserve(self) -> None:
        try:
            self._reserved = reserve(self.directory, self.next_offset)
        except OSError:  # the disk is full, which `full` tells; soon it is tried again
            self._reserved = self.next_offset + RESERVE_LATER

    def append(self, kind: int, body: bytes) -> None:
        """Buffer a control record."""
        if kind in (MESSAGE, GAP, SKIP):
            raise JournalError(f"records of kind {kind} are not control records; messages go through append_message")
        record = encode_record(kind, body, self._salt)
        self._buffer.append(record)
        self._buffered_bytes += len(record)
        self.appended += 1

    def flush(self) -> None:
        """Hand everything buffered to the operating system in one write; JournalFull when the disk has no room."""
        self._check_usable()
        if not self._buffer:
            return
        data = b"".join(self._buffer)
        written = 0
        try:
            while written < len(data):
                rest = data if written == 0 else data[written:]
                written += os.pwrite(self._fd, rest, self._current.size + written)
        except OSError as error:
            self._undo(written, error)
            if error.errno in _FULL:
                raise JournalFull(f"{self.directory}: no room left on the disk", self.next_offset) from error
            raise self._fail("cannot write", error) from error
        self._current.size += written
        self._current.walked = self._current.size
        self._room_bytes += written
        self._buffer = []
        self._buffered_messages = []
        self._buffered_bytes = 0
        self._flushed_offset = self.next_offset
        self.flushed = self.appended
        if self._current.size >= self._segment_bytes:
            self._roll()

    def sync(self) -> None:
        """Make durable all that was flushed before the call; safe in any thread."""
        with self._sync_lock:
            with self._state_lock:
                self._check_usable()
                retired = self._retired
                self._retired = []
                fd = self._fd
                flushed = self.flushed
                directory_changed = self._directory_changed
                self._directory_changed = False
            try:
                while retired:
                    os.fdatasync(retired[-1])
                    os.close(retired.pop())
                os.fdatasync(fd)
                if directory_changed:
                    sync_directory(self.directory)
            except (
                OSError
            ) as error:  # what the kernel failed to write once is lost: a later success would prove nothing
                self._retired.extend(retired)
                raise self._fail("cannot sync", error) from error
            self.synced = max(self.synced, flushed)

    @property
    def rolled(self) -> bool:
        """A full segment waits for `sync`; whoever leaves flushing to the kernel still calls it then, in a thread."""
        return bool(self._retired)

    @property
    def failed(self) -> bool:
        """Whether the journal has stopped for good; only a restart helps."""
        return bool(self._failure)

    def full(self, looks: bool = False) -> bool:
        """Whether new messages should be refused because the disk has less than `min_free_bytes` left; `looks`: asks
        the file system in any case."""
        self._room_calls += 1
        if (
            looks
            or self._room_calls > ROOM_CALLS
            or self._room_bytes + self._buffered_bytes > self._min_free_bytes >> 2
        ):
            status = os.statvfs(self.directory)
            self._free_bytes = status.f_bavail * status.f_frsize
            self._room_calls = 0
            self._room_bytes = 0
        if self._free_bytes - self._room_bytes - self._buffered_bytes >= self._min_free_bytes:
            return False
        self._room_calls = ROOM_CALLS  # while it is full every call looks again
        return True

    @property
    def free_bytes(self) -> int:
        """As the file system said when it was asked last."""
        return self._free_bytes

    def close(self) -> None:
        """Flush, sync and give the directory free; closing twice is allowed."""
        if self._closed:
            return
        try:
            if not self._failure:
                self.flush()
                self.sync()
                self._release()
        finally:
            self.abandon()

    def _release(self) -> None:
        try:
            release(self.directory, self.next_offset)
        except OSError:  # then the next start leaves a few out
            pass

    def abandon(self) -> None:
        """Give the directory free without writing the buffer, as the end of the process would."""
        with self._sync_lock:
            if self._closed:
                return
            self._closed = True
            for fd in [*self._retired, self._fd, self._lock_fd]:
                os.close(fd)
            self._shelf.close()

    def _undo(self, written: int, error: OSError) -> None:
        """Keep the whole records of a write that broke off, cut the rest, take back what is not in the file."""
        kept_bytes = 0
        kept = 0
        messages = 0
        for record in self._buffer:
            if kept_bytes + len(record) > written:
                break
            kept_bytes += len(record)
            kept += 1
            messages += record[4] == MESSAGE
        current = self._current
        try:
            os.ftruncate(self._fd, current.size + kept_bytes)
        except OSError as second:
            raise self._fail("cannot cut a broken write", second) from error
        current.size += kept_bytes
        current.walked = current.size
        self._flushed_offset += messages
        current.forget_from(current.count - (self.next_offset - self._flushed_offset))
        self.next_offset = self._flushed_offset
        self.flushed += kept
        self._buffer = [record for record in self._buffer[kept:] if record[4] != MESSAGE]
        self._buffered_messages = []
        self._buffered_bytes = sum([len(record) for record in self._buffer])
        self._shelf.forget_blocks()
        self._room_calls = ROOM_CALLS

    def _roll(self) -> None:
        if self._retired:  # nobody synced the segment before: at most two are ever not durable
            self.sync()
        try:
            segment = create_segment(self.directory, self._current.number + 1, self.next_offset)
            fd = os.open(segment.path, os.O_WRONLY | os.O_CLOEXEC)
        except OSError:  # no room for a header: this segment grows on, and the next flush tries again
            return
        self._current.modified = os.fstat(self._fd).st_mtime
        with self._state_lock:
            self._retired.append(self._fd)
            self._fd = fd
            self._directory_changed = True
        save_index(self._current)
        self._shelf.add(segment)
        self._current = segment
        self._salt = segment.salt

    def _fail(self, what: str, error: OSError) -> JournalError:
        self._failure = (
            f"{self.directory}: {what}: {error.strerror}; the journal stopped, restart when the disk is well"
        )
        return JournalError(self._failure)

    def _check_usable(self) -> None:
        if self._failure:
            raise JournalError(self._failure)
        if self._closed:
            raise JournalError(f"{self.directory}: the journal is closed")

    # Reading

    @property
    def first_offset(self) -> int:
        """The oldest offset that can be read."""
        return self._shelf.first_offset()

    @property
    def size_bytes(self) -> int:
        return sum([segment.size for segment in self._shelf.segments]) + self._buffered_bytes

    def read(self, offset: int) -> bytes:
        """The body of a message, flushed or not."""
        if offset < self._flushed_offset:
            return self._shelf.read(offset)
        if offset >= self.next_offset:
            raise JournalError(f"{self.directory}: offset {offset} is not written yet; the next is {self.next_offset}")
        return self._buffered_messages[offset - self._flushed_offset]

    def scan(self, offset: int) -> Iterator[tuple[int, int, bytes]]:
        """(kind, offset or -1, body) from the record of message `offset` on, to the flushed end."""
        return self._shelf.scan(offset) if offset < self._flushed_offset else iter(())

    def replay(self) -> tuple[bytes | None, Iterator[tuple[int, int, bytes]]]:
        """The newest whole snapshot, and (kind, offset or -1, body) of every record after it."""
        start = self._replay_from
        return self._state, self._shelf.records(start.number, start.byte, start.next_offset)

    # Snapshots and retention

    def write_snapshot(self, state: Iterable[bytes]) -> Callable[[], None]:
        """Mark the position now; the returned function makes journal and snapshot durable and may run in a thread."""
        self.flush()
        position = Position(self._current.number, self._current.size, self.next_offset)
        return SnapshotJob(self, position, state).run

    def save_snapshot(self, position: Position, state: Iterable[bytes]) -> None:
        self.sync()
        try:
            numbers = write_snapshot(self.directory, position, state)
        except OSError as error:
            raise JournalError(f"{self.directory}: cannot write a snapshot: {error.strerror}") from error
        with self._state_lock:
            self._snapshot_numbers = numbers

    def too_much(self, keep_bytes: int, keep_seconds: float, now: float) -> bool:
        """Whether `remove_before` would like to remove something."""
        segments = self._shelf.segments
        return len(segments) > 1 and (self.size_bytes > keep_bytes or segments[0].modified < now - keep_seconds)

    def remove_before(self, offset: int, keep_bytes: int, keep_seconds: float, now: float) -> list[str]:
        """Remove the oldest segments while all are larger than `keep_bytes` or they are older than `keep_seconds`.

        A segment stays if it has `offset` or a newer message, or a record that a kept snapshot does not stand for.
        """
        removed: list[str] = []
        with self._state_lock:
            needed = min(self._snapshot_numbers, default=0)
            waiting = len(self._retired)
        segments = self._shelf.segments
        size = self.size_bytes
        while len(segments) > 1 + waiting:
            oldest = segments[0]
            if oldest.number >= needed or segments[1].base > offset:
                break
            if size <= keep_bytes and oldest.modified >= now - keep_seconds:
                break
            self._shelf.remove_first()
            remove_index(oldest)
            os.unlink(oldest.path)
            size -= oldest.size
            removed.append(oldest.name)
        return removed


@final
class SnapshotJob:
    """The part of a snapshot that waits for the disk."""

    def __init__(self, journal: Journal, position: Position, state: Iterable[bytes]) -> None:
        self._journal = journal
        self._position = position
        self._state = state

    def run(self) -> None:
        self._journal.save_snapshot(self._position, self._state)


def _continue(directory: Path, found: Recovered) -> None:
    last = found.segments[-1]
    found.segments.append(create_segment(directory, last.number + 1, last.end_offset))


def _make_durably(directory: Path) -> None:
    """A directory exists after a power cut only if the one above it was synced."""
    if directory.is_dir():
        return
    parent = directory.parent
    _make_durably(parent)
    directory.mkdir(mode=0o700, exist_ok=True)  # it will hold everybody's messages
    sync_directory(parent)


def lock_directory(directory: Path) -> int:
    """Only one process writes; the kernel gives the lock free when that process ends in any way."""
    fd = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        os.close(fd)
        raise JournalError(
            f"{directory} is in use by process {holder or '(unknown)'}; stop it or choose another data directory"
        ) from error
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd
