"""Index files: the same answers with and without them, and none that is wrong is believed."""

from pathlib import Path

import pytest

from metromq.journal import Journal, JournalReader
from metromq.journal.index import load_index
from metromq.journal.segment import Segment, open_segment
from tests.journal.slow import Record, fill, messages_of, segments


def journal_with_old_segments(directory: Path) -> list[Record]:
    """All segments are older than the snapshot, so that they are only looked into when they are read."""
    journal = Journal.open(directory, segment_bytes=20_000)
    written = fill(journal, 3000)
    journal.write_snapshot([b"state"])()
    journal.close()
    return written


def loaded(path: Path) -> Segment:
    return open_segment(path.parent, int(path.name[:8]), int(path.name[9:29]), path.name)


def test_a_full_segment_gets_an_index_that_agrees_with_a_walk(tmp_path: Path) -> None:
    journal_with_old_segments(tmp_path)
    paths = segments(tmp_path)
    assert [path.with_suffix(".idx").exists() for path in paths] == [True] * (len(paths) - 1) + [False]
    for path in paths[:-1]:
        walked, read = loaded(path), loaded(path)
        assert walked.follow(walked.size) == walked.size
        walked.close()
        assert load_index(read)
        assert (read.marks, read.positions) == (walked.marks, walked.positions)
        assert (read.count, read.walked, read.resume) == (walked.count, walked.walked, walked.resume)
        assert len(read.marks) > 3


@pytest.mark.parametrize("harm", ["none", "missing", "flipped", "foreign", "empty"])
def test_messages_are_found_whatever_happened_to_the_index(tmp_path: Path, harm: str) -> None:
    written = journal_with_old_segments(tmp_path)
    indexes = sorted(tmp_path.glob("*.idx"))
    for index, path in enumerate(indexes):
        data = path.read_bytes()
        if harm == "missing":
            path.unlink()
        elif harm == "flipped":
            path.write_bytes(data[:50] + bytes([data[50] ^ 1]) + data[51:])
        elif harm == "foreign" and index:
            path.write_bytes(indexes[0].read_bytes())
        elif harm == "empty":
            path.write_bytes(b"")
    reader = JournalReader(tmp_path)
    messages = messages_of(written)
    assert reader.read(700, 50) == messages[700:750]
    reader.close()
    journal = Journal.open(tmp_path, segment_bytes=20_000)
    for offset, body in messages[::37]:
        assert journal.read(offset) == body
    assert messages_of(list(journal.scan(5))) == messages[5:]
    journal.close()
    for path in segments(tmp_path)[:-1]:
        assert load_index(loaded(path))  # the writer made them anew


def test_retention_removes_indexes_too(tmp_path: Path) -> None:
    journal_with_old_segments(tmp_path)
    journal = Journal.open(tmp_path, segment_bytes=20_000)
    assert journal.remove_before(journal.next_offset, 0, 0.0, 0.0)
    journal.close()
    assert list(tmp_path.glob("*.idx")) == []
