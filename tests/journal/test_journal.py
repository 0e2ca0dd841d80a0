"""The writer: appending, reading by offset, scanning, snapshots, retention, the lock, and its list twin."""

import os
import struct
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.errors import JournalError, OffsetsGone
from metromq.journal import Journal
from tests.journal.slow import ListJournal, fill, messages_of, replayed, segments


def test_only_messages_are_numbered(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    assert [journal.append_message(b"a"), journal.append_message(b"b")] == [0, 1]
    journal.append(6, b"control")
    assert journal.append_message(b"c") == 2
    assert journal.next_offset == 3
    journal.flush()
    assert replayed(journal) == [(1, 0, b"a"), (1, 1, b"b"), (6, -1, b"control"), (1, 2, b"c")]
    journal.close()


def test_messages_cannot_pass_as_control_records(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    for kind in (0, 1, 63, 64):
        with pytest.raises(JournalError, match=f"kind {kind}"):
            journal.append(kind, b"")
    journal.close()


def test_buffered_flushed_and_old_messages_are_readable(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, segment_bytes=500)
    bodies = [bytes([index]) * index for index in range(200)]
    for index, body in enumerate(bodies):
        assert journal.append_message(body) == index
        assert journal.read(index) == body
        if index % 7 == 0:
            journal.flush()
        assert journal.read(index // 2) == bodies[index // 2]
    with pytest.raises(JournalError, match="offset 200 is not written yet"):
        journal.read(200)
    journal.close()


def test_a_record_larger_than_a_block_and_a_segment(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, segment_bytes=1000)
    big = os.urandom(3 << 20)
    for body in (b"small", big, b"after"):
        journal.append_message(body)
        journal.flush()
    assert [journal.read(offset) for offset in (1, 0, 2)] == [big, b"small", b"after"]
    assert messages_of(list(journal.scan(1))) == [(1, big), (2, b"after")]
    journal.close()
    journal = Journal.open(tmp_path, segment_bytes=1000)
    assert journal.read(1) == big
    journal.close()


@pytest.mark.parametrize("segment_bytes", [400, 1 << 20])
def test_scan_starts_at_its_message_and_can_be_dropped_and_resumed(tmp_path: Path, segment_bytes: int) -> None:
    journal = Journal.open(tmp_path, segment_bytes=segment_bytes)
    written = fill(journal, 300)
    for start in (0, 1, 63, 64, 65, 130, journal.next_offset - 1):
        index = written.index(next(record for record in written if record[1] == start))
        assert list(journal.scan(start)) == written[index:]
    pages: list[tuple[int, bytes]] = []
    while len(pages) < journal.next_offset:
        page = journal.scan(len(pages))
        pages += messages_of([next(page) for _ in range(3) if len(pages) < journal.next_offset - 3] or list(page))
    assert pages == messages_of(written)
    assert list(journal.scan(journal.next_offset)) == []
    journal.close()


def test_scan_ends_at_the_flushed_end(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    journal.append_message(b"written")
    journal.flush()
    journal.append_message(b"buffered")
    assert list(journal.scan(0)) == [(1, 0, b"written")]
    assert list(journal.scan(1)) == []
    journal.close()


def test_a_second_writer_is_told_who_has_the_directory(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    with pytest.raises(JournalError, match=rf"{tmp_path} is in use by process {os.getpid()}"):
        Journal.open(tmp_path)
    journal.close()
    journal.close()
    Journal.open(tmp_path).close()


def test_missing_directories_are_made(tmp_path: Path) -> None:
    Journal.open(tmp_path / "data" / "of" / "broker").close()
    below_a_file = tmp_path / "data" / "of" / "broker" / "journal.lock" / "deeper"
    with pytest.raises(JournalError, match=r"journal\.lock.*cannot open the journal: .*check that the data directory"):
        Journal.open(below_a_file)


def test_a_closed_journal_says_so(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    journal.close()
    with pytest.raises(JournalError, match="closed"):
        journal.flush()


def test_segments_are_named_by_number_and_base_offset(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, segment_bytes=100)
    for _ in range(3):
        journal.append_message(b"x" * 60)
        journal.append_message(b"x" * 60)
        journal.flush()
    journal.close()
    assert [path.name for path in segments(tmp_path)] == [
        "00000001-00000000000000000000.seg",
        "00000002-00000000000000000002.seg",
        "00000003-00000000000000000004.seg",
        "00000004-00000000000000000006.seg",
    ]


def test_replay_starts_at_the_newest_snapshot(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, segment_bytes=300)
    fill(journal, 20)
    journal.write_snapshot([b"old state"])()
    fill(journal, 20)
    job = journal.write_snapshot([b"new state"])
    after = fill(journal, 20)
    job()
    journal.close()
    journal = Journal.open(tmp_path, segment_bytes=300)
    assert journal.replay()[0] == b"new state"
    assert replayed(journal) == after
    assert journal.next_offset == max(offset for _, offset, _ in after) + 1
    journal.close()


def test_a_snapshot_includes_what_was_buffered(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    journal.append_message(b"in the state")
    journal.write_snapshot([b"state"])()
    journal.close()
    journal = Journal.open(tmp_path)
    assert replayed(journal) == []
    assert journal.read(0) == b"in the state"
    journal.close()


def test_a_snapshot_of_the_first_version_is_read(tmp_path: Path) -> None:
    """Its checksum began with the header; the state is the same."""
    journal = Journal.open(tmp_path)
    fill(journal, 3)
    journal.write_snapshot([b"made ", b"of pieces"])()
    journal.close()
    (path,) = tmp_path.glob("*.snap")
    head = struct.Struct("<8sIIQQQI")
    magic, version, number, byte, next_offset, length, _ = head.unpack_from(path.read_bytes())
    assert (version, length) == (2, 14)
    front = head.pack(magic, 1, number, byte, next_offset, 5, 0)
    path.write_bytes(front[:-4] + struct.pack("<I", crc32(b"older", crc32(front))) + b"older")
    journal = Journal.open(tmp_path)
    assert journal.replay()[0] == b"older"
    journal.close()


def test_two_snapshots_are_kept(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    for state in (b"1", b"2", b"3"):
        fill(journal, 3)
        journal.write_snapshot([state])()
    assert len(list(tmp_path.glob("*.snap"))) == 2
    journal.close()


def retained(directory: Path) -> Journal:
    """Ten segments or more, and a snapshot at the end of the last."""
    journal = Journal.open(directory, segment_bytes=200)
    fill(journal, 100)
    journal.sync()
    journal.write_snapshot([b"state"])()
    return journal


def test_retention_removes_whole_segments_before_the_offset(tmp_path: Path) -> None:
    journal = retained(tmp_path)
    bases = [int(path.name[9:29]) for path in segments(tmp_path)]
    removed = journal.remove_before(bases[3] + 1, 0, 0.0, 0.0)
    assert len(removed) == 3
    assert journal.first_offset == bases[3]
    assert not any((tmp_path / name).exists() for name in removed)
    with pytest.raises(OffsetsGone, match=rf"offsets 0 to {bases[3] - 1} are gone") as caught:
        journal.read(0)
    assert caught.value.first == bases[3]
    assert journal.read(bases[3]) == next(journal.scan(bases[3]))[2]
    journal.close()
    journal = Journal.open(tmp_path)
    assert journal.first_offset == bases[3]
    journal.close()


def test_retention_keeps_what_size_and_age_allow(tmp_path: Path) -> None:
    journal = retained(tmp_path)
    everything = journal.next_offset
    size = journal.size_bytes
    newest = max(path.stat().st_mtime for path in segments(tmp_path))
    assert journal.remove_before(everything, size, 60.0, newest) == []
    assert len(journal.remove_before(everything, size - 1, 60.0, newest)) == 1
    assert journal.size_bytes < size
    journal.remove_before(everything, 10**9, 60.0, newest + 100.0)
    assert len(segments(tmp_path)) == 1
    journal.close()


def test_retention_needs_a_snapshot_and_keeps_what_the_older_one_needs(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, segment_bytes=200)
    fill(journal, 50)
    journal.sync()
    assert journal.remove_before(journal.next_offset, 0, 0.0, 0.0) == []
    journal.write_snapshot([b"older"])()
    at_older = len(segments(tmp_path))
    fill(journal, 50)
    journal.sync()
    journal.write_snapshot([b"newer"])()
    journal.remove_before(journal.next_offset, 0, 0.0, 0.0)
    assert int(segments(tmp_path)[0].name[:8]) == at_older
    journal.close()


def test_open_files_are_bounded(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, segment_bytes=50)
    fill(journal, 400)
    journal.close()
    assert len(segments(tmp_path)) > 70
    before = len(os.listdir("/proc/self/fd"))
    journal = Journal.open(tmp_path, segment_bytes=50)
    for offset in range(journal.next_offset):
        journal.read(offset)
    assert len(list(journal.scan(0))) == 400
    assert len(os.listdir("/proc/self/fd")) - before <= 70
    journal.close()
    assert len(os.listdir("/proc/self/fd")) == before


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("message"), st.binary(max_size=50)),
        st.tuples(st.just("control"), st.binary(max_size=20)),
        st.tuples(st.sampled_from(["flush", "sync", "snapshot", "reopen", "crash", "look"]), st.just(b"")),
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=60)
@given(ACTIONS, st.sampled_from([80, 300, 1 << 20]))
def test_any_sequence_agrees_with_a_list(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, bytes]], segment_bytes: int
) -> None:
    directory = tmp_path_factory.mktemp("journal")
    journal = Journal.open(directory, segment_bytes)
    twin = ListJournal()
    snapshot_at, state = 0, None
    for number, (action, body) in enumerate(actions):
        match action:
            case "message":
                assert journal.append_message(body) == twin.append_message(body)
            case "control":
                journal.append(5, body)
                twin.append(5, body)
            case "flush":
                journal.flush()
                twin.flush()
            case "sync":
                journal.sync()
            case "snapshot":
                twin.flush()
                snapshot_at, state = len(twin.flushed), b"%d" % number
                journal.write_snapshot([state])()
            case "reopen":
                journal.close()
                twin.flush()
                journal = Journal.open(directory, segment_bytes)
            case "crash":  # what a killed process leaves: the files without the buffer
                twin.crash()
                journal.abandon()
                journal = Journal.open(directory, segment_bytes)
            case _:
                for offset, message in messages_of(twin.flushed + twin.buffered):
                    assert journal.read(offset) == message
        assert journal.next_offset == twin.next_offset
    journal.flush()
    twin.flush()
    for offset, _ in twin.messages():
        index = [record[1] for record in twin.flushed].index(offset)
        assert list(journal.scan(offset)) == twin.flushed[index:]
    journal.close()
    journal = Journal.open(directory, segment_bytes)
    assert journal.replay()[0] == state
    assert replayed(journal) == twin.flushed[snapshot_at:]
    assert journal.damage == []
    journal.close()


def test_only_its_owner_may_look_into_a_new_journal(tmp_path: Path) -> None:
    Journal.open(tmp_path / "data" / "journal").close()
    assert (tmp_path / "data").stat().st_mode & 0o077 == 0
    assert (tmp_path / "data" / "journal").stat().st_mode & 0o077 == 0
