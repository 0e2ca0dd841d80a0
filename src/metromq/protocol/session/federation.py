"""What a hub asks and tells the rest of the city; the base class is a city of one broker."""

from typing import final

from mypy_extensions import mypyc_attr

from metromq.protocol.session.commits import Waiter
from metromq.protocol.session.message import Message
from metromq.protocol.session.network_connection import NetworkConnection
from metromq.protocol.session.route import LinkCopy as LinkCopy
from metromq.protocol.session.routes import RemoteCheck, RouteTable
from metromq.protocol.session.session import Session


@mypyc_attr(allow_interpreted_subclasses=True)
class Entitled:
    """Who of those that want a message now wanted it when it was published."""

    def has(self, session: Session) -> bool:
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class PeerEar:
    """Takes what peers send over links."""

    def arrived(self, peer: str, topic: str, payload: bytes, waiter: Waiter | None) -> None:
        """A batch or a control frame of a peer; the waiter acknowledges it once it is stored."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Federation(RemoteCheck):
    """What a hub asks and tells the rest of the city; the base class is a city of one broker.

    Messages need not come by here: who answers for copies, and who takes what peers send, is asked once.
    """

    def copier(self) -> RemoteCheck:
        """Who says which peers get a copy of a message."""
        return self

    def ear(self) -> PeerEar:
        """Who takes what peers send."""
        return PeerEar()

    def subscribed(self, filter: str, share: str, members: int) -> None:
        """The first subscription to a filter was made here, or a share group has another number of members."""

    def unsubscribed(self, filter: str, share: str) -> None:
        """The last one is gone."""

    def retains(self, message: Message) -> bool:
        """Whether a message with RETAIN is newer than what the city knows of its topic, and is to be stored."""
        return True

    def not_retained(self, message: Message) -> None:
        """There was no room for that message; older ones of its topic must not come back for it."""

    def retained_waits(self, session: Session, full_filter: str, new: bool) -> bool:
        """Whether the retained messages for a new subscription come later, when other brokers have told theirs."""
        return False

    def keeps_up(self, message: Message, copies: list[LinkCopy]) -> None:
        """A retained QoS 0 message goes to peers, where it must not be lost from the store when a link breaks."""

    def connected(self, session: Session, resumed: bool) -> None:
        """A client has connected here."""

    def stamp_us(self, wall_us: int) -> int:
        """A time that is later than every one that this broker has heard of, whatever the clocks of a city say."""
        return wall_us

    def claimed_us(self, client_id: str) -> int:
        """The time of the CONNECT by which the city knows that the client is here."""
        return 0

    def clean_us(self, client_id: str) -> int:
        """When the client began anew, here or at another broker: what it had before is void."""
        return 0

    def snapshot(self) -> bytes:
        """What the federation must know after a restart."""
        return b""

    def restored(self, state: bytes) -> None:
        """The snapshot was read again."""

    def recovered(self, kind: int, body: bytes) -> None:
        """A LINK or CONTROL record was read again after a restart."""

    def delivers(self, uses: int) -> bool:
        """Whether a message that a peer sent was taken for the own plain subscribers."""
        return True

    def replayed(self, message: Message, uses: int, holders: list[Session], copies: list[LinkCopy]) -> None:
        """A message was read again after a restart; of one that a peer sent `uses` is what it was taken for.

        `holders` are the sessions that it was queued for, `copies` those for peers.
        """

    def asks(self, connection: NetworkConnection, client_id: str, clean_start: bool, username: str) -> bool:
        """A client wants in. True: it waits until the federation calls its `proceed` or `refuse`."""
        return False

    def gave_up(self, connection: NetworkConnection, client_id: str) -> None:
        """A connection is gone that had sent CONNECT and was not let in."""

    def will_changed(self, session: Session) -> None:
        """The session has another will than before, or its will begins to wait for its delay."""

    def publishes_will(self, session: Session, message: Message) -> bool:
        """A will is to be published. True: the federation has seen to it, because others may publish it too."""
        return False

    def ended(self, session: Session) -> None:
        """A session is over."""

    def link_accepted(self, peer: str, connection: NetworkConnection) -> None:
        """A peer broker has proved who it is and speaks over this connection."""

    def link_lost(self, peer: str, connection: NetworkConnection) -> None:
        """That connection is gone."""


@final
class CityPlace:
    """This broker's place among others; it is alone until it joins them."""

    def __init__(self) -> None:
        self.federation = Federation()
        self.copier: RemoteCheck = self.federation
        self.joined = False

    def join(self, federation: Federation, routes: RouteTable) -> None:
        self.federation = federation
        self.joined = True
        self.copier = routes.remote_check = federation.copier()
        routes.clear()
