"""Sessions that leave for another broker: sends all they have after them, until nothing can come here for them.

The old broker cannot know by itself when it has received the last message for a session that went away. So the new
broker asks every other one for a marker. A link keeps order: when the marker of a broker has come, so has everything
that this broker sent before it learned of the new place, and what it sends later reaches the new place by itself.
With the markers of all brokers the session is drained. Until then what still comes here is sent on.
"""

import hashlib
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Final, final

from mypy_extensions import mypyc_attr

from metromq.federation.hop import Hop
from metromq.federation.host.copies import Copies
from metromq.federation.host.session_parcels import (
    COMPLETE,
    DRAINED,
    FIRST,
    MARKED,
    TOPIC,
    Piece,
    Signal,
    Waiting,
    encode_piece,
    encode_signal,
)
from metromq.federation.links.versions import ANEW_SINCE, BLOCKS_SINCE
from metromq.federation.node import Node
from metromq.federation.stages import FINAL
from metromq.protocol.session import (
    KIND_REPLAY,
    SENT,
    Entry,
    Hub,
    Message,
    SeenIds,
    Session,
    sequence_of,
    store,
)

# Other clients, here and at the new broker, must not wait while a long queue moves: a turn sends so much,
ENTRIES_PER_TURN: Final = 256
BYTES_PER_TURN: Final = 1 << 20
PIECE_BYTES: Final = 128 * 1024
TURNS_UNDER_WAY: Final = 2  # and what the new broker has not stored yet is no more than that of so many turns


def number_apart(broker: str, time_us: int) -> int:
    """Where one of two sessions of a client counts its packets from, so that they are not those of the other."""
    return int.from_bytes(hashlib.blake2b(f"{broker}\0{time_us}".encode(), digest_size=2).digest(), "big")


@final
class Departure:
    def __init__(self, session: Session, to: str, number: int, taken_us: int) -> None:
        self.session = session
        self.to = to
        self.number = number
        self.taken_us = taken_us
        self.markers: set[str] = set()
        self.first = True
        self.complete = False
        self.under_way: list[int] = []  # what the new broker has not stored: the last offset of each turn
        self.left = 0  # entries that waited when the session was taken and have not been sent yet
        self.incoming: dict[int, int] = {}  # what was sent, in case that the session comes back without having arrived
        self.filters = frozenset(session.grants)  # that it left with
        self.seen = SeenIds()
        self.senders: frozenset[str] | None = None  # whose markers are waited for; None: everybody's
        self.passing = SeenIds()  # what a part of the session has had that only passed through here


@mypyc_attr(native_class=False)  # tests plant bugs in it
@final
class Departures:
    """It has many methods because a session that leaves may come back, go on from here, or be used here after all."""

    def __init__(self, hub: Hub, node: Node, copies: Copies, arrives: Callable[[str], bool]) -> None:
        self._hub = hub
        self._node = node
        self._copies = copies
        self._arrives = arrives  # whether a client's session is still coming here
        self.by_client: dict[str, Departure] = {}

    def begin(
        self, session: Session, to: str, number: int, taken_us: int, senders: frozenset[str] | None = None
    ) -> None:
        self._hub.backlogs.load_all(session.backlog)
        self.cancel(session.client_id)  # it was on its way to another broker
        departure = Departure(session, to, number, taken_us)
        departure.senders = senders
        departure.left = len(session.backlog.inflight) + len(session.backlog.queue)
        self.by_client[session.client_id] = departure
        session.departed_to, session.departed_us = to, taken_us
        self._hub.sessions.record(session)
        self._send_some(departure)

    def cancel(self, client: str) -> None:
        """The client is back, or the session has ended."""
        departure = self.by_client.pop(client, None)
        if departure is None:
            return
        self.send_signal(departure.to, Signal(DRAINED, client, departure.number))
        if not departure.session.closed:
            departure.session.departed_to = ""
            self._hub.sessions.record(departure.session)

    def has(self, client: str) -> bool:
        departure = self.by_client.get(client)
        return departure is not None and not departure.session.closed

    def goes_to(self, client: str) -> str:
        departure = self.by_client.get(client)
        return departure.to if departure is not None else ""

    def is_of(self, session: Session) -> bool:
        departure = self.by_client.get(session.client_id)
        return departure is not None and departure.session is session

    def is_before(self, client: str, taken_us: int) -> bool:
        """Whether the client has left from here before a CONNECT."""
        return self.by_client[client].taken_us <= taken_us

    def left_with(self, client: str, base: int) -> frozenset[str]:
        """The filters with which the session left from here for where it comes from (`base`)."""
        departure = self.by_client[client]
        return departure.filters if departure.number == base else frozenset()

    def came_back(self, client: str, base: int) -> tuple[dict[int, int], SeenIds]:
        """The client is here again; what left with its session and has not arrived where it comes from (`base`)."""
        departure = self.by_client[client]
        self.cancel(client)
        if departure.number == base:
            return {}, SeenIds()
        return departure.incoming, departure.seen

    def again(self, client: str, seen: SeenIds) -> None:
        """More of the session has come, and what it has had: all follows it once more.

        It may have other subscriptions: the markers of before do not say that anybody knows of these.
        """
        departure = self.by_client[client]
        departure.markers.clear()
        departure.number = self._node.clock.stamp_us()
        if not departure.first:
            departure.passing = SeenIds()
        departure.passing.merge(seen)  # of two parts that come before one is sent on both count
        departure.first = True
        departure.complete = False
        departure.left = 0

    def is_busy(self) -> bool:
        """Whether the next turn should come soon."""
        up = self._node.up
        return any(not departure.complete and departure.to in up for departure in self.by_client.values())

    def marked(self, signal: Signal, by: str) -> None:
        departure = self.by_client.get(signal.client)
        if departure is not None and departure.number == signal.number:
            departure.markers.add(by)
            self._end_if_drained(departure)

    def tick(self) -> None:
        for departure in list(self.by_client.values()):
            session = departure.session
            if (not departure.complete or session.backlog.unsettled()) and self._has_room(departure):
                self._send_some(departure)
            self._end_if_drained(departure)

    def _has_room(self, departure: Departure) -> bool:
        """Whether the new broker has stored enough of what was sent before."""
        links = self._hub.links
        backlog = links.backlog(departure.to)
        departure.under_way = [last for last in departure.under_way if not links.has_all_through(backlog, last)]
        return len(departure.under_way) < TURNS_UNDER_WAY

    def _send_some(self, departure: Departure) -> None:
        hub, session = self._hub, departure.session
        hub.backlogs.load_all(session.backlog)
        waiting = chain(session.backlog.inflight.values(), session.backlog.queue)
        entries, _ = self._cut(list(islice(waiting, ENTRIES_PER_TURN)), BYTES_PER_TURN)
        entries = [entry for entry in entries if not self._dropped(departure, entry)]
        rest = entries
        last = -1
        while rest or not departure.complete:
            some, rest = self._cut(rest, PIECE_BYTES)
            departure.left -= len(some)
            is_last = departure.left <= 0 and not departure.complete
            piece = self._piece(departure, some, COMPLETE if is_last else 0)
            departure.first = False
            departure.complete = departure.complete or is_last
            last = self._send(departure.to, encode_piece(piece))
            if not rest:
                break
        if last >= 0:
            departure.under_way.append(last)
        for entry in entries:
            hub.backlogs.abandon(session.backlog, entry)

    def _dropped(self, departure: Departure, entry: Entry) -> bool:
        """A copy of what the session had had when it left goes no further: it might follow a client that moves about
        from broker to broker, until nobody remembers that the client has had it."""
        has_had = departure.seen.holds(*self._id(entry))
        if has_had:
            self._hub.backlogs.abandon(departure.session.backlog, entry)
        return has_had

    def _cut(self, entries: list[Entry], limit_bytes: int) -> tuple[list[Entry], list[Entry]]:
        size = count = 0
        for entry in entries:
            size += len(self._hub.backlogs.load(entry).payload)
            if count and size > limit_bytes:
                break
            count += 1
        return entries[:count], entries[count:]

    def _piece(self, departure: Departure, entries: list[Entry], flags: int) -> Piece:
        session = departure.session
        piece = Piece(session.client_id, departure.number, flags, session.username)
        piece.taken_us, piece.opened_us = departure.taken_us, session.opened_us
        piece.clean_us, piece.expiry_s, piece.sequence = session.clean_us, session.expiry_s, session.backlog.sequence
        piece.greeted_us = session.greeted_us
        piece.waiting = [self._waiting(session, entry) for entry in entries]
        if departure.first:
            piece.flags |= FIRST
            piece.grants = [store.pack_grant(full_filter, grant) for full_filter, grant in session.grants.items()]
            piece.incoming = dict(session.incoming)
            piece.claimed_us = session.claimed_us
            version = self._node.greetings.spoken_to(departure.to)
            if version >= ANEW_SINCE:
                piece.flags |= MARKED
            piece.untold = self._untold(session)
            piece.base = session.arrival
            piece.senders = departure.senders
            departure.seen = self.seen_by(session)
            departure.seen.merge(departure.passing)
            departure.incoming = piece.incoming
            piece.seen = departure.seen.pack() if version >= BLOCKS_SINCE else departure.seen.pack_plainly()
            # They go with the session; what only passes through here is not the session's yet.
            session.seen = None
            session.incoming.clear()
        return piece

    def _untold(self, session: Session) -> list[tuple[str, int, tuple[str, ...]]]:
        """Filters that brokers out of reach do not know of yet: they must look back when they are told.

        And, without names, those of which others may not have heard.
        """
        now_us = int(self._hub.clock.now * 1_000_000)
        found: list[tuple[str, int, tuple[str, ...]]] = []
        for full_filter in session.grants:
            since_us, peers = self._node.exchange.announcer.untold(full_filter)
            if peers:
                found.append((full_filter, now_us - since_us, peers))
            unheard_us = self._node.exchange.announcer.unheard(full_filter, now_us)
            if unheard_us:
                found.append((full_filter, now_us - unheard_us, ()))
        return found

    def seen_by(self, session: Session) -> SeenIds:
        """What the session has had, without what still waits for it."""
        waiting: dict[str, set[int]] = {}
        for origin, offset in self._ids(session):
            waiting.setdefault(origin, set()).add(offset)
        return (session.seen or SeenIds()).without(waiting)

    def stays(self, session: Session) -> None:
        """A session that has left is used here after all: what waits for it counts as had, and once.

        Until now that was for its new broker to see to: a message and its copy from another part may both wait. What
        went on from here counts its packets on as well, so that this one must count elsewhere.
        """
        hub = self._hub
        seen = session.seen = SeenIds()
        session.roamed = True  # what left may come back, with what came here since
        session.backlog.sequence += number_apart(self._node.name, self._node.clock.stamp_us())
        hub.sessions.record(session)
        for entry, origin, offset in list(self._entries(session)):
            if entry.state or entry.dup:
                seen.add(origin, offset)
                continue
            message = hub.backlogs.load(entry).named(self._node.name)
            hub.backlogs.abandon(session.backlog, entry)
            if offset < 0 or not seen.holds(origin, offset):
                hub.sessions.queue_again(session, message, entry.flags, entry.identifiers, 0)
        hub.sessions.record_seen(session)

    def _ids(self, session: Session) -> Iterator[tuple[str, int]]:
        return ((origin, offset) for _, origin, offset in self._entries(session))

    def _entries(self, session: Session) -> Iterator[tuple[Entry, str, int]]:
        """What waits, with its origin and its number there."""
        self._hub.backlogs.load_all(session.backlog)
        for entry in (*session.backlog.inflight.values(), *session.backlog.queue):
            yield entry, *self._id(entry)

    def _id(self, entry: Entry) -> tuple[str, int]:
        message = self._hub.backlogs.load(entry)
        return (message.origin, message.origin_offset) if message.origin else (self._node.name, message.offset)

    def _waiting(self, session: Session, entry: Entry) -> Waiting:
        sequence = sequence_of(entry.packet_id, session.backlog.sequence)
        state = entry.state or (SENT if entry.dup else 0)  # an earlier broker, or an earlier life, has sent it
        message = self._hub.backlogs.load(entry).named(self._node.name)
        return Waiting(sequence, entry.flags, state, entry.identifiers, message)

    def _end_if_drained(self, departure: Departure) -> None:
        session = departure.session
        if not departure.complete or session.backlog.unsettled() or self._arrives(session.client_id):
            return
        senders = self._node.peers if departure.senders is None else departure.senders
        senders = tuple(peer for peer in senders if self._node.is_peer(peer))  # others say nothing any more
        if departure.markers.issuperset(senders) and departure.markers >= {self._node.name, departure.to}:
            self._hub.sessions.close(session)

    def send_signal(self, to: str, signal: Signal) -> None:
        self._send(to, encode_signal(signal))

    def _send(self, to: str, payload: bytes) -> int:
        """The offset by which the peer acknowledges it."""
        message = Message(TOPIC, payload, 1)
        message.time_us = self._hub.clock.wall_us
        message.kind = KIND_REPLAY
        self._hub.publishing.deliver12(message, [], [self._copies.for_hop(Hop(to, FINAL))], None, 0)
        return message.offset
