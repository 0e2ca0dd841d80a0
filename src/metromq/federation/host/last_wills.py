"""Wills in a city: told to the broker that would fire them, and published under a name that every broker gives them."""

import hashlib
from collections.abc import Callable
from typing import Final, final

from metromq.federation.effects import Effect, FireWill, WillFired
from metromq.federation.host.copies import Copies
from metromq.federation.links.batch import CHECK, LinkMessage
from metromq.federation.links.frames import WillTold
from metromq.federation.links.inbox import DELIVER, DISTRIBUTE, SHARE, Inbox
from metromq.federation.node import Node
from metromq.federation.stages import CLIENT
from metromq.protocol.session import KIND_WILL, Hub, Message, Session

HOLD_S: Final = 3.0  # so long a broker that comes back listens to what others have fired before it fires itself
_USES: Final = DELIVER | DISTRIBUTE | SHARE

WILL_SUFFIX: Final = "/will"  # of the origin of a will: it is its own, and the same whichever broker fires it


@final
class LastWills:
    def __init__(
        self,
        hub: Hub,
        node: Node,
        inbox: Inbox,
        copies: Copies,
        run: Callable[[list[Effect]], None],
        report: Callable[..., None],
    ) -> None:
        self._hub = hub
        self._node = node
        self._inbox = inbox
        self._copies = copies
        self._run = run
        self._report = report

    def start(self) -> None:
        """After recovery: peers are told of the wills that came back, and are heard before any of them is fired."""
        if self._node.peers:
            self._hub.sessions.rest_until(self._hub.clock.now + HOLD_S)
        for session in list(self._hub.sessions.by_client_id.values()):
            if session.will is not None:
                self.changed(session)

    def changed(self, session: Session) -> None:
        will, clock = session.will, self._hub.clock
        if will is None:
            self._run(self._node.wills.dropped(session.client_id))
            return
        told = WillTold(
            self._node.name,
            session.client_id,
            session.claimed_us,
            min(will.delay_s, session.expiry_s),
            -1 if session.connection is not None else max(0, int(clock.now - session.detached_at)),
            will.topic,
            will.payload,
            min(will.qos, self._hub.settings.max_qos),
            will.retain,
            will.expiry_s,
            will.properties,
        )
        self._run(self._node.wills.left(told, int(clock.now * 1_000_000)))

    def publish(self, session: Session, message: Message) -> None:
        """One of our own."""
        self._publish(message, self._node.name, session.claimed_us)

    def fire(self, effect: FireWill) -> None:
        """One of a lost broker."""
        will, wall_us = effect.will, self._hub.clock.wall_us
        self._report("info", "will of a lost broker's client", client=will.client, broker=will.broker, topic=will.topic)
        expires_us = wall_us + will.expiry_s * 1_000_000 if will.expiry_s >= 0 else 0
        message = Message(will.topic, will.payload, will.qos, will.retain, will.properties, expires_us, wall_us)
        message.publisher, message.kind = will.client, KIND_WILL
        self._publish(message, will.broker, will.time_us)

    def fired(self, effect: WillFired) -> None:
        """Another broker has fired the will of one of our clients."""
        session = self._hub.sessions.get(effect.client)
        if session is None or session.will is None or session.claimed_us != effect.time_us:
            return
        self._report("warning", "another broker has published a will of a client of ours", client=effect.client)
        self._hub.sessions.void_will(session)
        self._run(self._node.wills.dropped(effect.client))

    def _publish(self, message: Message, broker: str, time_us: int) -> None:
        """No broker's name has a slash, so nobody takes the origin for one, and every broker gets its copy."""
        message.origin, message.origin_offset = broker + WILL_SUFFIX, number_of_will(message.publisher, time_us)
        if not self._inbox.claim(message.origin, message.origin_offset):
            return
        self._copies.take(LinkMessage(message, CLIENT, 0, CHECK, (self._node.name,)), _USES)
        self._hub.publishing.publish_will(message, _USES)
        self._copies.take(None)


def number_of_will(client: str, time_us: int) -> int:
    """In place of an offset: the same at every broker."""
    digest = hashlib.blake2b(f"{client}\0{time_us}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 2
