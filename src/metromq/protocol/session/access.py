"""Who may do what: the questions the protocol asks; the shell answers from files or with a user's code."""

from typing import Final, final

from mypy_extensions import mypyc_attr

from metromq.protocol.session.network_connection import NetworkConnection
from metromq.protocol.session.newcomers import Newcomer
from metromq.protocol.session.route import ReadCheck
from metromq.protocol.session.session import Session


@final
class Peer:
    """What is known of the other side before it speaks."""

    def __init__(self, address: str, anonymous_allowed: bool, identity: str = "", transport: str = "tcp") -> None:
        self.address = address
        self.anonymous_allowed = anonymous_allowed
        self.identity = identity  # the name in a verified client certificate that stands for the user name
        self.needs_identity = False  # nobody enters whose certificate has no name: the listener takes no other
        self.transport = transport
        self.newcomer: Newcomer | None = None  # while its connection counts as one

    def settled(self) -> "Peer":
        """What is still to be known when its client is in: most are alike then, and share one."""
        if self.identity or self.needs_identity:
            return self
        alike = _ALIKE.get((self.anonymous_allowed, self.transport))
        if alike is None:
            alike = Peer("", self.anonymous_allowed, "", self.transport)
            _ALIKE[self.anonymous_allowed, self.transport] = alike
        return alike


_ALIKE: Final[dict[tuple[bool, str], Peer]] = {}


@mypyc_attr(allow_interpreted_subclasses=True)
class Later:
    """A decision that has still to be found out; its client waits, nobody else does."""

    def start(self, connection: NetworkConnection) -> None:
        """Called once; the decision goes to the `decide` of this connection."""
        raise NotImplementedError

    def abandoned(self, late: bool) -> None:
        """Nobody waits any more: the client is gone, or (`late`) it was refused because the answer took too long."""
        raise NotImplementedError


@final
class AccessDecision:
    """The answer to CONNECT or AUTH: reason 0x00 accepts, 0x18 asks for more, anything else refuses.

    With `later` it is no answer yet, and all but `later` is without meaning.
    """

    def __init__(
        self,
        reason_code: int,
        reason: str = "",
        username: str = "",
        data: bytes | None = None,
        server_reference: str = "",
    ) -> None:
        self.reason_code = reason_code
        self.reason = reason
        self.username = username
        self.data = data  # for the client's next AUTH
        self.server_reference = server_reference  # with 0x9C and 0x9D: where the client may go instead
        self.broker = ""  # the peer broker that has proved its name; empty: a client
        self.exchange: object = None  # the authenticator's own state between two AUTH packets
        self.later: Later | None = None


@mypyc_attr(allow_interpreted_subclasses=True)
class Access(ReadCheck):
    """The base class lets everybody do everything that a loopback listener allows."""

    def unrestricted(self, session: Session) -> bool:
        """Whether no topic is closed to this client, so that nothing need be asked per message."""
        return True

    def connect(
        self, peer: Peer, client_id: str, username: str | None, password: bytes | None, method: str | None, data: bytes
    ) -> AccessDecision:
        if method is not None:
            return AccessDecision(0x8C, "no authentication method is configured")
        if username is None and not peer.anonymous_allowed:
            return AccessDecision(0x87, "this listener needs a user name")
        return AccessDecision(0, "", username or "")

    def expels(self, peer: Peer, method: str | None, username: str | None) -> bool:
        """Asked after the files were read again: whether a client must go that entered, or asks to enter, with the old
        ones. `method` is its authentication method; `username` is None while it is still being found out."""
        return False

    def continued(self, exchange: object, data: bytes) -> AccessDecision:
        """The next AUTH packet of an exchange."""
        return AccessDecision(0x8C, "no authentication method is configured")

    def may_publish(self, session: Session, topic: str) -> bool:
        return True

    def may_subscribe(self, session: Session, filter: str) -> bool:
        return True
