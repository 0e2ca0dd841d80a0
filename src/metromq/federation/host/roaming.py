"""Clients that move between brokers: the latest CONNECT wins, and the session follows with all that waits for it.

A session travels as ordinary QoS 1 messages over the link to its new broker, so a crash on either side loses nothing.
The old broker keeps collecting for a while, because messages may still be on their way to it; the new one leaves out
what comes both ways.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol, final

from metromq.federation.directory import NO_SESSION
from metromq.federation.distribution import Hop
from metromq.federation.effects import Effect, SessionFound, SessionRefused, SessionTaken
from metromq.federation.host.copies import Copies
from metromq.federation.host.timers import Timers
from metromq.federation.node import Node
from metromq.federation.stages import FINAL
from metromq.protocol.session import records, store
from metromq.protocol.session.backlog import Entry
from metromq.protocol.session.handshake import FOREIGN
from metromq.protocol.session.hub import Hub
from metromq.protocol.session.message import KIND_REPLAY, Message
from metromq.protocol.session.network_connection import NetworkConnection
from metromq.protocol.session.packing import Packer, Unpacker
from metromq.protocol.session.session import Session
from metromq.protocol.wire.reasons import CLIENT_IDENTIFIER_NOT_VALID, SESSION_TAKEN_OVER

TOPIC: Final = "$metromq/session"
ANSWER_S: Final = 1.0  # how long a client waits for the question where its session is
STATE_S: Final = 2.0  # and then for the session itself; what comes later is added to a session that started empty
GHOST_HELLOS: Final = 8  # how long the old broker goes on collecting
PIECE_BYTES: Final = 128 * 1024
LAST, OWNED = 1, 2  # flags of a piece: the transfer ends with it; it says whose session it is


@dataclass(frozen=True, slots=True)
class _Held:
    """A client that waits to be let in, and since when."""

    outlet: NetworkConnection
    time_us: int
    username: str


class Report(Protocol):
    """Tells operators what happened."""

    def __call__(self, level: str, event: str, **details: object) -> None: ...


@final
class Roaming:
    def __init__(
        self,
        hub: Hub,
        node: Node,
        copies: Copies,
        timers: Timers,
        run: Callable[[list[Effect]], None],
        report: Report,
    ) -> None:
        self._hub = hub
        self._node = node
        self._copies = copies
        self._timers = timers
        self._run = run  # carries out what the node wants
        self._report = report
        self._held: dict[str, _Held] = {}
        self._entering: dict[
            str, NetworkConnection
        ] = {}  # clients that were let in; they may still have to wait for the journal

    # --- the new broker -------------------------------------------------------------------------------------------

    def asks(self, outlet: NetworkConnection, client_id: str, clean_start: bool, username: str) -> bool:
        time_us = self._hub.clock.wall_us
        replaces = self._hub.settings.foreign_client_id_replaces
        earlier = self._held.get(client_id)
        if earlier is not None:
            if earlier.username != username and not replaces:
                # Even if its connection is gone: its session may be on the way here.
                outlet.refuse(CLIENT_IDENTIFIER_NOT_VALID, FOREIGN)
                return True
            earlier.outlet.terminate(SESSION_TAKEN_OVER, "another connection uses this client identifier")
        self._held[client_id] = _Held(outlet, time_us, username)
        session = self._hub.sessions.get(client_id)
        opened_us = session.opened_us if session is not None and session.username == username else NO_SESSION
        effects = self._node.directory.connected(client_id, time_us, clean_start, True, username, opened_us, replaces)
        self._run(effects)
        if client_id not in self._held:
            return True  # answered already, and let in
        self._timers.at(self._hub.clock.now + ANSWER_S, lambda: self._unanswered(client_id, time_us))
        return True

    def _unanswered(self, client_id: str, time_us: int) -> None:
        if self._waits(client_id, time_us):
            self._run(self._node.directory.unanswered(client_id))

    def found(self, effect: SessionFound) -> None:
        if not self._waits(effect.client, effect.time_us):
            return
        if effect.broker and effect.broker != self._node.name:
            self._timers.at(self._hub.clock.now + STATE_S, lambda: self._late(effect.client, effect.time_us))
        else:
            self._let_in(effect.client)

    def refused(self, effect: SessionRefused) -> None:
        if self._waits(effect.client, effect.time_us):
            self._held.pop(effect.client).outlet.refuse(CLIENT_IDENTIFIER_NOT_VALID, FOREIGN)

    def _waits(self, client_id: str, time_us: int) -> bool:
        held = self._held.get(client_id)
        return held is not None and held.time_us == time_us

    def _late(self, client_id: str, time_us: int) -> None:
        if self._waits(client_id, time_us):
            self._let_in(client_id)

    def _let_in(self, client_id: str) -> None:
        outlet = self._entering[client_id] = self._held.pop(client_id).outlet
        outlet.proceed()
        if outlet.output.closing:
            self.gave_up(outlet, client_id)

    def gave_up(self, outlet: NetworkConnection, client_id: str) -> None:
        """It was let in and did not come: the city must not believe that its session is here."""
        if self._entering.get(client_id) is not outlet:
            return
        del self._entering[client_id]
        if self._hub.sessions.get(client_id) is None:
            self._run(self._node.directory.ended(client_id))

    def is_entering(self, client_id: str) -> bool:
        """Whether the claim on this client is that of a CONNECT, which ends the session that was here."""
        return client_id in self._entering

    def entered(self, session: Session) -> None:
        """A client is in; one whose identifier we assigned asked nobody, but its session may be looked for later."""
        self._entering.pop(session.client_id, None)
        directory = self._node.directory
        if session.expiry_s and not directory.has(session.client_id):
            time_us = self._hub.clock.wall_us
            replaces = self._hub.settings.foreign_client_id_replaces
            effects = directory.connected(
                session.client_id, time_us, False, False, session.username, session.opened_us, replaces
            )
            self._run(effects)

    def is_session(self, message: Message) -> bool:
        return message.topic == TOPIC

    def arrived(self, peer: str, message: Message) -> None:
        """A piece of a session; it is applied to the session here, which is made if its client still waits."""
        hub = self._hub
        reader = Unpacker(message.payload)
        client_id, flags = reader.text(), reader.u8()
        if not flags & OWNED:
            self._report("warning", "a session without an owner came, from an older release", client=client_id)
            return
        owner, opened_us = reader.text(), reader.u64()
        session = hub.sessions.get(client_id)
        held = self._held.get(client_id)
        if session is None and held is not None and held.username == owner:
            session = hub.sessions.adopt(client_id, owner, opened_us)
        if session is None or session.username != owner:
            self._report("warning", "a session came for a client that is not here", client=client_id, peer=peer)
            return
        session.opened_us = min(session.opened_us, opened_us)
        self._node.directory.opened(client_id, session.opened_us)
        if session.moving is None:
            session.moving = set()
        self._take(session, reader)
        if held is not None and held.username == owner:
            self._let_in(client_id)
        if flags & LAST:
            session.moving = None
        hub.delivery.suspect(session)  # the rights here count, not those of the broker that queued it
        hub.delivery.pump(session)

    def _take(self, session: Session, reader: Unpacker) -> None:
        hub = self._hub
        session.expiry_s = max(session.expiry_s, reader.u32())
        sequence = reader.u64()
        if not session.backlog.sequence:
            session.backlog.sequence = sequence
        hub.sessions.record(session)
        for _ in range(reader.u32()):
            inner = Unpacker(reader.blob())
            inner.u32()
            grant = store.unpack_grant(session, inner)
            if grant.full_filter() not in session.grants:
                hub.subscriptions.restore(grant)
                hub.commits.append(records.SUBSCRIBED, store.pack_grant(grant))
        for _ in range(reader.u32()):
            session.incoming[reader.u16()] = None
        for _ in range(reader.u32()):
            flags, state = reader.u8(), reader.u8()
            record = records.decode_message(reader.blob())
            if not hub.delivery.came_already(session, record.message):
                hub.sessions.queue_again(session, record.message, flags, state)

    # --- the old broker -------------------------------------------------------------------------------------------

    def taken(self, effect: SessionTaken) -> None:
        """The client is elsewhere now: its connection ends here, its will is not published, its session follows."""
        held = self._held.pop(effect.client, None)
        waiting = held.outlet if held is not None else self._entering.pop(effect.client, None)
        if waiting is not None:
            waiting.terminate(SESSION_TAKEN_OVER, f"the client is at {effect.broker} now")
        session = self._hub.sessions.get(effect.client)
        if session is None:
            return
        if effect.foreign:
            self._lose(session)
            return
        session.will = None
        session.will_at = 0.0
        outlet = session.connection
        if outlet is not None:
            outlet.terminate(SESSION_TAKEN_OVER, f"the client is at {effect.broker} now")
            self._hub.sessions.detach(session, True)
        if session.closed:
            return
        if effect.clean_start or not session.expiry_s:
            self._hub.sessions.close(session)
            return
        self._report("info", "session moves", client=effect.client, to=effect.broker, waiting=session.backlog.waiting())
        self._export(session, effect.broker, False)
        wait_s = GHOST_HELLOS * self._node.city.membership.hello_interval_ms / 1000
        self._timers.at(self._hub.clock.now + wait_s, lambda: self._bury(session, effect.broker))

    def _lose(self, session: Session) -> None:
        """Another user has the client identifier: the session ends with all that waits for it."""
        hub = self._hub
        self._report("warning", "a session ends, another user has its client identifier", client=session.client_id)
        if session.connection is not None:
            session.connection.terminate(SESSION_TAKEN_OVER, "another user has this client identifier")
            hub.sessions.detach(session, False)
        hub.sessions.close(session)

    def _bury(self, session: Session, broker: str) -> None:
        if session.closed or session.connection is not None or self._node.directory.has(session.client_id):
            return  # it is at home here again
        self._export(session, broker, True)
        self._hub.sessions.close(session)

    def _export(self, session: Session, broker: str, last: bool) -> None:
        hub = self._hub
        backlog = session.backlog
        hub.backlogs.load_all(backlog)
        entries = [*backlog.inflight.values(), *backlog.queue]
        copies = [self._copies.for_hop(Hop(broker, FINAL))]
        for number, payload in enumerate(self._pieces(session, entries, last)):
            piece = Message(TOPIC, payload, 1)
            piece.time_us = hub.clock.wall_us + number
            piece.kind = KIND_REPLAY
            hub.publishing.deliver12(piece, [], copies, None, 0)
        for entry in entries:
            hub.backlogs.abandon(backlog, entry)

    def _pieces(self, session: Session, entries: list[Entry], last: bool) -> Iterator[bytes]:
        """The first piece has the subscriptions; messages follow in pieces of bounded size."""
        waiting = [(entry, records.encode_message(self._named(entry), [])) for entry in entries]
        position = 0
        first = True
        while first or position < len(waiting):
            size, end = 0, position
            while end < len(waiting) and (end == position or size < PIECE_BYTES):
                size += len(waiting[end][1])
                end += 1
            is_end = end == len(waiting)
            packer = Packer().text(session.client_id).u8(OWNED | (LAST if last and is_end else 0))
            packer.text(session.username).u64(session.opened_us).u32(session.expiry_s)
            packer.u64(max(0, session.backlog.sequence - len(entries)))
            grants = list(session.grants.values()) if first else []
            packer.u32(len(grants))
            for grant in grants:
                packer.blob(store.pack_grant(grant))
            packer.u32(len(session.incoming) if first else 0)
            for packet_id in session.incoming if first else ():
                packer.u16(packet_id)
            packer.u32(end - position)
            for entry, body in waiting[position:end]:
                packer.u8(entry.flags).u8(entry.state).blob(body)
            yield packer.done()
            position, first = end, False

    def _named(self, entry: Entry) -> Message:
        """The message with its origin, by which the new broker recognises it."""
        message = self._hub.backlogs.load(entry)
        if message.origin:
            return message
        named = Message(message.topic, message.payload, message.qos, message.retain, message.properties)
        named.expires_at_us = message.expires_at_us
        named.time_us = message.time_us
        named.publisher = message.publisher
        named.origin = self._node.name
        named.origin_offset = message.offset
        return named
