"""Sessions that come from another broker: takes their pieces, and lets nothing overtake what is older."""

from typing import Final, final

from metromq.federation.host.departures import Departures
from metromq.federation.host.session_parcels import COMPLETE, FIRST, MARKER, PROBE, Piece, Signal, Waiting
from metromq.federation.host.timers import Timers
from metromq.federation.node import Node
from metromq.protocol.packing import Unpacker
from metromq.protocol.session import records, store
from metromq.protocol.session.hub import Hub
from metromq.protocol.session.message import Message
from metromq.protocol.session.seen_ids import SeenIds, unpack_seen
from metromq.protocol.session.session import SENT, Entry, Session

ORDER_S: Final = 1.0  # how long what is newer waits for what may be older and still on its way


@final
class Arrival:
    def __init__(self, number: int, merges: bool) -> None:
        self.number = number
        self.merges = merges  # into a session that is here already, and whose client goes on with it
        self.complete = False
        self.left_over: list[Entry] = []  # what came here for the session while it was away


@final
class Arrivals:
    def __init__(self, hub: Hub, node: Node, timers: Timers, departures: Departures) -> None:
        self._hub = hub
        self._node = node
        self._timers = timers
        self._departures = departures
        self._by_client: dict[str, Arrival] = {}

    def has(self, client: str) -> bool:
        return client in self._by_client

    def is_complete(self, client: str) -> bool:
        arrival = self._by_client.get(client)
        return arrival is None or arrival.complete

    def take(self, old: str, piece: Piece) -> Session | None:
        """The session that the piece belongs to; None: it is void."""
        session = self._hub.sessions.get(piece.client)
        if piece.flags & FIRST:
            self.probe(old, piece)
            session = self._begin(piece, session)
        if session is None:
            return None
        arrival = self._by_client.get(piece.client)
        is_current = arrival is not None and arrival.number == piece.number
        is_aligned = arrival is not None and is_current and not arrival.merges and not arrival.complete
        for item in piece.waiting:
            self._queue(session, item, is_aligned)
        if arrival is not None and is_current and piece.flags & COMPLETE:
            self._completed(session, arrival, piece)
        self._hub.suspect(session)  # the rights here count, not those of the broker that queued it
        return session

    def _begin(self, piece: Piece, session: Session | None) -> Session:
        hub = self._hub
        returns = session is not None and self._departures.has(piece.client)
        if returns and not self._departures.is_before(piece.client, piece.taken_us):
            returns = False  # it has gone on from here already: this only passes through
            self._departures.again(piece.client)
        merges = session is not None and not returns
        self._by_client[piece.client] = arrival = Arrival(piece.number, merges)
        if session is None:
            session = hub.adopt(piece.client, piece.username, piece.opened_us)
        elif returns:
            self._departures.cancel(piece.client)
            arrival.left_over = [*session.inflight.values(), *session.queue]
        session.opened_us = min(session.opened_us, piece.opened_us)
        session.expiry_s = max(session.expiry_s, piece.expiry_s)
        session.roamed = True
        seen = unpack_seen(piece.seen)
        if merges:
            seen.merge(session.seen or SeenIds())
        else:
            session.clean_us = max(session.clean_us, piece.clean_us)
            session.incoming = dict.fromkeys(piece.incoming)
            session.is_stale = False
            session.arriving = True
        session.seen = seen
        hub.note_session(session)
        hub.note_seen(session)
        self._subscribe(session, piece.grants)
        return session

    def _completed(self, session: Session, arrival: Arrival, piece: Piece) -> None:
        arrival.complete = True
        if not arrival.merges and piece.sequence > session.sequence:
            session.sequence = piece.sequence
            self._hub.note_session(session)
        for entry in arrival.left_over:
            self._requeue(session, entry)
        self._timers.at(self._hub.now + ORDER_S, lambda: self._release(piece.client, piece.number))

    def _subscribe(self, session: Session, grants: list[bytes]) -> None:
        hub = self._hub
        for packed in grants:
            reader = Unpacker(packed)
            reader.u32()
            grant = store.unpack_grant(session, reader)
            if grant.full_filter() not in session.grants:
                hub.restore_grant(grant)
                hub.append(records.SUBSCRIBED, store.pack_grant(grant))

    def probe(self, old: str, piece: Piece) -> None:
        """Behind the announcements that the subscriptions make, on every link: frames go before what is journalled."""
        for peer in self._node.peers:
            self._departures.send_signal(peer, Signal(PROBE, piece.client, piece.number, old))
        self._departures.send_signal(old, Signal(MARKER, piece.client, piece.number, old))

    def _queue(self, session: Session, item: Waiting, is_aligned: bool) -> None:
        hub = self._hub
        if hub.came_already(session, item.message):
            return
        if not is_aligned:
            if item.state <= SENT:  # of the others the client has had the message
                hub.queue_again(session, item.message, item.flags, item.identifiers, 0)
            return
        if item.sequence != session.sequence + 1:  # the client may know its packet identifier
            session.sequence = item.sequence - 1
            hub.note_session(session)
        hub.queue_again(session, item.message, item.flags, item.identifiers, item.state)

    def _requeue(self, session: Session, entry: Entry) -> None:
        """What came here for the session while it was away."""
        hub = self._hub
        message = hub.load(entry)
        hub.abandon(session, entry)
        named = _copy(message, self._node.name)
        if not hub.came_already(session, named):
            hub.queue_again(session, named, entry.flags, entry.identifiers, 0)

    def drained(self, signal: Signal) -> None:
        self._release(signal.client, signal.number)

    def _release(self, client: str, number: int) -> None:
        """Nothing older will come, or it has been waited for long enough."""
        arrival = self._by_client.get(client)
        if arrival is None or arrival.number != number or not arrival.complete:
            return
        del self._by_client[client]
        session = self._hub.sessions.get(client)
        if session is None or self.has(client):
            return
        if session.arriving:
            session.arriving = False
            self._put_in_order(session)
            self._hub.pump(session)

    def _put_in_order(self, session: Session) -> None:
        """Messages of one origin in the order in which it took them, where some came around by the old broker."""
        hub = self._hub
        hub.load_all(session)
        entries = [entry for entry in session.queue if not entry.state and not entry.dup]
        ordered = _by_origin(entries, [self._id(entry) for entry in entries])
        if ordered == entries:
            return
        for entry in ordered:
            message = _copy(hub.load(entry), self._node.name)
            hub.abandon(session, entry)
            hub.queue_again(session, message, entry.flags, entry.identifiers, 0)

    def _id(self, entry: Entry) -> tuple[str, int]:
        message = self._hub.load(entry)
        return (message.origin, message.origin_offset) if message.origin else (self._node.name, message.offset)


def _by_origin(entries: list[Entry], ids: list[tuple[str, int]]) -> list[Entry]:
    """The same origins in the same places, but each origin's entries by their numbers."""
    sorted_ids: dict[str, list[tuple[int, int]]] = {}
    for place, (origin, offset) in enumerate(ids):
        sorted_ids.setdefault(origin, []).append((offset, place))
    for listed in sorted_ids.values():
        listed.sort(reverse=True)
    return [entries[sorted_ids[origin].pop()[1]] for origin, _ in ids]


def _copy(message: Message, name: str) -> Message:
    copy = Message(message.topic, message.payload, message.qos, message.retain, message.properties)
    copy.expires_at_us = message.expires_at_us
    copy.time_us = message.time_us
    copy.publisher = message.publisher
    copy.origin = message.origin or name
    copy.origin_offset = message.origin_offset if message.origin else message.offset
    return copy
