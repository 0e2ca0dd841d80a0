"""The file of SCRAM's users.

Mosquitto's password hashes cannot serve SCRAM: they are salted SHA-512 of the password alone, while the server needs
the keys that RFC 5802 derives with SHA-256. So SCRAM users have a file of their own, one line per user, in the form
that PostgreSQL uses: `user:SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey`.
`metromq passwd -H scram-sha-256` makes it.
"""

import hmac
from collections.abc import Mapping
from pathlib import Path

from metromq.broker.auth.passwords import password_lines, read_text
from metromq.errors import ConfigError, ScramError
from metromq.protocol import scram

SALT_BYTES = 16


class ScramStore(scram.ScramUsers):
    """The users of one SCRAM file."""

    def __init__(self, users: Mapping[str, scram.ScramKeys], secret: bytes) -> None:
        self._users = dict(users)
        self._secret = secret

    def find(self, username: str) -> scram.ScramKeys | None:
        return self._users.get(username)

    def pretend(self, username: str) -> scram.ScramKeys:
        """Keys that no password fits, the same for a name each time, so that a challenge does not tell who exists."""
        salt = hmac.digest(self._secret, username.encode(), "sha256")[:SALT_BYTES]
        return scram.ScramKeys(scram.DEFAULT_ITERATIONS, salt, bytes(scram.KEY_BYTES), bytes(scram.KEY_BYTES))


def parse_scram(text: str, file: str, secret: bytes) -> ScramStore:
    """The users in `text`; `secret` is randomness of this process for the challenges of unknown users."""
    users: dict[str, scram.ScramKeys] = {}
    problems: list[str] = []
    for number, username, stored in password_lines(text):
        try:
            if username is None:
                raise ValueError("no colon between username and keys")
            if username in users:
                raise ValueError(f"user {username} is already in the file")
            users[username] = parse_keys(stored)
        except (ValueError, ScramError) as error:
            problems.append(f"line {number}: {error}")
    if problems:
        raise ConfigError(file, "; ".join(problems))
    return ScramStore(users, secret)


def parse_keys(stored: str) -> scram.ScramKeys:
    parts = stored.split("$")
    if len(parts) != 3 or parts[0] != scram.METHOD or ":" not in parts[1] or ":" not in parts[2]:
        raise ValueError(f"the keys are not {scram.METHOD}$iterations:salt$StoredKey:ServerKey; use metromq passwd -H")
    iterations, salt = parts[1].split(":", 1)
    stored_key, server_key = parts[2].split(":", 1)
    keys = scram.ScramKeys(
        scram.parse_iterations(iterations), scram.decode64(salt), scram.decode64(stored_key), scram.decode64(server_key)
    )
    if not keys.salt or len(keys.stored_key) != scram.KEY_BYTES or len(keys.server_key) != scram.KEY_BYTES:
        raise ValueError(f"the keys are not {scram.KEY_BYTES} bytes each")
    return keys


def load_scram(file: Path, secret: bytes) -> ScramStore:
    return parse_scram(read_text(file), str(file), secret)
