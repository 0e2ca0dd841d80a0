"""The sending end of a link: collects what the hub gives it for a peer and sends it in batches; no I/O.

What waits for the peer is in the hub's backlog of the link, and in the journal; a batch that is not settled when the
link breaks is still there, and is sent again over the next connection.

A link may rest: it has no connection then, and wakes as soon as there is something to send.
"""

from collections import deque
from typing import Final, Protocol, final

from metromq.federation.hybrid_clock import HybridClock
from metromq.federation.links.batch import LinkMessage, encode_batch, is_internal
from metromq.federation.links.frame_bytes import encode_frame
from metromq.federation.links.frames import BATCH_TOPIC, CONTROL_TOPIC, RUN_TOPIC, ClockTold
from metromq.federation.links.routing_slip import RoutingSlip, read_slip
from metromq.federation.links.runs import encode_run
from metromq.federation.links.transport import OpenWay, Transport
from metromq.protocol.session import DELAY_BUCKETS, Flusher, Hub, LinkBacklog, LinkOutput, Message

MAX_BATCH_MESSAGES: Final = 512
MAX_BATCH_BYTES: Final = 256 * 1024
SOFT_BYTES: Final = 4 << 20  # unacknowledged; what waits beyond stays in the journal
HARD_BYTES: Final = 16 << 20  # QoS 0 beyond this is dropped and counted
MAX_FRAMES: Final = 1000  # that wait for a link that wakes
MESSAGE_BYTES: Final = 64  # what a message counts for beside its topic, properties and payload


class LinkEvents(Protocol):
    """What a link tells its host."""

    def link_up(self, link: "Link") -> None: ...

    def link_down(self, link: "Link", problem: str) -> None: ...

    def link_settled(self) -> None: ...

    def reads_time(self, peer: str) -> bool: ...


@final
class Link(Flusher):
    """One per peer; many attributes, because it counts for status what it carries in either direction."""

    def __init__(
        self, hub: Hub, backlog: LinkBacklog, transport: Transport, host: LinkEvents, clock: HybridClock
    ) -> None:
        self.peer = backlog.peer
        self.backlog = backlog
        self.up = False
        self.resting = False  # closed because there was nothing to send
        self.used_at = hub.clock.now  # when something was sent that was not a greeting
        self._waking = False  # opened because there is something to send, for the first time
        self._frames: list[bytes] = []  # that wait until it is awake
        self.problem = ""
        self.sent_messages = 0
        self.sent_bytes = 0  # of messages; greetings and announcements are not counted
        self._hub = hub
        self._host = host
        self._clock = clock
        self._transport = transport
        self._way: OpenWay | None = None  # while it is up
        self._output = _Output(self, hub)
        self._batches: deque[tuple[int, int, int]] = deque()  # under way: token, last offset, bytes
        self._choked = False  # the network takes no more for now
        self._pressed_bytes = 0  # what it was given all the same, so that nothing is overtaken; it counts as waiting
        self._told_us = 0  # the last time that the peer was told over this connection
        self._delays = [0] * DELAY_BUCKETS
        self.durable: list[LinkMessage] = []
        self.fleeting: list[LinkMessage] = []
        self.runs: list[tuple[bytes, int]] = []

    def open(self) -> None:
        self._transport.open(self.peer, self)

    def close(self) -> None:
        if not self.resting:
            self._transport.close(self.peer)

    def rest(self) -> None:
        """Nothing is under way; the hub, or a frame, wakes it."""
        self.resting = True
        if self.up:
            self._transport.close(self.peer)
        self.backlog.output = self._output

    def wake(self) -> None:
        self.used_at = self._hub.clock.now
        if self.resting:
            self.resting, self._waking = False, True
            self.open()

    def is_idle(self) -> bool:
        return not (self._batches or self._frames or self.backlog.unsettled())

    @property
    def unacknowledged(self) -> int:
        """Batches under way."""
        return len(self._batches)

    # What the hub and the host call.

    def flush(self) -> None:
        if self._waking:
            return  # what may be lost waits here, the rest in the backlog
        if not self.up:
            self._discard()
            return
        while self.durable and not self._choked:
            self._send_batch(_cut(self.durable), True)
        while self.fleeting and not self._choked:
            self._send_batch(_cut(self.fleeting), False)
        if self.runs and not self._choked:
            self._send_runs()

    def send_fleeting(self) -> None:
        """QoS 0, whether there is room or not: single messages, and then the runs, which came after them."""
        while self.fleeting:
            self._send_batch(_cut(self.fleeting), False)
        if self.runs:
            self._send_runs()

    def send_frame(self, data: bytes) -> None:
        """A control frame, behind everything that was sent before it."""
        if self.up:
            self.flush()
            self._send(CONTROL_TOPIC, data, False)
        elif (self.resting or self._waking) and len(self._frames) < MAX_FRAMES:
            self._frames.append(data)
            self.wake()

    def take_delays(self) -> tuple[int, ...]:
        """How long messages waited before they left, since the last time; the oldest of a batch stands for it."""
        delays, self._delays = self._delays, [0] * DELAY_BUCKETS
        return tuple(delays)

    # Inside.

    def _send_batch(self, batch: list[LinkMessage], must_store: bool) -> None:
        hub = self._hub
        self.used_at = hub.clock.now
        self._tell_time()
        data = encode_batch(batch, hub.clock.wall_us, hub.name)
        size = sum(_bytes_of(entry) for entry in batch)
        self.sent_messages += sum(1 for entry in batch if not is_internal(entry))
        self.sent_bytes += len(data)
        delay_us = max(hub.clock.wall_us - batch[0].message.time_us, 0)
        self._delays[min(delay_us.bit_length(), DELAY_BUCKETS - 1)] += len(batch)
        was_choked = self._choked
        token = self._send(BATCH_TOPIC, data, must_store)
        if must_store and self.up:
            self._batches.append((token, batch[-1].sequence, size))
        elif was_choked and self.up:
            self._pressed_bytes += size
        else:
            self._output.waiting_bytes -= size

    def _send_runs(self) -> None:
        runs, self.runs = self.runs, []
        self.used_at = self._hub.clock.now
        self._tell_time()
        for data, count in runs:
            self.sent_messages += count
            self.sent_bytes += len(data)
            if self._choked:
                self._pressed_bytes += len(data)
            self._send(RUN_TOPIC, data, False)
        under_way = sum(size for _, _, size in self._batches)
        self._output.waiting_bytes = under_way + sum(_bytes_of(entry) for entry in self.durable) + self._pressed_bytes

    def _send(self, kind: str, data: bytes, must_store: bool) -> int:
        """Returns the token by which it will be settled; a parcel before it may have broken the way."""
        return self._way.send(kind, data, must_store) if self._way is not None else 0

    def _tell_time(self) -> None:
        """Before what may make a client of the peer act on something that happened here."""
        time_us = self._clock.happened_us  # peers must know of it before they get the next message
        if time_us > self._told_us and self._host.reads_time(self.peer):
            self._told_us = time_us
            self._send(CONTROL_TOPIC, encode_frame(ClockTold(time_us)), False)

    def _discard(self) -> None:
        self._batches.clear()
        self.durable.clear()
        self.fleeting.clear()
        self.runs.clear()
        self._pressed_bytes = 0
        self._output.waiting_bytes = 0

    # What the transport tells.

    def opened(self, way: OpenWay) -> None:
        self.up = True
        self._way = way
        self.problem = ""
        self._choked = False
        self._told_us = 0
        if self._waking:
            self._awake()
        else:
            self._discard()
        self._output.closing = False
        self.backlog.output = self._output
        self._host.link_up(self)

    def _awake(self) -> None:
        """What waited here goes first; what is in the backlog comes when the host resumes it."""
        self._waking = False
        self._batches.clear()
        self.durable.clear()
        self._pressed_bytes = 0
        frames, self._frames = self._frames, []
        for data in frames:
            self._send(CONTROL_TOPIC, data, False)
        self._output.waiting_bytes = sum(_bytes_of(entry) for entry in self.fleeting)
        self._output.mark()

    def lost(self, problem: str) -> None:
        was_up, self.up, self._way = self.up or self._waking, False, None
        is_news, self.problem = problem != self.problem, problem
        self._waking = False
        self._frames.clear()
        self._discard()
        if was_up:
            self.backlog.output = None
        if was_up or is_news:
            self._host.link_down(self, problem)

    def settled(self, token: int, is_stored: bool) -> None:
        """Batches are acknowledged in order."""
        if not self._batches or self._batches[0][0] != token:
            return
        _, offset, size = self._batches.popleft()
        if not is_stored:  # the peer's disk is full: it gets the batch again later
            self._transport.reset(self.peer, "the peer cannot store messages")
            return
        self._output.waiting_bytes -= size
        self._hub.links.acknowledged_through(self.backlog, offset)
        self._host.link_settled()

    def may_send(self, allowed: bool) -> None:
        self._choked = not allowed
        if allowed:
            self._output.waiting_bytes -= self._pressed_bytes
            self._pressed_bytes = 0
            self.flush()


@final
class _Output(LinkOutput):
    """What the hub sees of a link."""

    def __init__(self, link: Link, hub: Hub) -> None:
        super().__init__(hub.dirty, SOFT_BYTES, HARD_BYTES)
        self.link = link
        self.hub = hub
        self.owner = link
        self._note = b""  # of the last message, which the next one mostly has too,
        self._slip: RoutingSlip | None = None  # and what it says

    def carry(self, message: Message, note: bytes) -> bool:
        if message.expires_at_us and message.expires_at_us <= self.hub.clock.wall_us:
            return False
        self._add(self.link.durable, message, note, message.offset)
        self.link.wake()
        return True

    def forward(self, message: Message, note: bytes) -> None:
        if self.waiting_bytes > self.hard_limit_bytes:
            self.dropped += 1
            return
        if self.link.runs and not self.link.up:  # it would overtake them when the link wakes
            self.dropped += 1
            return
        if self.link.runs:  # a topic keeps its order, whichever way its messages take
            self.link.send_fleeting()
        self._add(self.link.fleeting, message, note, 0)
        self.link.wake()

    def forward_run(self, run: bytes, count: int, newer: bool, origin: str, note: bytes) -> None:
        if self.waiting_bytes > self.hard_limit_bytes:
            self.dropped += count
            return
        self.link.runs.append((encode_run(newer, origin or self.hub.name, note, run), count))
        self.waiting_bytes += len(run)
        self.mark()
        self.link.wake()

    def _add(self, entries: list[LinkMessage], message: Message, note: bytes, sequence: int) -> None:
        slip = self._slip
        if slip is None or note != self._note:
            self._note, self._slip = note, (slip := read_slip(note))
        shares = slip.shares, slip.shares_done
        entry = LinkMessage(message, slip.stage, sequence, slip.flags, slip.served, *shares, slip.limit, slip.targets)
        entries.append(entry)
        self.waiting_bytes += _bytes_of(entry)
        self.mark()


def _bytes_of(entry: LinkMessage) -> int:
    """What holds memory while it waits: a topic may be all of it."""
    message = entry.message
    return len(message.topic) + len(message.properties) + len(message.payload) + MESSAGE_BYTES


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
