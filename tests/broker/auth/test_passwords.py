"""Mosquitto's password file: known hashes, every kind of wrong line, and no hint about who exists."""

import sys

import pytest

from metromq.broker.auth.passwords import (
    PasswordFile,
    PasswordHash,
    check_username,
    hash_argon2,
    hash_password,
    parse_hash,
    parse_passwords,
)
from metromq.errors import ConfigError, UsageError

# Made by mosquitto_passwd 2.0.11.
MADE_BY_MOSQUITTO = """\
# staff
a:$7$101$EMIjCbT8C8wOVzj4$CuDOIP+VQI2oZaJksmU/cWP70g5LSYtUwVgzyoj6sO+IyzZdJGeRIt3E3GMJ4fpEsGwSjkyn8RfPW7b5FHX2ig==
b:$7$101$EUxPEnpIyKB7fqUT$Z7hOyrsIEwCpGkZkk1pK7AjndEXi5a3GoB12fvVyDFv5QTyZLnaL12rScAGM/6orAAs0nqUrGxhuiPmlpwiO+Q==

c:$6$FdMzvSdGb+UFMvBX$rUCl6YCla4cCLzG90kLsKrB8lCXlvAKyE2MRh0w+J9aXlOiesMGyyrUqLrkVh2qSpoQA/mmrl654UdteSQI40A==
"""


@pytest.mark.parametrize(
    ("username", "password", "fits"),
    [
        ("a", b"secret", True),
        ("a", b"Secret", False),
        ("a", b"", False),
        ("a", None, False),
        ("b", b"", True),
        ("b", None, False),
        ("c", b"x", True),
        ("c", b"y", False),
        ("nobody", b"secret", False),
        ("", b"", False),
    ],
)
def test_hashes_of_mosquitto(username: str, password: bytes | None, fits: bool) -> None:
    assert parse_passwords(MADE_BY_MOSQUITTO, "pw").check(username, password) is fits


@pytest.mark.parametrize("iterations", [0, 1, 101, 1000])
def test_a_hash_survives_its_text(iterations: int) -> None:
    made = hash_password("påss".encode(), b"0123456789ab", iterations)
    read = parse_hash(str(made))
    assert read == made
    assert read.fits("påss".encode())
    assert not read.fits(b"pass")


# From the tests of the reference implementation: the password is "password".
ARGON2 = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc"


def test_argon2_as_newer_versions_of_mosquitto_write_it() -> None:
    file = parse_passwords(f"new:{ARGON2}\nold:{hash_password(b'x', b'salt')}", "pw")
    assert file.is_slow
    assert file.check("new", b"password")
    assert file.check("old", b"x")
    for username, password in (("new", b"Password"), ("new", None), ("old", b"password"), ("nobody", b"password")):
        assert not file.check(username, password)
    made = hash_argon2(b"secret", b"0123456789ab")
    assert str(made).startswith("$argon2id$v=19$m=47104,t=1,p=1$")
    assert parse_hash(str(made)) == made
    assert made.fits(b"secret")


@pytest.mark.parametrize(
    ("iterations", "is_slow"), [(0, False), (101, False), (5_000, False), (5_001, True), (1_000_000, True)]
)
def test_what_takes_long_says_so(iterations: int, is_slow: bool) -> None:
    quick = hash_password(b"x", b"salt", 101)
    assert PasswordFile({"a": quick, "b": PasswordHash(iterations, b"salt", bytes(64))}).is_slow is is_slow


@pytest.mark.parametrize(
    ("stored", "problem"),
    [
        ("$argon2id$v=19$m=65536,t=2$c29tZXNhbHQ$CTFh", "is incomplete"),
        (ARGON2.replace("argon2id", "argon2i"), "only the argon2id kind"),
        (ARGON2.replace("m=65536", "m=99999999"), "KiB of memory"),
    ],
)
def test_argon2_that_cannot_be_used(stored: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_hash(stored)


def test_without_its_library_argon2_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "argon2", None)
    with pytest.raises(ValueError, match=r"pip install 'metromq\[argon2\]'"):
        parse_hash(ARGON2)
    with pytest.raises(UsageError, match=r"pip install 'metromq\[argon2\]'"):
        hash_argon2(b"x", b"0123456789ab")


def test_every_wrong_line_is_told() -> None:
    digest = "A" * 86 + "=="
    text = "\n".join(
        [
            f"good:$7$101$c2FsdA==${digest}",
            "nocolon",
            "plain:secret",
            f"x:$7$0$c2FsdA==${digest}",
            f"y:$7$101$!!!${digest}",
            "z:$7$101$c2FsdA==$c2hvcnQ=",
            "v:$argon2id$v=19$m=1,t=1,p=1$x$y",
            "w:$9$x$y",
            f"good:$6$c2FsdA==${digest}",
        ]
    )
    with pytest.raises(ConfigError) as raised:
        parse_passwords(text, "/etc/pw")
    said = str(raised.value)
    assert said.startswith("/etc/pw: line 2: no colon")
    for part in (
        "line 3: user plain: the password is not hashed; convert the file with metromq passwd -U",
        "line 4: user x: the iterations must be a number from 1 to",
        "line 5: user y: the salt or hash is not base64",
        "line 6: user z: the hash has 5 bytes instead of 64",
        "line 7: user v: the argon2 hash is incomplete",
        "line 8: user w: the hash is not $7$",
        "line 9: user good is already in the file",
    ):
        assert part in said
    assert "line 1" not in said


def test_an_unknown_user_costs_a_hash_too(monkeypatch: pytest.MonkeyPatch) -> None:
    import hashlib

    rounds: list[int] = []
    genuine = hashlib.pbkdf2_hmac

    def counting(name: str, password: bytes, salt: bytes, iterations: int, size: int) -> bytes:
        rounds.append(iterations)
        return genuine(name, password, salt, iterations, size)

    file = PasswordFile({"a": hash_password(b"x", b"salt", 500)})
    monkeypatch.setattr(hashlib, "pbkdf2_hmac", counting)
    file.check("a", b"y")
    file.check("nobody", b"y")
    assert rounds == [500, 500]


@pytest.mark.parametrize("name", ["", "a:b", " a", "a\n", "#a", "x" * 70000])
def test_names_that_a_file_cannot_hold(name: str) -> None:
    with pytest.raises(UsageError, match="username"):
        check_username(name)
