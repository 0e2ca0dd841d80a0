"""Mutual proof of the city secret over MQTT 5 enhanced authentication, without ever sending the secret.

The dialler's CONNECT carries a nonce, the listener's AUTH its own nonce and a proof over both, the dialler's AUTH the
counter-proof. Both proofs cover both names and both nonces, and differ by role, so neither can be replayed or sent
back to the one that made it. While the secret changes, a side may have an old one too: it takes a proof of either, and
the listener, which cannot know what the dialler has, gives a proof of each.
"""

import hashlib
import hmac
from typing import Final, final

from metromq.errors import PeerViolation

METHOD: Final = "METROMQ-CITY-SECRET-1"
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
NOT_AUTHORIZED: Final = 0x87


def _proof(secret: bytes, role: bytes, dialler: str, listener: str, nonces: bytes) -> bytes:
    names = [part.encode() for part in (dialler, listener)]
    text = role + b"".join(len(name).to_bytes(2, "big") + name for name in names) + nonces
    return hmac.new(secret, text, hashlib.sha256).digest()


def _refuse(who: str) -> PeerViolation:
    return PeerViolation(
        NOT_AUTHORIZED, f"{who} cannot prove the city secret: both brokers must have the same [links] secret"
    )


@final
class Dialler:
    """The side that opens the link. The nonce is random and comes from the shell."""

    def __init__(self, secret: bytes, name: str, peer: str, nonce: bytes, old: bytes | None = None) -> None:
        self._secrets = (secret, old) if old else (secret,)
        self._name = name
        self._peer = peer
        self._nonce = nonce

    def connect_data(self) -> bytes:
        return self._nonce

    def answer(self, challenge: bytes) -> bytes:
        """The data for our AUTH; raises when the peer does not know the secret."""
        if len(challenge) not in (NONCE_BYTES + PROOF_BYTES, NONCE_BYTES + 2 * PROOF_BYTES):
            raise _refuse(self._peer)
        nonces, proofs = self._nonce + challenge[:NONCE_BYTES], challenge[NONCE_BYTES:]
        for secret in self._secrets:
            proof = _proof(secret, b"listener", self._name, self._peer, nonces)
            if any(hmac.compare_digest(proof, one) for one in (proofs[:PROOF_BYTES], proofs[PROOF_BYTES:])):
                return _proof(secret, b"dialler", self._name, self._peer, nonces)
        raise _refuse(self._peer)


@final
class DialledSide:
    """The side that was dialled."""

    def __init__(self, secret: bytes, name: str, peer: str, nonce: bytes, old: bytes | None = None) -> None:
        self._secrets = (secret, old) if old else (secret,)
        self._name = name
        self._peer = peer
        self._nonce = nonce
        self._nonces = b""

    def challenge(self, connect_data: bytes) -> bytes:
        if len(connect_data) != NONCE_BYTES or connect_data == self._nonce:
            raise _refuse(self._peer)
        self._nonces = connect_data + self._nonce
        return self._nonce + b"".join(self._proofs(b"listener"))

    def check(self, answer: bytes) -> None:
        """Raises unless the dialler proved that it knows the secret."""
        if not self._nonces or not any(hmac.compare_digest(proof, answer) for proof in self._proofs(b"dialler")):
            raise _refuse(self._peer)

    def _proofs(self, role: bytes) -> list[bytes]:
        return [_proof(secret, role, self._peer, self._name, self._nonces) for secret in self._secrets]
