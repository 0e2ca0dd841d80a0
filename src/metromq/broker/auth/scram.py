"""The server's side of SCRAM-SHA-256, with the store of its users.

Mosquitto's password hashes cannot serve SCRAM: they are salted SHA-512 of the password alone, while the server needs
the keys that RFC 5802 derives with SHA-256. So SCRAM users have a file of their own, one line per user, in the form
that PostgreSQL uses: `user:SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey`.
`metromq passwd -H scram-sha-256` makes it.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from metromq.broker.auth.passwords import MOST_ITERATIONS, password_lines, read_text
from metromq.client import scram as shared
from metromq.client.scram import LEAST_ITERATIONS, METHOD, ScramError, decode64, encode64
from metromq.errors import ConfigError

# What RFC 7677 and PostgreSQL take; the client, not the broker, pays for it.
DEFAULT_ITERATIONS = 4096
SALT_BYTES = 16
KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """What the server knows of a user: enough to check a proof, not enough to make one."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __str__(self) -> str:
        keys = f"{encode64(self.stored_key)}:{encode64(self.server_key)}"
        return f"{METHOD}${self.iterations}:{encode64(self.salt)}${keys}"


def derive_keys(password: str, salt: bytes, iterations: int = DEFAULT_ITERATIONS) -> ScramKeys:
    salted = shared.salted_password(password, salt, iterations)
    return ScramKeys(iterations, salt, shared.stored_key(shared.client_key(salted)), shared.server_key(salted))


class ScramStore:
    """The users of one SCRAM file."""

    def __init__(self, users: Mapping[str, ScramKeys], secret: bytes) -> None:
        self._users = dict(users)
        self._secret = secret

    def find(self, username: str) -> ScramKeys | None:
        return self._users.get(username)

    def pretend(self, username: str) -> ScramKeys:
        """Keys that no password fits, the same for a name each time, so that a challenge does not tell who exists."""
        salt = hmac.digest(self._secret, username.encode(), "sha256")[:SALT_BYTES]
        return ScramKeys(DEFAULT_ITERATIONS, salt, bytes(KEY_BYTES), bytes(KEY_BYTES))


@dataclass(frozen=True, slots=True)
class Challenge:
    """The exchange between the server's first message and the client's final one."""

    username: str
    known: bool
    keys: ScramKeys
    nonce: str
    gs2_header: str
    spoken: str
    """client-first-message-bare,server-first-message: the beginning of the AuthMessage."""


class ScramServer:
    """Both steps of the server as functions of messages; the nonce is an argument."""

    def __init__(self, store: ScramStore) -> None:
        self._store = store

    def keys_of(self, username: str) -> ScramKeys | None:
        return self._store.find(username)

    def first(self, message: bytes, nonce: str) -> tuple[Challenge, bytes]:
        """The answer to the client's first message; `nonce` is fresh printable randomness without commas."""
        try:
            flag, identity, bare = message.decode("utf-8").split(",", 2)
        except (UnicodeDecodeError, ValueError):
            raise ScramError("the first message is not gs2-header,n=user,r=nonce") from None
        if flag not in ("n", "y"):
            raise ScramError("channel binding is not offered here")
        if identity:
            raise ScramError("acting for another user is not offered here")
        got = shared.fields(bare.encode())
        if list(got)[:2] != ["n", "r"] or not got["r"]:
            raise ScramError("the first message is not n=user,r=nonce")
        username = _unescape(got["n"])
        keys = self._store.find(username)
        known = keys is not None
        keys = keys or self._store.pretend(username)
        answer = f"r={got['r']}{nonce},s={encode64(keys.salt)},i={keys.iterations}"
        challenge = Challenge(username, known, keys, got["r"] + nonce, f"{flag},{identity},", f"{bare},{answer}")
        return challenge, answer.encode()

    def final(self, challenge: Challenge, message: bytes) -> bytes:
        """The server's proof, or a ScramError when the client's does not hold."""
        without_proof, separator, proof = message.rpartition(b",p=")
        got = shared.fields(without_proof)
        if not separator or list(got)[:2] != ["c", "r"]:
            raise ScramError("the final message is not c=,r=,p=")
        if decode64(got["c"]) != challenge.gs2_header.encode() or got["r"] != challenge.nonce:
            raise ScramError("the final message does not belong to this exchange")
        auth_message = f"{challenge.spoken},{without_proof.decode()}"
        keys = challenge.keys
        given = decode64(proof.decode("ascii", "replace"))
        if len(given) != KEY_BYTES:
            raise ScramError("the proof has the wrong length")
        key = shared.xor(given, shared.signature(keys.stored_key, auth_message))
        fits = hmac.compare_digest(hashlib.sha256(key).digest(), keys.stored_key)
        if not fits or not challenge.known:
            raise ScramError("the proof is wrong")
        return f"v={encode64(shared.signature(keys.server_key, auth_message))}".encode()


def parse_scram(text: str, file: str, secret: bytes) -> ScramStore:
    """The users in `text`; `secret` is randomness of this process for the challenges of unknown users."""
    users: dict[str, ScramKeys] = {}
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


def parse_keys(stored: str) -> ScramKeys:
    parts = stored.split("$")
    if len(parts) != 3 or parts[0] != METHOD or ":" not in parts[1] or ":" not in parts[2]:
        raise ValueError(f"the keys are not {METHOD}$iterations:salt$StoredKey:ServerKey; use metromq passwd -H")
    iterations, salt = parts[1].split(":", 1)
    stored_key, server_key = parts[2].split(":", 1)
    if not (iterations.isascii() and iterations.isdigit() and LEAST_ITERATIONS <= int(iterations) <= MOST_ITERATIONS):
        raise ValueError(
            f"the iterations must be a number from {LEAST_ITERATIONS} to {MOST_ITERATIONS}, not {iterations!r}"
        )
    keys = ScramKeys(int(iterations), decode64(salt), decode64(stored_key), decode64(server_key))
    if not keys.salt or len(keys.stored_key) != KEY_BYTES or len(keys.server_key) != KEY_BYTES:
        raise ValueError(f"the keys are not {KEY_BYTES} bytes each")
    return keys


def load_scram(file: Path, secret: bytes) -> ScramStore:
    return parse_scram(read_text(file), str(file), secret)


def _unescape(name: str) -> str:
    if name.replace("=2C", "").replace("=3D", "").count("="):
        raise ScramError("the username holds a bare '='")
    return name.replace("=2C", ",").replace("=3D", "=")
