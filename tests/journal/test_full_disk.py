"""A full disk: whole records stay, the rest is refused by offset, control records wait, and nothing is ever torn."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.errors import JournalError, JournalFull
from metromq.journal import Journal
from tests.journal.slow import messages_of, replayed


class Disk:
    """Stands between the journal and os.pwrite: room for so many bytes, and writes that stop short."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: int = errno.ENOSPC) -> None:
        self.room = 1 << 40
        self.chunk = 1 << 40
        self._error = error
        self._write = os.pwrite
        monkeypatch.setattr(os, "pwrite", self.pwrite)

    def pwrite(self, fd: int, data: bytes, position: int) -> int:
        if self.room == 0:
            raise OSError(self._error, os.strerror(self._error))
        done = self._write(fd, data[: min(self.room, self.chunk)], position)
        self.room -= done
        return done


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from([1, 1, 6]), st.binary(max_size=30)), min_size=1, max_size=12),
    st.integers(0, 300),
    st.integers(1, 40),
    st.sampled_from([errno.ENOSPC, errno.EDQUOT]),
)
def test_what_fits_stays_and_the_rest_is_refused(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[int, bytes]], room: int, chunk: int, error: int
) -> None:
    directory = tmp_path_factory.mktemp("journal")
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(patch, error)
        journal = Journal.open(directory)
        journal.append_message(b"before")
        journal.flush()
        disk.room, disk.chunk = room, chunk
        for kind, body in records:
            if kind == 1:
                journal.append_message(body)
            else:
                journal.append(kind, body)
        ends = [sum(11 + len(body) for _, body in records[: count + 1]) for count in range(len(records))]
        fits = len([end for end in ends if end <= room])
        if fits == len(records):
            journal.flush()
        else:
            with pytest.raises(JournalFull, match="no room") as caught:
                journal.flush()
            assert caught.value.first_refused == journal.next_offset
        written = [(1, b"before"), *records[:fits]]
        assert [(kind, body) for kind, _, body in replayed(journal)] == written
        assert journal.next_offset == len([kind for kind, _ in written if kind == 1])
        assert journal.flushed == 1 + fits

        disk.room = 1 << 40
        assert journal.append_message(b"after") == journal.next_offset - 1
        journal.flush()
        waited = [record for record in records[fits:] if record[0] != 1]
        expected = [*written, *waited, (1, b"after")]
        assert journal.read(journal.next_offset - 1) == b"after"
        assert journal.flushed == journal.appended
        journal.abandon()
        journal = Journal.open(directory)
        assert [(kind, body) for kind, _, body in replayed(journal)] == expected
        assert [offset for offset, _ in messages_of(replayed(journal))] == list(range(journal.next_offset))
        journal.close()


def test_reads_after_a_cut_do_not_see_old_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    journal = Journal.open(tmp_path)
    for round_ in range(3):
        for index in range(100):
            journal.append_message(b"%d %d" % (round_, index))
        disk.room = 500
        with pytest.raises(JournalFull):
            journal.flush()
        disk.room = 1 << 40
        for _ in range(100):
            journal.append_message(b"x" * 100)
        journal.flush()
        for offset, body in messages_of(replayed(journal)):
            assert journal.read(offset) == body
            assert next(journal.scan(offset)) == (1, offset, body)
    journal.close()


@pytest.mark.parametrize("error", [errno.EIO, errno.EBADF])
def test_any_other_error_stops_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    disk = Disk(monkeypatch, error)
    journal = Journal.open(tmp_path)
    journal.append_message(b"kept")
    journal.flush()
    journal.append_message(b"lost")
    disk.room = 5
    for _ in range(2):
        with pytest.raises(JournalError, match="journal stopped") as caught:
            journal.flush()
        assert not isinstance(caught.value, JournalFull)
        disk.room = 1 << 40
    journal.close()
    journal = Journal.open(tmp_path)
    assert messages_of(replayed(journal)) == [(0, b"kept")]
    journal.close()


def test_a_sync_that_failed_once_is_never_believed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal.open(tmp_path)
    journal.append_message(b"x")
    journal.flush()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", lambda fd: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
        with pytest.raises(JournalError, match="cannot sync: Input/output error"):
            journal.sync()
    with pytest.raises(JournalError, match="journal stopped"):
        journal.sync()
    with pytest.raises(JournalError, match="journal stopped"):
        journal.flush()
    assert journal.synced == 0
    journal.close()


def test_no_room_for_a_new_segment_lets_the_old_one_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal.open(tmp_path, segment_bytes=100)

    def refuse(source: object, target: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        for _ in range(5):
            journal.append_message(b"x" * 80)
            journal.flush()
    assert len(list(tmp_path.glob("*.seg"))) == 1
    journal.append_message(b"y")
    journal.flush()
    assert len(list(tmp_path.glob("*.seg"))) == 2
    assert len(messages_of(replayed(journal))) == 6
    journal.close()


def test_full_says_so_before_the_disk_is(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    free = shutil.disk_usage(tmp_path).free
    assert not journal.full()
    journal.close()
    journal = Journal.open(tmp_path, min_free_bytes=2 * free)
    assert journal.full()
    journal.close()


CHILD = """
import json, pathlib, shutil, sys
from metromq.journal import Journal
from metromq.errors import JournalFull
directory = pathlib.Path(sys.argv[1])
journal = Journal.open(directory, segment_bytes=64 << 10, min_free_bytes=128 << 10)
warned_at = refused = -1
kept = []
while refused < 0:
    batch = []
    for _ in range(20):
        body = b"%d " % journal.next_offset * 100
        batch.append((journal.append_message(body), body))
    if warned_at < 0 and journal.full():
        warned_at = journal.next_offset
    try:
        journal.flush()
    except JournalFull as error:
        refused = error.first_refused
    kept += [entry for entry in batch if refused < 0 or entry[0] < refused]
wrong = [offset for offset, body in kept if journal.read(offset) != body]
journal.close()
again = Journal.open(directory, segment_bytes=64 << 10)
replayed = [(offset, body) for kind, offset, body in again.replay()[1] if kind == 1]
print(json.dumps({"warned_at": warned_at, "refused": refused, "wrong": wrong, "same": replayed == kept}))
"""


def test_a_real_full_disk(tmp_path: Path) -> None:
    """A tmpfs of 1 MB in a mount namespace of its own, which is gone when the child ends."""
    script = f'mount -t tmpfs -o size=1m tmpfs "{tmp_path}" && exec "$@"'
    command = ["unshare", "-rm", "sh", "-c", script, "sh", sys.executable, "-c", CHILD, str(tmp_path / "data")]
    probe = subprocess.run([*command[:4], script.replace('"$@"', "true")], capture_output=True, check=False)
    if probe.returncode and not os.environ.get("CI"):
        pytest.skip(f"no private mounts here: {probe.stderr.decode().strip()}")
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    outcome = json.loads(result.stdout)
    assert outcome["wrong"] == []
    assert outcome["same"] is True
    assert 0 < outcome["warned_at"] < outcome["refused"]
