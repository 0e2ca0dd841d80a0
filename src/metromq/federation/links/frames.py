"""Control frames: what brokers tell each other about themselves, apart from the messages they pass on.

On the wire a frame is the payload of one PUBLISH to CONTROL_TOPIC, and its first byte is its kind. Frames between two
brokers arrive in order and are lost when the link breaks; every hello carries digests, so that a loss is noticed and
mended. Times are ages, never dates: brokers need no common clock.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from metromq.errors import BytesDamaged, ProtocolViolation
from metromq.protocol.packing import Packer, Unpacker

BATCH_TOPIC: Final = "$metromq/batch"
RUN_TOPIC: Final = "$metromq/run"
CONTROL_TOPIC: Final = "$metromq/control"
LINK_CLIENT_PREFIX: Final = "$link/"  # client id of a link: the prefix and the broker's name
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Beat:
    """A sign of life, passed on from broker to broker: newer when (incarnation, count) is greater."""

    broker: str
    incarnation: int  # grows with every start of the broker
    count: int  # grows with every hello of this incarnation
    clients: int
    age_ms: int  # how long ago it was heard from the broker itself


@dataclass(frozen=True, slots=True)
class Hello:
    """Sent to every peer now and then, and as soon as a link is up."""

    version: int
    incarnation: int
    table_digest: int
    interest_digest: int  # of all that the sender has announced to the receiver
    beats: tuple[Beat, ...]


@dataclass(frozen=True, slots=True)
class TableEntry:
    """`owner` is responsible for `area` since `epoch`; of two entries the greater (epoch, owner) counts."""

    area: str
    owner: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Table:
    entries: tuple[TableEntry, ...]


@dataclass(frozen=True, slots=True)
class Announcement:
    """The sender wants messages of a filter, since `age_ms`; `members` counts a shared subscription's members."""

    topic_filter: str
    members: int
    age_ms: int


@dataclass(frozen=True, slots=True)
class Interest:
    """Changes of what the sender wants from the receiver; with `whole` they replace all that was known before."""

    whole: bool
    wanted: tuple[Announcement, ...]
    unwanted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InterestRequest:
    """The receiver of a hello misses something: please send the interest whole."""


@dataclass(frozen=True, slots=True)
class RetainedRequest:
    """Please send every retained message, and every deletion still known, of these filters."""

    filters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClientClaim:
    """To the client's directory broker: `client` has its session at the sender since `time_us`."""

    client: str
    time_us: int  # of the CONNECT at the sender; the latest CONNECT wins
    asks: bool  # the sender waits for an answer before it greets the client
    clean_start: bool


@dataclass(frozen=True, slots=True)
class ClientAnswer:
    """From the directory: `broker` held the client's session until now; empty when nobody did."""

    client: str
    time_us: int
    broker: str


@dataclass(frozen=True, slots=True)
class ClientMoved:
    """To the broker that held the session: `broker` has it since `time_us`; close here, and send the session after."""

    client: str
    time_us: int
    broker: str
    clean_start: bool


@dataclass(frozen=True, slots=True)
class ClientReleased:
    """To the directory: the session ended at the sender."""

    client: str
    time_us: int


@dataclass(frozen=True, slots=True)
class SessionState:
    """What was kept for a client that moved, in the host's own encoding; `last` ends the transfer."""

    client: str
    time_us: int
    last: bool
    state: bytes


Frame = (
    Hello
    | Table
    | Interest
    | InterestRequest
    | RetainedRequest
    | ClientClaim
    | ClientAnswer
    | ClientMoved
    | ClientReleased
    | SessionState
)


def encode_frame(frame: Frame) -> bytes:
    kind = _KINDS[type(frame)]
    out = Packer()
    out.number(kind)
    _WRITERS[kind](out, frame)
    return out.done()


def decode_frame(data: bytes) -> Frame:
    reader = Unpacker(data)
    try:
        kind = reader.number()
        if kind not in _READERS:
            raise ProtocolViolation(f"control frame of unknown kind {kind}: do all brokers run the same release?")
        frame = _READERS[kind](reader)
        reader.finish()
    except BytesDamaged as error:
        raise ProtocolViolation(f"a control frame of a link is damaged: {error}") from error
    return frame


def _write_hello(out: Packer, frame: Hello) -> None:
    for value in (frame.version, frame.incarnation, frame.table_digest, frame.interest_digest, len(frame.beats)):
        out.number(value)
    for beat in frame.beats:
        out.short_text(beat.broker)
        for value in (beat.incarnation, beat.count, beat.clients, beat.age_ms):
            out.number(value)


def _read_hello(data: Unpacker) -> Hello:
    version, incarnation, table, interest, count = (data.number() for _ in range(5))
    beats = tuple(
        Beat(data.short_text(), data.number(), data.number(), data.number(), data.number()) for _ in range(count)
    )
    return Hello(version, incarnation, table, interest, beats)


def _write_table(out: Packer, frame: Table) -> None:
    out.number(len(frame.entries))
    for entry in frame.entries:
        out.short_text(entry.area)
        out.short_text(entry.owner)
        out.number(entry.epoch)


def _read_table(data: Unpacker) -> Table:
    return Table(tuple(TableEntry(data.short_text(), data.short_text(), data.number()) for _ in range(data.number())))


def _write_interest(out: Packer, frame: Interest) -> None:
    out.number(frame.whole)
    out.number(len(frame.wanted))
    for wanted in frame.wanted:
        out.short_text(wanted.topic_filter)
        out.number(wanted.members)
        out.number(wanted.age_ms)
    out.number(len(frame.unwanted))
    for topic_filter in frame.unwanted:
        out.short_text(topic_filter)


def _read_interest(data: Unpacker) -> Interest:
    whole = bool(data.number())
    wanted = tuple(Announcement(data.short_text(), data.number(), data.number()) for _ in range(data.number()))
    return Interest(whole, wanted, tuple(data.short_text() for _ in range(data.number())))


def _write_request(out: Packer, frame: RetainedRequest) -> None:
    out.number(len(frame.filters))
    for topic_filter in frame.filters:
        out.short_text(topic_filter)


def _write_claim(out: Packer, frame: ClientClaim) -> None:
    out.short_text(frame.client)
    out.number(frame.time_us)
    out.number(frame.asks | frame.clean_start << 1)


def _read_claim(data: Unpacker) -> ClientClaim:
    client, time_us, flags = data.short_text(), data.number(), data.number()
    return ClientClaim(client, time_us, bool(flags & 1), bool(flags & 2))


def _write_answer(out: Packer, frame: ClientAnswer) -> None:
    out.short_text(frame.client)
    out.number(frame.time_us)
    out.short_text(frame.broker)


def _write_moved(out: Packer, frame: ClientMoved) -> None:
    out.short_text(frame.client)
    out.number(frame.time_us)
    out.short_text(frame.broker)
    out.number(frame.clean_start)


def _write_released(out: Packer, frame: ClientReleased) -> None:
    out.short_text(frame.client)
    out.number(frame.time_us)


def _write_state(out: Packer, frame: SessionState) -> None:
    out.short_text(frame.client)
    out.number(frame.time_us)
    out.number(frame.last)
    out.short_blob(frame.state)


_KINDS: dict[type, int] = {
    Hello: 1,
    Table: 2,
    Interest: 3,
    InterestRequest: 4,
    RetainedRequest: 5,
    ClientClaim: 6,
    ClientAnswer: 7,
    ClientMoved: 8,
    ClientReleased: 9,
    SessionState: 10,
}
_WRITERS: dict[int, Callable[..., None]] = {
    1: _write_hello,
    2: _write_table,
    3: _write_interest,
    4: lambda out, frame: None,
    5: _write_request,
    6: _write_claim,
    7: _write_answer,
    8: _write_moved,
    9: _write_released,
    10: _write_state,
}
_READERS: dict[int, Callable[[Unpacker], Frame]] = {
    1: _read_hello,
    2: _read_table,
    3: _read_interest,
    4: lambda data: InterestRequest(),
    5: lambda data: RetainedRequest(tuple(data.short_text() for _ in range(data.number()))),
    6: _read_claim,
    7: lambda data: ClientAnswer(data.short_text(), data.number(), data.short_text()),
    8: lambda data: ClientMoved(data.short_text(), data.number(), data.short_text(), bool(data.number())),
    9: lambda data: ClientReleased(data.short_text(), data.number()),
    10: lambda data: SessionState(data.short_text(), data.number(), bool(data.number()), data.short_blob()),
}
