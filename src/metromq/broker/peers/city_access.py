"""Access for the listeners of clients, through which peers enter too unless they have a listener of their own."""

from metromq.broker.auth.authenticator import Authenticator
from metromq.broker.file_access import FileAccess
from metromq.broker.peers.newcomers import JoinExchange, NewcomerDesk
from metromq.config import Auth
from metromq.federation.links import LinkAccess, LinkExchange, auth, joining
from metromq.protocol import reasons
from metromq.protocol.session import AccessDecision, Peer


class CityAccess(FileAccess):
    """Peers prove the city secret; everybody else is asked as on a broker of its own."""

    def __init__(
        self,
        auth: Auth,
        authenticator: Authenticator | None,
        links: LinkAccess | None,
        newcomers: NewcomerDesk | None = None,
    ) -> None:
        super().__init__(auth, authenticator)
        self._links = links
        self._newcomers = newcomers

    def connect(
        self, peer: Peer, client_id: str, username: str | None, password: bytes | None, method: str | None, data: bytes
    ) -> AccessDecision:
        if method == joining.METHOD and self._newcomers is not None:
            return self._newcomers.connect(client_id, data)
        if method != auth.METHOD:
            return super().connect(peer, client_id, username, password, method, data)
        if self._links is None:
            return AccessDecision(
                reasons.NOT_AUTHORIZED, "peers of this city enter through link_listen, with a certificate"
            )
        return self._links.connect(peer, client_id, username, password, method, data)

    def expels(self, peer: Peer, method: str | None, username: str | None) -> bool:
        return method not in (auth.METHOD, joining.METHOD) and super().expels(peer, method, username)

    def continued(self, exchange: object, data: bytes) -> AccessDecision:
        if isinstance(exchange, LinkExchange) and self._links is not None:
            return self._links.continued(exchange, data)
        if isinstance(exchange, JoinExchange) and self._newcomers is not None:
            return self._newcomers.continued(exchange, data)
        return super().continued(exchange, data)
