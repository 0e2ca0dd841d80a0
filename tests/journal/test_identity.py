"""A journal's name: the same for ever, another one in another journal."""

from pathlib import Path

from metromq.journal.identity import NAME, read_id
from metromq.journal.journal import Journal


def opened(directory: Path, messages: int = 0) -> str:
    journal = Journal.open(directory)
    for _ in range(messages):
        journal.append_message(b"x")
    journal.close()
    return journal.name


def test_a_journal_keeps_its_name_and_a_new_one_gets_another(tmp_path: Path) -> None:
    name = opened(tmp_path / "journal", 1)
    assert len(name) == 14
    assert int(name, 16) > 0
    assert opened(tmp_path / "journal") == name == read_id(tmp_path / "journal")
    (tmp_path / "journal").rename(tmp_path / "old")
    assert opened(tmp_path / "journal") != name
    assert read_id(tmp_path / "old") == name


def test_a_name_beside_the_journal_is_taken_over_with_its_records(tmp_path: Path) -> None:
    """As brokers of cities wrote it before."""
    directory = tmp_path / "journal"
    opened(directory, 1)
    (directory / NAME).unlink()
    (tmp_path / NAME).write_text("abc\n")
    assert read_id(directory) == "abc"
    assert opened(directory) == "abc"
    assert not (tmp_path / NAME).exists()


def test_a_name_beside_an_empty_directory_is_another_journals(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("abc")
    assert opened(tmp_path / "journal") != "abc"


def test_an_empty_file_is_no_name(tmp_path: Path) -> None:
    opened(tmp_path / "journal", 1)
    (tmp_path / "journal" / NAME).write_text("")
    assert read_id(tmp_path / "journal") == ""
    assert opened(tmp_path / "journal") == read_id(tmp_path / "journal") != ""
