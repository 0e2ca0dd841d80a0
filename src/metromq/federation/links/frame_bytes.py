"""Frames as bytes, and back: the first byte is the kind, of which there may be two where a later version says more."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, final

from metromq.errors import BytesDamaged, ProtocolViolation
from metromq.federation.coordination.coordinator import Beat, Greeting
from metromq.federation.coordination.facts import AREA, Fact
from metromq.federation.coordination.rumours import Rumour
from metromq.federation.links.frames import (
    OLDEST,
    VERSION,
    Announcement,
    ClientAnswer,
    ClientClaim,
    ClientMoved,
    ClientReleased,
    ClockCompared,
    ClockTold,
    Facts,
    Followers,
    Frame,
    Gossip,
    Hello,
    Interest,
    InterestRequest,
    Owed,
    Rest,
    RetainedNone,
    RetainedRequest,
    StepDone,
    WillDropped,
    WillsAnew,
    WillsFired,
    WillTold,
)
from metromq.protocol import Packer, Unpacker

_HELLO: Final = 1  # the kind that comes most often


def encode_frame(frame: Frame) -> bytes:
    if isinstance(frame, Hello):  # as the others, without looking up how
        return _hello_bytes(frame)
    kind = _kind(frame)
    out = Packer()
    out.number(kind)
    _WRITERS[kind](out, frame)
    return out.done()


def _kind(frame: Frame) -> int:
    if isinstance(frame, Interest) and frame.said_us:
        return _SAID_INTEREST
    if isinstance(frame, ClientAnswer) and (frame.clean_us or frame.since_us):
        return _ANSWER_ANEW
    if isinstance(frame, ClientMoved) and frame.clean_us:
        return _MOVED_ANEW
    return _KINDS[type(frame)]


def decode_frame(data: bytes) -> Frame:
    reader = Unpacker(data)
    try:
        kind = reader.number()
        if kind == _HELLO:
            hello = _read_hello(reader)
            reader.finish()
            return hello
        if kind not in _READERS:
            raise ProtocolViolation(f"control frame of unknown kind {kind}: do all brokers run the same release?")
        frame = _READERS[kind](reader)
        reader.finish()
    except BytesDamaged as error:
        raise ProtocolViolation(f"a control frame of a link is damaged: {error}") from error
    return frame


@final
class _Spelt:
    """The bytes of the beats that were written last: a round of greetings tells everybody the same."""

    def __init__(self) -> None:
        self._beats: tuple[Beat, ...] = ()
        self._bytes = b""

    def of(self, beats: tuple[Beat, ...]) -> bytes:
        if beats is not self._beats:
            out = Packer()
            for beat in beats:
                out.short_text(beat.broker).constant(beat.incarnation).number(beat.count)
                out.number(beat.clients).number(beat.age_ms).number(beat.gone)
            self._beats, self._bytes = beats, out.done()
        return self._bytes


_BEATS: Final = _Spelt()


def _hello_bytes(frame: Hello) -> bytes:
    greeting, beats = frame.greeting, frame.greeting.beats
    out = Packer()
    out.number(_HELLO).number(frame.version).constant(greeting.incarnation).constant(greeting.digest)
    out.constant(frame.interest_digest).number(len(beats))
    out.parts.append(_BEATS.of(beats))
    out.number(frame.time_us)
    out.short_text(frame.city)
    out.number(frame.wall_us).number(frame.echo_us).number(frame.held_us)
    if frame.version >= 5:
        out.number(frame.epoch)
    if frame.version >= 6:
        out.number(greeting.lost)
        out.number(greeting.asks)
    if frame.version >= 8:
        out.number(greeting.following)
    return out.done()


def _read_hello(data: Unpacker) -> Hello:
    version, incarnation, digest = data.number(), data.number(), data.number()
    interest, count = data.number(), data.number()
    if not OLDEST <= version <= VERSION:  # what follows may look different
        raise ProtocolViolation(f"the peer speaks version {version} of the link, this broker {OLDEST} to {VERSION}")
    beats: list[Beat] = []
    for _ in range(count):
        broker = data.short_text()
        beats.append(Beat(broker, data.number(), data.number(), data.number(), data.number(), bool(data.number())))
    time_us, city = data.number(), data.short_text()
    wall_us, echo_us, held_us = data.number(), data.number(), data.number()
    epoch = data.number() if version >= 5 else 0
    lost, asks = (data.number(), data.number()) if version >= 6 else (0, 0)
    following = data.number() if version >= 8 else 0
    greeting = Greeting(incarnation, digest, tuple(beats), lost, bool(asks), following)
    return Hello(version, interest, greeting, time_us, city, wall_us, echo_us, held_us, epoch)


def _write_gossip(out: Packer, frame: Gossip) -> None:
    out.number(frame.whole)
    out.number(len(frame.rumours))
    for rumour in frame.rumours:
        out.short_text(rumour.broker)
        for value in rumour.version:
            out.number(value)


def _read_gossip(data: Unpacker) -> Gossip:
    whole = bool(data.number())
    rumours = (Rumour(data.short_text(), data.number(), data.number(), data.number()) for _ in range(data.number()))
    return Gossip(tuple(rumours), whole)


def _write_followers(out: Packer, frame: Followers) -> None:
    out.number(frame.mark)
    out.short_blob(frame.bits)


def _write_facts(out: Packer, frame: Facts) -> None:
    out.number(len(frame.facts))
    for fact in frame.facts:
        out.short_text(fact.kind)
        out.short_text(fact.key)
        out.short_text(fact.owner)
        out.number(fact.epoch)
        out.short_text(fact.value)


def _read_facts(data: Unpacker) -> Facts:
    return Facts(
        tuple(
            Fact(data.short_text(), data.short_text(), data.short_text(), data.number(), data.short_text())
            for _ in range(data.number())
        )
    )


def _read_areas(data: Unpacker) -> Facts:
    """Journals of earlier versions hold topic tables of areas."""
    return Facts(tuple(Fact(AREA, data.short_text(), data.short_text(), data.number()) for _ in range(data.number())))


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


def _write_said_interest(out: Packer, frame: Interest) -> None:
    out.number(frame.said_us)
    _write_interest(out, frame)


def _read_interest(data: Unpacker) -> Interest:
    whole = bool(data.number())
    wanted = tuple(Announcement(data.short_text(), data.number(), data.number()) for _ in range(data.number()))
    return Interest(whole, wanted, tuple(data.short_text() for _ in range(data.number())))


def _read_said_interest(data: Unpacker) -> Interest:
    said_us = data.number()
    frame = _read_interest(data)
    return Interest(frame.whole, frame.wanted, frame.unwanted, said_us)


def _write_request(out: Packer, frame: "RetainedRequest | RetainedNone") -> None:
    out.number(len(frame.filters))
    for topic_filter in frame.filters:
        out.short_text(topic_filter)


def _write_claim(out: Packer, frame: ClientClaim) -> None:
    out.short_text(frame.client)
    out.number(frame.time_us)
    out.number(frame.asks | frame.clean_start << 1 | frame.replaces << 2)
    out.short_text(frame.user)
    out.number(frame.opened_us)
    out.number(frame.clean_us)


def _read_claim(data: Unpacker) -> ClientClaim:
    client, time_us, flags = data.short_text(), data.number(), data.number()
    user, opened_us = data.short_text(), data.number()
    asks, clean_start, replaces = bool(flags & 1), bool(flags & 2), bool(flags & 4)
    return ClientClaim(client, time_us, asks, clean_start, user, opened_us, replaces, data.number())


def _write_answer(out: Packer, frame: ClientAnswer) -> None:
    out.short_text(frame.client)
    out.number(frame.time_us)
    out.short_text(frame.broker)
    out.number(frame.refused)


def _read_answer(data: Unpacker) -> ClientAnswer:
    return ClientAnswer(data.short_text(), data.number(), data.short_text(), bool(data.number()))


def _write_answer_anew(out: Packer, frame: ClientAnswer) -> None:
    out.number(frame.clean_us)
    out.number(frame.since_us)
    _write_answer(out, frame)


def _read_answer_anew(data: Unpacker) -> ClientAnswer:
    clean_us, since_us = data.number(), data.number()
    return replace(_read_answer(data), clean_us=clean_us, since_us=since_us)


def _write_moved(out: Packer, frame: ClientMoved) -> None:
    out.short_text(frame.client)
    out.number(frame.time_us)
    out.short_text(frame.broker)
    out.number(frame.clean_start | frame.replaces << 1)
    out.short_text(frame.user)
    out.number(frame.opened_us)


def _read_moved(data: Unpacker) -> ClientMoved:
    client, time_us, broker, flags = data.short_text(), data.number(), data.short_text(), data.number()
    return ClientMoved(client, time_us, broker, bool(flags & 1), data.short_text(), data.number(), bool(flags & 2))


def _write_moved_anew(out: Packer, frame: ClientMoved) -> None:
    out.number(frame.clean_us)
    _write_moved(out, frame)


def _read_moved_anew(data: Unpacker) -> ClientMoved:
    clean_us = data.number()
    return replace(_read_moved(data), clean_us=clean_us)


def _write_released(out: Packer, frame: "ClientReleased | WillDropped") -> None:
    out.short_text(frame.client)
    out.number(frame.time_us)


def _write_will(out: Packer, frame: WillTold) -> None:
    out.short_text(frame.broker)
    out.short_text(frame.client)
    for value in (frame.time_us, frame.delay_s, frame.since_s + 1, frame.qos | frame.retain << 2, frame.expiry_s + 1):
        out.number(value)
    out.short_text(frame.topic)
    out.short_blob(frame.payload)
    out.short_blob(frame.properties)


def _read_will(data: Unpacker) -> WillTold:
    broker, client, time_us, delay_s = data.short_text(), data.short_text(), data.number(), data.number()
    since_s, flags, expiry_s, topic = data.number() - 1, data.number(), data.number() - 1, data.short_text()
    payload, is_retained = data.short_blob(), bool(flags & 4)
    return WillTold(
        broker, client, time_us, delay_s, since_s, topic, payload, flags & 3, is_retained, expiry_s, data.short_blob()
    )


def _write_fired(out: Packer, frame: WillsFired) -> None:
    out.number(len(frame.wills))
    for client, time_us in frame.wills:
        out.short_text(client)
        out.number(time_us)


def _write_owed(out: Packer, frame: Owed) -> None:
    out.short_text(frame.topic_filter)
    out.number(len(frame.peers))
    for peer in frame.peers:
        out.short_text(peer)
    out.number(frame.since_us)


def _write_compared(out: Packer, frame: ClockCompared) -> None:
    out.number(frame.ahead_us)
    out.number(frame.behind_us)


def _write_step(out: Packer, frame: StepDone) -> None:
    out.short_text(frame.key)
    out.number(frame.epoch)
    out.number(frame.interest_digest)


_SAID_INTEREST: Final = 20  # an Interest that says when it was said
_ANSWER_ANEW: Final = 25  # a ClientAnswer, and a ClientMoved, that say more
_MOVED_ANEW: Final = 26
_KINDS: dict[type, int] = {
    Facts: 11,
    Interest: 3,
    InterestRequest: 4,
    RetainedRequest: 5,
    RetainedNone: 12,
    ClientClaim: 6,
    ClientAnswer: 7,
    ClientMoved: 8,
    ClientReleased: 9,
    WillTold: 13,
    WillDropped: 14,
    WillsAnew: 15,
    WillsFired: 16,
    StepDone: 17,
    Gossip: 18,
    Rest: 19,
    ClockTold: 21,
    Owed: 22,
    Followers: 23,
    ClockCompared: 24,
}
_WRITERS: dict[int, Callable[..., None]] = {
    3: _write_interest,
    4: lambda out, frame: None,
    5: _write_request,
    12: _write_request,
    6: _write_claim,
    7: _write_answer,
    8: _write_moved,
    9: _write_released,
    11: _write_facts,
    13: _write_will,
    14: _write_released,
    15: lambda out, frame: None,
    16: _write_fired,
    17: _write_step,
    18: _write_gossip,
    19: lambda out, frame: None,
    _SAID_INTEREST: _write_said_interest,
    21: lambda out, frame: out.number(frame.time_us),
    22: _write_owed,
    23: _write_followers,
    24: _write_compared,
    _ANSWER_ANEW: _write_answer_anew,
    _MOVED_ANEW: _write_moved_anew,
}
_READERS: dict[int, Callable[[Unpacker], Frame]] = {
    2: _read_areas,
    3: _read_interest,
    4: lambda data: InterestRequest(),
    5: lambda data: RetainedRequest(tuple(data.short_text() for _ in range(data.number()))),
    12: lambda data: RetainedNone(tuple(data.short_text() for _ in range(data.number()))),
    6: _read_claim,
    7: _read_answer,
    8: _read_moved,
    9: lambda data: ClientReleased(data.short_text(), data.number()),
    11: _read_facts,
    13: _read_will,
    14: lambda data: WillDropped(data.short_text(), data.number()),
    15: lambda data: WillsAnew(),
    16: lambda data: WillsFired(tuple((data.short_text(), data.number()) for _ in range(data.number()))),
    17: lambda data: StepDone(data.short_text(), data.number(), data.number()),
    18: _read_gossip,
    19: lambda data: Rest(),
    _SAID_INTEREST: _read_said_interest,
    21: lambda data: ClockTold(data.number()),
    23: lambda data: Followers(data.number(), data.short_blob()),
    22: lambda data: Owed(data.short_text(), tuple(data.short_text() for _ in range(data.number())), data.number()),
    24: lambda data: ClockCompared(data.number(), data.number()),
    _ANSWER_ANEW: _read_answer_anew,
    _MOVED_ANEW: _read_moved_anew,
}
