"""Files with secrets and journals that others can read are told of, with the command that closes them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from metromq.broker import exposed
from metromq.broker.exposure import is_open
from metromq.config import Auth, Config, Listener
from metromq.telemetry import TelemetryWindow, spool_window
from tests.peers import open_directory


@pytest.fixture
def place() -> Iterator[Path]:
    with open_directory() as directory:
        yield directory


def _config(directory: Path) -> Config:
    for name in ("passwords", "scram", "acl", "key"):
        (directory / name).write_text("")
        (directory / name).chmod(0o640)
    for name in ("journal", "telemetry"):
        (directory / "data" / name).mkdir(parents=True, mode=0o700)
    auth = Auth(directory / "passwords", directory / "scram", directory / "acl")
    listener = Listener("tls", cert_file=directory / "key", key_file=directory / "key")
    return replace(Config(), data_dir=directory / "data", auth=auth, listeners=(listener,))


@pytest.mark.parametrize(
    ("name", "mode", "what"),
    [
        ("passwords", 0o644, "the password file"),
        ("scram", 0o604, "the SCRAM file"),
        ("acl", 0o666, "the ACL file"),
        ("key", 0o444, "a private key"),
        ("data/journal", 0o755, "the journal in the data directory"),
        ("data/telemetry", 0o711, "the telemetry in the data directory"),
    ],
)
def test_each_is_told_with_its_remedy(place: Path, name: str, mode: int, what: str) -> None:
    config = _config(place)
    assert list(exposed(config)) == []
    path = place / name
    path.chmod(mode)
    (found,) = exposed(config)
    assert (found.what, found.path) == (what, path)
    assert found.remedy == f"chmod {'-R ' if path.is_dir() else ''}o-rwx {path}"


def test_what_the_broker_makes_itself_is_not_open(place: Path) -> None:
    data = place / "data"
    data.mkdir(mode=0o755)  # by `metromq up`, which keeps a log there
    spool_window(data, TelemetryWindow("b1", "north", 1, 1.0, 1, ()))
    assert list(exposed(replace(Config(), data_dir=data))) == []


def test_the_secret_of_a_city(place: Path) -> None:
    secret = place / "secret"
    secret.write_text("")
    secret.chmod(0o644)
    (found,) = exposed(_config(place), secret)
    assert found.what == "the city's secret"


def test_what_nobody_can_reach_is_not_open(place: Path) -> None:
    inner = place / "closed" / "file"
    inner.parent.mkdir(mode=0o700)
    inner.write_text("")
    inner.chmod(0o644)
    assert not is_open(inner)
    inner.parent.chmod(0o711)
    assert is_open(inner)
    assert not is_open(place / "missing")


@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_a_link_is_as_open_as_what_it_leads_to(place: Path, mode: int) -> None:
    secret, link = place / "there" / "secret", place / "link"
    secret.parent.mkdir()
    secret.write_text("")
    secret.chmod(0o644)
    secret.parent.chmod(mode)
    link.symlink_to(secret)
    assert is_open(link) is (mode == 0o755)
