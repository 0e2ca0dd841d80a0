"""Which peers get a copy of a message, and which shared subscriptions here: the node's answers for the hub."""

from typing import Final, final

from metromq.federation.distribution import NOWHERE, Arrival, Distribution, pass_shares, shares_for
from metromq.federation.hop import Hop
from metromq.federation.links.batch import CHECK, LinkMessage
from metromq.federation.links.inbox import DISTRIBUTE, SHARE, Inbox
from metromq.federation.links.routing_slip import slip_of
from metromq.federation.node import Node
from metromq.federation.stages import CLIENT
from metromq.protocol import Remembered
from metromq.protocol.session import Hub, LinkCopy, Message

COPIES_BYTES: Final = 4 << 20  # of copies that are remembered


@final
class Copies:
    def __init__(self, hub: Hub, node: Node, inbox: Inbox) -> None:
        self._hub = hub
        self._inbox = inbox
        self._node = node
        self._entry: LinkMessage | None = None  # the peer's message that is being taken
        self._uses = 0
        self._sender = ""
        self._routed: Message | None = None
        self._route: Distribution = NOWHERE
        self._durable: Remembered[Distribution, list[LinkCopy]] = Remembered(COPIES_BYTES)
        # The same at QoS 0, which takes no second way.
        self._fleeting: Remembered[Distribution, list[LinkCopy]] = Remembered(COPIES_BYTES)
        self._number = 0

    def take(self, entry: LinkMessage | None, uses: int = 0, sender: str = "") -> None:
        """The message that the hub asks about next came from a peer, to be used so; None: from a client again."""
        self._entry, self._uses, self._sender = entry, uses, sender

    def changed(self) -> None:
        """The node may decide differently from now on."""
        self._routed = None

    def for_hop(self, hop: Hop, flags: int = 0) -> LinkCopy:
        return LinkCopy(self._hub.links.backlog(hop.peer), slip_of(hop, flags))

    def of(self, message: Message) -> list[LinkCopy]:
        route = self._routing(message)
        if not route.hops:
            return []
        known = self._durable if message.qos else self._fleeting
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

    def picks_share(self, share: str, message: Message) -> bool:
        return share in self._routing(message).shares

    def _routing(self, message: Message) -> Distribution:
        if message is not self._routed:
            entry = self._entry
            if entry is None or entry.message is not message:
                self._route = self._of_client(message)
            else:
                self._route = self._of_peer(entry)
            self._routed = message
        return self._route

    def _of_client(self, message: Message) -> Distribution:
        log = self._hub.commits.log
        self._number += 1
        number = log.next_offset() if message.qos and log is not None else self._number
        route = self._node.route(message.topic, CLIENT, self._node.name, number)
        if route.serves and message.qos and log is not None:  # it may be handed back to us after a takeover
            self._inbox.received(self._node.name, number, DISTRIBUTE)
            self._served(self._node.name, number, route)
        return route

    def _served(self, origin: str, number: int, route: Distribution, entry: LinkMessage | None = None) -> None:
        """Members of these shared subscriptions are chosen: a copy by another way must not choose again."""
        shares = [*route.shares, *(share for hop in route.hops for share in hop.shares)]
        if shares:
            self._inbox.shared(origin, number, shares, entry is not None and bool(entry.flags & CHECK))
        if entry is not None and entry.shares_done:
            self._inbox.shared_elsewhere(origin, number, entry.shares_done)

    def rerouted(self, origin: str, number: int, route: Distribution) -> None:
        """The same for a message that another broker may have distributed, whose copies come without a mark."""
        self._inbox.shared(
            origin, number, [*route.shares, *(share for hop in route.hops for share in hop.shares)], True
        )

    def shares_done(self, message: Message) -> tuple[str, ...]:
        """The shared subscriptions of which members were chosen when the message was distributed here."""
        origin = message.origin or self._node.name
        number = message.origin_offset if message.origin else message.offset
        known = shares_for(self._node, message.topic)
        return tuple(share for share in known if self._inbox.has_shared(origin, number, share))

    def _of_peer(self, entry: LinkMessage) -> Distribution:
        message = entry.message
        shares = entry.shares if self._uses & SHARE else ()
        gone = tuple(share for share in shares if not self._node.announcer.members(share))
        here = tuple(share for share in shares if share not in gone)
        passed = self._pass_on(entry, gone) if gone else ()
        if not self._uses & DISTRIBUTE:
            return Distribution(passed, here) if shares else NOWHERE
        route = self._node.route(
            message.topic,
            entry.stage,
            message.origin,
            message.origin_offset,
            entry.served,
            here,
            entry.shares_done,
            bool(entry.flags & CHECK),
            entry.limit,
        )
        if message.qos:
            self._served(message.origin, message.origin_offset, route, entry)
        return Distribution(route.hops + passed, route.shares, route.dropped) if passed else route

    def _pass_on(self, entry: LinkMessage, shares: tuple[str, ...]) -> tuple[Hop, ...]:
        message = entry.message
        arrival = Arrival(message.topic, entry.stage, message.origin, message.origin_offset, entry.served)
        arrival.limit = entry.limit
        return pass_shares(self._node, shares, arrival, self._sender)
