"""Which peers get a copy of a message, and which shared subscriptions here: the node's answers for the hub."""

from collections.abc import Callable, Iterable
from typing import Final, final

from mypy_extensions import mypyc_attr

from metromq.federation.distribution import HELD, NOWHERE, Arrival, Distribution, joined, pass_shares, shares_for
from metromq.federation.hop import Hop
from metromq.federation.links.batch import CHECK, PASSED, LinkMessage
from metromq.federation.links.inbox import DISTRIBUTE, SHARE, Inbox, limit_of
from metromq.federation.links.routing_slip import read_slip, slip_of
from metromq.federation.node import Node
from metromq.federation.stages import CLIENT, FINAL, HANDOVER, OWNER, RELAY
from metromq.protocol import Remembered
from metromq.protocol.session import (
    KIND_LINK,
    KIND_PUBLISH,
    KIND_WILL,
    Hub,
    LinkCopy,
    Message,
    RemoteCheck,
    Session,
    note_limit,
    share_of,
    with_limit,
)

COPIES_BYTES: Final = 4 << 20  # of copies that are remembered
HANDED_BYTES: Final = 1 << 20  # of messages that a stand-in has handed to us
HANDED_SIZE: Final = 100  # of each, beside the brokers' names


@mypyc_attr(native_class=False)  # tests plant bugs in it
@final
class ShareChoice:
    """Which shared subscriptions are served here."""

    def serves(self, shares: tuple[str, ...], group: str, filter: str) -> bool:
        return f"$share/{group}/{filter}" in shares


@final
class Copies(RemoteCheck):
    def __init__(self, hub: Hub, node: Node, inbox: Inbox, wants: Callable[[str], None]) -> None:
        self._wants = wants  # there will be messages for a peer
        self._hub = hub
        self._inbox = inbox
        self._routes = node.routes
        self._entry: LinkMessage | None = None  # the peer's message that is being taken
        self._uses = 0
        self._sender = ""
        self._routed: Message | None = None
        self._route: Distribution = NOWHERE
        self._choice = ShareChoice()
        self._durable: Remembered[Distribution, list[LinkCopy]] = Remembered(COPIES_BYTES)
        # The same at QoS 0, which takes no second way.
        self._fleeting: Remembered[Distribution, list[LinkCopy]] = Remembered(COPIES_BYTES)
        self._number = 0
        # Who has had a message that was handed to us, by its origin and number there.
        self._handed: Remembered[tuple[str, int], tuple[str, ...]] = Remembered(HANDED_BYTES)

    def take(self, entry: LinkMessage | None, uses: int = 0, sender: str = "") -> None:
        """The message that the hub asks about next came from a peer, to be used so; None: from a client again."""
        self._entry, self._uses, self._sender = entry, uses, sender
        if entry is not None and uses & DISTRIBUTE:
            check = bool(entry.flags & CHECK) or entry.stage == HANDOVER
            if check or self._inbox.has_marked_shares(entry.message.origin):
                # Whoever distributed it before may have chosen members here; asked now, before we choose.
                known = self.shares_done(entry.message, check)
                entry.shares_done = tuple(dict.fromkeys((*entry.shares_done, *known)))

    def changed(self) -> None:
        """The node may decide differently from now on."""
        self._routed = None

    def for_hop(self, hop: Hop, flags: int = 0) -> LinkCopy:
        self._wants(hop.peer)
        return LinkCopy(self._hub.links.backlog(hop.peer), slip_of(hop, flags))

    def copies(self, message: Message) -> list[LinkCopy]:
        route = self._routing(message)
        if not route.hops:
            return []
        known = self._durable if message.qos else self._fleeting
        found = known.young.get(route)
        if found is None:
            found = known.get(route)
        if found is None:
            found = [self.for_hop(hop) for hop in route.hops if message.qos or not hop.durable_only]
            known.put(route, found, 2 * route.size_bytes())
        return found

    def of_run(self, route: Distribution) -> list[LinkCopy] | None:
        """The copies of a QoS 0 message, where they are the same for every message of the topic."""
        if route.shares or any(hop.shares or hop.shares_done for hop in route.hops):
            return None
        return [self.for_hop(hop) for hop in route.hops if not hop.durable_only]

    def picks_share(self, group: str, filter: str, message: Message) -> bool:
        return self._choice.serves(self._routing(message).shares, group, filter)

    def share_note(self, note: bytes, uses: int) -> bytes:
        limit = limit_of(uses)
        return note if limit < 0 else with_limit(note, limit)

    def left_copies(self, message: Message, note: bytes) -> list[LinkCopy]:
        """As for one that comes when its members have just left."""
        share = "$share/" + "/".join(share_of(note))
        origin, number = self._id(message)
        arrival = Arrival(message.topic, FINAL, origin, number)
        arrival.limit = note_limit(note)
        hops = pass_shares(self._routes, (share,), arrival, "")
        if not hops:
            self._inbox.not_shared(origin, number, (share,))
        return [self.for_hop(hop) for hop in hops]

    def _routing(self, message: Message) -> Distribution:
        if message is not self._routed:
            entry = self._entry
            if entry is None or entry.message is not message:
                self._route = self._of_client(message)
            else:
                self._route = self._of_peer(entry)
            self._routed = message
        return self._route

    def run_copies(self, topic: str) -> list[LinkCopy] | None:
        """The copies of every QoS 0 message of a client here; None: each is asked for, since the router listens."""
        ways = self._routes.router.ways
        return None if ways.leads and ways.expects(topic) else self.of_run(self._routes.route(topic))

    def _of_client(self, message: Message) -> Distribution:
        log = self._hub.commits.log
        self._number += 1
        number = log.next_offset() if message.qos and log is not None else self._number
        routes = self._routes
        if routes.router.ways.leads:
            routes.published(message.topic)
        route = routes.of_topics.young.get(message.topic)
        if route is None:
            route = routes.route(message.topic, CLIENT, routes.name, number)
        if route.held and message.qos and log is not None:
            return HELD
        if message.qos and log is not None:
            if route.serves:  # it may be handed back to us after a takeover
                self._inbox.received(self._routes.name, number, DISTRIBUTE)
            if route.serves or route.shares:  # own members did not wait for a broker out of reach
                self._served(self._routes.name, number, route)
        return route

    def released(self, message: Message, route: Distribution) -> None:
        """A message of a client that was held back is distributed only now."""
        if route.serves:
            self._inbox.received(self._routes.name, message.offset, DISTRIBUTE)
            self._served(self._routes.name, message.offset, route)

    def _served(self, origin: str, number: int, route: Distribution, entry: LinkMessage | None = None) -> None:
        """Members of these shared subscriptions are chosen: a copy by another way must not choose again."""
        is_marked = entry is not None and bool(entry.flags & CHECK)
        shares = [*route.shares, *(share for hop in route.hops for share in hop.shares)]
        if shares:
            self._inbox.shared(origin, number, shares, is_marked)
            # Also what a stand-in hands to us without a mark leaves us with one.
            marked = (hop for hop in route.hops if is_marked or (hop.check and hop.stage != RELAY))
            self._chose(origin, number, marked)
        if entry is not None and entry.shares_done:
            self._inbox.shared_elsewhere(origin, number, entry.shares_done)
        if route.left:
            self._inbox.shared_elsewhere(origin, number, route.left)

    def rerouted(self, origin: str, number: int, route: Distribution) -> None:
        """The same for a message that another broker may have distributed, whose copies come without a mark."""
        if route.serves:
            self._inbox.received(origin, number, DISTRIBUTE)
        self._inbox.shared(
            origin, number, [*route.shares, *(share for hop in route.hops for share in hop.shares)], True
        )
        self._chose(origin, number, route.hops)

    def _chose(self, origin: str, number: int, hops: Iterable[Hop]) -> None:
        for hop in hops:
            self._inbox.chose(origin, number, hop.shares, hop.peer)

    def shares_done(self, message: Message, check: bool = True) -> tuple[str, ...]:
        """The shared subscriptions of which members were chosen for a message, as far as this broker knows."""
        known = shares_for(self._routes, message.topic)
        return tuple(share for share in known if self.is_chosen(message, share, check))

    def is_distributed(self, message: Message) -> bool:
        """Whether this broker has passed a message on to whoever wanted it, though once it left that to another."""
        return self._inbox.has_distributed(*self._id(message))

    def is_chosen(self, message: Message, share: str, check: bool = True) -> bool:
        return self._inbox.has_shared(*self._id(message), share, check)

    def chosen(self, message: Message, shares: tuple[str, ...], peer: str) -> None:
        """The peer's members are chosen of shared subscriptions that were not known when it was distributed."""
        self._inbox.shared(*self._id(message), shares, True)
        self._inbox.chose(*self._id(message), shares, peer)

    def was_served(self, message: Message, peer: str) -> bool:
        """Whether whoever handed us the message has a copy for the peer under way."""
        return peer in (self._handed.get(self._id(message)) or ())

    def _id(self, message: Message) -> tuple[str, int]:
        """Its origin and its number there."""
        return (message.origin, message.origin_offset) if message.origin else (self._routes.name, message.offset)

    def recalled(self, message: Message, uses: int, holders: list[Session], copies: list[LinkCopy]) -> None:
        """After a restart: what a journalled message was used for, and the shared subscriptions that were chosen."""
        origin, number = self._id(message)
        slips = [read_slip(copy.note) for copy in copies]
        own = self._routes.announcer.shares_for(message.topic) if holders else []
        here = [share for share in own if any(share in holder.grants for holder in holders)]
        if message.kind in (KIND_LINK, KIND_WILL) and number >= 0:
            self._inbox.received(origin, number, uses, here)
        elif uses:
            self._inbox.rerouted(origin, number, here)
        chosen = [share for slip in slips for share in (*slip.shares, *slip.shares_done)]
        if uses & DISTRIBUTE or (message.kind == KIND_PUBLISH and all(slip.stage != OWNER for slip in slips)):
            chosen += here  # who distributes a message chooses for all
        self._inbox.shared(origin, number, dict.fromkeys(chosen))
        for slip, copy in zip(slips, copies, strict=True):
            if slip.shares and slip.flags & CHECK and not slip.flags & PASSED and slip.stage != RELAY:
                self._inbox.shared(origin, number, slip.shares, True)
                self._inbox.chose(origin, number, slip.shares, copy.backlog.peer)

    def _of_peer(self, entry: LinkMessage) -> Distribution:
        message = entry.message
        shares = entry.shares if self._uses & SHARE else ()
        gone = tuple(share for share in shares if not self._routes.announcer.members(share))
        here = tuple(share for share in shares if share not in gone)
        passed = self._pass_on(entry, gone) if gone else ()
        left = [share for share in gone if not any(share in hop.shares for hop in passed)]
        if left and message.qos:
            self._inbox.not_shared(*self._id(message), left)
        if not self._uses & DISTRIBUTE:
            if message.qos and entry.shares_done:
                self._inbox.shared_elsewhere(*self._id(message), entry.shares_done)
            return Distribution(passed, here) if shares else NOWHERE
        is_checked = bool(entry.flags & CHECK)
        route: Distribution | None = None
        if not (is_checked or here or entry.shares_done or entry.targets):
            way = message.topic, entry.stage, message.origin, entry.served, entry.limit
            route = self._routes.onward.young.get(way)
        if route is None:
            route = self._routes.route(
                message.topic,
                entry.stage,
                message.origin,
                message.origin_offset,
                entry.served,
                here,
                entry.shares_done,
                is_checked,
                entry.limit,
                entry.targets,
            )
        if message.qos:
            self._served(message.origin, message.origin_offset, route, entry)
            if entry.stage == HANDOVER and entry.served:
                self._handed.put(self._id(message), entry.served, HANDED_SIZE + 8 * len(entry.served))
        return Distribution(joined((*route.hops, *passed)), route.shares, route.dropped) if passed else route

    def _pass_on(self, entry: LinkMessage, shares: tuple[str, ...]) -> tuple[Hop, ...]:
        message = entry.message
        arrival = Arrival(message.topic, entry.stage, message.origin, message.origin_offset, entry.served)
        arrival.limit, arrival.passed = entry.limit, bool(entry.flags & PASSED)
        return pass_shares(self._routes, shares, arrival, self._sender)
