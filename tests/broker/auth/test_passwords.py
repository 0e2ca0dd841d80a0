"""Mosquitto's password file: known hashes, every kind of wrong line, and no hint about who exists."""

import pytest

from metromq.broker.auth.passwords import (
    PasswordFile,
    check_username,
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
        "line 4: user x: the iterations '0'",
        "line 5: user y: the salt or hash is not base64",
        "line 6: user z: the hash has 5 bytes instead of 64",
        "line 7: user v: argon2 hashes are not supported",
        "line 8: user w: the hash is neither",
        "line 9: user good was there before",
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
