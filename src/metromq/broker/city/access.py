"""Lets peer brokers prove the city secret; everybody else is the client's access as before."""

import secrets
from collections.abc import Callable

from metromq.broker.access import FileAccess
from metromq.broker.auth.authenticator import Authenticator
from metromq.config import Auth
from metromq.errors import PeerViolation
from metromq.federation.links.auth import METHOD, NONCE_BYTES, Listener
from metromq.protocol.session.access import Decision, Peer
from metromq.protocol.session.handshake import LINK_PREFIX
from metromq.protocol.wire.reasons import CONTINUE_AUTHENTICATION, NOT_AUTHORIZED


class _Exchange:
    def __init__(self, peer: str, listener: Listener) -> None:
        self.peer = peer
        self.listener = listener


class CityAccess(FileAccess):
    """`journal_told(peer, id)` learns which journal a peer's sequences count in."""

    def __init__(
        self,
        auth: Auth,
        authenticator: Authenticator | None,
        name: str,
        peers: tuple[str, ...],
        secret: bytes,
        journal_told: Callable[[str, str], None],
    ) -> None:
        super().__init__(auth, authenticator)
        self._name = name
        self._peers = frozenset(peers)
        self._secret = secret
        self._journal_told = journal_told

    def connect(
        self, peer: Peer, client_id: str, username: str | None, password: bytes | None, method: str | None, data: bytes
    ) -> Decision:
        if method != METHOD:
            return super().connect(peer, client_id, username, password, method, data)
        name = client_id.removeprefix(LINK_PREFIX)
        if name not in self._peers or not client_id.startswith(LINK_PREFIX):
            return Decision(NOT_AUTHORIZED, f"{client_id} is no broker of this city")
        listener = Listener(self._secret, self._name, name, secrets.token_bytes(NONCE_BYTES))
        try:
            challenge = listener.challenge(data)
        except PeerViolation as error:
            return Decision(error.reason_code, str(error))
        decision = Decision(CONTINUE_AUTHENTICATION, "", "", challenge)
        decision.exchange = _Exchange(name, listener)
        self._journal_told(name, username or "")
        return decision

    def continued(self, exchange: object, data: bytes) -> Decision:
        if not isinstance(exchange, _Exchange):
            return super().continued(exchange, data)
        try:
            exchange.listener.check(data)
        except PeerViolation as error:
            return Decision(error.reason_code, str(error))
        decision = Decision(0)
        decision.broker = exchange.peer
        return decision
