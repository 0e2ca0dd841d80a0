"""Clients that move between brokers: the latest CONNECT wins, and the session follows with all that waits for it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, final

from metromq.federation.directory import NO_SESSION
from metromq.federation.effects import Effect, SessionFound, SessionRefused, SessionTaken
from metromq.federation.host.arrivals import Arrivals
from metromq.federation.host.catch_up import CatchUp
from metromq.federation.host.copies import Copies
from metromq.federation.host.departures import Departures, number_apart
from metromq.federation.host.session_parcels import FIRST, MARKER, PROBE, TOPIC, Piece, Signal, decode_parcel
from metromq.federation.host.timers import Timers
from metromq.federation.node import Node
from metromq.protocol import reasons
from metromq.protocol.session import FOREIGN, Hub, Message, NetworkConnection, Session

ANSWER_S: Final = 1.0  # how long a client waits for the question where its session is
STANDSTILL_S: Final = 0.5  # a host ticks at least twice in this time, unless it rests for a whole hello interval:
RESTS: Final = 1.5  # then after so many of them without a tick
LONGEST_REST_S: Final = 0.5  # of a host, however rare hellos are
DOUBT_S: Final = 3.0  # so long after a broker is back others, directories among them, may not have heard all
STATE_S: Final = 2.0  # and then for the session itself; what comes later is added to a session that started empty
PATIENT_S: Final = 6.0  # at most so long while it comes bit by bit, or whoever has it is heard and only slow
LOOK_S: Final = 0.2  # how often we look whether that is so still


@dataclass(slots=True)
class _Held:
    """A client that waits to be let in, and since when.

    It waits for the part of its session that it had last: it may have left others elsewhere.
    """

    connection: NetworkConnection
    time_us: int
    username: str
    has_us: int  # when the client came to the newest part that is here,
    until: float  # it is let in then at the latest
    needs_us: int = NO_SESSION  # and to the one that its directory knows of; NO_SESSION: that has not answered
    broker: str = ""  # that its session comes from,
    came_at: float = 0.0  # and when the last piece of it came


class Reporting(Protocol):
    """Tells operators what happened."""

    def __call__(self, level: str, event: str, **details: object) -> None: ...


@dataclass(frozen=True, slots=True)
class _Next:
    """A client with the identifier of one that waits, of another user: it is asked for when that one is decided on."""

    connection: NetworkConnection
    clean_start: bool
    username: str


@final
class Roaming:
    """It has many methods because it is both ends of a move: one for each thing that clients, peers and the node do."""

    def __init__(
        self,
        hub: Hub,
        node: Node,
        copies: Copies,
        catch_up: CatchUp,
        timers: Timers,
        run: Callable[[list[Effect]], None],
        report: Reporting,
    ) -> None:
        self._hub = hub
        self._node = node
        node.directory.clean_starts.doubts = self._doubts
        self._timers = timers
        self._run = run  # carries out what the node wants
        self._report = report
        self._departures = Departures(hub, node, copies, self._is_arriving)
        self._arrivals = Arrivals(hub, node, timers, self._departures, catch_up, run)
        self._leaving = self._departures.by_client
        self._arriving = self._arrivals.by_client
        self._ticked_at = hub.clock.now
        self._doubted_until = 0.0
        self._held: dict[str, _Held] = {}
        self._next: dict[str, list[_Next]] = {}
        # Clients that were let in; they may still have to wait for the journal.
        self._entering: dict[str, NetworkConnection] = {}
        self.flushed: dict[str, int] = {}  # the last probe that each peer has answered; see `probe_all`

    # --- the new broker -------------------------------------------------------------------------------------------

    def asks(self, connection: NetworkConnection, client_id: str, clean_start: bool, username: str) -> bool:
        time_us = self._node.clock.stamp_us() - self.still_us()
        replaces = self._hub.settings.foreign_client_id_replaces
        earlier = self._held.get(client_id)
        if earlier is not None:
            if earlier.username != username and not replaces:
                # Whoever waits owns nothing yet: it must not keep the owner out, nor lose its session on the way here.
                self._next.setdefault(client_id, []).append(_Next(connection, clean_start, username))
                return True
            earlier.connection.terminate(reasons.SESSION_TAKEN_OVER, "another connection uses this client identifier")
        session = self._hub.sessions.get(client_id)
        has_us = session.claimed_us if session is not None else 0
        self._held[client_id] = _Held(connection, time_us, username, has_us, self._hub.clock.now + PATIENT_S)
        opened_us = session.opened_us if session is not None and session.username == username else NO_SESSION
        clean_us = time_us if clean_start else session.clean_us if session is not None else 0
        effects = self._node.directory.connected(
            client_id, time_us, clean_start, True, username, opened_us, replaces, clean_us
        )
        self._run(effects)
        if client_id not in self._held:
            return True  # answered already, and let in
        if self._hub.clock.now < self._doubted_until:
            self._tell_others(client_id)
        self._timers.at(self._hub.clock.now + ANSWER_S, lambda: self._unanswered(client_id, time_us))
        return True

    def _unanswered(self, client_id: str, time_us: int) -> None:
        if not self._waits(client_id, time_us):
            return
        directory = self._node.directory
        is_slow = directory.is_asked(client_id) and self._is_heard(directory.keeper_of(client_id))
        if is_slow and self._has_time(client_id):
            self._timers.at(self._hub.clock.now + LOOK_S, lambda: self._unanswered(client_id, time_us))
            return
        self._run(directory.unanswered(client_id))
        self._tell_others(client_id)  # who is asked for the client next must not learn of an older place only

    def _is_heard(self, broker: str) -> bool:
        """Whether a broker is there, as far as we know, so that it will answer, however busy its machine is."""
        return broker in self._node.up and self._node.directory.is_living(broker)

    def _has_time(self, client_id: str) -> bool:
        return self._hub.clock.now < self._held[client_id].until

    def _tell_others(self, client_id: str) -> None:
        """That it is here: its directory may not know."""
        self._run(self._node.directory.told_to(client_id, self._node.up.among(self._node.neighbours)))

    def found(self, effect: SessionFound) -> None:
        if not self._waits(effect.client, effect.time_us):
            return
        held = self._held[effect.client]
        held.needs_us = effect.since_us
        is_elsewhere = effect.broker and effect.broker != self._node.name
        held.broker = effect.broker if is_elsewhere else self._departures.goes_to(effect.client)
        if is_elsewhere or self._departures.has(effect.client):  # it is there, or on its way there and will come back
            self._timers.at(self._hub.clock.now + STATE_S, lambda: self._late(effect.client, effect.time_us))
            self._let_in_if_whole(effect.client)
        elif self._is_sure():
            self._let_in(effect.client)
        else:  # at the next tick: until then we may see that it has gone
            self._timers.at(self._hub.clock.now, lambda: self._still_waits(effect.client, effect.time_us))

    def _let_in_if_whole(self, client_id: str) -> None:
        """Its session has come, and not only a part of it that its client had left before."""
        held = self._held[client_id]
        has_come = self._arrivals.has(client_id) and self._arrivals.is_complete(client_id)
        if has_come and held.has_us >= held.needs_us:
            self._let_in(client_id)

    def still_us(self) -> int:
        """For how long this process stood still until now: a CONNECT that is read now may be as old as that.

        It must not win against one that another broker has read since.
        """
        still_s = self._hub.clock.now - self._ticked_at
        if still_s <= STANDSTILL_S:
            return 0
        rest_s = min(self._node.city.membership.hello_interval_ms / 1000, LONGEST_REST_S)
        return int(still_s * 1_000_000) if still_s > RESTS * rest_s else 0

    def _doubts(self) -> bool:
        """Whether some broker may not hear what clients do, or has not heard all of it yet."""
        node = self._node
        is_whole = node.directory.living_count > len(node.peers) and node.up.issuperset(node.neighbours)
        return not is_whole or self._hub.clock.now < self._doubted_until

    def _is_sure(self) -> bool:
        """Whether what we know of clients is up to date, as far as we know."""
        return not self.still_us() and self._node.up.issuperset(self._node.neighbours)

    def _still_waits(self, client_id: str, time_us: int) -> None:
        if self._waits(client_id, time_us):
            self._let_in(client_id)

    def refused(self, effect: SessionRefused) -> None:
        if self._waits(effect.client, effect.time_us):
            self._held.pop(effect.client).connection.refuse(reasons.CLIENT_IDENTIFIER_NOT_VALID, FOREIGN)
            self._ask_next(effect.client)

    def _ask_next(self, client_id: str) -> None:
        """Nobody waits with this identifier any more: whoever came behind is judged by what is here now."""
        behind = self._next.get(client_id, [])
        while behind and client_id not in self._held:
            one = behind.pop(0)
            if one.connection.output.closing:
                continue
            if self._hub.sessions.is_foreign(client_id, one.username):
                one.connection.refuse(reasons.CLIENT_IDENTIFIER_NOT_VALID, FOREIGN)
            else:
                self.asks(one.connection, client_id, one.clean_start, one.username)
        if not behind:
            self._next.pop(client_id, None)

    def _waits(self, client_id: str, time_us: int) -> bool:
        held = self._held.get(client_id)
        return held is not None and held.time_us == time_us

    def _late(self, client_id: str, time_us: int) -> None:
        if not self._waits(client_id, time_us):
            return
        held, now = self._held[client_id], self._hub.clock.now
        if self._has_time(client_id) and (self._is_heard(held.broker) or now < held.came_at + STATE_S):
            self._timers.at(now + LOOK_S, lambda: self._late(client_id, time_us))
            return
        self._report("warning", "a session did not come in time; its client begins a new one", client=client_id)
        self._let_in(client_id)

    def _let_in(self, client_id: str) -> None:
        if self._departures.has(client_id):  # what went away did not come back in time
            self._departures.cancel(client_id)
            session = self._hub.sessions.by_client_id[client_id]
            session.is_stale = True
            self._departures.stays(session)
        self._node.directory.let_in(client_id)
        connection = self._entering[client_id] = self._held.pop(client_id).connection
        self._end_if_void(client_id)
        connection.proceed()
        if connection.output.closing:
            self.gave_up(connection, client_id)
        self._ask_next(client_id)

    def _end_if_void(self, client_id: str) -> None:
        """The client began anew elsewhere since it left this session, and we hear of it only now."""
        session = self._hub.sessions.get(client_id)
        if session is not None and self._node.directory.is_void(client_id, session.greeted_us):
            if session.connection is not None:
                session.connection.terminate(reasons.SESSION_TAKEN_OVER, "the client has begun anew since")
                self._hub.sessions.detach(session, True)
            if not session.closed:
                self._hub.sessions.close(session)

    def gave_up(self, connection: NetworkConnection, client_id: str) -> None:
        """It was let in and did not come: the city must not believe that its session is here."""
        if self._entering.get(client_id) is not connection:
            return
        del self._entering[client_id]
        if self._hub.sessions.get(client_id) is None:
            self._run(self._node.directory.ended(client_id))

    def is_entering(self, client_id: str) -> bool:
        """Whether the claim on this client is that of a CONNECT, which ends the session that was here."""
        return client_id in self._entering or client_id in self._held

    def entered(self, session: Session) -> None:
        """A client is in; one whose identifier we assigned asked nobody, but its session may be looked for later."""
        self._entering.pop(session.client_id, None)
        self._number_apart(session)
        directory = self._node.directory
        if session.expiry_s and not directory.has(session.client_id):
            time_us = session.claimed_us  # by which a broker that it goes to knows that all of it has come
            replaces = self._hub.settings.foreign_client_id_replaces
            effects = directory.connected(
                session.client_id,
                time_us,
                False,
                False,
                session.username,
                session.opened_us,
                replaces,
                session.clean_us,
            )
            self._run(effects)

    def _number_apart(self, session: Session) -> None:
        """A session that begins while some broker cannot hear of it may be the second one of its client.

        If the client goes back to the first, of which it knows no packet identifiers then, those of this one must not
        stand for other messages there.
        """
        if session.expiry_s and not session.backlog.sequence and self._doubts():
            session.backlog.sequence = number_apart(self._node.name, session.opened_us)
            self._hub.sessions.record(session)

    def is_session(self, message: Message) -> bool:
        return message.topic == TOPIC

    def arrived(self, peer: str, message: Message) -> None:
        parcel = decode_parcel(message.payload)
        if isinstance(parcel, Piece):
            parcel.sent_us = message.time_us
            self._take(peer, parcel)
        elif parcel.kind == PROBE:
            self._probed(peer, parcel)
        elif parcel.kind == MARKER and not parcel.client:
            self.flushed[peer] = parcel.number
        elif parcel.kind == MARKER:
            self._departures.marked(parcel, peer)
        else:
            self._arrivals.drained(peer, parcel)

    def _probed(self, peer: str, signal: Signal) -> None:
        if signal.old == self._node.name:
            self._departures.marked(signal, self._node.name)
        else:
            moved_us = self._node.clock.ago_us(signal.number)
            unheard = tuple((topic_filter, age_us + moved_us) for topic_filter, age_us in signal.unheard)
            self._run(self._node.exchange.came_unheard(peer, signal.old, unheard))
            self._departures.send_signal(signal.old, Signal(MARKER, signal.client, signal.number, signal.old))

    def _is_arriving(self, client_id: str) -> bool:
        return self._arrivals.has(client_id)

    def _take(self, peer: str, piece: Piece) -> None:
        """A piece of a session; it is applied to the session here, which is made if there is none."""
        hub = self._hub
        client_id, owner = piece.client, piece.username
        session, held = hub.sessions.get(client_id), self._held.get(client_id)
        known = session.username if session is not None else held.username if held is not None else owner
        directory = self._node.directory
        void_us = max(session.clean_us if session is not None else 0, directory.void_before(client_id, owner))
        if known != owner or max(piece.opened_us, piece.greeted_us) < void_us:  # its client was not there since
            self._report("warning", "a session came that has no place here any more", client=client_id, peer=peer)
            self._arrivals.probe(peer, piece)  # so that it ends where it comes from
            return
        if held is not None:
            held.came_at = hub.clock.now
        if held is not None and piece.flags & FIRST:
            held.has_us = max(held.has_us, piece.claimed_us or piece.greeted_us)  # older releases do not say the first
        taken = self._arrivals.take(peer, piece)
        directory.opened(client_id, taken.opened_us, taken.clean_us)
        if held is None and not directory.has(client_id) and not self._departures.has(client_id):
            # Its client has gone on meanwhile, or has not come: whoever has it will be told.
            self._run(directory.connected(client_id, piece.taken_us, False, False, owner, taken.opened_us))
        if held is not None and held.time_us == piece.taken_us:
            self._let_in_if_whole(client_id)
        hub.delivery.pump(taken)

    def tick(self) -> None:
        self._ticked_at = now = self._hub.clock.now
        if not self._node.up.issuperset(self._node.neighbours):
            self._doubted_until = now + DOUBT_S
        if self._leaving:
            self._departures.tick()
        if self._arriving:
            self._arrivals.tick()

    def is_busy(self) -> bool:
        return bool(self._leaving) and self._departures.is_busy()

    def probe_all(self, number: int) -> None:
        """Every peer answers behind all that it has sent here so far."""
        for peer in self._node.peers:
            self._departures.send_signal(peer, Signal(PROBE, "", number, self._node.name))

    # --- the old broker -------------------------------------------------------------------------------------------

    def taken(self, effect: SessionTaken) -> None:
        """The client is elsewhere now: its connection ends here, its will is not published, its session follows."""
        held = self._held.pop(effect.client, None)
        waiting = held.connection if held is not None else self._entering.pop(effect.client, None)
        if waiting is not None:
            waiting.terminate(reasons.SESSION_TAKEN_OVER, f"the client is at {effect.broker} now")
        self._ask_next(effect.client)
        session = self._hub.sessions.get(effect.client)
        if session is None:
            return
        if effect.foreign:
            self._lose(session)
            return
        session.will = None
        session.will_at = 0.0
        connection = session.connection
        if connection is not None:
            connection.terminate(reasons.SESSION_TAKEN_OVER, f"the client is at {effect.broker} now")
            self._hub.sessions.detach(session, True)
        if session.closed:
            return
        if session.departed_to not in ("", effect.broker):
            # What is here is a shell: the session is where it went, and whoever told us may not know of that.
            self._run(self._node.directory.passed_on(session.departed_to, effect, session.username, session.opened_us))
        if effect.clean_start or not session.expiry_s:
            self._hub.sessions.close(session)
            return
        if session.departed_to:
            return
        self._report("info", "session moves", client=effect.client, to=effect.broker, waiting=session.backlog.waiting())
        session.arriving = False
        number = self._node.clock.stamp_us()
        senders = self._node.senders_of(session.grants)
        self._departures.begin(session, effect.broker, number, effect.time_us, senders)

    def restored(self, session: Session) -> None:
        """After a restart: a session whose client had gone on from here before."""
        number = self._node.clock.stamp_us()
        self._departures.begin(session, session.departed_to, number, session.departed_us)

    def ended(self, session: Session) -> None:
        """Told before the journal is: where it went must not wait for what nobody knows of any more."""
        if self._departures.is_of(session):
            self._departures.cancel(session.client_id)

    def _lose(self, session: Session) -> None:
        """Another user has the client identifier: the session ends with all that waits for it."""
        hub = self._hub
        self._report("warning", "a session ends, another user has its client identifier", client=session.client_id)
        if session.connection is not None:
            session.connection.terminate(reasons.SESSION_TAKEN_OVER, "another user has this client identifier")
            hub.sessions.detach(session, False)
        hub.sessions.close(session)
