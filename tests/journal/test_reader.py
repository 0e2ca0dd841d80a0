"""The reader in another process: against the writer, against a list, and against what retention and damage leave."""

import struct
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.errors import JournalDamaged, JournalError, OffsetsGone
from metromq.journal import Journal, JournalReader
from tests.journal.slow import ListJournal, boundaries, fill, messages_of, segments


def test_nothing_there_yet(tmp_path: Path) -> None:
    reader = JournalReader(tmp_path / "not yet")
    assert reader.bounds() == (0, 0)
    assert reader.read(0, 10) == []
    journal = Journal.open(tmp_path / "not yet")
    assert reader.bounds() == (0, 0)
    journal.append_message(b"first")
    journal.flush()
    assert reader.bounds() == (0, 1)
    assert reader.read(0, 10) == [(0, b"first")]
    journal.close()
    reader.close()


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.sampled_from(["message", "control", "flush", "read", "jump", "snapshot", "retain"]), max_size=60),
    st.sampled_from([100, 400, 1 << 20]),
    st.integers(1, 7),
)
def test_a_follower_sees_what_a_list_has(
    tmp_path_factory: pytest.TempPathFactory, actions: list[str], segment_bytes: int, limit: int
) -> None:
    directory = tmp_path_factory.mktemp("journal")
    journal = Journal.open(directory, segment_bytes)
    reader, twin, at, first = JournalReader(directory), ListJournal(), 0, 0
    for number, action in enumerate(actions):
        match action:
            case "message":
                body = b"%d" % number * (number % 13)
                assert journal.append_message(body) == twin.append_message(body)
            case "control":
                journal.append(4, b"control")
            case "flush":
                journal.flush()
                twin.flush()
            case "snapshot":
                journal.write_snapshot([b"state"])()
                twin.flush()
            case "retain":
                journal.remove_before(at, 0, 0.0, 0.0)
                first = journal.first_offset
            case "jump":
                at = first
            case _:
                found = reader.read(at, limit)
                assert found == twin.messages()[at : at + limit]
                block = bodies_of(reader.read_block(at, limit, 1 << 20))
                assert block == [body for _, body in found][: len(block)]
                assert bool(block) == bool(found)
                at += len(found)
        messages = twin.messages()
        assert reader.bounds() == (first, len(messages))
    assert reader.read(first, 10**6) == twin.messages()[first:]
    journal.abandon()
    reader.close()


def bodies_of(block: tuple[bytes, bytes, int]) -> list[bytes]:
    lengths, joined, count = block
    sizes = struct.unpack(f"<{count}I", lengths)
    ends = list(accumulate(sizes))
    assert len(joined) == sum(sizes)
    return [joined[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def read_blocks(reader: JournalReader, position: int) -> None:
    while count := reader.read_block(position, 23, 1000)[2]:
        position += count


def test_blocks_reach_over_everything_that_a_read_does(tmp_path: Path) -> None:
    """Segments, other records between messages, a gap after a power cut, bytes that were damaged."""
    journal = Journal.open(tmp_path, 2000)
    for number in range(300):
        journal.append_message(b"%d" % number * (number % 40))
        if number % 7 == 0:
            journal.append(4, b"control")
        if number % 50 == 0:
            journal.flush()
    journal.close()
    reader = JournalReader(tmp_path)
    for room in (1, 100, 1 << 20):
        found: list[bytes] = []
        while len(found) < 300:
            found += bodies_of(reader.read_block(len(found), 23, room))
        assert found == [b"%d" % number * (number % 40) for number in range(300)]
    assert reader.read_block(300, 10, 1000) == (b"", b"", 0)
    path = segments(tmp_path)[1]
    data = bytearray(path.read_bytes())
    data[boundaries(path)[3] + 20] ^= 1
    path.write_bytes(data)
    first = int(path.name.split("-")[1].removesuffix(".seg"))
    with pytest.raises(JournalDamaged):
        read_blocks(reader, first)
    reader.close()


def test_half_a_record_is_not_there_yet(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    fill(journal, 10)
    journal.close()
    (path,) = segments(tmp_path)
    data, places = path.read_bytes(), boundaries(path)
    reader = JournalReader(tmp_path)
    for cut in range(32, len(data) + 1):
        path.write_bytes(data[:cut])
        kinds = [data[place + 4] for place, end in pairwise(places) if end <= cut]
        assert reader.bounds() == (0, kinds.count(1))
        assert len(reader.read(0, 100)) == kinds.count(1)
    reader.close()


def test_a_read_stops_at_its_limits(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    for _ in range(20):
        journal.append_message(b"x" * 100)
    journal.flush()
    reader = JournalReader(tmp_path)
    assert [offset for offset, _ in reader.read(3, 4)] == [3, 4, 5, 6]
    assert len(reader.read(0, 100, max_bytes=250)) == 3
    assert reader.read(0, 0) == []
    assert reader.read(20, 5) == []
    assert reader.read(21, 5) == []
    journal.close()
    reader.close()


def test_removed_offsets_are_named(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, segment_bytes=200)
    fill(journal, 60)
    journal.sync()
    journal.write_snapshot([b"state"])()
    reader = JournalReader(tmp_path)
    assert reader.bounds()[0] == 0
    journal.remove_before(20, 0, 0.0, 0.0)
    first = journal.first_offset
    assert 0 < first <= 20
    with pytest.raises(OffsetsGone, match=f"offsets 3 to {first - 1} are gone") as caught:
        reader.read(3, 10)
    assert caught.value.first == first
    assert reader.read(first, 1) == [(first, journal.read(first))]
    assert reader.bounds() == (first, journal.next_offset)
    journal.close()
    reader.close()


def test_damage_is_reported_by_name_and_accepted_gaps_are_named(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, segment_bytes=200)
    written = fill(journal, 60)
    journal.close()
    path = segments(tmp_path)[2]
    base, following = (int(segments(tmp_path)[index].name[9:29]) for index in (2, 3))
    data = bytearray(path.read_bytes())
    data[boundaries(path)[1] + 4] ^= 1
    path.write_bytes(data)
    reader = JournalReader(tmp_path)
    with pytest.raises(JournalDamaged, match=path.name):
        reader.read(0, 1000)
    assert reader.read(0, base) == messages_of(written)[:base]
    Journal.open(tmp_path, 200, accept_damage=True).close()
    found = reader.read(0, 1000)
    assert found == messages_of(written)[: len(found)]
    assert base <= len(found) < following
    with pytest.raises(OffsetsGone, match="lost to damage") as caught:
        reader.read(len(found), 10)
    assert caught.value.first == following
    assert reader.read(following, 1000) == messages_of(written)[following:]
    reader.close()


def test_a_hole_between_segments_is_an_error(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, segment_bytes=200)
    fill(journal, 60)
    journal.close()
    segments(tmp_path)[2].unlink()
    with pytest.raises(JournalError, match="missing"):
        JournalReader(tmp_path).bounds()


def test_a_new_journal_in_the_same_place_is_noticed(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, segment_bytes=200)
    fill(journal, 60)
    journal.close()
    reader = JournalReader(tmp_path)
    assert reader.bounds()[1] == 40
    for path in tmp_path.iterdir():
        path.unlink()
    assert reader.bounds() == (0, 0)
    journal = Journal.open(tmp_path)
    journal.append_message(b"new")
    journal.flush()
    assert reader.read(0, 5) == [(0, b"new")]
    journal.close()
    reader.close()
