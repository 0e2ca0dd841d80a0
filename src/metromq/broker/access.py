"""Answers the protocol's questions about rights from password and access files, and reloads them."""

from metromq.broker.answers import Answers, Exchange
from metromq.broker.auth.acl import Acl, load_acl
from metromq.broker.auth.authenticator import Authenticator, Credentials, load_authenticator
from metromq.config import Auth
from metromq.protocol.session.access import Access, Decision, Peer
from metromq.protocol.session.session import Session


class FileAccess(Access):
    """Authentication by an `Authenticator`, rights by an access list in Mosquitto's format."""

    def __init__(self, auth: Auth, authenticator: Authenticator | None = None) -> None:
        self._auth = auth
        self._own_authenticator = authenticator
        self._authenticator: Authenticator = authenticator or load_authenticator(auth)
        self._acl: Acl | None = load_acl(auth.acl_file) if auth.acl_file else None
        self.answers = Answers()

    def reload(self) -> None:
        """Reads the files again; on an error the old rules stay and the error is the caller's to report."""
        authenticator = self._own_authenticator or load_authenticator(self._auth)
        acl = load_acl(self._auth.acl_file) if self._auth.acl_file else None
        self._authenticator, self._acl = authenticator, acl

    def connect(
        self, peer: Peer, client_id: str, username: str | None, password: bytes | None, method: str | None, data: bytes
    ) -> Decision:
        request = Credentials(
            client_id, username, password, method, data, peer.identity or None, peer.anonymous_allowed
        )
        client = client_id or peer.address
        try:
            return self.answers.decision(client, self._authenticator.connect(request))
        except Exception as error:  # a user's code may raise anything
            return self.answers.failed(client, error)

    def continued(self, exchange: object, data: bytes) -> Decision:
        assert isinstance(exchange, Exchange)
        try:
            return self.answers.decision(exchange.client, self._authenticator.auth(exchange.state, data))
        except Exception as error:
            return self.answers.failed(exchange.client, error)

    def unrestricted(self, session: Session) -> bool:
        return self._acl is None

    def may_publish(self, session: Session, topic: str) -> bool:
        return self._acl is None or self._acl.may_publish(session.username or None, session.client_id, topic)

    def may_subscribe(self, session: Session, filter: str) -> bool:
        return self._acl is None or self._acl.may_subscribe(session.username or None, session.client_id, filter)

    def may_read(self, session: Session, topic: str) -> bool:
        return self._acl is None or self._acl.may_read(session.username or None, session.client_id, topic)
