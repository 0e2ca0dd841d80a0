"""Lets peer brokers prove that they belong to the city: what a listener decides about the CONNECT of a link."""

from collections.abc import Callable, Container

from metromq.errors import PeerViolation
from metromq.federation.links.auth import METHOD, DialledSide
from metromq.protocol import reasons
from metromq.protocol.replay import READER_PREFIX
from metromq.protocol.session import LINK_PREFIX, Access, AccessDecision, Peer


class LinkExchange:
    """A proof under way."""

    def __init__(self, peer: str, journal: str, listener: DialledSide) -> None:
        self.peer = peer
        self.journal = journal
        self.listener = listener


class LinkAccess(Access):
    """Only peers enter: by the city secret where there is one, and by a certificate where the city has them.

    `peers` are those of the city as it is now.
    `came(peer, id)` is told of a peer that has proved its name, and which journal its sequences count in;
    `nonce` makes random bytes.
    """

    def __init__(
        self,
        name: str,
        peers: Callable[[], Container[str]],
        secret: bytes | None,
        certified: bool,
        came: Callable[[str, str], None],
        nonce: Callable[[], bytes],
    ) -> None:
        self._name = name
        self._peers = peers
        self.secret = secret
        self.old_secret: bytes | None = None  # that is good too, while the secret changes
        self._certified = certified
        self._came = came
        self._nonce = nonce

    def connect(
        self, peer: Peer, client_id: str, username: str | None, password: bytes | None, method: str | None, data: bytes
    ) -> AccessDecision:
        prefix = READER_PREFIX if client_id.startswith(READER_PREFIX) else LINK_PREFIX
        name = client_id.removeprefix(prefix)
        if name not in self._peers() or not client_id.startswith(prefix):
            return AccessDecision(reasons.NOT_AUTHORIZED, f"{client_id} is no broker of this city")
        if self._certified and peer.identity != name:
            return AccessDecision(
                reasons.NOT_AUTHORIZED, f"the certificate of {name} names {peer.identity or 'nobody'}"
            )
        if method != (METHOD if self.secret is not None else None):
            return AccessDecision(reasons.BAD_AUTHENTICATION_METHOD, "both brokers must have the same [links] settings")
        if self.secret is None:
            return self._proved(name, username or "")
        listener = DialledSide(self.secret, self._name, name, self._nonce(), self.old_secret)
        try:
            challenge = listener.challenge(data)
        except PeerViolation as error:
            return AccessDecision(error.reason_code, str(error))
        decision = AccessDecision(reasons.CONTINUE_AUTHENTICATION, "", "", challenge)
        decision.exchange = LinkExchange(name, username or "", listener)
        return decision

    def continued(self, exchange: object, data: bytes) -> AccessDecision:
        if not isinstance(exchange, LinkExchange):
            return super().continued(exchange, data)
        try:
            exchange.listener.check(data)
        except PeerViolation as error:
            return AccessDecision(error.reason_code, str(error))
        return self._proved(exchange.peer, exchange.journal)

    def _proved(self, peer: str, journal: str) -> AccessDecision:
        decision = AccessDecision(0)
        decision.broker = peer
        self._came(peer, journal)
        return decision
