"""SCRAM-SHA-256 (RFC 5802, RFC 7677): the formulas that both sides share, and the client's side of the exchange."""

import base64
import binascii
import hashlib
import hmac
import stringprep
import unicodedata
from dataclasses import dataclass

from metromq.errors import PeerViolation, UsageError
from metromq.protocol.wire.reasons import NOT_AUTHORIZED

METHOD = "SCRAM-SHA-256"
# No channel binding: the GS2 header of a client that does not support it.
GS2_HEADER = "n,,"
LEAST_ITERATIONS = 4096


class ScramError(PeerViolation):
    """A message of the exchange breaks RFC 5802 or proves the wrong key."""

    def __init__(self, message: str) -> None:
        super().__init__(NOT_AUTHORIZED, message)


def salted_password(password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac("sha256", saslprep(password).encode(), salt, iterations)


def client_key(salted: bytes) -> bytes:
    return _hmac(salted, b"Client Key")


def server_key(salted: bytes) -> bytes:
    return _hmac(salted, b"Server Key")


def stored_key(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def signature(key: bytes, auth_message: str) -> bytes:
    return _hmac(key, auth_message.encode())


def xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def fields(message: bytes) -> dict[str, str]:
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


_PROHIBITED = (
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
)


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


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
        got = fields(challenge)
        if list(got)[:3] != ["r", "s", "i"] or not got["i"].isdigit():
            raise ScramError("the server's first message is not r=,s=,i=")
        if not got["r"].startswith(self.nonce) or got["r"] == self.nonce:
            raise ScramError("the server did not add to the client's nonce")
        iterations = int(got["i"])
        if not LEAST_ITERATIONS <= iterations <= 10_000_000:
            raise ScramError(f"{iterations} iterations are too few or too many")
        salted = salted_password(self.password, decode64(got["s"]), iterations)
        without_proof = f"c={encode64(GS2_HEADER.encode())},r={got['r']}"
        auth_message = f"{self._first},{challenge.decode()},{without_proof}"
        key = client_key(salted)
        proof = xor(key, signature(stored_key(key), auth_message))
        self._server_signature = signature(server_key(salted), auth_message)
        return f"{without_proof},p={encode64(proof)}".encode()

    def finish(self, verdict: bytes | None) -> None:
        """Raises ScramError when the server does not prove that it knows the user too."""
        shown = decode64(fields(verdict).get("v", "")) if verdict else b""
        if not self._server_signature or not hmac.compare_digest(shown, self._server_signature):
            raise ScramError("the server did not prove that it knows this user")
