"""Clients that move between brokers: the latest CONNECT wins, and the session follows with all that waits for it.

A session travels as ordinary QoS 1 messages over the link to its new broker, so a crash on either side loses nothing.
The old broker keeps collecting for a while, because messages may still be on their way to it; the new one leaves out
what comes both ways.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from metromq.broker import logs
from metromq.federation.directory import NO_SESSION
from metromq.federation.distribution import Hop
from metromq.federation.effects import SessionFound, SessionRefused, SessionTaken
from metromq.federation.stages import FINAL
from metromq.protocol.session import records, store
from metromq.protocol.session.handshake import FOREIGN
from metromq.protocol.session.message import KIND_REPLAY, Message
from metromq.protocol.session.outlet import Outlet
from metromq.protocol.session.packing import Packer, Unpacker
from metromq.protocol.session.session import Entry, Session
from metromq.protocol.wire.reasons import CLIENT_IDENTIFIER_NOT_VALID, SESSION_TAKEN_OVER

if TYPE_CHECKING:
    from metromq.broker.city.host import CityHost

TOPIC = "$metromq/session"
ANSWER_S = 1.0  # how long a client waits for the question where its session is
STATE_S = 2.0  # and then for the session itself; what comes later is added to a session that started empty
GHOST_HELLOS = 8  # how long the old broker goes on collecting
PIECE_BYTES = 128 * 1024
LAST, OWNED = 1, 2  # flags of a piece: the transfer ends with it; it says whose session it is


@dataclass(frozen=True, slots=True)
class _Held:
    """A client that waits to be let in, and since when."""

    outlet: Outlet
    time_us: int
    username: str


@dataclass(frozen=True, slots=True)
class _Next:
    """A client with the identifier of one that waits, of another user: it is asked for when that one is decided on."""

    outlet: Outlet
    clean_start: bool
    username: str


class Moves:
    def __init__(self, host: "CityHost") -> None:
        self._host = host
        self._held: dict[str, _Held] = {}
        self._next: dict[str, list[_Next]] = {}
        self._entering: dict[str, Outlet] = {}  # clients that were let in; they may still have to wait for the journal

    # --- the new broker -------------------------------------------------------------------------------------------

    def asks(self, outlet: Outlet, client_id: str, clean_start: bool, username: str) -> bool:
        host = self._host
        time_us = host.hub.wall_us
        replaces = host.hub.settings.foreign_client_id_replaces
        earlier = self._held.get(client_id)
        if earlier is not None:
            if earlier.username != username and not replaces:
                # Whoever waits owns nothing yet: it must not keep the owner out, nor lose its session on the way here.
                self._next.setdefault(client_id, []).append(_Next(outlet, clean_start, username))
                return True
            earlier.outlet.terminate(SESSION_TAKEN_OVER, "another connection uses this client identifier")
        self._held[client_id] = _Held(outlet, time_us, username)
        session = host.hub.sessions.get(client_id)
        opened_us = session.opened_us if session is not None and session.username == username else NO_SESSION
        effects = host.node.directory.connected(client_id, time_us, clean_start, True, username, opened_us, replaces)
        host.run(effects)
        if client_id not in self._held:
            return True  # answered already, and let in
        asyncio.get_running_loop().call_later(ANSWER_S, self._unanswered, client_id, time_us)
        return True

    def _unanswered(self, client_id: str, time_us: int) -> None:
        if self._waits(client_id, time_us):
            self._host.turns.now()
            self._host.run(self._host.node.directory.unanswered(client_id))
            self._host.turns.worked()

    def found(self, effect: SessionFound) -> None:
        if not self._waits(effect.client, effect.time_us):
            return
        if effect.broker and effect.broker != self._host.name:
            asyncio.get_running_loop().call_later(STATE_S, self._late, effect.client, effect.time_us)
        else:
            self._let_in(effect.client)

    def refused(self, effect: SessionRefused) -> None:
        if self._waits(effect.client, effect.time_us):
            self._held.pop(effect.client).outlet.refuse(CLIENT_IDENTIFIER_NOT_VALID, FOREIGN)
            self._ask_next(effect.client)

    def _ask_next(self, client_id: str) -> None:
        """Nobody waits with this identifier any more: whoever came behind is judged by what is here now."""
        behind = self._next.get(client_id, [])
        while behind and client_id not in self._held:
            one = behind.pop(0)
            if one.outlet.closing:
                continue
            if self._host.hub.is_foreign(client_id, one.username):
                one.outlet.refuse(CLIENT_IDENTIFIER_NOT_VALID, FOREIGN)
            else:
                self.asks(one.outlet, client_id, one.clean_start, one.username)
        if not behind:
            self._next.pop(client_id, None)

    def _waits(self, client_id: str, time_us: int) -> bool:
        held = self._held.get(client_id)
        return held is not None and held.time_us == time_us

    def _late(self, client_id: str, time_us: int) -> None:
        if self._waits(client_id, time_us):
            self._host.turns.now()
            self._let_in(client_id)
            self._host.turns.worked()

    def _let_in(self, client_id: str) -> None:
        outlet = self._entering[client_id] = self._held.pop(client_id).outlet
        outlet.proceed()
        if outlet.closing:
            self.gave_up(outlet, client_id)
        self._ask_next(client_id)

    def gave_up(self, outlet: Outlet, client_id: str) -> None:
        """It was let in and did not come: the city must not believe that its session is here."""
        if self._entering.get(client_id) is not outlet:
            return
        del self._entering[client_id]
        if client_id not in self._host.hub.sessions:
            self._host.run(self._host.node.directory.ended(client_id))

    def is_entering(self, client_id: str) -> bool:
        """Whether the claim on this client is that of a CONNECT, which ends the session that was here."""
        return client_id in self._entering

    def entered(self, session: Session) -> None:
        """A client is in; one whose identifier we assigned asked nobody, but its session may be looked for later."""
        self._entering.pop(session.client_id, None)
        directory = self._host.node.directory
        if session.expiry_s and not directory.has(session.client_id):
            time_us = self._host.hub.wall_us
            replaces = self._host.hub.settings.foreign_client_id_replaces
            effects = directory.connected(
                session.client_id, time_us, False, False, session.username, session.opened_us, replaces
            )
            self._host.run(effects)

    def is_session(self, message: Message) -> bool:
        return message.topic == TOPIC

    def arrived(self, peer: str, message: Message) -> None:
        """A piece of a session; it is applied to the session here, which is made if its client still waits."""
        hub = self._host.hub
        reader = Unpacker(message.payload)
        client_id, flags = reader.text(), reader.u8()
        if not flags & OWNED:
            logs.warning("a session came from an older release, which does not say whose it is", client=client_id)
            return
        owner, opened_us = reader.text(), reader.u64()
        session = hub.sessions.get(client_id)
        held = self._held.get(client_id)
        if session is None and held is not None and held.username == owner:
            session = hub.adopt(client_id, owner, opened_us)
        if session is None or session.username != owner:
            logs.warning("a session came for a client that is not here", client=client_id, peer=peer)
            return
        session.opened_us = min(session.opened_us, opened_us)
        self._host.node.directory.opened(client_id, session.opened_us)
        if session.moving is None:
            session.moving = set()
        self._take(session, reader)
        if held is not None and held.username == owner:
            self._let_in(client_id)
        if flags & LAST:
            session.moving = None
        hub.suspect(session)  # the rights here count, not those of the broker that queued it
        hub.pump(session)

    def _take(self, session: Session, reader: Unpacker) -> None:
        hub = self._host.hub
        session.expiry_s = max(session.expiry_s, reader.u32())
        sequence = reader.u64()
        if not session.sequence:
            session.sequence = sequence
        hub.note_session(session)
        for _ in range(reader.u32()):
            inner = Unpacker(reader.blob())
            inner.u32()
            grant = store.unpack_grant(session, inner)
            if grant.full_filter() not in session.grants:
                hub.restore_grant(grant)
                hub.append(records.SUBSCRIBED, store.pack_grant(grant))
        for _ in range(reader.u32()):
            session.incoming[reader.u16()] = None
        for _ in range(reader.u32()):
            flags, state = reader.u8(), reader.u8()
            record = records.decode_message(reader.blob())
            if not hub.came_already(session, record.message):
                hub.queue_again(session, record.message, flags, state)

    # --- the old broker -------------------------------------------------------------------------------------------

    def taken(self, effect: SessionTaken) -> None:
        """The client is elsewhere now: its connection ends here, its will is not published, its session follows."""
        host = self._host
        held = self._held.pop(effect.client, None)
        waiting = held.outlet if held is not None else self._entering.pop(effect.client, None)
        if waiting is not None:
            waiting.terminate(SESSION_TAKEN_OVER, f"the client is at {effect.broker} now")
        self._ask_next(effect.client)
        session = host.hub.sessions.get(effect.client)
        if session is None:
            return
        if effect.foreign:
            self._lose(session)
            return
        session.will = None
        session.will_at = 0.0
        outlet = session.outlet
        if outlet is not None:
            outlet.terminate(SESSION_TAKEN_OVER, f"the client is at {effect.broker} now")
            host.hub.detach(session, True)
        if session.closed:
            return
        if effect.clean_start or not session.expiry_s:
            host.hub.close(session)
            return
        logs.info("session moves", client=effect.client, to=effect.broker, waiting=session.waiting())
        self._export(session, effect.broker, False)
        wait_s = GHOST_HELLOS * host.city.membership.hello_interval_ms / 1000
        asyncio.get_running_loop().call_later(wait_s, self._bury, session, effect.broker)

    def _lose(self, session: Session) -> None:
        """Another user has the client identifier: the session ends with all that waits for it."""
        hub = self._host.hub
        logs.warning("a session ends, another user has its client identifier", client=session.client_id)
        if session.outlet is not None:
            session.outlet.terminate(SESSION_TAKEN_OVER, "another user has this client identifier")
            hub.detach(session, False)
        hub.close(session)

    def _bury(self, session: Session, broker: str) -> None:
        if session.closed or session.outlet is not None or self._host.node.directory.has(session.client_id):
            return  # it is at home here again
        self._host.turns.now()
        self._export(session, broker, True)
        self._host.hub.close(session)
        self._host.turns.worked()

    def _export(self, session: Session, broker: str, last: bool) -> None:
        hub = self._host.hub
        hub.load_all(session)
        entries = [*session.inflight.values(), *session.queue]
        copies = [self._host.copy_for(Hop(broker, FINAL))]
        for number, payload in enumerate(self._pieces(session, entries, last)):
            piece = Message(TOPIC, payload, 1)
            piece.time_us = hub.wall_us + number
            piece.kind = KIND_REPLAY
            hub.deliver12(piece, [], copies, None, 0)
        for entry in entries:
            hub.abandon(session, entry)

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
            packer.u64(max(0, session.sequence - len(entries)))
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
        message = self._host.hub.load(entry)
        if message.origin:
            return message
        named = Message(message.topic, message.payload, message.qos, message.retain, message.properties)
        named.expires_at_us = message.expires_at_us
        named.time_us = message.time_us
        named.publisher = message.publisher
        named.origin = self._host.name
        named.origin_offset = message.offset
        return named
