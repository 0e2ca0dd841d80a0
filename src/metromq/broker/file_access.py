"""Answers the protocol's questions about rights from password and access files, and reloads them."""

from metromq.broker.auth.acl import Acl, load_acl
from metromq.broker.auth.authenticator import Authenticator, Credentials, load_authenticator
from metromq.broker.auth_answers import AuthAnswers, Exchange
from metromq.config import Auth
from metromq.protocol import reasons
from metromq.protocol.session import Access, AccessDecision, Peer, Session


class FileAccess(Access):
    """Authentication by an `Authenticator`, rights by an access list in Mosquitto's format."""

    def __init__(self, auth: Auth, authenticator: Authenticator | None = None) -> None:
        self._auth = auth
        self._own_authenticator = authenticator
        self._files = load_authenticator(auth) if authenticator is None else None
        self._before = self._files  # what was in force until the last reload
        self._acl: Acl | None = load_acl(auth.acl_file) if auth.acl_file else None
        self.answers = AuthAnswers()

    def reload(self) -> None:
        """Reads the files again; on an error the old rules stay and the error is the caller's to report."""
        files = load_authenticator(self._auth) if self._own_authenticator is None else None
        acl = load_acl(self._auth.acl_file) if self._auth.acl_file else None
        self._before, self._files, self._acl = self._files, files, acl

    def expels(self, peer: Peer, method: str | None, username: str | None) -> bool:
        """Who was removed or has another password must go; only the files know, not a program's own authenticator.

        Anonymous clients and certificates do not depend on the files.
        """
        if self._before is None or self._files is None:
            return False
        if username is None:
            return True
        if not username or (method is None and peer.identity):
            return False
        return self._files.credential(method, username) != self._before.credential(method, username)

    def _authenticator(self) -> Authenticator:
        authenticator = self._own_authenticator or self._files
        assert authenticator is not None
        return authenticator

    def connect(
        self, peer: Peer, client_id: str, username: str | None, password: bytes | None, method: str | None, data: bytes
    ) -> AccessDecision:
        if client_id.startswith("$"):  # before the password is looked at: peers are asked elsewhere, without a limit
            return AccessDecision(
                reasons.CLIENT_IDENTIFIER_NOT_VALID, "client identifiers that start with $ are reserved"
            )
        if peer.needs_identity and not peer.identity:
            return AccessDecision(
                reasons.NOT_AUTHORIZED, "the client's certificate has no common name, which is the user name here"
            )
        request = Credentials(
            client_id, username, password, method, data, peer.identity or None, peer.anonymous_allowed
        )
        client = client_id or peer.address
        try:
            return self.answers.decision(client, self._authenticator().connect(request))
        except Exception as error:  # a user's code may raise anything
            return self.answers.failed(client, error)

    def continued(self, exchange: object, data: bytes) -> AccessDecision:
        assert isinstance(exchange, Exchange)
        try:
            return self.answers.decision(exchange.client, self._authenticator().auth(exchange.state, data))
        except Exception as error:
            return self.answers.failed(exchange.client, error)

    def unrestricted(self, session: Session) -> bool:
        return self._acl is None

    def may_publish(self, session: Session, topic: str) -> bool:
        return self._acl is None or self._acl.may_publish(session.username or None, session.client_id, topic)

    def may_subscribe(self, session: Session, filter: str) -> bool:
        if self._acl is None or self._auth.unreadable_filters == "grant":
            return True
        return self._acl.may_subscribe(session.username or None, session.client_id, filter)

    def may_read(self, session: Session, topic: str) -> bool:
        return self._acl is None or self._acl.may_read(session.username or None, session.client_id, topic)
