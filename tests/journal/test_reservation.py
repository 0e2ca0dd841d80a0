"""Offsets across power cuts: none is given twice, even when the kernel lost what the journal had written."""

from pathlib import Path

import pytest

from metromq.errors import OffsetsGone
from metromq.journal import reservation
from metromq.journal.journal import Journal
from metromq.journal.reader import JournalReader

BLOCK = 100


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservation, "BLOCK", BLOCK)


@pytest.fixture
def boots(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The system's boot is the last of these."""
    names = ["first"]
    monkeypatch.setattr(reservation, "boot", lambda: names[-1])
    return names


def _write(journal: Journal, count: int) -> list[int]:
    offsets = [journal.append_message(b"%d" % journal.next_offset) for _ in range(count)]
    journal.flush()
    return offsets


def _lose_tail(directory: Path, keep_bytes: int) -> None:
    """What a power cut does to a file that nobody synced."""
    newest = max(directory.glob("*.seg"))
    with open(newest, "r+b") as file:
        file.truncate(keep_bytes)


def _power_cut(directory: Path, boots: list[str], name: str = "second") -> None:
    """Ten messages are written; a peer may have them all, but the disk has only five."""
    journal = Journal.open(directory)
    _write(journal, 5)
    size = max(directory.glob("*.seg")).stat().st_size
    _write(journal, 5)
    journal.abandon()
    _lose_tail(directory, size)
    boots.append(name)


def test_after_a_power_cut_no_offset_is_given_again(tmp_path: Path, boots: list[str]) -> None:
    _power_cut(tmp_path, boots)
    journal = Journal.open(tmp_path)
    assert _write(journal, 3) == [BLOCK, BLOCK + 1, BLOCK + 2]
    assert [journal.read(offset) for offset in (4, BLOCK)] == [b"4", b"%d" % BLOCK]
    with pytest.raises(OffsetsGone, match="power cut") as gone:
        journal.read(5)
    assert (gone.value.first, gone.value.unused) == (BLOCK, True)
    assert [offset for _, offset, _ in journal.scan(3)] == [3, 4, BLOCK, BLOCK + 1, BLOCK + 2]
    journal.close()
    boots.append("third")
    journal = Journal.open(tmp_path)  # closed well: nothing more is left out
    assert _write(journal, 1) == [BLOCK + 3]
    assert [offset for _, offset, _ in journal.scan(0)] == [*range(5), *range(BLOCK, BLOCK + 4)]
    journal.close()


def test_two_power_cuts_in_a_row(tmp_path: Path, boots: list[str]) -> None:
    _power_cut(tmp_path, boots)
    Journal.open(tmp_path).abandon()  # nothing was given out in this boot
    _power_cut(tmp_path, boots, "third")
    journal = Journal.open(tmp_path)
    assert _write(journal, 1) == [2 * BLOCK]
    journal.close()


def test_the_end_of_the_process_alone_leaves_nothing_out(tmp_path: Path, boots: list[str]) -> None:
    journal = Journal.open(tmp_path)
    _write(journal, 5)
    journal.abandon()
    journal = Journal.open(tmp_path)
    assert _write(journal, 1) == [5]
    journal.close()


def test_more_offsets_are_reserved_before_they_are_given(tmp_path: Path, boots: list[str]) -> None:
    journal = Journal.open(tmp_path)
    for _ in range(3):
        _write(journal, BLOCK)
        (_, number) = (tmp_path / reservation.NAME).read_text().split()
        assert int(number) >= journal.next_offset
    journal.abandon()
    boots.append("second")
    journal = Journal.open(tmp_path)
    assert journal.next_offset == 3 * BLOCK  # all is there, and all that was reserved is used
    journal.close()


def test_a_reader_is_told_that_nothing_is_missing(tmp_path: Path, boots: list[str]) -> None:
    _power_cut(tmp_path, boots)
    journal = Journal.open(tmp_path)
    _write(journal, 2)
    for reader in (JournalReader(tmp_path), JournalReader(tmp_path)):
        assert [offset for offset, _ in reader.read(0, 100)] == list(range(5))
        with pytest.raises(OffsetsGone) as gone:
            reader.read(5, 100)
        assert (gone.value.first, gone.value.unused) == (BLOCK, True)
        assert [offset for offset, _ in reader.read(BLOCK, 100)] == [BLOCK, BLOCK + 1]
        reader.close()
    journal.close()


@pytest.mark.parametrize("text", ["", "nonsense", "other x", "other -5"])
def test_a_strange_file_is_ignored(tmp_path: Path, boots: list[str], text: str) -> None:
    journal = Journal.open(tmp_path)
    _write(journal, 2)
    journal.abandon()
    (tmp_path / reservation.NAME).write_text(text)
    journal = Journal.open(tmp_path)
    assert journal.next_offset == 2
    journal.close()


def test_no_room_for_the_reservation_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(directory: Path, offset: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(reservation, "_write", full)
    journal = Journal.open(tmp_path)
    assert _write(journal, 3) == [0, 1, 2]
    journal.close()


def test_the_boot_has_a_name() -> None:
    assert reservation.boot() == reservation.boot() != ""
