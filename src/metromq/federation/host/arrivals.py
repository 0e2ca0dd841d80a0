"""Sessions that come from another broker: takes their pieces, and lets nothing overtake what is older."""

from collections.abc import Callable
from functools import partial
from typing import Final, final

from mypy_extensions import mypyc_attr

from metromq.federation.effects import Effect
from metromq.federation.host.astray import Astray
from metromq.federation.host.catch_up import CatchUp
from metromq.federation.host.departures import Departures
from metromq.federation.host.session_parcels import COMPLETE, FIRST, MARKER, PROBE, Piece, Signal, Waiting
from metromq.federation.host.timers import Timers
from metromq.federation.node import Node
from metromq.protocol import Unpacker
from metromq.protocol.session import Entry, Hub, Message, SeenIds, Session, records, store, unpack_seen
from metromq.protocol.topics import matches

COMPARED_US: Final = 100_000  # clocks of brokers are compared better than this
ORDER_S: Final = 1.0  # how long what is newer waits for what may be older and still on its way


@final
class ArrivingSession:
    def __init__(self, piece: Piece, merges: bool) -> None:
        self.number = piece.number
        self._taken_us = piece.taken_us
        self._base = piece.base
        self.merges = merges  # into a session that is here already, and whose client goes on with it
        self.complete = False
        self.session: Session | None = None  # once it is complete
        self.left_over: list[Entry] = []  # what came here for the session while it was away
        self.wanted: dict[str, int] = {}  # filters, and since when the session wants them, by our monotonic clock
        self.looked_us = 0  # the change of owners after which it got what had gone astray,
        self.was_astray = False  # and whether that was something
        self.missed: list[tuple[str, int]] = []  # filters of which not all brokers were told before, and their age
        self.is_alone = True  # no other part of the session comes meanwhile
        self.probed: set[str] | None = None  # whose markers the old broker waits for; None: it has said whose
        self._newest: dict[str, int] = {}  # of each origin, of what has come
        self._last = -1  # the session's sequence behind it; -1: something may be out of order

    def came_by(self, piece: Piece) -> bool:
        """Whether the old broker begins the same move again, after a restart, and all of it has come before.

        What it knows of subscriptions is as old as the move: the client may have asked for something else since. Not
        if another part of the session has come there meanwhile.
        """
        is_same = piece.taken_us == self._taken_us and piece.base == self._base and piece.number != self.number
        return bool(piece.flags & FIRST) and self.complete and is_same

    def begins_behind(self, sequence: int) -> None:
        self._last = sequence

    def came(self, waiting: list[Waiting], before: int, after: int) -> None:
        """A piece was queued, which made the session's sequence grow."""
        is_whole = before == self._last  # nothing came in between
        for item in waiting:
            message = item.message
            is_whole = is_whole and message.origin_offset > self._newest.get(message.origin, -1)
            self._newest[message.origin] = message.origin_offset
        self._last = after if is_whole else -1

    def is_in_order(self, sequence: int) -> bool:
        """Whether nothing but what came is in the session's queue, with each origin's messages one after the other."""
        return self._last == sequence and self.is_alone and not self._has_more()

    def _has_more(self) -> bool:
        """Whether it has got something besides what the pieces brought."""
        return bool(self.left_over or self.missed or self.was_astray)


@mypyc_attr(native_class=False)  # tests plant bugs in it
@final
class Arrivals:
    def __init__(
        self,
        hub: Hub,
        node: Node,
        timers: Timers,
        departures: Departures,
        catch_up: CatchUp,
        run: Callable[[list[Effect]], None],
    ) -> None:
        self._hub = hub
        self._run = run  # carries out what the node wants
        self._catch_up = catch_up
        self._astray = Astray(hub, node, catch_up)
        self._node = node
        self._timers = timers
        self._departures = departures
        self.by_client: dict[str, dict[str, ArrivingSession]] = {}  # client -> old broker -> what comes from there

    def has(self, client: str) -> bool:
        """Whether more may come."""
        return client in self.by_client

    def is_complete(self, client: str) -> bool:
        return all(arrival.complete for arrival in self.by_client.get(client, {}).values())

    def take(self, old: str, piece: Piece) -> Session:
        """The session that the piece belongs to."""
        session = self._hub.sessions.get(piece.client)
        known = self.by_client.get(piece.client, {}).get(old)
        if session is not None and known is not None and known.came_by(piece):
            known.number = piece.number
            self.probe(old, piece)
        elif piece.flags & FIRST or session is None:
            self.probe(old, piece)
            session = self._begin(old, piece, session)
        arrival = self.by_client.get(piece.client, {}).get(old)
        if arrival is not None and arrival.number != piece.number:
            arrival = None
        is_aligned = arrival is not None and not arrival.merges and not arrival.complete
        before = session.backlog.sequence
        came_later = arrival is not None and arrival.complete
        has_late = False
        for item in piece.waiting:
            if self._queue(session, item, is_aligned) and came_later:
                has_late = True
                self._count(item.message)
        # Nobody waits for what is newer. While another part comes, what it found here must stay what it found.
        if has_late and session.connection is None and self.is_complete(piece.client):
            self._put_in_order(session)
        if arrival is not None:
            arrival.came(piece.waiting, before, session.backlog.sequence)
        if arrival is not None and piece.flags & COMPLETE and not arrival.complete:
            self._completed(session, arrival, piece)
        self._hub.delivery.suspect(session)  # the rights here count, not those of the broker that queued it
        return session

    def _begin(self, old: str, piece: Piece, session: Session | None) -> Session:
        hub = self._hub
        seen = unpack_seen(piece.seen)
        returns = session is not None and self._departures.has(piece.client)
        passes = returns and not self._departures.is_before(piece.client, piece.taken_us)
        if passes and session is not None:
            returns = False  # it has gone on from here already
            session.arrival = piece.number  # so that a restart does not take what follows it for what went before
            self._departures.again(piece.client, seen)
        resumes = session is not None and not returns and not passes and _is_newer(piece, session)
        merges = session is not None and not returns and not resumes
        arrival = ArrivingSession(piece, merges)
        arrivals = self.by_client.setdefault(piece.client, {})
        for other in arrivals.values():
            other.is_alone = arrival.is_alone = False
        arrivals[old] = arrival
        arrival.probed = set(self._node.peers) if piece.senders is None else None
        moved_us = self._moved_us(piece)
        # Also if we were told: others that sent it here were not.
        arrival.missed = [(topic_filter, age_us + moved_us) for topic_filter, age_us, _ in piece.untold]
        # A session that came to its old broker wants its filters for longer than it was there.
        least_us = self._node.clock.ago_us(piece.opened_us) if piece.base else 0
        now_us = int(hub.clock.now * 1_000_000)
        arrival.wanted = {text: now_us - max(least_us, age_us + moved_us) for text, age_us in _filters(piece)}
        unheard_us = self._node.greetings.silences.before(old, now_us)
        if unheard_us:  # it may believe that it had told us, or have told who was responsible before it was away
            surely_us = moved_us + COMPARED_US
            arrival.missed += [(text, min(unheard_us, age_us + surely_us)) for text, age_us in _filters(piece)]
        if session is None:
            session = hub.sessions.adopt(piece.client, piece.username, piece.opened_us)
        kept: dict[int, int] = {}
        left = self._departures.left_with(piece.client, piece.base) if returns else frozenset()
        if returns and session is not None:
            kept, kept_seen = self._departures.came_back(piece.client, piece.base)
            seen.merge(kept_seen)
        if resumes:
            seen.merge(self._departures.seen_by(session))
        hub.backlogs.load_all(session.backlog)  # also what only the journal holds
        if merges:
            self._drop_known(session, [entry for entry in session.backlog.queue if not entry.state], seen)
            self._count_on(session, piece.sequence)
            seen.merge(session.seen or SeenIds())
        else:
            # At once: if the session goes on before all of it has come, what waits here counts as not had.
            waiting = [*session.backlog.inflight.values(), *session.backlog.queue]
            arrival.left_over = self._drop_known(session, waiting, seen)
            _go_on(session, piece, kept)
        session.seen = None if passes else seen
        self._settle(session, piece)
        self._subscribe(session, piece.grants, merges, left)
        if (merges or resumes) and session.seen is not None and any(grant.qos for grant in session.grants.values()):
            # What one part was sent at QoS 0 may be lost, and the other may have asked for more.
            session.seen.forget_fleeting()
        if not session.backlog.unsettled():
            arrival.begins_behind(session.backlog.sequence)
        return session

    def _settle(self, session: Session, piece: Piece) -> None:
        """What both parts of a session agree on, written down."""
        if session.will is not None and _is_newer(piece, session):  # its client has been elsewhere since it left it
            self._hub.sessions.void_will(session)
            self._hub.city.federation.will_changed(session)
        session.greeted_us = max(session.greeted_us, piece.greeted_us)
        session.opened_us = min(session.opened_us, piece.opened_us)
        session.clean_us = max(session.clean_us, piece.clean_us)
        session.expiry_s = max(session.expiry_s, piece.expiry_s)
        session.roamed = True
        session.claimed_us = max(session.claimed_us, piece.taken_us)
        self._hub.sessions.record(session)
        self._hub.sessions.record_seen(session)
        now_us, moved_us = int(self._hub.clock.now * 1_000_000), self._moved_us(piece)
        for topic_filter, age_us, peers in piece.untold:
            self._run(self._node.exchange.came_untold(topic_filter, peers, age_us + moved_us, now_us))

    def _moved_us(self, piece: Piece) -> int:
        """How long ago the session left: its piece tells of then, and may have been held up on its way."""
        return self._node.clock.ago_us(piece.number)

    def _drop_known(self, session: Session, entries: list[Entry], seen: SeenIds) -> list[Entry]:
        """What the client has had elsewhere need not wait for it here; what it has not."""
        unknown: list[Entry] = []
        for entry in entries:
            if seen.holds(*self._id(entry)):
                self._hub.backlogs.abandon(session.backlog, entry)
            else:
                unknown.append(entry)
        return unknown

    def _completed(self, session: Session, arrival: ArrivingSession, piece: Piece) -> None:
        arrival.complete = True
        if not arrival.merges:
            self._count_on(session, piece.sequence)
        for entry in arrival.left_over:
            self._requeue(session, entry)
        for topic_filter, age_us in arrival.missed:
            self._catch_up.for_session(session, topic_filter, age_us)
        arrival.session = session
        self._give_astray(session, arrival)
        self._timers.at(self._hub.clock.now + ORDER_S, partial(self._release, session, arrival))

    def _give_astray(self, session: Session, arrival: ArrivingSession) -> None:
        """Once, and again when owners have changed since."""
        changed_us = self._node.owners_changed_us
        if arrival.looked_us != changed_us and not session.departed_to and session.roamed:
            arrival.looked_us = changed_us
            if self._astray.give(session, arrival.wanted):
                arrival.was_astray = True
                self._hub.delivery.suspect(session)

    def _count_on(self, session: Session, sequence: int) -> None:
        """The client may know packet identifiers up to this one: they must not stand for other messages."""
        if sequence > session.backlog.sequence:
            session.backlog.sequence = sequence
            self._hub.sessions.record(session)

    def _subscribe(self, session: Session, grants: list[bytes], merges: bool, left: frozenset[str]) -> None:
        """Subscriptions are as they come, or, where two parts meet, those of both; `left` are those it left with."""
        hub = self._hub
        before = set(session.grants)
        for packed in grants:
            reader = Unpacker(packed)
            reader.u32()
            full_filter, grant, _ = store.unpack_grant(session, reader)
            # Which part was asked last nobody knows: the client gets the higher QoS of both.
            known = session.grants[full_filter] if full_filter in before else None
            is_known = known is not None and not known.of_replay and known.qos >= grant.qos
            before.discard(full_filter)
            if not is_known or not merges:
                session.wants_since(full_filter, hub.clock.wall_us)  # of the time before, `untold` tells
                hub.subscriptions.restore(full_filter, grant)
                hub.commits.append(records.SUBSCRIBED, store.pack_grant(full_filter, grant))
        for full_filter in before & left:  # given up elsewhere
            hub.subscriptions.unsubscribe(session, full_filter)

    def probe(self, old: str, piece: Piece) -> None:
        """Behind the announcements that the subscriptions make, on every link: frames go before what is journalled."""
        peers = self._node.peers if piece.senders is None else sorted({*piece.senders, old} - {self._node.name})
        announcer = self._node.routes.announcer
        for peer in peers:
            # Who was not told looks back when it is told now, unless it has been told for another session here.
            late = {text for text, _, names in piece.untold if peer in names and not announcer.is_told(peer, text)}
            wanted = tuple(
                (text, age_us)
                for text, age_us, names in piece.untold
                if text not in late and (not names or peer in names)
            )
            self._departures.send_signal(peer, Signal(PROBE, piece.client, piece.number, old, wanted))
        self._departures.send_signal(old, Signal(MARKER, piece.client, piece.number, old))

    def tick(self) -> None:
        """The old broker waits for everybody, also for who has joined the city meanwhile."""
        for client, arrivals in self.by_client.items():
            session = self._hub.sessions.get(client)
            for old, arrival in arrivals.items():
                if session is not None and session is arrival.session:
                    self._give_astray(session, arrival)
                if arrival.probed is not None and not arrival.probed.issuperset(self._node.peers):
                    for peer in [peer for peer in self._node.peers if peer not in arrival.probed]:
                        self._departures.send_signal(peer, Signal(PROBE, client, arrival.number, old))
                    arrival.probed.update(self._node.peers)

    def _count(self, message: Message) -> None:
        """What came to the old broker after the session had left was not counted there."""
        counts = self._hub.topic_counts
        if counts.recording:
            counts.of(message.topic).delivered(1, 0, 1, len(message.payload), message.origin)

    def _queue(self, session: Session, item: Waiting, is_aligned: bool) -> bool:
        """False: the client has had it."""
        hub = self._hub
        # What another part of the session got at QoS 0 may have been lost: here it waits at a higher one, unless the
        # client has asked for less since it was queued.
        for_sure = not is_aligned and _wants_surely(session, item.message.topic)
        if hub.delivery.came_already(session, item.message, for_sure):
            return False
        if for_sure and session.seen is not None:
            session.seen.waits_surely(item.message.origin, item.message.origin_offset)
        if not is_aligned:
            # Also what it has confirmed with PUBREC: many clients show a message only when it is released.
            hub.sessions.queue_again(session, item.message, item.flags, item.identifiers, 0)
            return True
        if item.sequence != session.backlog.sequence + 1:  # the client may know its packet identifier
            session.backlog.sequence = item.sequence - 1
            hub.sessions.record(session)
        hub.sessions.queue_again(session, item.message, item.flags, item.identifiers, item.state)
        return True

    def _requeue(self, session: Session, entry: Entry) -> None:
        """What came here for the session while it was away."""
        hub = self._hub
        message = hub.backlogs.load(entry)
        hub.backlogs.abandon(session.backlog, entry)
        named = message.named(self._node.name)
        if not hub.delivery.came_already(session, named):
            hub.sessions.queue_again(session, named, entry.flags, entry.identifiers, 0)

    def drained(self, old: str, signal: Signal) -> None:
        arrivals = self.by_client.get(signal.client, {})
        arrival = arrivals.get(old)
        if arrival is None or signal.number < arrival.number:
            return  # of a later one the session here has ended since: the old broker began again, and had no place
        session = self._hub.sessions.get(signal.client)
        if session is not None and session is arrival.session:
            self._give_astray(session, arrival)
        del arrivals[old]
        if not arrivals:
            self.by_client.pop(signal.client, None)
            if session is not None:
                self._release(session, arrival)

    def _release(self, session: Session, arrival: ArrivingSession) -> None:
        """Nothing older will come, or it has been waited for long enough."""
        if session.arriving and not session.closed and self.is_complete(session.client_id):
            session.arriving = False
            if not arrival.is_in_order(session.backlog.sequence):
                self._put_in_order(session)
            self._hub.delivery.pump(session)

    def _put_in_order(self, session: Session) -> None:
        """Messages of one origin in the order in which it took them, where some came around by the old broker."""
        hub = self._hub
        hub.backlogs.load_all(session.backlog)
        entries = [entry for entry in session.backlog.queue if not entry.state and not entry.dup]
        ordered = _by_origin(entries, [self._id(entry) for entry in entries])
        right = next((place for place, entry in enumerate(ordered) if entry is not entries[place]), len(entries))
        for entry in ordered[right:]:
            message = hub.backlogs.load(entry).named(self._node.name)
            hub.backlogs.abandon(session.backlog, entry)
            hub.sessions.queue_again(session, message, entry.flags, entry.identifiers, 0)

    def _id(self, entry: Entry) -> tuple[str, int]:
        message = self._hub.backlogs.load(entry)
        return (message.origin, message.origin_offset) if message.origin else (self._node.name, message.offset)


def _go_on(session: Session, piece: Piece, kept: dict[int, int]) -> None:
    """The client knows the session that comes, with its packet identifiers."""
    session.incoming = {**kept, **piece.incoming}
    session.arrival = piece.number
    session.is_stale = False
    session.arriving = True


def _filters(piece: Piece) -> list[tuple[str, int]]:
    """The plain subscriptions that came with a piece, and for how long the session had wanted each where it was."""
    found: list[tuple[str, int]] = []
    for packed in piece.grants:
        reader = Unpacker(packed)
        reader.u32()
        topic_filter, share, _, _ = reader.text(), reader.text(), reader.u8(), reader.u32()
        since_us = 0 if reader.at_end() else reader.u64()
        if not share:
            found.append((topic_filter, max(0, piece.sent_us - since_us)))
    return found


def _wants_surely(session: Session, topic: str) -> bool:
    """Whether it would get a message at QoS 1 or 2; otherwise its client has asked for less since one was queued."""
    plain = ((topic_filter, grant) for topic_filter, grant in session.grants.items() if not grant.share)
    is_member = any(grant.share for grant in session.grants.values())
    return is_member or any(grant.qos and matches(topic_filter, topic) for topic_filter, grant in plain)


def _is_newer(piece: Piece, session: Session) -> bool:
    """Whether the client knows of the session that comes, and not of the one that is here and waits for it."""
    return session.connection is None and piece.greeted_us > session.greeted_us


def _by_origin(entries: list[Entry], ids: list[tuple[str, int]]) -> list[Entry]:
    """The same origins in the same places, but each origin's entries by their numbers."""
    sorted_ids: dict[str, list[tuple[int, int]]] = {}
    for place, (origin, offset) in enumerate(ids):
        sorted_ids.setdefault(origin, []).append((offset, place))
    for listed in sorted_ids.values():
        listed.sort(reverse=True)
    return [entries[sorted_ids[origin].pop()[1]] for origin, _ in ids]
