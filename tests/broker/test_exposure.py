"""Files with secrets and journals that others can read are told of, with the command that closes them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from metromq.broker import exposed
from metromq.broker.exposure import is_open
from metromq.city_file import load_city, secret_places
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
    (found,) = exposed(_config(place), [("the city's secret", secret)])
    assert found.what == "the city's secret"


def test_the_key_of_links_and_the_ensembles_password(place: Path) -> None:
    """`{name}` in a path stands for the broker."""
    config = _config(place)
    key, password, file = place / "b0.key", place / "password", place / "city.toml"
    for path in (key, password, place / "ca"):
        path.write_text("")
    tls = f'ca_file = "{place}/ca"\ncert_file = "{place}/ca"\nkey_file = "{place}/{{name}}.key"\n'
    text = CITY.replace('listen = "127.0.0.1:1"', 'listen = "127.0.0.1:1"\nlink_listen = "127.0.0.1:2"') + tls
    file.write_text(text + f'[zookeeper]\nuser = "u"\npassword_file = "{password}"\n')
    key.chmod(0o640)
    password.chmod(0o600)
    assert list(exposed(config, secret_places(load_city(file), file, "b0"))) == []
    key.chmod(0o644)
    password.chmod(0o604)
    found = list(exposed(config, secret_places(load_city(file), file, "b0")))
    assert [(one.what, one.path) for one in found] == [
        ("the private key of links", key),
        ("the ensemble's password", password),
    ]


CITY = """\
name = "test"
routing = "flood-subscriptions"
[[brokers]]
name = "b0"
listen = "127.0.0.1:1"
[links]
"""


@pytest.mark.parametrize("mode", [0o644, 0o600])
def test_the_secret_of_a_city_in_the_citys_own_file(place: Path, mode: int) -> None:
    file = place / "city.toml"
    file.write_text(CITY + 'secret = "a secret for one machine only"\n')
    file.chmod(mode)
    found = list(exposed(_config(place), secret_places(load_city(file), file, "b0")))
    told = [("the city's secret", file, f"chmod o-rwx {file}")] if mode == 0o644 else []
    assert [(one.what, one.path, one.remedy) for one in found] == told


def test_a_citys_file_whose_secret_is_elsewhere_may_be_open(place: Path) -> None:
    file, secret = place / "city.toml", place / "secret"
    file.write_text(CITY)
    from_outside = load_city(file, {"METROMQ_CITY_LINKS__SECRET": "a secret of the environment"})
    assert list(secret_places(from_outside, file, "b0")) == []
    secret.write_text("a secret in its own file")
    file.write_text(CITY + f'secret_file = "{secret}"\n')
    assert list(secret_places(load_city(file), file, "b0")) == [("the city's secret", secret)]


def test_a_preset_has_no_file_to_close(place: Path) -> None:
    file = place / "city.toml"
    file.write_text(CITY + 'secret = "a secret for one machine only"\n')
    assert list(secret_places(load_city(file), place / "geographic", "b0")) == []


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
