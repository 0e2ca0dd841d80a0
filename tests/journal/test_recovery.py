"""Torn tails are cut, damage is reported by file and byte, accepted damage never moves an offset."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.errors import JournalDamaged, OffsetsGone
from metromq.journal import Journal
from tests.journal.slow import Record, boundaries, fill, messages_of, replayed, segments


def written_journal(directory: Path, count: int = 30, segment_bytes: int = 250, snapshot: bool = False) -> list[Record]:
    """A closed journal of several segments whose last one is not empty."""
    journal = Journal.open(directory, segment_bytes)
    written = fill(journal, count)
    if snapshot:
        journal.write_snapshot([b"state"])()
    for body in (b"after", b"the", b"snapshot"):
        written.append((1, journal.append_message(body), body))
    journal.close()
    return written


def flip(path: Path, at: int, mask: int = 0x20) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= mask
    path.write_bytes(data)


def records_before(directory: Path, path: Path) -> int:
    return sum(len(boundaries(other)) - 1 for other in segments(directory) if other < path)


def test_every_cut_of_the_last_segment_leaves_its_whole_records(tmp_path: Path) -> None:
    written = written_journal(tmp_path, 4, 1 << 20)
    (path,) = segments(tmp_path)
    data, places = path.read_bytes(), boundaries(path)
    for cut in range(32, len(data)):
        path.write_bytes(data[:cut])
        journal = Journal.open(tmp_path)
        whole = len([place for place in places[1:] if place <= cut])
        assert replayed(journal) == written[:whole]
        assert journal.cut_bytes == cut - max(place for place in places if place <= cut)
        assert journal.append_message(b"new") == len(messages_of(written[:whole]))
        journal.abandon()


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 400), st.binary(max_size=200), st.integers(0, 3000))
def test_a_tail_of_garbage_or_zeros_is_cut(
    tmp_path_factory: pytest.TempPathFactory, cut: int, garbage: bytes, zeros: int
) -> None:
    directory = tmp_path_factory.mktemp("journal")
    written = written_journal(directory, 10, 1 << 20)
    (path,) = segments(directory)
    data, places = path.read_bytes(), boundaries(path)
    cut = min(32 + cut, len(data))
    path.write_bytes(data[:cut] + garbage + bytes(zeros))
    journal = Journal.open(directory)
    whole = len([place for place in places[1:] if place <= cut])
    assert replayed(journal)[:whole] == written[:whole]
    assert len(replayed(journal)) <= whole + 1  # garbage may by chance complete the record that was cut
    journal.close()


def test_a_flipped_byte_anywhere_is_reported_or_cut_never_skipped(tmp_path: Path) -> None:
    written = written_journal(tmp_path, 12, 150)
    assert len(segments(tmp_path)) >= 3
    last = segments(tmp_path)[-1]
    last_record = boundaries(last)[-2]
    for path in segments(tmp_path):
        original = path.read_bytes()
        for at in range(len(original)):
            flip(path, at)
            if path == last and at >= last_record:  # looks like a torn write, and only it is lost
                journal = Journal.open(tmp_path)
                assert replayed(journal) == written[:-1]
                journal.abandon()
            else:
                with pytest.raises(JournalDamaged) as caught:
                    Journal.open(tmp_path)
                assert caught.value.segment == str(path)
                assert caught.value.position <= at
                assert f"{path} is damaged at byte {caught.value.position}" in str(caught.value)
            path.write_bytes(original)


def test_opening_a_damaged_journal_changes_nothing(tmp_path: Path) -> None:
    written_journal(tmp_path)
    flip(segments(tmp_path)[1], 60)
    before = {path.name: path.read_bytes() for path in segments(tmp_path)}
    for _ in range(2):
        with pytest.raises(JournalDamaged):
            Journal.open(tmp_path)
    assert {path.name: path.read_bytes() for path in segments(tmp_path)} == before


@pytest.mark.parametrize("where", ["header", "first", "middle"])
@pytest.mark.parametrize("which", [0, 1, -1])
def test_accepted_damage_loses_only_the_rest_of_its_segment(tmp_path: Path, which: int, where: str) -> None:
    written = written_journal(tmp_path, 40, 250)
    path = segments(tmp_path)[which]
    places = boundaries(path)
    broken = {"header": 0, "first": 0, "middle": (len(places) - 1) // 2}[where]
    flip(path, 20 if where == "header" else places[broken] + 3)
    first = records_before(tmp_path, path) + broken
    lasting = written[:first] + written[records_before(tmp_path, path) + len(places) - 1 :]
    next_offset = written[-1][1] + 1

    journal = Journal.open(tmp_path, 250, accept_damage=True)
    assert replayed(journal) == lasting
    assert len(journal.damage) == 1
    assert str(path) in journal.damage[0]
    lost = [offset for offset, _ in messages_of(written) if offset not in dict(messages_of(lasting))]
    if lost:
        assert f"offsets {lost[0]} to " in journal.damage[0]
    assert journal.next_offset >= next_offset
    for offset, body in messages_of(lasting):
        assert journal.read(offset) == body
    for offset in lost:
        with pytest.raises(OffsetsGone, match="lost to damage"):
            journal.read(offset)
    fresh = journal.append_message(b"new")
    assert fresh >= next_offset
    journal.close()

    journal = Journal.open(tmp_path, 250)  # what was accepted once is not reported again
    assert journal.damage == []
    assert replayed(journal) == [*lasting, (1, fresh, b"new")]
    assert journal.read(fresh) == b"new"
    journal.close()
    assert len(list(tmp_path.glob("*.damaged-1"))) == 1


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_accepted_damage_never_invents_or_moves_a_message(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("journal")
    written = dict(messages_of(written_journal(directory, 25, 200, snapshot=data.draw(st.booleans()))))
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(segments(directory)))
        match data.draw(st.sampled_from(["flip", "truncate", "remove", "zero"])):
            case "flip":
                if path.stat().st_size:
                    flip(path, data.draw(st.integers(0, path.stat().st_size - 1)), data.draw(st.integers(1, 255)))
            case "truncate":
                os.truncate(path, data.draw(st.integers(0, path.stat().st_size)))
            case "zero":
                path.write_bytes(bytes(path.stat().st_size))
            case _:
                if len(segments(directory)) > 1:
                    path.unlink()
    journal = Journal.open(directory, 200, accept_damage=True)
    found = dict(messages_of(replayed(journal)))
    assert found.items() <= written.items()
    readable = {}
    for offset in written:
        if journal.first_offset <= offset < journal.next_offset:
            try:
                readable[offset] = journal.read(offset)
            except OffsetsGone:
                pass
    assert readable.items() <= written.items()
    assert found.items() <= readable.items()
    fresh = journal.append_message(b"new")
    journal.close()
    journal = Journal.open(directory, 200)
    assert journal.read(fresh) == b"new"
    assert dict(messages_of(replayed(journal))) == found | {fresh: b"new"}
    journal.close()


@pytest.mark.parametrize("removed", [[1], [1, 2], [0]])
def test_a_missing_segment_is_damage(tmp_path: Path, removed: list[int]) -> None:
    written = written_journal(tmp_path, 40, 200)
    paths = segments(tmp_path)
    assert len(paths) >= 5
    keep = [len(boundaries(path)) - 1 for path in paths]
    for index in removed:
        paths[index].unlink()
    with pytest.raises(JournalDamaged, match="missing"):
        Journal.open(tmp_path)
    journal = Journal.open(tmp_path, 200, accept_damage=True)
    start = sum(keep[: removed[0]])
    lasting = written[:start] + written[sum(keep[: removed[-1] + 1]) :]
    assert replayed(journal) == lasting
    assert journal.next_offset == written[-1][1] + 1
    journal.close()


def test_a_segment_that_ends_early_at_a_record_is_damage(tmp_path: Path) -> None:
    written_journal(tmp_path, 40, 200)
    path = segments(tmp_path)[1]
    os.truncate(path, boundaries(path)[-2])
    with pytest.raises(JournalDamaged, match="records are missing at its end"):
        Journal.open(tmp_path)


def test_a_damaged_snapshot_falls_back_to_the_older_one(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, 200)
    fill(journal, 10)
    journal.write_snapshot([b"older"])()
    between = fill(journal, 10)
    journal.write_snapshot([b"newer"])()
    journal.close()
    newest = max(tmp_path.glob("*.snap"))
    flip(newest, newest.stat().st_size - 1)
    journal = Journal.open(tmp_path, 200)
    assert journal.replay()[0] == b"older"
    assert replayed(journal) == between
    assert str(newest) in journal.damage[0]
    journal.close()


def test_every_flipped_byte_of_a_snapshot_is_noticed(tmp_path: Path) -> None:
    written = written_journal(tmp_path, 5, snapshot=True)
    (path,) = tmp_path.glob("*.snap")
    original = path.read_bytes()
    for at in range(len(original)):
        flip(path, at)
        journal = Journal.open(tmp_path)
        assert journal.replay()[0] is None
        assert replayed(journal) == written
        journal.abandon()
        path.write_bytes(original)


def test_without_a_whole_snapshot_removed_segments_are_damage(tmp_path: Path) -> None:
    written_journal(tmp_path, 40, 200, snapshot=True)
    journal = Journal.open(tmp_path, 200)
    assert journal.remove_before(journal.next_offset, 0, 0.0, 0.0)
    journal.close()
    (path,) = tmp_path.glob("*.snap")
    flip(path, 40)
    with pytest.raises(JournalDamaged, match="no whole snapshot"):
        Journal.open(tmp_path)


def test_a_journal_that_ends_before_its_snapshot_is_damage(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    fill(journal, 9)
    journal.write_snapshot([b"state"])()
    journal.close()
    (path,) = segments(tmp_path)
    os.truncate(path, boundaries(path)[-3])
    with pytest.raises(JournalDamaged, match="ends before its snapshot"):
        Journal.open(tmp_path)
    journal = Journal.open(tmp_path, accept_damage=True)
    assert journal.next_offset == 6
    assert journal.replay()[0] == b"state"
    assert replayed(journal) == []
    assert journal.append_message(b"new") == 6
    journal.close()


def test_damage_before_the_snapshot_is_found_when_it_is_read(tmp_path: Path) -> None:
    written = written_journal(tmp_path, 40, 200, snapshot=True)
    path = segments(tmp_path)[1]
    base = int(path.name[9:29])
    flip(path, boundaries(path)[1] + 2)
    journal = Journal.open(tmp_path, 200)
    assert journal.read(0) == written[0][2]
    with pytest.raises(JournalDamaged, match=path.name):
        journal.read(base + 2)
    with pytest.raises(JournalDamaged, match=path.name):
        list(journal.scan(0))
    journal.close()


def test_an_empty_newest_segment_is_as_if_it_never_was(tmp_path: Path) -> None:
    written = written_journal(tmp_path, 40, 200)
    (tmp_path / f"{len(segments(tmp_path)) + 1:08d}-{written[-1][1] + 1:020d}.seg").write_bytes(bytes(32))
    (tmp_path / "leftover.seg.tmp").write_bytes(b"half")
    journal = Journal.open(tmp_path, 200)
    assert replayed(journal) == written
    journal.close()
    assert not list(tmp_path.glob("*.tmp"))
