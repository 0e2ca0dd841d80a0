"""Lets peer brokers prove that they belong to the city; everybody else is the client's access as before."""

import secrets
from collections.abc import Callable

from metromq.broker.access import FileAccess
from metromq.broker.auth.authenticator import Authenticator
from metromq.config import Auth
from metromq.errors import PeerViolation
from metromq.federation.links.auth import METHOD, NONCE_BYTES, Listener
from metromq.protocol.session.access import Access, Decision, Peer
from metromq.protocol.session.handshake import LINK_PREFIX
from metromq.protocol.wire.reasons import BAD_AUTHENTICATION_METHOD, CONTINUE_AUTHENTICATION, NOT_AUTHORIZED


class _Exchange:
    def __init__(self, peer: str, journal: str, listener: Listener) -> None:
        self.peer = peer
        self.journal = journal
        self.listener = listener


class LinkAccess(Access):
    """Only peers enter: by the city secret where there is one, and by a certificate where the city has them.

    `journal_told(peer, id)` learns which journal a peer's sequences count in, once the peer has proved its name.
    """

    def __init__(
        self,
        name: str,
        peers: tuple[str, ...],
        secret: bytes | None,
        certified: bool,
        journal_told: Callable[[str, str], None],
    ) -> None:
        self._name = name
        self._peers = frozenset(peers)
        self._secret = secret
        self._certified = certified
        self._journal_told = journal_told

    def connect(
        self, peer: Peer, client_id: str, username: str | None, password: bytes | None, method: str | None, data: bytes
    ) -> Decision:
        name = client_id.removeprefix(LINK_PREFIX)
        if name not in self._peers or not client_id.startswith(LINK_PREFIX):
            return Decision(NOT_AUTHORIZED, f"{client_id} is no peer in this broker's city file")
        if self._certified and peer.identity != name:
            return Decision(NOT_AUTHORIZED, f"the certificate of {name} names {peer.identity or 'nobody'}")
        if method != (METHOD if self._secret is not None else None):
            return Decision(BAD_AUTHENTICATION_METHOD, "both brokers must have the same [links] settings")
        if self._secret is None:
            return self._proved(name, username or "")
        listener = Listener(self._secret, self._name, name, secrets.token_bytes(NONCE_BYTES))
        try:
            challenge = listener.challenge(data)
        except PeerViolation as error:
            return Decision(error.reason_code, str(error))
        decision = Decision(CONTINUE_AUTHENTICATION, "", "", challenge)
        decision.exchange = _Exchange(name, username or "", listener)
        return decision

    def continued(self, exchange: object, data: bytes) -> Decision:
        if not isinstance(exchange, _Exchange):
            return super().continued(exchange, data)
        try:
            exchange.listener.check(data)
        except PeerViolation as error:
            return Decision(error.reason_code, str(error))
        return self._proved(exchange.peer, exchange.journal)

    def _proved(self, peer: str, journal: str) -> Decision:
        decision = Decision(0)
        decision.broker = peer
        self._journal_told(peer, journal)
        return decision


class CityAccess(FileAccess):
    """For the doors of clients, through which peers enter too unless they have a door of their own."""

    def __init__(self, auth: Auth, authenticator: Authenticator | None, links: LinkAccess | None) -> None:
        super().__init__(auth, authenticator)
        self._links = links

    def connect(
        self, peer: Peer, client_id: str, username: str | None, password: bytes | None, method: str | None, data: bytes
    ) -> Decision:
        if method != METHOD:
            return super().connect(peer, client_id, username, password, method, data)
        if self._links is None:
            return Decision(NOT_AUTHORIZED, "peers of this city enter through link_listen, with a certificate")
        return self._links.connect(peer, client_id, username, password, method, data)

    def expels(self, peer: Peer, method: str | None, username: str | None) -> bool:
        return method != METHOD and super().expels(peer, method, username)

    def continued(self, exchange: object, data: bytes) -> Decision:
        if isinstance(exchange, _Exchange) and self._links is not None:
            return self._links.continued(exchange, data)
        return super().continued(exchange, data)
