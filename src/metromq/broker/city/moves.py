"""Clients that move between brokers: the latest CONNECT wins, and the session follows with all that waits for it.

A session travels as ordinary QoS 1 messages over the link to its new broker, so a crash on either side loses nothing.
The old broker keeps collecting for a while, because messages may still be on their way to it; the new one leaves out
what comes both ways.
"""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from metromq.broker import logs
from metromq.federation.distribution import Hop
from metromq.federation.effects import SessionFound, SessionTaken
from metromq.federation.stages import FINAL
from metromq.protocol.packing import Packer, Unpacker
from metromq.protocol.session import records, store
from metromq.protocol.session.message import KIND_REPLAY, Message
from metromq.protocol.session.outlet import Outlet
from metromq.protocol.session.session import Entry, Session
from metromq.protocol.wire.reasons import SESSION_TAKEN_OVER

if TYPE_CHECKING:
    from metromq.broker.city.host import CityHost

TOPIC = "$metromq/session"
ANSWER_S = 1.0  # how long a client waits for the question where its session is
STATE_S = 2.0  # and then for the session itself; what comes later is added to a session that started empty
GHOST_HELLOS = 8  # how long the old broker goes on collecting
PIECE_BYTES = 128 * 1024


class Moves:
    def __init__(self, host: "CityHost") -> None:
        self._host = host
        self._held: dict[str, tuple[Outlet, int]] = {}  # clients that wait to be let in, and since when

    # --- the new broker -------------------------------------------------------------------------------------------

    def asks(self, outlet: Outlet, client_id: str, clean_start: bool) -> bool:
        host = self._host
        time_us = host.hub.wall_us
        earlier = self._held.pop(client_id, None)
        if earlier is not None:
            earlier[0].terminate(SESSION_TAKEN_OVER, "another connection uses this client identifier")
        self._held[client_id] = (outlet, time_us)
        host.run(host.node.directory.connected(client_id, time_us, clean_start, True))
        if client_id not in self._held:
            return True  # answered already, and let in
        asyncio.get_running_loop().call_later(ANSWER_S, self._unanswered, client_id, time_us)
        return True

    def _unanswered(self, client_id: str, time_us: int) -> None:
        held = self._held.get(client_id)
        if held is not None and held[1] == time_us:
            self._host.turns.now()
            self._host.run(self._host.node.directory.unanswered(client_id))
            self._host.turns.worked()

    def found(self, effect: SessionFound) -> None:
        held = self._held.get(effect.client)
        if held is None or held[1] != effect.time_us:
            return
        if effect.broker and effect.broker != self._host.name:
            asyncio.get_running_loop().call_later(STATE_S, self._late, effect.client, effect.time_us)
        else:
            self._let_in(effect.client)

    def _late(self, client_id: str, time_us: int) -> None:
        held = self._held.get(client_id)
        if held is not None and held[1] == time_us:
            self._host.turns.now()
            self._let_in(client_id)
            self._host.turns.worked()

    def _let_in(self, client_id: str) -> None:
        outlet, _ = self._held.pop(client_id)
        outlet.proceed()

    def is_session(self, message: Message) -> bool:
        return message.topic == TOPIC

    def arrived(self, peer: str, message: Message) -> None:
        """A piece of a session; it is applied to the session here, which is made if its client still waits."""
        hub = self._host.hub
        reader = Unpacker(message.payload)
        client_id, last = reader.text(), bool(reader.u8())
        session = hub.sessions.get(client_id)
        if session is None:
            if client_id not in self._held:
                logs.warning("a session came for a client that is not here", client=client_id, peer=peer)
                return
            session = hub.adopt(client_id)
        if session.moving is None:
            session.moving = set()
        self._take(session, reader)
        if client_id in self._held:
            self._let_in(client_id)
        if last:
            session.moving = None
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
        if held is not None:
            held[0].terminate(SESSION_TAKEN_OVER, f"the client is at {effect.broker} now")
        session = host.hub.sessions.get(effect.client)
        if session is None:
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

    def _bury(self, session: Session, broker: str) -> None:
        if session.closed or session.outlet is not None:
            return
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
            packer = Packer().text(session.client_id).u8(1 if last and is_end else 0).u32(session.expiry_s)
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
