"""The sending side of one connection: what waits to be written, and how much of it may."""

from mypy_extensions import mypyc_attr

from metromq.protocol.session.message import Message


@mypyc_attr(allow_interpreted_subclasses=True)
class Flusher:
    """Owner of an outlet: writes what the outlet has collected."""

    def flush(self) -> None:
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Outlet:
    """Collects bytes; the shell takes them once per loop turn and gives them to the network.

    `waiting_bytes` counts what the network has not taken yet. Past `soft_limit_bytes` publishers are slowed, past
    `hard_limit_bytes` QoS 0 messages are dropped and the outlet counts as stalled until it has drained.
    """

    def __init__(self, dirty: "list[Outlet]", soft_limit_bytes: int, hard_limit_bytes: int) -> None:
        self.dirty = dirty  # the hub's list of outlets that have something to write
        self.marked = False
        self.first = b""  # what waits, when it came in one piece
        self.outgoing: list[bytes] | None = None  # all of it, when there are more
        self.waiting_bytes = 0
        self.network_bytes = 0  # the part of them that the network has been given
        self.hungry = False  # a session's queue waits until this outlet has drained
        self.soft_limit_bytes = soft_limit_bytes
        self.hard_limit_bytes = hard_limit_bytes
        self.stalled = False
        self.version = 4
        self.max_packet_bytes = 268_435_460
        self.closing = False  # nothing more is accepted; the shell closes after the last byte
        self.dropped = 0
        self.is_link = False  # a peer broker, which takes messages with `carry` and `forward`
        self.owner: Flusher | None = None  # the shell's protocol that takes what is written
        self.alias_maximum = 0  # topic aliases the client takes
        self.aliases: dict[str, int] | None = None

    def write(self, data: bytes) -> None:
        if self.closing:  # nothing follows a DISCONNECT [MQTT-3.14.4-1]
            return
        if not self.first:
            self.first = data
        elif self.outgoing is None:
            self.outgoing = [self.first, data]
        else:
            self.outgoing.append(data)
        self.waiting_bytes += len(data)
        if not self.marked:
            self.marked = True
            self.dirty.append(self)

    def take(self) -> bytes:
        """Everything that waits; the caller reports later with `sent` how much the network took."""
        data = self.first
        pieces = self.outgoing
        if pieces is not None:
            data = b"".join(pieces)
            self.outgoing = None
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
        """Whether a QoS 0 message may still be added; a full outlet is stalled until it drains."""
        if self.waiting_bytes < self.hard_limit_bytes and not self.stalled:
            return True
        self.stalled = True
        return False

    def alias(self, topic: str) -> int:
        """0: send the topic name; n: send it and name it n; -n: it is already named n [MQTT-3.3.2-12]."""
        if self.aliases is None:
            self.aliases = {}
        known = self.aliases.get(topic, 0)
        if known:
            return -known
        if len(self.aliases) >= self.alias_maximum:
            return 0
        number = len(self.aliases) + 1
        self.aliases[topic] = number
        return number

    def forget_alias(self, topic: str) -> None:
        if self.aliases is not None:
            self.aliases.pop(topic, None)
            self.alias_maximum = min(self.alias_maximum, len(self.aliases))  # a number is never given twice

    def carry(self, message: Message, note: bytes) -> bool:
        """Takes a journalled QoS 1 or 2 message for a peer broker; False: it has expired and is done."""
        raise NotImplementedError

    def forward(self, message: Message, note: bytes) -> None:
        """Takes a QoS 0 message for a peer broker."""
        raise NotImplementedError

    def forward_run(self, run: bytes, count: int, newer: bool, origin: str, note: bytes) -> None:
        """Takes a run of QoS 0 packets of one topic and one size for a peer broker, as the publisher sent them."""
        raise NotImplementedError

    def terminate(self, reason_code: int, reason: str) -> None:
        """Ends the connection from the server's side."""
        raise NotImplementedError

    def refuse(self, reason_code: int, reason: str) -> None:
        """Answers CONNECT with an error, and ends the connection."""
        raise NotImplementedError

    def proceed(self) -> None:
        """Lets a client in that was held back."""
        raise NotImplementedError

    def check(self) -> None:
        """Called now and then: ends what has taken too long."""

    def lost(self, clean: bool = False) -> None:
        """The network connection is gone."""

    def permissions_changed(self) -> None:
        """The access list was read again."""
