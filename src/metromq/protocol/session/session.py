"""One client's session: who it is, its subscriptions, its will, and the backlog of what it must still receive."""

from typing import Final, final
from zlib import crc32

from mypy_extensions import i32, u8

from metromq.protocol.session.backlog import Backlog
from metromq.protocol.session.network_connection import NetworkConnection
from metromq.protocol.session.output import ClientOutput
from metromq.protocol.session.replays import LiveGate
from metromq.protocol.session.seen_ids import SeenIds
from metromq.protocol.wire.packets import Will

NEVER: Final = 0xFFFFFFFF  # a session expiry interval that does not end [MQTT-3.1.2-23]


_NO_IDS: Final[dict[int, int]] = {}  # of all sessions that have received nothing at QoS 2; stays empty


def mark_of(topic: str, payload: bytes) -> int:
    """By which a message is told from another one with the same packet identifier."""
    return crc32(payload, crc32(topic.encode())) or 1


class Receiver:
    """Whom a topic filter leads to: a subscription, or a group that shares one."""


@final
class Grant(Receiver):
    """How a session has subscribed; all filters that it has in the same way share one, since most are alike."""

    def __init__(
        self,
        session: "Session",
        share: str,
        qos: int,
        no_local: bool,
        retain_as_published: bool,
        retain_handling: int,
        identifier: int,
    ) -> None:
        self.session = session
        self.share = share  # the group's name; empty: not shared
        self.identifier = identifier  # 0: none
        # One byte each, side by side: a broker has a million of these.
        self.qos: u8 = qos
        self.retain_handling: u8 = retain_handling
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.of_replay = False  # what follows a replay: it ends with the connection, and is written down nowhere
        self._target: RouteTarget | None = None

    def target(self) -> "RouteTarget":
        """What stands for it on routes that lead to its session by no other subscription."""
        target = self._target
        if target is None:
            target = RouteTarget(self.session)
            target.add(self)
            self._target = target
        return target

    def forget_target(self) -> None:
        """So that neither keeps the other, and the session, in memory."""
        self._target = None


@final
class Session:
    """State that outlives a connection [MQTT-4.1.0-1]: many attributes, because the standard lists so many.

    Small ones stand side by side: compiled, a lone flag takes as much memory as a number.
    """

    def __init__(self, number: int, client_id: str) -> None:
        self.client_id = client_id
        self.username = ""  # the user whose session it is; empty: of clients without one
        self.opened_us = 0  # when that user opened it; 0: before this was recorded
        self.connection: NetworkConnection | None = None  # while there is one
        self.output: ClientOutput | None = None  # its output: what is sent to many passes here only
        self.backlog = Backlog(number)
        self.window: i32 = 65535  # how many messages the client takes at once
        self.suspect: i32 = 0  # so many of the first that wait were queued under other rights than those in force
        # QoS 2 packet identifiers received and not yet released, and what came with them (`mark_of`); 0: not known
        self.incoming = _NO_IDS
        # Most clients have one subscription, and a dict takes 230 bytes: it is there once there were more.
        self._only_filter = ""
        self._grants: Grant | dict[str, Grant] | None = None
        # In a city: since when it is to know of each filter, by this broker's clock; what is not there is not known.
        self.wanted_us: dict[str, int] | None = None
        self.expiry_s = 0
        self.gate: LiveGate | None = None  # while its connection has asked for replays
        self.is_member = False  # of a shared group once: others may get what it leaves
        self.detached_at = 0.0  # monotonic; meaningful while connection is None
        self.detached_wall_us = 0
        self.will: Will | None = None
        self.will_at = 0.0  # monotonic moment at which a delayed will is published; 0: none is waiting
        self.closed = False
        # In a city only:
        self.roamed = False  # it came from another broker once, so that messages may reach it by two ways
        self.arriving = False  # it still comes from another broker: nothing is sent before what is older has come
        self.is_stale = False  # its client went on elsewhere: it must be told that this is a new session
        self.seen: SeenIds | None = None  # what it has had; None: it does not roam, or has left for another broker
        self.departed_to = ""  # the broker that its client went on to; what still comes is passed on
        self.departed_us = 0  # the CONNECT there
        self.claimed_us = 0  # the CONNECT by which it is here; of two brokers with the session the later one has it
        self.greeted_us = 0  # when a client was let in last: what it knows of the session
        self.arrival = 0  # number of the move that brought it here
        self.clean_us = 0  # when it was opened by a clean start; older sessions of the client are void

    @property
    def grants(self) -> dict[str, Grant]:
        """By filter, with `$share/group/` where it is shared; to look at, not to change."""
        grants = self._grants
        if isinstance(grants, Grant):
            return {self._only_filter: grants}
        return {} if grants is None else grants

    def put_grant(self, full_filter: str, grant: Grant) -> None:
        grants = self._grants
        if isinstance(grants, Grant) and full_filter != self._only_filter:
            grants = self._grants = {self._only_filter: grants}
            self._only_filter = ""
        if isinstance(grants, dict):
            grants.pop(full_filter, None)  # the newest is the last
            grants[full_filter] = grant
        else:
            self._only_filter, self._grants = full_filter, grant

    def take_grant(self, full_filter: str) -> Grant | None:
        """Takes it out of the session; None: there is none."""
        grants = self._grants
        if isinstance(grants, dict):
            return grants.pop(full_filter, None)
        if grants is None or self._only_filter != full_filter:
            return None
        self._only_filter, self._grants = "", None
        return grants

    def take_in(self, packet_id: int, mark: int) -> None:
        """A QoS 2 message was received and has still to be released."""
        if self.incoming is _NO_IDS:
            self.incoming = {}
        self.incoming[packet_id] = mark

    def wants_since(self, full_filter: str, wall_us: int) -> None:
        if self.wanted_us is None:
            self.wanted_us = {}
        self.wanted_us[full_filter] = wall_us

    def since_us(self, full_filter: str) -> int:
        """Since when the city is to know that the session wants it; 0: not recorded."""
        return self.wanted_us.get(full_filter, 0) if self.wanted_us is not None else 0

    def gave_up(self, full_filter: str) -> None:
        if self.wanted_us is not None:
            self.wanted_us.pop(full_filter, None)

    def grant(
        self, share: str, qos: int, no_local: bool, retain_as_published: bool, retain_handling: int, identifier: int
    ) -> Grant:
        """For a new subscription: the last one's if that is alike."""
        grants = self._grants
        last = next(reversed(grants.values()), None) if isinstance(grants, dict) else grants
        if (
            last is not None
            and not last.of_replay
            and last.share == share
            and last.qos == qos
            and last.no_local == no_local
            and last.retain_as_published == retain_as_published
            and last.retain_handling == retain_handling
            and last.identifier == identifier
        ):
            return last
        return Grant(self, share, qos, no_local, retain_as_published, retain_handling, identifier)


@final
class RouteTarget:
    """One session on a route; overlapping subscriptions of a session are one copy at the highest QoS [MQTT-3.3.4-2]."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.qos = 0
        self.retain_as_published = False
        self.no_local = False
        self.is_own = False  # by a subscription of the session's own, not only by what follows a replay
        self.identifiers: tuple[int, ...] = ()
        self.grants: list[Grant] = []
        self.note = b""  # of a member of a shared group (`shares.note_of`)

    def add(self, grant: Grant) -> None:
        self.grants.append(grant)
        self.qos = max(self.qos, grant.qos)
        self.retain_as_published = self.retain_as_published or grant.retain_as_published
        self.no_local = self.no_local or grant.no_local
        self.is_own = self.is_own or not grant.of_replay
        if grant.identifier:
            self.identifiers = (*self.identifiers, grant.identifier)

    def with_grant(self, grant: Grant) -> "RouteTarget":
        """The same with one more subscription of the session; this one may be on other routes and stays as it is."""
        target = RouteTarget(self.session)
        for known in self.grants:
            target.add(known)
        target.add(grant)
        return target

    def with_note(self, note: bytes) -> "RouteTarget":
        """The same with another note, for a message that other members had before."""
        target = RouteTarget(self.session)
        for known in self.grants:
            target.add(known)
        target.note = note
        return target

    def without_local(self) -> "RouteTarget | None":
        """What is left for the publisher's own session [MQTT-3.8.3-3]."""
        rest = RouteTarget(self.session)
        for grant in self.grants:
            if not grant.no_local:
                rest.add(grant)
        return rest if rest.grants else None
