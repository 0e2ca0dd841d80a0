"""From a topic name to the sessions that get the message: the filter tree behind a bounded cache of routes."""

from typing import Final, final

from mypy_extensions import mypyc_attr

from metromq.protocol.session.backlog import LinkBacklog
from metromq.protocol.session.session import Grant, Session
from metromq.protocol.topics.names import matches, validate_topic
from metromq.protocol.topics.tree import FilterTree

MAX_ROUTES: Final = 8192
ROUTES_SEARCHED: Final = 4096  # past this many a wildcard change empties the cache instead of searching it


@final
class RouteTarget:
    """One session on a route; overlapping subscriptions of a session are one copy at the highest QoS [MQTT-3.3.4-2]."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.qos = 0
        self.retain_as_published = False
        self.no_local = False
        self.identifiers: tuple[int, ...] = ()
        self.grants: list[Grant] = []

    def add(self, grant: Grant) -> None:
        self.grants.append(grant)
        self.qos = max(self.qos, grant.qos)
        self.retain_as_published = self.retain_as_published or grant.retain_as_published
        self.no_local = self.no_local or grant.no_local
        if grant.identifier:
            self.identifiers = (*self.identifiers, grant.identifier)

    def without_local(self) -> "RouteTarget | None":
        """What is left for the publisher's own session [MQTT-3.8.3-3]."""
        rest = RouteTarget(self.session)
        for grant in self.grants:
            if not grant.no_local:
                rest.add(grant)
        return rest if rest.grants else None


def target_of(grant: Grant) -> RouteTarget:
    """The one who was picked in a share group."""
    target = RouteTarget(grant.session)
    target.add(grant)
    return target


@mypyc_attr(allow_interpreted_subclasses=True)
class ReadCheck:
    """Whether a session may read a topic; the shell's access list answers."""

    def may_read(self, session: Session, topic: str) -> bool:
        return True


@final
class ShareGroup:
    """The members of `$share/name/filter` at this broker; each message goes to one of them [MQTT-4.8.2-4]."""

    def __init__(self, name: str, filter: str) -> None:
        self.name = name
        self.filter = filter
        self.members: list[Grant] = []
        self.turn = 0

    def pick(self, topic: str, check: ReadCheck | None) -> Grant | None:
        """In turn among the connected members with room; else who is connected; else a session that waits."""
        count = len(self.members)
        best: Grant | None = None
        best_rank = 3
        for step in range(count):
            grant = self.members[(self.turn + step) % count]
            session = grant.session
            if check is not None and not check.may_read(session, topic):
                continue
            output = session.output
            if output is None or output.closing:
                rank = 2
            elif session.backlog.behind() or output.stalled:
                rank = 1
            else:
                rank = 0
            if rank < best_rank:
                best, best_rank = grant, rank
                if rank == 0:
                    self.turn = (self.turn + step + 1) % count
                    return best
        if count:
            self.turn = (self.turn + 1) % count
        return best


@final
class LinkCopy:
    """One copy of a message for one peer: the link's backlog and what to say beside the message."""

    def __init__(self, backlog: LinkBacklog, note: bytes) -> None:
        self.backlog = backlog
        self.note = note


@final
class Route:
    """Where the messages of one topic go."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.targets: list[RouteTarget] = []
        self.groups: list[ShareGroup] = []
        self.plain = True  # QoS 0 bytes may be forwarded to the targets as they came,
        self.copies: list[LinkCopy] | None = []  # and to these peers; None: peers differ from message to message


@mypyc_attr(allow_interpreted_subclasses=True)
class RemoteCheck:
    """Which peers get what clients here publish; routing between brokers answers."""

    def run_copies(self, topic: str) -> list[LinkCopy] | None:
        """The copies that every QoS 0 message of the topic needs; None: each must be asked for by itself."""
        return []


@final
class RouteTable:
    """Subscriptions of this broker and the routes that follow from them."""

    def __init__(self) -> None:
        self.tree: FilterTree[str, Grant] = FilterTree()
        self.shares: FilterTree[str, ShareGroup] = FilterTree()
        self.cache: dict[bytes, Route] = {}
        self.read_check: ReadCheck | None = None
        self.remote_check: RemoteCheck | None = None
        self.count = 0

    def may_read(self, session: Session, topic: str) -> bool:
        """Whether the access list lets the session's user read the topic now."""
        check = self.read_check
        return check is None or check.may_read(session, topic)

    def add(self, grant: Grant) -> bool:
        """Returns whether the subscription is new rather than replaced [MQTT-3.8.4-3]."""
        old = grant.session.grants.get(grant.full_filter())
        if old is not None:
            self._remove(old)
        grant.session.grants[grant.full_filter()] = grant
        if grant.share:
            group = self.shares.get(grant.filter, grant.share)
            if group is None:
                group = ShareGroup(grant.share, grant.filter)
                self.shares.insert(grant.filter, grant.share, group)
            group.members.append(grant)
        else:
            self.tree.insert(grant.filter, grant.session.client_id, grant)
        self.count += 1
        self.invalidate(grant.filter)
        return old is None

    def remove(self, session: Session, full_filter: str) -> Grant | None:
        grant = session.grants.pop(full_filter, None)
        if grant is not None:
            self._remove(grant)
            self.invalidate(grant.filter)
        return grant

    def _remove(self, grant: Grant) -> None:
        self.count -= 1
        if not grant.share:
            self.tree.remove(grant.filter, grant.session.client_id)
            return
        group = self.shares.get(grant.filter, grant.share)
        if group is not None:
            group.members.remove(grant)
            if not group.members:
                self.shares.remove(grant.filter, grant.share)

    def invalidate(self, filter: str) -> None:
        """Forgets the routes that a change of this filter touches."""
        if "+" not in filter and "#" not in filter:
            self.cache.pop(filter.encode(), None)
        elif len(self.cache) > ROUTES_SEARCHED:
            self.clear()
        else:
            for key in [key for key, route in self.cache.items() if matches(filter, route.topic)]:
                del self.cache[key]

    def clear(self) -> None:
        self.cache = {}

    def find(self, topic: bytes) -> Route:
        """The route of a topic; raises PeerViolation when the bytes are no topic name."""
        route = self.cache.get(topic)
        if route is None:
            name = topic.decode()
            validate_topic(name)
            route = self.build(name)
            if len(self.cache) >= MAX_ROUTES:
                self.clear()
            self.cache[topic] = route
        return route

    def build(self, topic: str) -> Route:
        route = Route(topic)
        route.plain = not topic.startswith("$")  # the long way knows who may publish there
        by_session: dict[str, RouteTarget] = {}
        check = self.read_check
        for grant in self.tree.match(topic):
            session = grant.session
            if check is not None and not check.may_read(session, topic):
                continue
            target = by_session.get(session.client_id)
            if target is None:
                target = RouteTarget(session)
                by_session[session.client_id] = target
                route.targets.append(target)
            target.add(grant)
            gate = session.gate
            if grant.no_local or grant.identifier or (gate is not None and gate.is_holding):
                route.plain = False
        route.groups = self.shares.match(topic)
        if route.groups:
            route.plain = False
        if self.remote_check is not None:
            route.copies = self.remote_check.run_copies(topic)
        return route
