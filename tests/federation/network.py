"""A whole city of nodes in one process, with links as bytes: hosts without sessions, clocks or disks."""

from collections import deque
from collections.abc import Callable

from metromq.federation.city import City
from metromq.federation.distribution import Distribution
from metromq.federation.effects import Drain, Effect, NeighboursChanged, Send
from metromq.federation.links.batch import CHECK, LinkMessage, decode_batch, encode_batch
from metromq.federation.links.frame_bytes import encode_frame
from metromq.federation.links.inbox import DELIVER, DISTRIBUTE, SHARE, Inbox
from metromq.federation.node import Node
from metromq.federation.stages import CLIENT, HOP_LIMIT
from metromq.protocol.session.message import Message
from metromq.protocol.topics.names import matches


def joins(node: Node, name: str, now_us: int, address: str = "") -> list[Effect]:
    """Somebody at the node says that the city has a new member."""
    return node.coordinated(node.coordinator.join(name, address, now_us), now_us)


def leaves(node: Node, name: str, now_us: int) -> list[Effect]:
    """Or that a member has left for good."""
    return node.coordinated(node.coordinator.leave(name, now_us), now_us)


class Network:
    """Links follow the nodes' neighbours; what is sent where no link is up is lost."""

    def __init__(self, city: City) -> None:
        self.now_us = 0
        self.nodes: dict[str, Node] = {}
        self.wanted: dict[str, set[str]] = {}
        self.delivered: list[tuple[str, bytes]] = []
        self.copies: list[tuple[str, str]] = []  # sender and receiver of each copy of a message
        self.lost: set[str] = set()
        self.watch: Callable[[str, Effect], None] = lambda at, effect: None  # sees every effect
        self._inboxes: dict[str, Inbox] = {}
        self._sequence = 0
        self._waiting: deque[Callable[[], None]] = deque()
        for name in city.names:
            self.add(city, name)
        self.link()

    def add(self, city: City, name: str) -> Node:
        self.nodes[name] = Node(city, name, 1, self.now_us)
        self.wanted[name] = set()
        self._inboxes[name] = Inbox()
        return self.nodes[name]

    def link(self) -> None:
        """Opens every link that one of its ends wants and that the other end knows of."""
        for name, node in self.nodes.items():
            for peer in node.neighbours:
                other = self.nodes.get(peer)
                if other is None or name not in other.peers or {name, peer} & self.lost:
                    continue
                for one, end in ((node, peer), (other, name)):
                    if end not in one.up:
                        self.run(one.name, one.peer_up(end, self.now_us))
        self.settle()

    def lose(self, name: str) -> None:
        self.lost.add(name)
        for other in self.nodes.values():
            self.run(other.name, other.peer_down(name, self.now_us))

    def step(self, seconds: float) -> None:
        for _ in range(int(seconds * 10)):
            self.now_us += 100_000
            for name, node in self.nodes.items():
                if name not in self.lost:
                    self.run(name, node.tick(self.now_us))
            self.settle()

    def settle(self) -> None:
        while self._waiting:
            self._waiting.popleft()()

    def run(self, at: str, effects: list[Effect]) -> None:
        for effect in effects:
            self.watch(at, effect)
            if isinstance(effect, Send):
                data = encode_frame(effect.frame)
                self._waiting.append(lambda to=effect.peer, data=data: self._frame(at, to, data))  # type: ignore[misc]
            elif isinstance(effect, NeighboursChanged):
                self._waiting.append(self.link)
            elif isinstance(effect, Drain):  # what was sent before is brought before
                self._waiting.append(lambda drain=effect: self._drained(at, drain))  # type: ignore[misc]

    def _drained(self, at: str, drain: Drain) -> None:
        self.run(at, self.nodes[at].drained(drain, self.now_us))

    def _frame(self, sender: str, receiver: str, data: bytes) -> None:
        if not {sender, receiver} & self.lost and sender in self.nodes[receiver].up:
            self.run(receiver, self.nodes[receiver].frame(sender, data, self.now_us))

    # Clients, at least their subscriptions and messages.

    def subscribe(self, name: str, topic_filter: str) -> None:
        self.wanted[name].add(topic_filter)
        self.run(name, self.nodes[name].subscribed(topic_filter, self.now_us))
        self.settle()

    def publish(self, name: str, topic: str, payload: bytes = b"", qos: int = 1, limit: int = HOP_LIMIT) -> None:
        self._sequence += 1
        message = Message(topic, payload, qos, origin=name, origin_offset=self._sequence if qos else -1)
        self._deliver(name, message)
        self.nodes[name].routes.published(topic)
        self._forward(name, message, self.nodes[name].routes.route(topic, CLIENT, name, self._sequence, limit=limit))
        self.settle()

    def _deliver(self, name: str, message: Message) -> None:
        if any(matches(text, message.topic) for text in self.wanted[name]):
            self.delivered.append((name, message.payload))

    def _forward(self, name: str, message: Message, route: Distribution) -> None:
        for hop in route.hops:
            self.copies.append((name, hop.peer))
            assert hop.peer in self.nodes[name].neighbours, "copies go to neighbours only"
            if not message.qos and hop.durable_only:
                continue
            self._sequence += 1
            flags = CHECK if hop.check else 0
            lists = (hop.served, hop.shares, hop.shares_done)
            entry = LinkMessage(message, hop.stage, self._sequence, flags, *lists, hop.limit, hop.targets)
            data = encode_batch([entry], 0)
            self._waiting.append(lambda to=hop.peer, data=data: self._batch(name, to, data))  # type: ignore[misc]

    def _batch(self, sender: str, receiver: str, data: bytes) -> None:
        for entry in decode_batch(data, 0):
            uses = self._inboxes[receiver].accept(sender, entry, receiver)
            message = entry.message
            if uses & DELIVER:
                self._deliver(receiver, message)
            if uses & DISTRIBUTE:
                shares = entry.shares if uses & SHARE else ()
                number, check = message.origin_offset, bool(entry.flags & CHECK)
                lists = (entry.served, shares, entry.shares_done)
                node = self.nodes[receiver]
                rest = (check, entry.limit, entry.targets)
                route = node.routes.route(message.topic, entry.stage, message.origin, number, *lists, *rest)
                self._forward(receiver, message, route)
