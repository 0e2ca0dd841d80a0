"""`metromq passwd`: creates, changes, deletes, converts, and touches nothing else in the file."""

import os
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from metromq.broker.auth import load_passwords, load_scram
from metromq.cli.passwd import command
from metromq.errors import UsageError
from tests.peers import require


def passwd(*arguments: str | Path, keys: str | None = None) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments], input=keys)


def test_create_change_delete(tmp_path: Path) -> None:
    file = tmp_path / "pw"
    assert passwd("-c", "-b", file, "alice", "one").exit_code == 0
    assert file.stat().st_mode & 0o077 == 0, "only the owner may read passwords"
    assert passwd("-b", file, "bob", "two", "-H", "sha512").exit_code == 0
    assert passwd("-b", file, "alice", "three", "-I", "5000").exit_code == 0
    users = load_passwords(file)
    assert users.check("alice", b"three")
    assert not users.check("alice", b"one")
    assert users.check("bob", b"two")
    assert [users.users[name].cost for name in ("alice", "bob")] == [5000, 0]
    assert passwd("-b", file, "bob", "secret", "-H", "argon2id").exit_code == 0
    assert load_passwords(file).check("bob", b"secret")
    assert passwd("-D", file, "alice").exit_code == 0
    assert list(load_passwords(file).users) == ["bob"]
    assert passwd("-c", "-b", file, "carol", "four").exit_code == 0
    assert list(load_passwords(file).users) == ["carol"]


def test_other_lines_stay_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "pw"
    file.write_text("# staff\n\n#alice:comment\nzoe:$6$x$y\n")
    file.chmod(0o640)
    assert passwd("-b", file, "alice", "pw").exit_code == 0
    lines = file.read_text().splitlines()
    assert lines[:4] == ["# staff", "", "#alice:comment", "zoe:$6$x$y"]
    assert lines[4].startswith("alice:$7$1000$")
    assert file.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [file]


def test_asked_password(tmp_path: Path) -> None:
    file = tmp_path / "pw"
    assert passwd("-c", file, "alice", keys="secret\nsecret\n").exit_code == 0
    assert load_passwords(file).check("alice", b"secret")
    assert passwd(file, "alice", keys="a\nb\n").exit_code != 0  # never the same twice


def test_upgrade_of_a_plain_file(tmp_path: Path) -> None:
    file = tmp_path / "pw"
    file.write_text("# plain\nalice:pass:word\nbob:two\n")
    assert passwd("-b", file, "carol", "three").exit_code == 0
    before = file.read_text().splitlines()[3]
    assert passwd("-U", file).exit_code == 0
    users = load_passwords(file)
    assert users.check("alice", b"pass:word")
    assert users.check("bob", b"two")
    assert file.read_text().splitlines()[3] == before, "what is hashed stays"
    file.write_text("nocolon\n")
    with pytest.raises(UsageError, match="line 1: no colon"):
        raise_of(passwd("-U", file))


def test_scram_store(tmp_path: Path) -> None:
    file = tmp_path / "scram"
    assert passwd("-c", "-b", "-H", "scram-sha-256", file, "alice", "pencil").exit_code == 0
    assert load_scram(file, b"").find("alice") is not None
    with pytest.raises(UsageError, match="at least 4096"):
        raise_of(passwd("-b", "-H", "scram-sha-256", "-I", "10", file, "alice", "pencil"))


def raise_of(result: Result) -> None:
    assert result.exception is not None
    raise result.exception


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["-c", "-D", "FILE", "u"], "only one of -c, -D and -U"),
        (["FILE"], "the username is missing"),
        (["-U", "FILE", "u"], "-U takes only the file"),
        (["-b", "FILE", "u"], "-b and a password must be given together"),
        (["FILE", "u", "p"], "-b and a password must be given together"),
        (["-b", "FILE", "a:b", "p"], "without ':'"),
        (["-D", "FILE", "nobody"], "has no user nobody"),
        (["-b", "MISSING", "u", "p"], "there is no file .* create it with -c"),
        (["-c", "-b", "MISSING/x", "u", "p"], "cannot be written"),
    ],
)
def test_wrong_usage(tmp_path: Path, arguments: list[str], problem: str) -> None:
    (tmp_path / "FILE").write_text("")
    places = {"FILE": tmp_path / "FILE", "MISSING": tmp_path / "none", "MISSING/x": tmp_path / "none" / "x"}
    with pytest.raises(UsageError, match=problem):
        raise_of(passwd(*(places.get(argument, argument) for argument in arguments)))


def test_mosquitto_passwd_goes_on_with_our_file(tmp_path: Path) -> None:
    program = require("mosquitto_passwd")
    file = tmp_path / "pw"
    passwd("-c", "-b", file, "alice", "one")
    subprocess.run([program, "-b", str(file), "bob", "two"], check=True)
    subprocess.run([program, "-b", str(file), "alice", "three"], check=True)
    users = load_passwords(file)
    assert users.check("alice", b"three")
    assert users.check("bob", b"two")


def test_a_file_that_is_made_anew_is_for_its_owner_only(tmp_path: Path) -> None:
    file = tmp_path / "pw"
    file.write_text("old:x\n")
    file.chmod(0o644)
    done = passwd("-c", "-b", file, "alice", "pw")
    assert done.exit_code == 0
    assert "chmod" not in done.output
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_file_that_others_can_read_is_told_of(tmp_path: Path) -> None:
    """Its mode stays: the broker may be one of the others."""
    file = tmp_path / "pw"
    assert passwd("-c", "-b", file, "alice", "pw").exit_code == 0
    file.chmod(0o644)
    done = passwd("-b", file, "bob", "pw")
    assert f"chmod o-rwx {file}" in done.output
    assert file.stat().st_mode & 0o777 == 0o644


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")
def test_the_owner_stays(tmp_path: Path) -> None:
    file = tmp_path / "pw"
    assert passwd("-c", "-b", file, "alice", "pw").exit_code == 0
    os.chown(file, 12345, 54321)
    for arguments in (("-b", file, "bob", "pw"), ("-c", "-b", file, "carol", "pw"), ("-D", file, "carol")):
        assert passwd(*arguments).exit_code == 0
        assert (file.stat().st_uid, file.stat().st_gid) == (12345, 54321)


def test_an_owner_that_cannot_be_kept_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "pw"
    assert passwd("-c", "-b", file, "alice", "pw").exit_code == 0

    def refuse(descriptor: int, user: int, group: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    real = os.fstat
    monkeypatch.setattr(os, "fchown", refuse)
    monkeypatch.setattr(os, "fstat", lambda fd: os.stat_result((*real(fd)[:4], 4321, *real(fd)[5:])))
    done = passwd("-b", file, "bob", "pw")
    assert isinstance(done.exception, UsageError)
    assert "only that user or root can keep" in str(done.exception)
    assert list(load_passwords(file).users) == ["alice"]
