"""The sending side of connections: what waits to be written, and how much of it may."""

from typing import Final, final

from mypy_extensions import mypyc_attr

from metromq.protocol import reasons
from metromq.protocol.session.message import Message
from metromq.protocol.wire.encoding import encode, encode_ack
from metromq.protocol.wire.packets import MQTT5, Ack, Properties

MAX_ALIASES: Final = 1_000  # topics with an alias towards one client, however many it would take,
MAX_ALIASED_LENGTH: Final = 256  # and how long they may be, so that they take little memory


@mypyc_attr(allow_interpreted_subclasses=True)
class Flusher:
    """Owner of an output: writes what the output has collected."""

    def flush(self) -> None:
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Output:
    """Collects what goes to one client or peer; its owner takes it once per loop turn and gives it to the network.

    `waiting_bytes` counts what the network has not taken yet. Past `soft_limit_bytes` publishers are slowed, past
    `hard_limit_bytes` QoS 0 messages are dropped and the output counts as stalled until it has drained.
    """

    def __init__(self, dirty: "list[Output]", soft_limit_bytes: int, hard_limit_bytes: int) -> None:
        self.dirty = dirty  # the hub's list of outputs that have something to write
        self.waiting_bytes = 0
        self.soft_limit_bytes = soft_limit_bytes
        self.hard_limit_bytes = hard_limit_bytes
        self.dropped = 0
        self.owner: Flusher | None = None
        # Flags side by side take less memory, here and in the other parts of a client.
        self.marked = False
        self.stalled = False
        self.closing = False  # nothing more is accepted; the shell closes after the last byte

    def mark(self) -> None:
        """There is something to do for the owner."""
        if not self.marked:
            self.marked = True
            self.dirty.append(self)


@final
class Aliases:
    """The topic aliases towards one client [MQTT-3.3.2-12]."""

    def __init__(self, maximum: int) -> None:
        self._most = min(maximum, MAX_ALIASES)
        self._numbers: dict[str, int] = {}

    def of(self, topic: str) -> int:
        """0: send the topic name; n: send it and name it n; -n: it is already named n."""
        known = self._numbers.get(topic, 0)
        if known:
            return -known
        if len(self._numbers) >= self._most or len(topic) > MAX_ALIASED_LENGTH:
            return 0
        number = len(self._numbers) + 1
        self._numbers[topic] = number
        return number

    def forget(self, topic: str) -> None:
        """The packet that named it was not sent."""
        self._numbers.pop(topic, None)
        self._most = min(self._most, len(self._numbers))  # a number is never given twice


@final
class ClientOutput(Output):
    """Bytes for a client, and what it has told us of the packets it takes."""

    def __init__(self, dirty: list[Output], soft_limit_bytes: int, hard_limit_bytes: int) -> None:
        super().__init__(dirty, soft_limit_bytes, hard_limit_bytes)
        self.hungry = False  # a session's queue waits until this output has drained
        self.problem_information = True  # it takes reason strings [MQTT-3.1.2-29]
        self.first = b""  # what waits, when it came in one piece
        self.pieces: list[bytes] | None = None  # all of it, when there are more
        self.network_bytes = 0  # the part of `waiting_bytes` that the network has been given
        self.version = 4
        self.max_packet_bytes = 268_435_460
        self.aliases: Aliases | None = None  # for a client that takes some

    def write(self, data: bytes) -> None:
        if self.closing:  # nothing follows a DISCONNECT [MQTT-3.14.4-1]
            return
        if not self.first:
            self.first = data
        elif self.pieces is None:
            self.pieces = [self.first, data]
        else:
            self.pieces.append(data)
        self.waiting_bytes += len(data)
        if not self.marked:
            self.marked = True
            self.dirty.append(self)

    def acknowledge(self, kind: int, packet_id: int, reason_code: int) -> None:
        """PUBACK, PUBREC, PUBREL or PUBCOMP; a refusal says why, where the client wants to know and takes as much."""
        if reason_code < 0x80 or self.version != MQTT5 or not self.problem_information:  # [MQTT-3.1.2-29]
            self.write(encode_ack(kind, packet_id, reason_code, self.version))
            return
        properties = Properties()
        properties.reason_string = reasons.NAMES[reason_code]
        data = encode(Ack(kind, packet_id, reason_code, properties), MQTT5)
        if len(data) > self.max_packet_bytes:  # [MQTT-3.4.2-2], [MQTT-3.5.2-2]
            data = encode_ack(kind, packet_id, reason_code, MQTT5)
        self.write(data)

    def take(self) -> bytes:
        """Everything that waits; the caller reports later with `sent` how much the network took."""
        data = self.first
        pieces = self.pieces
        if pieces is not None:
            data = b"".join(pieces)
            self.pieces = None
        self.first = b""
        self.waiting_bytes = self.network_bytes
        return data

    def sent(self, waiting_bytes: int) -> None:
        """The network holds `waiting_bytes` of ours, beside what still waits here."""
        self.waiting_bytes += waiting_bytes - self.network_bytes
        self.network_bytes = waiting_bytes
        if self.stalled and self.waiting_bytes < self.soft_limit_bytes:
            self.stalled = False

    def room(self) -> bool:
        """Whether a QoS 0 message may still be added; a full output is stalled until it drains."""
        if self.waiting_bytes < self.hard_limit_bytes and not self.stalled:
            return True
        self.stalled = True
        return False


@mypyc_attr(allow_interpreted_subclasses=True)
class LinkOutput(Output):
    """Messages for a peer broker, while the link to it is up."""

    def carry(self, message: Message, note: bytes) -> bool:
        """Takes a QoS 1 or 2 message, which its backlog keeps until the peer has it; False: it has expired."""
        raise NotImplementedError

    def forward(self, message: Message, note: bytes) -> None:
        """Takes a QoS 0 message."""
        raise NotImplementedError

    def forward_run(self, run: bytes, count: int, newer: bool, origin: str, note: bytes) -> None:
        """Takes a run of QoS 0 packets of one topic and one size, as the publisher sent them."""
        raise NotImplementedError
