"""Files are whole or not there: for readers meanwhile, after a failure, and after a machine lost power."""

import os
import re
import stat
from pathlib import Path

import pytest

import metromq
from metromq.files import replace_file, replacing, sync_directory


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What the kernel is asked for, in order."""
    noted: list[tuple[str, str]] = []
    sync, replace = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        found = os.readlink(f"/proc/self/fd/{descriptor}")
        kind = "directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        noted.append((f"sync {kind}", str(os.fstat(descriptor).st_size) if kind == "file" else found))
        sync(descriptor)

    def put(source: Path, target: Path) -> None:
        noted.append(("replace", str(target)))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", put)
    return noted


def test_the_file_is_synced_before_it_is_seen_and_its_name_after(tmp_path: Path, calls: list[tuple[str, str]]) -> None:
    replace_file(tmp_path / "a", b"12345")
    assert calls == [("sync file", "5"), ("replace", str(tmp_path / "a")), ("sync directory", str(tmp_path))]
    calls.clear()
    replace_file(tmp_path / "a", "again", durable=False)
    assert calls == [("replace", str(tmp_path / "a"))]
    assert (tmp_path / "a").read_text() == "again"


def test_a_reader_sees_the_old_file_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    with replacing(path) as file:
        file.write(b"ne")
        file.flush()
        assert path.read_text() == "old"
        assert list(tmp_path.glob("[!.]*")) == [path]  # the unfinished one is hidden
        assert [other.suffix for other in tmp_path.iterdir() if other != path] == [".tmp"]
        file.write(b"w")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), ValueError("ours")])
def test_a_failure_leaves_the_old_file_and_no_trace(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "a"
    path.write_text("old")

    def write() -> None:
        with replacing(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(type(error)):
        write()
    assert [(other.name, other.read_text()) for other in tmp_path.iterdir()] == [("a", "old")]


def test_a_sync_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_text("old")

    def fails(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="Input/output"):
        replace_file(path, b"new")
    assert [(other.name, other.read_text()) for other in tmp_path.iterdir()] == [("a", "old")]


def test_secrets_are_closed_to_others_from_the_first_byte_on(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("readable")
    path.chmod(0o644)
    with replacing(path, mode=0o600) as file:
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_two_writers_at_once_do_not_meet(tmp_path: Path) -> None:
    with replacing(tmp_path / "a") as one, replacing(tmp_path / "a") as other:
        one.write(b"one")
        other.write(b"other")
    assert (tmp_path / "a").read_bytes() == b"one"  # whoever ends last


def test_only_a_directory_can_be_synced_as_one(tmp_path: Path) -> None:
    sync_directory(tmp_path)
    with pytest.raises(FileNotFoundError):
        sync_directory(tmp_path / "gone")


def test_nobody_puts_files_in_place_by_hand() -> None:
    """One way to write a file whole."""
    root = Path(metromq.__file__).parent
    by_hand = re.compile(r"\bos\.(replace|rename)\(")
    found = {str(path.relative_to(root)) for path in root.rglob("*.py") if by_hand.search(path.read_text())}
    assert found == {"files.py"}
