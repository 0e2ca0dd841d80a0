"""Who must leave when the password files are read again."""

from pathlib import Path

import pytest

from metromq.broker.auth.authenticator import Accept, Credentials, Decision
from metromq.broker.auth.passwords import hash_password
from metromq.broker.file_access import FileAccess
from metromq.broker.peers.city_access import CityAccess
from metromq.config import Auth
from metromq.federation.links.auth import METHOD as LINK
from metromq.protocol.scram import METHOD as SCRAM
from metromq.protocol.scram import derive_keys
from metromq.protocol.session.access import Peer

ANYONE = Peer("10.0.0.1:5", True)


class Files:
    def __init__(self, directory: Path) -> None:
        self.auth = Auth(password_file=directory / "passwords", scram_file=directory / "scram")
        self.write(ann="a", bob="b")

    def write(self, **users: str) -> None:
        assert self.auth.password_file is not None
        assert self.auth.scram_file is not None
        lines = [f"{name}:{hash_password(word.encode(), name.encode(), 101)}\n" for name, word in users.items()]
        keys = [f"{name}:{derive_keys(word, name.encode())}\n" for name, word in users.items()]
        self.auth.password_file.write_text("".join(lines))
        self.auth.scram_file.write_text("".join(keys))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.mark.parametrize("method", [None, SCRAM])
def test_who_was_removed_or_has_another_password_must_go(files: Files, method: str | None) -> None:
    access = FileAccess(files.auth)
    access.reload()
    assert not access.expels(ANYONE, method, "ann")
    files.write(ann="a", cat="c")
    access.reload()
    assert [access.expels(ANYONE, method, name) for name in ("ann", "bob")] == [False, True]
    files.write(ann="another", cat="c")
    access.reload()
    assert [access.expels(ANYONE, method, name) for name in ("ann", "cat")] == [True, False]


def test_certificates_and_anonymous_clients_stay(files: Files) -> None:
    access = FileAccess(files.auth)
    files.write()
    access.reload()
    assert not access.expels(Peer("10.0.0.1:5", False, "ann"), None, "ann")
    assert not access.expels(ANYONE, None, "")


def test_whoever_is_still_being_asked_asks_again(files: Files) -> None:
    """The old files may be about to say yes."""
    access = CityAccess(files.auth, None, None)
    access.reload()
    assert access.expels(ANYONE, None, None)
    assert access.expels(ANYONE, SCRAM, None)
    assert not access.expels(ANYONE, LINK, None)


def test_a_programs_own_authenticator_is_not_second_guessed(files: Files) -> None:
    class Own:
        def connect(self, request: Credentials) -> Decision:
            return Accept("ann")

        def auth(self, state: object, data: bytes) -> Decision:
            return Accept("ann")

    access = FileAccess(files.auth, Own())
    files.write()
    access.reload()
    assert not access.expels(ANYONE, None, "ann")
    assert not access.expels(ANYONE, None, None)
