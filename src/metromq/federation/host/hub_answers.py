"""What the hub asks and tells the rest of the city: each question goes to the part of the host that knows."""

from collections.abc import Callable
from typing import final

from metromq.errors import PeerViolation
from metromq.federation.effects import Effect
from metromq.federation.host.catch_up import CatchUp
from metromq.federation.host.copies import Copies
from metromq.federation.host.last_wills import LastWills
from metromq.federation.host.leaving import Leaving
from metromq.federation.host.peer_links import PeerLinks
from metromq.federation.host.receiving import Receiving
from metromq.federation.host.retained_versions import RetainedVersions
from metromq.federation.host.roaming import Roaming
from metromq.federation.links.frame_bytes import decode_frame, encode_frame
from metromq.federation.links.inbox import DELIVER, Inbox
from metromq.federation.node import Node
from metromq.protocol import Packer, Unpacker, reasons
from metromq.protocol.session import (
    Federation,
    Hub,
    LinkCopy,
    Message,
    NetworkConnection,
    PeerEar,
    RemoteCheck,
    Session,
    records,
)


@final
class HubAnswers(Federation):
    """It has many methods because it answers everything that a hub may ask of a city."""

    def __init__(
        self,
        hub: Hub,
        node: Node,
        inbox: Inbox,
        links: PeerLinks,
        copies: Copies,
        receiving: Receiving,
        retained: RetainedVersions,
        catch_up: CatchUp,
        roaming: Roaming,
        wills: LastWills,
        leaving: Leaving,
        run: Callable[[list[Effect]], None],
    ) -> None:
        self.heard: dict[str, NetworkConnection] = {}  # connections over which peers speak to us
        self._hub = hub
        self._node = node
        self._inbox = inbox
        self._links = links
        self._copies = copies
        self._receiving = receiving
        self._retained = retained
        self._catch_up = catch_up
        self._roaming = roaming
        self._wills = wills
        self._leaving = leaving
        self._run = run

    def _now_us(self) -> int:
        return int(self._hub.clock.now * 1_000_000)

    def copier(self) -> RemoteCheck:
        return self._copies

    def ear(self) -> PeerEar:
        return self._receiving

    def subscribed(self, filter: str, share: str, members: int) -> None:
        full = f"$share/{share}/{filter}" if share else filter
        self._run(self._node.subscribed(full, self._now_us(), members if share else 1))
        if not share:
            self._retained.ask(filter)

    def unsubscribed(self, filter: str, share: str) -> None:
        self._run(self._node.unsubscribed(f"$share/{share}/{filter}" if share else filter, self._now_us()))

    def asks(self, connection: NetworkConnection, client_id: str, clean_start: bool, username: str) -> bool:
        return self._leaving.refuses(connection) or self._roaming.asks(connection, client_id, clean_start, username)

    def gave_up(self, connection: NetworkConnection, client_id: str) -> None:
        self._roaming.gave_up(connection, client_id)

    def connected(self, session: Session, resumed: bool) -> None:
        self._roaming.entered(session)
        self._wills.changed(session)

    def will_changed(self, session: Session) -> None:
        self._wills.changed(session)

    def publishes_will(self, session: Session, message: Message) -> bool:
        self._wills.publish(session, message)
        return True

    def stamp_us(self, wall_us: int) -> int:
        return self._node.clock.stamp_us()

    def claimed_us(self, client_id: str) -> int:
        return self._node.directory.claimed_us(client_id) or self._node.clock.stamp_us()

    def clean_us(self, client_id: str) -> int:
        return self._node.directory.clean_us(client_id)

    def ended(self, session: Session) -> None:
        self._roaming.ended(session)
        if not session.departed_to and not self._roaming.is_entering(session.client_id):
            self._run(self._node.directory.ended(session.client_id))

    def retains(self, message: Message) -> bool:
        return self._retained.accepts(message)

    def not_retained(self, message: Message) -> None:
        self._retained.not_kept(message)

    def retained_waits(self, session: Session, full_filter: str, new: bool) -> bool:
        return self._retained.waits(session, full_filter, new)

    def keeps_up(self, message: Message, copies: list[LinkCopy]) -> None:
        self._retained.keep_up(message, copies)

    # --- what peers send ------------------------------------------------------------------------------------------

    def link_accepted(self, peer: str, connection: NetworkConnection) -> None:
        old = self.heard.get(peer)
        if old is not None and old is not connection:
            old.terminate(reasons.PROTOCOL_ERROR, "the peer has a newer connection")
        self.heard[peer] = connection
        self._receiving.connected(peer)
        try:
            self._node.greetings.versions.offered(peer, connection.link_offer)
        except PeerViolation as error:
            connection.terminate(error.reason_code, str(error))
            return
        self._node.greetings.silences.connected(peer, self._now_us())
        if self._links.transport is not None:
            self._links.transport.heard_directly(peer)

    def link_lost(self, peer: str, connection: NetworkConnection) -> None:
        if self.heard.get(peer) is connection:
            del self.heard[peer]

    # --- after a restart ------------------------------------------------------------------------------------------

    def recovered(self, kind: int, body: bytes) -> None:
        reader = Unpacker(body)
        peer = reader.text()
        if kind == records.LINK:
            self._inbox.restore_cursor(peer, reader.u64(), reader.i64())
        else:
            self._node.restore(peer, decode_frame(reader.blob()), self._now_us())

    def delivers(self, uses: int) -> bool:
        return bool(uses & DELIVER)

    def replayed(self, message: Message, uses: int, holders: list[Session], copies: list[LinkCopy]) -> None:
        self._catch_up.marks.recalled(message)
        self._copies.recalled(message, uses, holders, copies)
        self._retained.recovered(message)

    def snapshot(self) -> bytes:
        packer = Packer().blob(self._inbox.dump())
        kept = self._node.snapshot()
        packer.u32(len(kept))
        for keep in kept:
            packer.text(keep.peer).blob(encode_frame(keep.frame))
        self._retained.pack(packer)
        self._catch_up.marks.pack(packer)
        return packer.done()

    def restored(self, state: bytes) -> None:
        if not state:
            return
        reader = Unpacker(state)
        self._inbox.load(reader.blob())
        for _ in range(reader.u32()):
            peer = reader.text()
            self._node.restore(peer, decode_frame(reader.blob()), self._now_us())
        self._retained.unpack(reader)
        if not reader.at_end():
            self._catch_up.marks.unpack(reader)
