"""SCRAM-SHA-256 (RFC 5802, RFC 7677), both sides, without I/O: nonces and salts are arguments."""

import base64
import binascii
import hashlib
import hmac
import stringprep
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mypy_extensions import mypyc_attr

from metromq.errors import ScramError, UsageError

METHOD: Final = "SCRAM-SHA-256"
# No channel binding: the GS2 header of a client that does not support it.
GS2_HEADER: Final = "n,,"
LEAST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 10_000_000  # seconds of work; more is an attack on whoever has to do it
# What RFC 7677 and PostgreSQL take; the client, not the broker, pays for it.
DEFAULT_ITERATIONS: Final = 4096
KEY_BYTES: Final = 32


@dataclass(frozen=True)
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
    """What a server stores for a password; `salt` should be fresh randomness."""
    salted = _salted(password, salt, iterations)
    return ScramKeys(iterations, salt, _stored_key(_client_key(salted)), _server_key(salted))


@mypyc_attr(allow_interpreted_subclasses=True)
class ScramUsers:
    """Whom a server knows; the shell has them in a file."""

    def find(self, username: str) -> ScramKeys | None:
        return None

    def pretend(self, username: str) -> ScramKeys:
        """Keys that no password fits, the same for a name each time, so that a challenge does not tell who exists."""
        raise NotImplementedError


@dataclass(frozen=True)
class Challenge:
    """The exchange between the server's first message and the client's final one."""

    username: str
    known: bool
    keys: ScramKeys
    nonce: str
    gs2_header: str
    spoken: str  # client-first-message-bare,server-first-message: the beginning of the AuthMessage


class ScramServer:
    """Both steps of the server as functions of messages; the nonce is an argument."""

    def __init__(self, users: ScramUsers) -> None:
        self._users = users

    def keys_of(self, username: str) -> ScramKeys | None:
        return self._users.find(username)

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
        got = _fields(bare.encode())
        if list(got)[:2] != ["n", "r"] or not got["r"]:
            raise ScramError("the first message is not n=user,r=nonce")
        username = _unescape(got["n"])
        keys = self._users.find(username)
        known = keys is not None
        keys = keys or self._users.pretend(username)
        answer = f"r={got['r']}{nonce},s={encode64(keys.salt)},i={keys.iterations}"
        challenge = Challenge(username, known, keys, got["r"] + nonce, f"{flag},{identity},", f"{bare},{answer}")
        return challenge, answer.encode()

    def final(self, challenge: Challenge, message: bytes) -> bytes:
        """The server's proof, or a ScramError when the client's does not hold."""
        without_proof, separator, proof = message.rpartition(b",p=")
        got = _fields(without_proof)
        if not separator or list(got)[:2] != ["c", "r"]:
            raise ScramError("the final message is not c=,r=,p=")
        if decode64(got["c"]) != challenge.gs2_header.encode() or got["r"] != challenge.nonce:
            raise ScramError("the final message does not belong to this exchange")
        auth_message = f"{challenge.spoken},{without_proof.decode()}"
        keys = challenge.keys
        given = decode64(proof.decode("ascii", "replace"))
        if len(given) != KEY_BYTES:
            raise ScramError("the proof has the wrong length")
        key = _xor(given, _signature(keys.stored_key, auth_message))
        fits = hmac.compare_digest(hashlib.sha256(key).digest(), keys.stored_key)
        if not fits or not challenge.known:
            raise ScramError("the proof is wrong")
        return f"v={encode64(_signature(keys.server_key, auth_message))}".encode()


@dataclass
class ScramClient:
    """The client's side: `start`, then `answer` to each AUTH, then `finish` with the CONNACK's data."""

    username: str
    password: str
    nonce: str
    method: str = METHOD
    _first: str = ""
    _server_signature: bytes = b""

    def start(self) -> bytes:
        name = saslprep(self.username).replace("=", "=3D").replace(",", "=2C")
        self._first = f"n={name},r={self.nonce}"
        return (GS2_HEADER + self._first).encode()

    def answer(self, challenge: bytes) -> bytes:
        got = _fields(challenge)
        if list(got)[:3] != ["r", "s", "i"]:
            raise ScramError("the server's first message is not r=,s=,i=")
        if not got["r"].startswith(self.nonce) or got["r"] == self.nonce:
            raise ScramError("the server did not add to the client's nonce")
        iterations = parse_iterations(got["i"])
        salted = _salted(self.password, decode64(got["s"]), iterations)
        without_proof = f"c={encode64(GS2_HEADER.encode())},r={got['r']}"
        auth_message = f"{self._first},{challenge.decode()},{without_proof}"
        key = _client_key(salted)
        proof = _xor(key, _signature(_stored_key(key), auth_message))
        self._server_signature = _signature(_server_key(salted), auth_message)
        return f"{without_proof},p={encode64(proof)}".encode()

    def finish(self, verdict: bytes | None) -> None:
        """Raises ScramError when the server does not prove that it knows the user too."""
        shown = decode64(_fields(verdict).get("v", "")) if verdict else b""
        if not self._server_signature or not hmac.compare_digest(shown, self._server_signature):
            raise ScramError("the server did not prove that it knows this user")


def parse_iterations(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 8 and LEAST_ITERATIONS <= int(text) <= MOST_ITERATIONS):
        raise ScramError(
            f"the iterations must be a number from {LEAST_ITERATIONS} to {MOST_ITERATIONS}, not {text[:20]!r}"
        )
    return int(text)


def _salted(password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac("sha256", saslprep(password).encode(), salt, iterations)


def _client_key(salted: bytes) -> bytes:
    return _hmac(salted, b"Client Key")


def _server_key(salted: bytes) -> bytes:
    return _hmac(salted, b"Server Key")


def _stored_key(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _signature(key: bytes, auth_message: str) -> bytes:
    return _hmac(key, auth_message.encode())


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def _fields(message: bytes) -> dict[str, str]:
    """The attributes of a message, in order; each is `letter=value`."""
    try:
        pairs = [part.split("=", 1) for part in message.decode("utf-8").split(",")]
    except UnicodeDecodeError:
        raise ScramError("the message is not UTF-8") from None
    if any(len(pair) != 2 or len(pair[0]) != 1 for pair in pairs):
        raise ScramError("the message is not a list of letter=value")
    return {name: value for name, value in pairs}


def decode64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramError("a value is not base64") from None


def encode64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def saslprep(text: str) -> str:
    """RFC 4013: so that a password typed on two keyboards gives the same bytes."""
    mapped = "".join(
        " " if stringprep.in_table_c12(sign) else sign for sign in text if not stringprep.in_table_b1(sign)
    )
    prepared = unicodedata.normalize("NFKC", mapped)
    if any(table(sign) for sign in prepared for table in _PROHIBITED):
        raise UsageError("the text has characters that a SCRAM name or password must not have (RFC 4013)")
    if any(map(stringprep.in_table_d1, prepared)) and (
        any(map(stringprep.in_table_d2, prepared))
        or not (stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1]))
    ):
        raise UsageError("the text mixes writing directions in a way that RFC 4013 forbids")
    return prepared


_PROHIBITED: Final[list[Callable[[str], bool]]] = [
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    stringprep.in_table_a1,
]


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _unescape(name: str) -> str:
    if name.replace("=2C", "").replace("=3D", "").count("="):
        raise ScramError("the username holds a bare '='")
    return name.replace("=2C", ",").replace("=3D", "=")
