"""How a broker that knows nothing of a city but a one-time token becomes its member, without the secret in the clear.

The newcomer's CONNECT names the token and carries a nonce; the city answers with its own. From then on both speak under
keys made of the token and both nonces: the newcomer says what broker it is, the city what it is and how its members
prove themselves. Whoever listens in, or knows only the token's number, learns nothing. A token is good for one broker.
"""

import base64
import hashlib
import hmac
import json
import zlib
from typing import Any, Final, final

from metromq.errors import PeerViolation, UsageError

METHOD: Final = "METROMQ-JOIN-1"
JOIN_PREFIX: Final = "$join/"  # client id of a newcomer: the prefix and its name
NONCE_BYTES: Final = 32
NUMBER_BYTES: Final = 8
KEY_BYTES: Final = 24
TAG_BYTES: Final = 32
MOST_BYTES: Final = 16 << 20  # of what comes out of a seal
NOT_AUTHORIZED: Final = 0x87


def _refuse(why: str) -> PeerViolation:
    return PeerViolation(NOT_AUTHORIZED, why)


def token_text(number: bytes, key: bytes) -> str:
    """For people to carry from one machine to another."""
    return base64.b32encode(number + key).decode().rstrip("=").lower()


def read_token(text: str) -> tuple[bytes, bytes]:
    try:
        raw = base64.b32decode(text.strip().upper() + "=" * (-len(text.strip()) % 8))
    except ValueError:
        raw = b""
    if len(raw) != NUMBER_BYTES + KEY_BYTES:
        raise UsageError("this is no token: it must be as `metromq city token` printed it")
    return raw[:NUMBER_BYTES], raw[NUMBER_BYTES:]


@final
class Envelope:
    """What one side says to the other: nobody else can read or change it."""

    def __init__(self, key: bytes, nonces: bytes, name: str, direction: str) -> None:
        label = f"{METHOD} {direction} {name}\0".encode() + nonces
        self._cipher = hmac.new(key, b"cipher " + label, hashlib.sha256).digest()
        self._seal = hmac.new(key, b"seal " + label, hashlib.sha256).digest()

    def close(self, content: dict[str, Any]) -> bytes:
        data = self._mixed(zlib.compress(json.dumps(content).encode(), 9))
        return hmac.new(self._seal, data, hashlib.sha256).digest() + data

    def open(self, sealed: bytes) -> dict[str, Any]:
        tag, data = sealed[:TAG_BYTES], sealed[TAG_BYTES:]
        if not hmac.compare_digest(hmac.new(self._seal, data, hashlib.sha256).digest(), tag):
            raise _refuse("the token is not the one that the city made")
        found = json.loads(zlib.decompressobj().decompress(self._mixed(data), MOST_BYTES))
        if not isinstance(found, dict):
            raise _refuse("what the other side says makes no sense")
        return found

    def _mixed(self, data: bytes) -> bytes:
        blocks = range((len(data) + 31) // 32)
        stream = b"".join(hmac.new(self._cipher, block.to_bytes(8, "big"), hashlib.sha256).digest() for block in blocks)
        return bytes(one ^ other for one, other in zip(data, stream, strict=False))


@final
class Newcomer:
    """The side that joins; its `Authentication` of MQTT 5. `welcome` is what the city said in the end."""

    method = METHOD

    def __init__(self, token: str, name: str, nonce: bytes, wishes: dict[str, Any]) -> None:
        self._number, self._key = read_token(token)
        self._name = name
        self._nonce = nonce
        self._wishes = wishes
        self._from_city: Envelope | None = None
        self.welcome: dict[str, Any] | None = None

    def start(self) -> bytes:
        return self._nonce + self._number

    def answer(self, challenge: bytes) -> bytes:
        if self._from_city is not None:
            self.welcome = self._from_city.open(challenge)
            return b""
        if len(challenge) != NONCE_BYTES:
            raise _refuse("the city's answer is too short")
        nonces = self._nonce + challenge
        self._from_city = Envelope(self._key, nonces, self._name, "to newcomer")
        return Envelope(self._key, nonces, self._name, "to city").close(self._wishes)

    def finish(self, verdict: bytes | None) -> None:
        """The welcome was all."""


@final
class Doorkeeper:
    """The city's side of one exchange."""

    def __init__(self, key: bytes, name: str, nonce: bytes, connect_data: bytes) -> None:
        self.name = name
        self.nonce = nonce
        nonces = connect_data[:NONCE_BYTES] + nonce
        self._to_city = Envelope(key, nonces, name, "to city")
        self._to_newcomer = Envelope(key, nonces, name, "to newcomer")

    def wishes(self, sealed: bytes) -> dict[str, Any]:
        return self._to_city.open(sealed)

    def welcome(self, content: dict[str, Any]) -> bytes:
        return self._to_newcomer.close(content)


def token_number(connect_data: bytes) -> bytes:
    """Which token a newcomer names."""
    if len(connect_data) != NONCE_BYTES + NUMBER_BYTES:
        raise _refuse("this is not how a broker joins a city")
    return connect_data[NONCE_BYTES:]
