"""A client over TCP or TLS: an asyncio protocol without the base class, so that mypyc can compile it."""

import asyncio
import os
from typing import Final, final

from metromq.broker.doorstep import Knock, TlsDoor
from metromq.broker.write_cycle import WriteCycle, Writer
from metromq.protocol.session import Access, Connection, Peer

_WRITE: Final = os.write  # found without asking the module each time
PATIENCE_S: Final = 0.02  # a publisher that is too fast waits no longer than this: a slow subscriber stalls nobody
LINGER_S: Final = 5.0  # a peer that is gone does not take its last bytes; its will must not wait for them


class StreamWriter(Writer):
    """`data_received` and the other methods are what the event loop calls."""

    def __init__(self, cycle: WriteCycle, access: Access, anonymous_allowed: bool, identity_as_username: bool) -> None:
        peer = Peer("", anonymous_allowed)
        peer.needs_identity = identity_as_username
        super().__init__(cycle, Connection(cycle.hub, access, peer))
        self.buffered = False  # the transport may still hold bytes that must go first
        self.transport: asyncio.Transport | None = None
        self.fd = -1  # of the socket, while what is written there goes out as it is (no TLS)
        self.patience: asyncio.TimerHandle | None = None  # set while this publisher waits for a receiver

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.knocks(Knock(transport))
        self.comes_in(transport)

    def knocks(self, knock: Knock) -> None:
        """From now on it counts."""
        self.connection.peer.newcomer = knock
        self.cycle.hub.connections.newcomers.came(knock)

    def comes_in(self, transport: asyncio.Transport) -> None:
        """The first byte of MQTT may come."""
        if self.output.closing:  # it took too long
            transport.abort()
            return
        self.transport = transport
        peer = self.connection.peer
        address = transport.get_extra_info("peername")
        peer.address = f"{address[0]}:{address[1]}" if isinstance(address, tuple) else str(address)
        if peer.needs_identity:
            peer.identity = common_name(transport.get_extra_info("peercert") or {})
        if transport.get_extra_info("sslcontext") is None:
            self.fd = transport.get_extra_info("socket").fileno()
        else:
            peer.transport = "tls"

    def data_received(self, data: bytes) -> None:
        cycle = self.cycle
        connection = self.connection
        if connection.peer_incoming is not None:
            cycle.now()
            connection.receive(data)
            cycle.listened()
        elif cycle.scheduled:  # one look at the clock is enough for a turn
            connection.receive(data)
            cycle.worked()
        elif connection.express(data):  # first of all on its way: a broker that has just woken up is slow
            cycle.worked()
            cycle.now()
            connection.heard_at = cycle.hub.clock.now
        else:
            cycle.now()
            connection.receive(data)
            cycle.worked()
        if cycle.hub.delivery.slow is not None:
            self._slow_down()

    def is_open(self) -> bool:
        return self.transport is not None

    def abort(self) -> None:
        self.fd = -1
        if self.transport is not None:
            self.transport.abort()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: BaseException | None) -> None:
        self.transport = None
        self.fd = -1
        self.account(0)
        cycle = self.cycle
        cycle.now()
        self.connection.lost()
        cycle.worked()
        self.release()
        self.part()

    def pause_writing(self) -> None:
        self.paused = True
        self._measure()

    def resume_writing(self) -> None:
        self.paused = False
        self.output.sent(0)
        self.account(0)
        self.cycle.now()
        self.connection.drained()
        self.flush()
        self.cycle.worked()
        if not self.paused:
            self.release()

    def flush(self) -> None:
        output = self.output
        transport = self.transport
        if transport is None:
            output.take()
            output.sent(0)
            newcomer = self.connection.peer.newcomer
            if output.closing and newcomer is not None:  # in the middle of a TLS handshake
                newcomer.turn_away()
            return
        if self.paused:
            self._measure()
            return
        data = output.take()
        if data:
            output.waiting_bytes = 0
            counters = self.cycle.hub.counters
            counters.bytes_sent += len(data)
            counters.packets_sent += 1
            self._write(transport, data)
        if output.closing:
            self.fd = -1
            transport.close()
            self.cycle.loop.call_later(LINGER_S, transport.abort)
        elif output.hungry and not self.paused:
            self.cycle.now()
            self.connection.drained()

    def _write(self, transport: asyncio.Transport, data: bytes) -> None:
        """Straight into the socket when nothing waits before it: the transport would do so only at the turn's end."""
        if self.buffered and not transport.get_write_buffer_size():
            self.buffered = False
        if self.fd < 0 or self.buffered:
            transport.write(data)
            return
        try:
            sent = _WRITE(self.fd, data)
        except OSError:  # full, or broken, which reading will tell
            sent = 0
        if sent < len(data):
            self.buffered = True
            transport.write(data[sent:] if sent else data)

    def _measure(self) -> None:
        transport = self.transport
        output = self.output
        if transport is not None:
            output.sent(transport.get_write_buffer_size())
            self.account(output.waiting_bytes)
            if output.closing:  # whoever does not read is not waited for
                self.fd = -1
                transport.abort()

    def _slow_down(self) -> None:
        """The publisher is read again when the receiver has drained, or after a short while in any case."""
        target = self.cycle.hub.delivery.take_slow()
        transport = self.transport
        is_peer = self.connection.peer_incoming is not None
        if target is None or transport is None or self.patience is not None or is_peer:
            return
        if target.waiting_bytes > target.soft_limit_bytes:
            self.cycle.flush()  # it may lag only because the turn has not ended
        if target.waiting_bytes <= target.soft_limit_bytes or target.stalled:
            return
        transport.pause_reading()
        self.patience = self.cycle.loop.call_later(PATIENCE_S, self.go_on)
        owner = target.owner
        if isinstance(owner, Writer):
            if owner.followers is None:
                owner.followers = {}
            owner.followers[self] = None

    def go_on(self) -> None:
        patience = self.patience
        if patience is not None:
            self.patience = None
            patience.cancel()
            if self.transport is not None:
                self.transport.resume_reading()


@final
class SecuredWriter(StreamWriter):
    """The same over TLS."""

    def __init__(
        self, cycle: WriteCycle, access: Access, anonymous_allowed: bool, identity_as_username: bool, door: TlsDoor
    ) -> None:
        super().__init__(cycle, access, anonymous_allowed, identity_as_username)
        self._door = door

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Called once more when the handshake is over; it counts from the first time on."""
        if self.connection.peer.newcomer is not None:
            self.comes_in(transport)
            return
        knock = Knock(transport)
        knock.secured_by(self._door, transport, self)
        self.knocks(knock)

    def not_secured(self) -> None:
        self.connection_lost(None)


def common_name(certificate: dict[str, object]) -> str:
    """The CN of a verified client certificate; empty when it has none."""
    subject = certificate.get("subject", ())
    assert isinstance(subject, tuple)
    for relative_name in subject:
        for key, value in relative_name:
            if key == "commonName":
                return str(value)
    return ""
