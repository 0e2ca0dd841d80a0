"""One client's session: who it is, its subscriptions, its will, and the backlog of what it must still receive."""

from typing import Final, final

from metromq.protocol.session.backlog import Backlog
from metromq.protocol.session.network_connection import NetworkConnection
from metromq.protocol.session.output import ClientOutput
from metromq.protocol.session.seen_ids import SeenIds
from metromq.protocol.wire.packets import Will

NEVER: Final = 0xFFFFFFFF  # a session expiry interval that does not end [MQTT-3.1.2-23]


@final
class Grant:
    """A subscription as granted: one filter of one session."""

    def __init__(
        self,
        session: "Session",
        filter: str,
        share: str,
        qos: int,
        no_local: bool,
        retain_as_published: bool,
        retain_handling: int,
        identifier: int,
    ) -> None:
        self.session = session
        self.filter = filter  # without `$share/group/`
        self.share = share  # the group's name; empty: not shared
        self.qos = qos
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.retain_handling = retain_handling
        self.identifier = identifier  # 0: none
        self.since_us = 0  # since when the city is to know of it, by the clock of this broker; 0: not recorded

    def full_filter(self) -> str:
        return f"$share/{self.share}/{self.filter}" if self.share else self.filter


@final
class Session:
    """State that outlives a connection [MQTT-4.1.0-1]: many attributes, because the standard lists so many."""

    def __init__(self, number: int, client_id: str) -> None:
        self.client_id = client_id
        self.username = ""  # the user whose session it is; empty: of clients without one
        self.opened_us = 0  # when that user opened it; 0: before this was recorded
        self.connection: NetworkConnection | None = None  # while there is one
        self.output: ClientOutput | None = None  # its output: what is sent to many passes here only
        self.backlog = Backlog(number)
        self.window = 65535  # how many messages the client takes at once
        self.suspect = 0  # so many of the first that wait were queued under other rights than those in force
        self.incoming: dict[int, None] = {}  # a small set: QoS 2 packet identifiers received and not yet released
        self.grants: dict[str, Grant] = {}
        self.expiry_s = 0
        self.closed = False
        self.detached_at = 0.0  # monotonic; meaningful while connection is None
        self.detached_wall_us = 0
        self.will: Will | None = None
        self.will_at = 0.0  # monotonic moment at which a delayed will is published; 0: none is waiting
        # In a city only:
        self.seen: SeenIds | None = None  # what it has had; None: it does not roam, or has left for another broker
        self.roamed = False  # it came from another broker once, so that messages may reach it by two ways
        self.arriving = False  # it still comes from another broker: nothing is sent before what is older has come
        self.is_stale = False  # its client went on elsewhere: it must be told that this is a new session
        self.departed_to = ""  # the broker that its client went on to; what still comes is passed on
        self.departed_us = 0  # the CONNECT there
        self.claimed_us = 0  # the CONNECT by which it is here; of two brokers with the session the later one has it
        self.greeted_us = 0  # the last CONNECT that was let in: what its client knows of the session
        self.arrival = 0  # number of the move that brought it here
        self.clean_us = 0  # when it was opened by a clean start; older sessions of the client are void
