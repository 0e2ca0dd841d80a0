"""What peers send: batches and runs of messages, each taken once, for the uses that are still open."""

from collections.abc import Callable
from typing import Final, final

from metromq.federation.distribution import shares_for
from metromq.federation.host.copies import Copies
from metromq.federation.host.retained_versions import RETAINED_TOPIC, RetainedVersions
from metromq.federation.host.roaming import Roaming
from metromq.federation.links.batch import SYNC, LinkMessage, decode_batch, is_internal
from metromq.federation.links.frames import BATCH_TOPIC, RUN_TOPIC
from metromq.federation.links.inbox import DELIVER, DROP, Inbox, recorded
from metromq.federation.links.routing_slip import read_slip
from metromq.federation.links.runs import decode_run
from metromq.federation.node import Node
from metromq.federation.stages import FINAL, HANDOVER
from metromq.protocol.session import (
    KIND_LINK,
    Entitled,
    Hub,
    LinkCopy,
    Message,
    PeerEar,
    Session,
    Waiter,
    records,
)
from metromq.protocol.topics import matches

SURELY_US: Final = 10_000  # what is less apart may be in any order: brokers read their clocks once for all that came


@final
class _Entitled(Entitled):
    """To a message that another broker has distributed before: sessions that were subscribed by then.

    One may have begun here because its broker was away: what it was to get there comes with that part of it.
    """

    def __init__(self, topic: str, wall_us: int, city_us: int) -> None:
        self._topic = topic
        self._wall_us = wall_us  # when it was published, by our own clock,
        self._city_us = city_us  # and by the city's

    def has(self, session: Session) -> bool:
        if session.opened_us > self._city_us:
            return False
        if session.roamed:  # it may have subscribed elsewhere
            return True
        plain = (text for text, grant in session.grants.items() if not grant.share and matches(text, self._topic))
        return any(session.since_us(text) <= self._wall_us for text in plain)


@final
class _Refusal(Waiter):
    """A batch that was not taken; who sent it hears of it in its turn."""

    def __init__(self, waiter: Waiter) -> None:
        self.waiter = waiter

    def committed(self) -> None:
        self.waiter.failed()

    def failed(self) -> None:
        self.waiter.failed()


@final
class _Stored(Waiter):
    """A batch that is acknowledged when the journal has it."""

    def __init__(
        self, receiving: "Receiving", peer: str, before: int, entries: list[LinkMessage], waiter: Waiter
    ) -> None:
        self.receiving = receiving
        self.peer = peer
        self.before = before  # how far the peer's messages had come
        self.entries = entries
        self.waiter = waiter

    def committed(self) -> None:
        self.waiter.committed()

    def failed(self) -> None:
        self.receiving.not_stored(self.peer, self.before, self.entries)
        self.waiter.failed()


@final
class Receiving(PeerEar):
    """`others` takes parcels without messages."""

    def __init__(
        self,
        hub: Hub,
        node: Node,
        inbox: Inbox,
        copies: Copies,
        retained: RetainedVersions,
        roaming: Roaming,
        others: Callable[[str, str, bytes], None],
    ) -> None:
        self._others = others
        self._hub = hub
        self._node = node
        self._inbox = inbox
        self._copies = copies
        self._retained = retained
        self._roaming = roaming
        self._refused: dict[str, int] = {}  # peers, and the first of what was refused: what follows must not overtake
        self.messages: dict[str, int] = {}
        self.bytes: dict[str, int] = {}

    def arrived(self, peer: str, topic: str, payload: bytes, waiter: Waiter | None) -> None:
        if topic == BATCH_TOPIC:
            self.batch(peer, payload, waiter)
        elif topic == RUN_TOPIC:
            self.run(peer, payload)
        else:
            self._others(peer, topic, payload)

    def batch(self, peer: str, payload: bytes, waiter: Waiter | None) -> None:
        entries = decode_batch(payload, self._hub.clock.wall_us)
        if waiter is not None and self._refuses(peer, entries):
            self._hub.commits.when_committed(_Refusal(waiter))
            return
        before = self._inbox.cursor(peer)
        self._count(peer, sum(1 for entry in entries if not is_internal(entry)), len(payload))
        for entry in entries:
            self._take(peer, entry)
        self._copies.take(None)
        if waiter is not None:
            inbox = self._inbox
            cursor = records.encode_cursor(peer, inbox.journal_number(peer), inbox.cursor(peer))
            self._hub.commits.append(records.LINK, cursor, True)
            inbox.settled(peer)
            self._hub.commits.when_committed(_Stored(self, peer, before, entries, waiter))

    def connected(self, peer: str) -> None:
        """It begins anew with what was not acknowledged."""
        self._refused.pop(peer, None)

    def _refuses(self, peer: str, entries: list[LinkMessage]) -> bool:
        """While the disk is full, peers keep what they have, as clients do."""
        log = self._hub.commits.log
        first = entries[0].sequence if entries else 0
        refused = self._refused.get(peer)
        if (log is not None and log.full()) or (refused is not None and first > refused):
            self._refused[peer] = first if refused is None else min(first, refused)
            return True
        self._refused.pop(peer, None)
        return False

    def not_stored(self, peer: str, before: int, entries: list[LinkMessage]) -> None:
        """The disk was full, sooner than we knew: what has no place in the journal was not received."""
        commits = self._hub.commits
        place = 0
        for entry in entries:
            if not 0 <= entry.message.offset <= commits.newest_offset:
                break
            before = max(before, entry.sequence)
            place += 1
        for entry in entries[place:]:
            self._inbox.roll_back(peer, before, [entry], shares_for(self._node.routes, entry.message.topic))
        self._refused[peer] = min(self._refused.get(peer, before + 1), before + 1)
        cursor = records.encode_cursor(peer, self._inbox.journal_number(peer), self._inbox.cursor(peer))
        commits.append(records.LINK, cursor)

    def run(self, peer: str, payload: bytes) -> None:
        """QoS 0 packets as their publisher sent them: passed on as they are wherever that is possible."""
        run = decode_run(payload)
        slip = read_slip(run.note)
        self._count(peer, len(run.packets) // run.size, len(payload))
        hub = self._hub
        name = run.topic()
        route = hub.routes.find(name)
        topic = name.decode()
        onward: list[LinkCopy] | None = []
        if slip.stage < FINAL:
            slip_route = self._node.routes.route(
                topic, slip.stage, run.origin, 0, slip.served, limit=slip.limit, targets=slip.targets
            )
            onward = self._copies.of_run(slip_route)
        if route.plain and onward is not None and slip.is_for(self._node.name):
            hub.publishing.spread(
                route, run.packets, run.size, run.header, run.topic_end, run.newer, "", run.origin, onward
            )
            return
        for text in run.payloads():
            message = Message(topic, text, 0, False, b"", 0, hub.clock.wall_us, "", KIND_LINK, run.origin)
            entry = LinkMessage(message, slip.stage, 0, slip.flags, slip.served, limit=slip.limit, targets=slip.targets)
            self._take(peer, entry)
        self._copies.take(None)

    def _count(self, peer: str, messages: int, size: int) -> None:
        self.messages[peer] = self.messages.get(peer, 0) + messages
        self.bytes[peer] = self.bytes.get(peer, 0) + size

    def _take(self, peer: str, entry: LinkMessage) -> None:
        message = entry.message
        uses = self._inbox.accept(peer, entry, self._node.name)
        if uses == DROP:
            return
        if is_internal(entry) and self._is_talk(peer, message):
            return
        if entry.flags & SYNC:
            if self._retained.sync(message, peer):
                self._inbox.given(message.origin, message.origin_offset)
            return
        if message.retain and not message.qos and self._retained.has(message):
            uses &= ~DELIVER  # it came as a stored message before
        if message.retain and not message.qos:
            self._retained.came_at_qos0(message, peer)
        is_late = message.retain and uses & DELIVER and self._retained.is_older(message)
        self._copies.take(entry, uses, peer)
        entitled = self._entitled(message) if entry.stage == HANDOVER and message.qos else None
        self._hub.publishing.publish_from_peer(message, recorded(uses, entry), bool(uses & DELIVER), entitled)
        if is_late:
            self._retained.repeat(message)

    def _entitled(self, message: Message) -> Entitled | None:
        clock, wall_us = self._node.clock, self._hub.clock.wall_us
        if message.retain:  # its time is the city's
            ago_us = clock.ago_us(message.time_us)
        else:
            ago_us = self._node.greetings.ago_us(message.origin, message.time_us)
        if ago_us < SURELY_US:
            return None
        return _Entitled(message.topic, wall_us - ago_us + SURELY_US, clock.stamp_us() - ago_us + SURELY_US)

    def _is_talk(self, peer: str, message: Message) -> bool:
        """Whether it was one that brokers send each other about themselves; it has been taken then."""
        if message.topic == RETAINED_TOPIC:
            self._retained.all_told(peer, message.payload)
            return True
        if self._roaming.is_session(message):
            self._roaming.arrived(peer, message)
            return True
        return False
