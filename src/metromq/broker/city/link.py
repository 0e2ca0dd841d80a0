"""The sending end of a link: dials a peer, carries batches and control frames over MQTT 5, and dials again."""

import asyncio
import secrets
import ssl
from collections import deque
from typing import Protocol

from metromq.broker import logs
from metromq.broker.city.notes import read_note
from metromq.broker.stream import common_name
from metromq.broker.turns import Turns
from metromq.client.core import ClientCore
from metromq.client.effects import Closed, Effect, Failed, Opened, Send, Settled
from metromq.client.options import Options
from metromq.client.transports import Place, Transport, open_stream
from metromq.errors import MetroError, PeerViolation
from metromq.federation.links.auth import METHOD, NONCE_BYTES, Dialler
from metromq.federation.links.batch import LinkMessage, encode_batch
from metromq.federation.links.frames import BATCH_TOPIC, CONTROL_TOPIC, LINK_CLIENT_PREFIX, RUN_TOPIC
from metromq.federation.links.runs import encode_run
from metromq.protocol.session.census import DELAY_BUCKETS
from metromq.protocol.session.message import Message
from metromq.protocol.session.outlet import Flusher, Outlet
from metromq.protocol.session.session import Session
from metromq.protocol.wire.packets import MQTT5, Properties, Publish
from metromq.protocol.wire.reasons import NOT_AUTHORIZED

MAX_BATCH_MESSAGES = 512
MAX_BATCH_BYTES = 256 * 1024
SOFT_BYTES = 4 << 20  # unacknowledged; what waits beyond stays in the journal
HARD_BYTES = 16 << 20  # QoS 0 beyond this is dropped and counted
FIRST_RETRY_S = 0.1
LAST_RETRY_S = 2.0
KEEPALIVE_S = 10
CONNECT_TIMEOUT_S = 5.0


class LinkHost(Protocol):
    """What a link needs of its broker."""

    name: str
    journal_id: str
    turns: Turns

    def link_up(self, link: "Link") -> None: ...

    def link_down(self, link: "Link") -> None: ...


class LinkOutlet(Outlet):
    """What the hub sees of a link."""

    def __init__(self, link: "Link", dirty: list[Outlet]) -> None:
        super().__init__(dirty, SOFT_BYTES, HARD_BYTES)
        self.is_link = True
        self.version = MQTT5
        self.link = link
        self.owner = link

    def carry(self, message: Message, note: bytes) -> bool:
        if message.expires_at_us and message.expires_at_us <= self.link.host.turns.hub.wall_us:
            return False
        self._add(self.link.durable, message, note, message.offset)
        return True

    def forward(self, message: Message, note: bytes) -> None:
        if self.waiting_bytes > self.hard_limit_bytes:
            self.dropped += 1
            return
        if self.link.runs:  # a topic keeps its order, whichever way its messages take
            self.link.send_fleeting()
        self._add(self.link.fleeting, message, note, 0)

    def forward_run(self, run: bytes, count: int, newer: bool, origin: str, note: bytes) -> None:
        if self.waiting_bytes > self.hard_limit_bytes:
            self.dropped += count
            return
        self.link.runs.append((encode_run(newer, origin or self.link.host.name, note, run), count))
        self.waiting_bytes += len(run)
        if not self.marked:
            self.marked = True
            self.dirty.append(self)

    def _add(self, entries: list[LinkMessage], message: Message, note: bytes, sequence: int) -> None:
        read = read_note(note)
        entries.append(
            LinkMessage(
                message, read.stage, sequence, read.flags, read.served, read.shares, read.shares_done, read.limit
            )
        )
        self.waiting_bytes += len(message.payload) + 64
        if not self.marked:
            self.marked = True
            self.dirty.append(self)


class _Proof:
    """The dialler's proof as the client's authentication."""

    method = METHOD

    def __init__(self, dialler: Dialler) -> None:
        self._dialler = dialler

    def start(self) -> bytes:
        return self._dialler.connect_data()

    def answer(self, challenge: bytes) -> bytes:
        return self._dialler.answer(challenge)

    def finish(self, verdict: bytes | None) -> None:
        """The peer proved itself in its challenge."""


class _Ear:
    """Listens to one connection and falls silent when the link has another."""

    def __init__(self, link: "Link") -> None:
        self.link: Link | None = link

    def received(self, data: bytes) -> None:
        if self.link is not None:
            self.link.received(data)

    def closed(self, error: Exception | None) -> None:
        if self.link is not None:
            self.link.closed(error)

    def may_write(self, allowed: bool) -> None:
        if self.link is not None:
            self.link.may_write(allowed)


class Link(Flusher):
    """One per peer. While it is down, what waits for the peer is in the journal under the link's session."""

    def __init__(
        self, host: LinkHost, peer: str, session: Session, secret: bytes | None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.host = host
        self.peer = peer
        self.session = session
        self.up = False
        self.durable: list[LinkMessage] = []
        self.fleeting: list[LinkMessage] = []
        self.runs: list[tuple[bytes, int]] = []
        self.sent_messages = 0
        self.sent_bytes = 0  # of messages; greetings and announcements are not counted
        self._delays = [0] * DELAY_BUCKETS
        self.problem = ""
        self._secret = secret
        self._tls = tls
        self._outlet = LinkOutlet(self, host.turns.hub.dirty)
        self._core: ClientCore | None = None
        self._network: Transport | None = None
        self._batches: deque[tuple[int, int, int]] = deque()  # token, last offset, bytes
        self._ear: _Ear | None = None
        self._choked = False  # the network takes no more for now
        self._down = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def unacknowledged(self) -> int:
        return len(self._batches)

    async def run(self, host: str, port: int) -> None:
        """Keeps the link up until it is cancelled."""
        retry_s = FIRST_RETRY_S
        try:
            while True:
                if await self._connect(host, port):
                    retry_s = FIRST_RETRY_S
                    await self._down.wait()
                await asyncio.sleep(retry_s * (0.5 + secrets.randbelow(1000) / 1000))
                retry_s = min(retry_s * 2, LAST_RETRY_S)
        finally:
            self._lose()

    async def _connect(self, host: str, port: int) -> bool:
        self._down.clear()
        loop = asyncio.get_running_loop()
        self._core = ClientCore(_options(self.host, self._proof()))
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                self._ear = _Ear(self)
                self._network = network = await open_stream(self._ear, Place(host, port, self._tls))
                if self._tls is not None:
                    self._check_name(common_name(network.peer_certificate()))
                self._do(self._core.connect(loop.time()))
                while not self.up and not self._down.is_set():
                    await asyncio.sleep(0.01)
        except (OSError, TimeoutError, MetroError) as error:
            self._note_problem(str(error) or type(error).__name__)
            self._lose()
        return self.up

    def _proof(self) -> _Proof | None:
        """None: the city has no secret, and TLS proves both names."""
        if self._secret is None:
            return None
        return _Proof(Dialler(self._secret, self.host.name, self.peer, secrets.token_bytes(NONCE_BYTES)))

    def _check_name(self, name: str) -> None:
        if name != self.peer:
            raise PeerViolation(NOT_AUTHORIZED, f"the certificate there names {name or 'nobody'}, not {self.peer}")

    def _note_problem(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            logs.info("link is down", peer=self.peer, problem=problem)

    # What the transport calls.

    def received(self, data: bytes) -> None:
        if self._core is not None:
            self.host.turns.now()
            self._do(self._core.receive(data, asyncio.get_running_loop().time()))
            self.host.turns.worked()

    def closed(self, error: Exception | None) -> None:
        self._note_problem(str(error) if error else "the peer closed the connection")
        self._lose()

    def may_write(self, allowed: bool) -> None:
        self._choked = not allowed
        if allowed:
            self.flush()

    # What the hub and the host call.

    def flush(self) -> None:
        if not self.up:
            self.durable.clear()
            self.fleeting.clear()
            self.runs.clear()
            return
        while self.durable and not self._choked:
            self._send_batch(_cut(self.durable), 1)
        if not self._choked:
            self.send_fleeting()

    def send_fleeting(self) -> None:
        """QoS 0: single messages, and then the runs, which came after them."""
        if self._core is None:
            return
        while self.fleeting:
            self._send_batch(_cut(self.fleeting), 0)
        if self.runs:
            self._send_runs()

    def send_frame(self, data: bytes) -> None:
        """A control frame, behind everything that was sent before it."""
        if self.up and self._core is not None:
            self.flush()
            self._do(self._core.publish(Publish(CONTROL_TOPIC, data), asyncio.get_running_loop().time())[1])

    def take_delays(self) -> tuple[int, ...]:
        """How long messages waited before they left, since the last time; the oldest of a batch stands for it."""
        delays, self._delays = self._delays, [0] * DELAY_BUCKETS
        return tuple(delays)

    def _send_runs(self) -> None:
        core = self._core
        assert core is not None
        runs, self.runs = self.runs, []
        now = asyncio.get_running_loop().time()
        for data, count in runs:
            self.sent_messages += count
            self.sent_bytes += len(data)
            self._do(core.publish(Publish(RUN_TOPIC, data), now)[1])
        self._outlet.waiting_bytes = sum(len(entry.message.payload) + 64 for entry in self.durable) + sum(
            size for _, _, size in self._batches
        )

    def _send_batch(self, batch: list[LinkMessage], qos: int) -> None:
        core = self._core
        assert core is not None
        hub = self.host.turns.hub
        data = encode_batch(batch, hub.wall_us, self.host.name)
        size = sum(len(entry.message.payload) + 64 for entry in batch)
        self.sent_messages += len(batch)
        delay_us = max(hub.wall_us - batch[0].message.time_us, 0)
        self._delays[min(delay_us.bit_length(), DELAY_BUCKETS - 1)] += len(batch)
        self.sent_bytes += len(data)
        token, effects = core.publish(Publish(BATCH_TOPIC, data, qos), asyncio.get_running_loop().time())
        if qos:
            self._batches.append((token, batch[-1].sequence, size))
        else:
            self._outlet.waiting_bytes -= size
        self._do(effects)

    # The core's effects.

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                if self._network is not None:
                    self._network.write(effect.data)
            elif isinstance(effect, Settled):
                self._settled(effect)
            elif isinstance(effect, Opened):
                self._open()
            elif isinstance(effect, Closed):
                self._note_problem(str(effect.error or "closed"))
                self._lose()
            elif isinstance(effect, Failed):
                self._note_problem(str(effect.error))

    def _open(self) -> None:
        self.up = True
        self.problem = ""
        self._outlet.waiting_bytes = 0
        self._outlet.closing = False
        self.session.outlet = self._outlet
        self._tick()
        logs.info("link is up", peer=self.peer, waiting=self.session.waiting() + len(self.session.inflight))
        self.host.link_up(self)

    def _settled(self, effect: Settled) -> None:
        """Batches are acknowledged in order."""
        if not self._batches or self._batches[0][0] != effect.token:
            return
        _, offset, size = self._batches.popleft()
        if effect.reason_codes[0] >= 0x80:  # the peer's disk is full: it gets the batch again later
            self._note_problem("the peer cannot store messages")
            self._lose()
            return
        self._outlet.waiting_bytes -= size
        self.host.turns.hub.acknowledged_through(self.session, offset)

    def _tick(self) -> None:
        core = self._core
        if core is None or not self.up:
            return
        loop = asyncio.get_running_loop()
        self._do(core.tick(loop.time()))
        if self.up:
            self._timer = loop.call_later(1.0, self._tick)

    def _lose(self) -> None:
        was_up, self.up = self.up, False
        network, self._network = self._network, None
        if self._ear is not None:
            self._ear.link = None
        self._core = None
        self._choked = False
        self._batches.clear()
        self.durable.clear()
        self.fleeting.clear()
        self.runs.clear()
        if self._timer is not None:
            self._timer.cancel()
        if network is not None:
            network.abort()
        if was_up:
            self.session.outlet = None
            self.host.turns.now()
            self.host.link_down(self)
            self.host.turns.worked()
        self._down.set()


def _cut(entries: list[LinkMessage]) -> list[LinkMessage]:
    """Takes the next batch off the front."""
    size = count = 0
    for entry in entries:
        size += len(entry.message.payload) + len(entry.message.topic)
        if count and (size > MAX_BATCH_BYTES or count >= MAX_BATCH_MESSAGES):
            break
        count += 1
    batch = entries[:count]
    del entries[:count]
    return batch


def _options(host: LinkHost, proof: _Proof | None) -> Options:
    return Options(
        LINK_CLIENT_PREFIX + host.name,
        MQTT5,
        True,
        None,
        KEEPALIVE_S,
        host.journal_id,
        None,
        None,
        100,
        64,
        0,
        268_435_460,
        Properties(),
        proof,
    )
