"""From a topic name to those who get the message."""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from metromq.protocol.remembered import Remembered
from metromq.protocol.session.forwarding import is_other_level, is_plain
from metromq.protocol.session.message import Message
from metromq.protocol.session.paths import Junction, Paths
from metromq.protocol.session.route import LinkCopy, ReadCheck, Route, ShareGroup, route_to
from metromq.protocol.session.session import Grant, Receiver, Session
from metromq.protocol.topics.names import levels_match, split_shared, validate_topic
from metromq.protocol.topics.tree import FilterTree

RECENT_BYTES: Final = 512 << 10  # of topics whose routes are remembered: as many as a processor's caches hold,
DEAR_BYTES: Final = 4 << 20  # or more where an access list or other brokers make it dear to look them up again
ENTRY_BYTES: Final = 160  # what a topic costs there beside its own length,
OWN_ROUTE_BYTES: Final = 300  # when its route is not shared,
COPY_BYTES: Final = 200  # and for each peer
KEPT_IN: Final = 8  # one of so many topics that cost little to look up is remembered: those that come often soon are
MAX_SHORT_BYTES: Final = 100  # topics up to this length are looked up without a full check of the packet
FEW_STRAYS: Final = 4  # topics behind each other that began unlike the stem: then it is found again,
MOST_STRAYS: Final = 1_024  # soon at first, and later at least once for so many
SIFTED: Final = 2_000  # topics at most that are looked through when a wildcard filter comes or goes


@mypyc_attr(allow_interpreted_subclasses=True)
class RemoteCheck:
    """Which peers get what clients here publish; routing between brokers answers.

    When an answer of `run_copies` changes, whoever gave it invalidates the routes concerned (`hub.routes.invalidate`).
    """

    def run_copies(self, topic: str) -> list[LinkCopy] | None:
        """The copies that every QoS 0 message of the topic needs; None: each must be asked for by itself."""
        return []

    def copies(self, message: Message) -> list[LinkCopy]:
        """The peers that get a copy of a message that is being published here."""
        return []

    def picks_share(self, group: str, filter: str, message: Message) -> bool:
        """Whether this broker's members are served with this message."""
        return True

    def share_note(self, note: bytes, uses: int) -> bytes:
        """The note of a member here, for a message that a peer sent to be used so."""
        return note

    def left_copies(self, message: Message, note: bytes) -> list[LinkCopy]:
        """A member's session has ended, and no other is here: the peer whose members get what it has left."""
        return []


@final
class _Several:
    """More than one subscription to one topic by its name, or a share group."""

    def __init__(self, receivers: dict[str, Receiver]) -> None:
        self.receivers = receivers
        self._junction: Junction | None = None
        self._route: Route | None = None

    def route(self, junction: Junction) -> Route:
        """Together with those who have the topic by a wildcard."""
        route = self._route
        if route is None or self._junction is not junction:
            route = route_to([*junction.receivers, *self.receivers.values()])
            self._junction, self._route = junction, route
        return route

    def add(self, key: str, receiver: Receiver) -> None:
        self.receivers[key] = receiver
        self._route = None

    def remove(self, key: str) -> None:
        self.receivers.pop(key, None)
        self._route = None


@final
class RouteTable:
    """Subscriptions of this broker and the routes that follow from them.

    Subscriptions to one topic are found by its name, those with wildcards by the paths through their tree. A route is
    shared by all topics with the same receivers. What is remembered by topic is bounded, in bytes, and nothing depends
    on it: to find a route anew costs little more.
    """

    def __init__(self, max_topic_levels: int = 128) -> None:
        self.tree: FilterTree[str, Receiver] = FilterTree()  # filters with wildcards
        self.shares: dict[tuple[str, str], ShareGroup] = {}  # by name and filter
        self._groups: dict[str, int] = {}  # how many of them there are, by filter
        self.recent: Remembered[bytes, Route] = Remembered(RECENT_BYTES)
        self.read_check: ReadCheck | None = None
        self.remote_check: RemoteCheck | None = None
        self.count = 0
        self._paths = Paths(self.tree)
        self._single: dict[str, Grant] = {}  # topics with one subscription by name
        self._several: dict[str, _Several] = {}  # topics with more
        self._has_names = False  # whether there are any of these
        self._dice = 0
        self._strays: i64 = 0  # topics that were remembered, since the last that began with the stem of `_paths`
        self._short_bytes = min(MAX_SHORT_BYTES, max_topic_levels)

    def may_read(self, session: Session, topic: str) -> bool:
        """Whether the access list lets the session's user read the topic now."""
        check = self.read_check
        return check is None or check.may_read(session, topic)

    # --- subscriptions --------------------------------------------------------------------------------------------

    def add(self, full_filter: str, grant: Grant) -> bool:
        """Returns whether the subscription is new rather than replaced [MQTT-3.8.4-3]."""
        session = grant.session
        old = session.grants.get(full_filter)
        if old is not None:
            self._remove(full_filter, old)
        session.put_grant(full_filter, grant)
        self.count += 1
        name, filter = split_shared(full_filter)
        if not name:
            self._insert(filter, session.client_id, grant)
            return old is None
        group = self.shares.get((name, filter))
        if group is None:
            group = ShareGroup(name, filter)
            self.shares[name, filter] = group
            self._groups[filter] = self._groups.get(filter, 0) + 1
            self._insert(filter, _key_of(group), group)
        group.join(grant)
        return old is None

    def remove(self, session: Session, full_filter: str) -> Grant | None:
        grant = session.take_grant(full_filter)
        if grant is not None:
            self._remove(full_filter, grant)
        return grant

    def subscriptions(self, filter: str, share: str = "") -> int:
        """How many there are to exactly this filter."""
        if share:
            group = self.shares.get((share, filter))
            return 0 if group is None else len(group.members)
        if _is_wild(filter):
            found = self.tree.count(filter)
        elif filter in self._single:
            return 1
        else:
            several = self._several.get(filter)
            found = 0 if several is None else len(several.receivers)
        return found - self._groups.get(filter, 0)

    def _remove(self, full_filter: str, grant: Grant) -> None:
        self.count -= 1
        grant.forget_target()
        name, filter = split_shared(full_filter)
        if not name:
            self._take_out(filter, grant.session.client_id, grant)
            return
        group = self.shares[name, filter]
        group.leave(grant)
        if not group.members:
            del self.shares[name, filter]
            left = self._groups.pop(filter) - 1
            if left:
                self._groups[filter] = left
            self._take_out(filter, _key_of(group), group)

    def _insert(self, filter: str, key: str, receiver: Receiver) -> None:
        if _is_wild(filter):
            self.tree.insert(filter, key, receiver)
            self._paths.changed(filter)
        elif filter in self._several:
            self._several[filter].add(key, receiver)
        elif filter in self._single:
            other = self._single.pop(filter)
            self._paths.forget(filter, other)
            self._several[filter] = _Several({other.session.client_id: other, key: receiver})
        elif isinstance(receiver, Grant):
            self._single[filter] = receiver
        else:
            self._several[filter] = _Several({key: receiver})
        self._changed(filter)

    def _take_out(self, filter: str, key: str, receiver: Receiver) -> None:
        if _is_wild(filter):
            self.tree.remove(filter, key)
            self._paths.changed(filter, receiver)
        elif filter in self._several:
            self._take_out_of_several(filter, key)
        elif isinstance(receiver, Grant) and self._single.pop(filter, None) is not None:
            self._paths.forget(filter, receiver)
        self._changed(filter)

    def _changed(self, filter: str) -> None:
        self._has_names = bool(self._single) or bool(self._several)
        self.invalidate(filter)

    def _take_out_of_several(self, filter: str, key: str) -> None:
        several = self._several[filter]
        several.remove(key)
        if not several.receivers:
            del self._several[filter]
        elif len(several.receivers) == 1:
            (rest,) = several.receivers.values()
            if isinstance(rest, Grant):
                del self._several[filter]
                self._single[filter] = rest

    # --- routes ---------------------------------------------------------------------------------------------------

    def invalidate(self, filter: str) -> None:
        """Forgets what is remembered of the topics that a change of this filter touches."""
        recent = self.recent
        if not _is_wild(filter):
            recent.pop(filter.encode())
        elif self.remote_check is None and recent.count() <= SIFTED:
            levels = filter.split("/")
            first, last = _plain_ends(filter)
            for topic in recent.listed():
                if topic.startswith(first) and topic.endswith(last) and levels_match(levels, topic.decode()):
                    recent.pop(topic)
        else:
            recent.clear()

    def clear(self) -> None:
        self.recent.clear()

    def find(self, topic: bytes) -> Route:
        """The route of a topic; raises PeerViolation when the bytes are no topic name."""
        route = self.recent.young.get(topic)
        if route is None:
            route = self.recent.get(topic)
        if route is None:
            name = topic.decode()
            validate_topic(name)
            route = self._look_up(topic, name)
        return route

    def of_packet(self, data: bytes, start: int, end: int) -> Route | None:
        """The route of the topic that stands there in bytes that nobody has checked; None: they need a closer look.

        Topics of one publisher often begin alike: then only the rest is looked at.
        """
        paths = self._paths
        junction = paths.stem_junction
        is_simple = self.read_check is None and self.remote_check is None
        if junction is not None and is_simple:
            rest = start + len(paths.stem)
            if rest <= end <= start + self._short_bytes and data[start:rest] == paths.stem:
                names = paths.stem_names
                if is_plain(data, rest, end) if names is None else is_other_level(data, rest, end, names):
                    self._strays = 0
                    return self._with_names(data[start:end].decode(), junction) if self._has_names else junction.route
                if names is None:
                    return None
        topic = data[start:end]
        route = self.recent.young.get(topic)
        if route is None:
            return self._known(topic)
        if is_simple:
            self._stray(topic)
        return route

    def _stray(self, topic: bytes) -> None:
        """Looks now and then whether topics have a new stem in common: what is remembered would hide it for ever."""
        self._strays += 1
        strays = self._strays
        if strays >= FEW_STRAYS and (strays & (strays - 1) == 0 or strays & (MOST_STRAYS - 1) == 0):
            self._paths.find(topic)

    def deciding_bytes(self, data: bytes, start: int, end: int, route: Route) -> int:
        """How many bytes at the beginning of this topic decide alone that it has this route, one at least."""
        paths = self._paths
        if self.read_check is None and self.remote_check is None and not self._has_names:
            if paths.stem_junction is None or data[start : start + len(paths.stem)] != paths.stem:
                paths.find(data[start:end])
            junction = paths.stem_junction
            size = len(paths.stem)
            if (
                junction is not None
                and paths.stem_names is None
                and size <= end - start <= self._short_bytes
                and data[start : start + size] == paths.stem
                and junction.route.leads_like(route)
            ):
                return max(1, size)
        return end - start

    def _known(self, topic: bytes) -> Route | None:
        route = self.recent.get(topic)
        if route is not None or len(topic) > self._short_bytes:
            return route
        try:
            name = topic.decode()
        except UnicodeDecodeError:
            return None
        if "+" in name or "#" in name or "\0" in name:
            return None
        return self._look_up(topic, name)

    def _look_up(self, topic: bytes, name: str) -> Route:
        shared = self.build(name)
        if self.read_check is None and self.remote_check is None:
            self._dice = (self._dice * 25_173 + 13_849) & 0xFFFF
            if self._dice < 0x1_0000 // KEPT_IN:
                self.recent.put(topic, shared, ENTRY_BYTES + len(topic))
            return shared
        route = self._for_topic(name, shared)
        size = ENTRY_BYTES + len(topic)
        if route is not shared:
            size += OWN_ROUTE_BYTES + 8 * len(route.targets) + COPY_BYTES * len(route.copies or ())
        self.recent.limit_bytes = DEAR_BYTES
        self.recent.put(topic, route, size)
        return route

    def build(self, topic: str) -> Route:
        """The route by subscriptions alone."""
        if topic.startswith("$"):
            return self._build_hidden(topic)
        return self._with_names(topic, self._paths.find(topic.encode()))

    def _with_names(self, topic: str, junction: Junction) -> Route:
        """Together with those who have the topic by its name."""
        grant = self._single.get(topic) if self._single else None
        if grant is not None:
            return self._paths.with_one(junction, grant)
        several = self._several.get(topic) if self._several else None
        return junction.route if several is None else several.route(junction)

    def _build_hidden(self, topic: str) -> Route:
        receivers = self.tree.match(topic)
        grant = self._single.get(topic)
        if grant is not None:
            receivers.append(grant)
        several = self._several.get(topic)
        if several is not None:
            receivers.extend(several.receivers.values())
        route = route_to(receivers)
        route.plain = False  # the long way knows who may publish there
        return route

    def _for_topic(self, topic: str, shared: Route) -> Route:
        """The route without those who may not read this topic, and with the peers that get its messages."""
        check = self.read_check
        targets = shared.targets
        if check is not None:
            targets = [target for target in targets if check.may_read(target.session, topic)]
        remote = self.remote_check
        copies = remote.run_copies(topic) if remote is not None else shared.copies
        if len(targets) == len(shared.targets) and copies is not None and not copies:
            return shared
        route = Route()
        route.targets, route.groups, route.plain, route.copies = targets, shared.groups, shared.plain, copies
        return route


def _is_wild(filter: str) -> bool:
    return "+" in filter or "#" in filter


def _plain_ends(filter: str) -> tuple[bytes, bytes]:
    """With what every topic begins, and ends, that a wildcard filter matches: most others are told by it."""
    first = filter.replace("#", "+").partition("+")[0].removesuffix("/")  # `a/#` matches `a`, too
    last = "" if filter.endswith("#") else filter.rpartition("+")[2]
    return first.encode(), last.encode()


def _key_of(group: ShareGroup) -> str:
    """A key beside those of clients, whose identifiers never hold the null character [MQTT-1.5.4-2]."""
    return f"\0{group.name}"
