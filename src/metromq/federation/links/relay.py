"""A way around: two brokers that cannot reach each other speak through a third that reaches both; no I/O.

Wraps a transport. While the direct way to a living peer is closed, parcels travel inside parcels of another peer's way,
and the peer answers by the same one. A broker in the middle passes on only what it can hand to the receiver itself, so
nothing can run in a circle. For links it is a way like any other: parcels come in order or it is lost, what must be
stored is acknowledged by the far end, and what was not is sent again over the next way, so messages come once and in
order.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, final

from metromq.errors import BytesDamaged, PeerViolation, ProtocolViolation
from metromq.federation.links.transport import OpenWay, Transport, TransportEvents
from metromq.protocol import Packer, Unpacker
from metromq.protocol.session import Waiter

RELAY_TOPIC: Final = "$metromq/relay"
AFTER_S: Final = 2.0  # so long the direct way may be closed before another is looked for
ANSWER_S: Final = 5.0  # so long the far end may take to answer
OPEN: Final = 1  # from whoever wants the way; `text` is its journal
OPENED: Final = 2
PARCEL: Final = 3  # `text` is the parcel's kind
SETTLED: Final = 4
LOST: Final = 5  # to whoever wanted the way: it is closed, `text` says why
_ANSWERS: Final = (OPENED, SETTLED, LOST)


@dataclass(frozen=True, slots=True)
class Relayed:
    """What brokers say to each other through a third."""

    kind: int
    sender: str
    receiver: str
    way: int  # given by whoever wanted the way; greater ones are newer
    number: int = 0  # of the parcel on this way
    flag: bool = False  # the parcel must be stored, or has been
    text: str = ""
    data: bytes = b""


def encode_relayed(item: Relayed) -> bytes:
    out = Packer().u8(item.kind).text(item.sender).text(item.receiver).u64(item.way).u64(item.number)
    return out.u8(item.flag).text(item.text).blob(item.data).done()


def decode_relayed(data: bytes) -> Relayed:
    reader = Unpacker(data)
    try:
        item = Relayed(
            reader.u8(),
            reader.text(),
            reader.text(),
            reader.u64(),
            reader.u64(),
            bool(reader.u8()),
            reader.text(),
            reader.blob(),
        )
        reader.finish()
    except BytesDamaged as error:
        raise ProtocolViolation(f"a relayed parcel of a link is damaged: {error}") from error
    return item


class RelayHost(Protocol):
    """What a relay asks and tells its broker."""

    def is_alive(self, peer: str) -> bool: ...

    def is_peer(self, name: str) -> bool: ...

    def middles(self, peer: str) -> frozenset[str] | None: ...

    def reach_for(self, peer: str) -> None: ...

    def journal_told(self, peer: str, journal: str) -> None: ...

    def arrived(self, peer: str, topic: str, payload: bytes, waiter: Waiter | None) -> None: ...


@final
class _Direct:
    """Hears the direct way to one peer."""

    def __init__(self, relay: "RelayTransport", way: "_Way") -> None:
        self._relay = relay
        self._way = way

    def opened(self, way: OpenWay) -> None:
        self._relay.direct_opened(self._way, way)

    def lost(self, problem: str) -> None:
        self._relay.direct_lost(self._way, problem)

    def settled(self, token: int, is_stored: bool) -> None:
        if self._way.direct is not None:
            self._way.events.settled(token, is_stored)

    def may_send(self, allowed: bool) -> None:
        if self._way.direct is not None:
            self._way.events.may_send(allowed)


class _Way:
    """To one peer: direct, through another, or neither."""

    def __init__(self, relay: "RelayTransport", peer: str, events: TransportEvents, now: float) -> None:
        self._relay = relay
        self.peer = peer
        self.events = events
        self.direct: OpenWay | None = None  # while the direct way is open, parcels go there and do not come by here
        self.problem = ""  # of the direct way
        self.closed_at = now
        self.via = ""  # the peer in the middle, when the way is open or asked for
        self.is_open = False  # through `via`
        self.number = 0  # of this way, and below of its parcels
        self.parcels = 0
        self.asked_at = 0.0
        self.unsettled: deque[tuple[int, float]] = deque()  # numbers of parcels, and when they were sent

    def send(self, kind: str, parcel: bytes, must_store: bool) -> int:
        """Through `via`."""
        return self._relay.send_around(self, kind, parcel, must_store) if self.is_open else 0


@dataclass(slots=True)
class _Ear:
    """The far end of a way that a peer opened to us."""

    way: int
    via: str
    expected: int = 1


@final
class _Answer(Waiter):
    """Tells the sender of a relayed parcel that it is stored."""

    def __init__(self, answer: Callable[[bool], None]) -> None:
        self._answer = answer

    def committed(self) -> None:
        self._answer(True)

    def failed(self) -> None:
        self._answer(False)


@final
class RelayTransport(Transport):
    """`first_way` must be greater at every start, so that ways of an earlier life are known as old.

    It has many methods because it is a transport to its links, hears what its own transport's ways do, and speaks with
    the far ends of relayed ones.
    """

    def __init__(
        self, name: str, inner: Transport, host: RelayHost, clock: Callable[[], float], first_way: int
    ) -> None:
        self.journal_id = inner.journal_id
        self._name = name
        self._inner = inner
        self._host = host
        self._clock = clock
        self._next_way = first_way
        self._ways: dict[str, _Way] = {}
        self._ears: dict[str, _Ear] = {}
        self._through: dict[tuple[str, str], int] = {}  # ways that we are in the middle of: sender, receiver
        self._tries = 0

    def via(self, peer: str) -> str:
        """The broker in the middle; empty: none."""
        way = self._ways.get(peer)
        return way.via if way is not None and way.is_open else ""

    def problem(self, peer: str) -> str:
        """Why the direct way is closed; empty: it is open."""
        way = self._ways.get(peer)
        return way.problem if way is not None and way.direct is None else ""

    def is_between(self, peer: str) -> bool:
        """Whether others speak with the peer through us."""
        return any(peer in pair for pair in self._through)

    # As a transport.

    def open(self, peer: str, events: TransportEvents) -> None:
        way = self._ways[peer] = _Way(self, peer, events, self._clock())
        self._inner.open(peer, _Direct(self, way))

    def close(self, peer: str) -> None:
        way = self._ways.pop(peer, None)
        self._inner.close(peer)
        if way is not None and way.is_open:
            way.events.lost("this broker keeps no link to it any more")

    def send_around(self, way: _Way, kind: str, parcel: bytes, must_store: bool) -> int:
        way.parcels += 1
        token = 0
        if must_store:
            way.unsettled.append((way.parcels, self._clock()))
            token = -way.parcels  # no token of a direct way is negative
        self._tell(way.via, Relayed(PARCEL, self._name, way.peer, way.number, way.parcels, must_store, kind, parcel))
        return token

    def reset(self, peer: str, problem: str) -> None:
        way = self._ways[peer]
        if way.is_open:
            self._lose(way, problem)
        else:
            self._inner.reset(peer, problem)

    def tick(self, now: float) -> None:
        self._inner.tick(now)
        for way in list(self._ways.values()):
            if way.via:
                self._check(way, now)
            elif way.direct is None and now - way.closed_at >= AFTER_S and self._host.is_alive(way.peer):
                self._ask(way, now)

    def was_heard(self, peer: str, at: float) -> None:
        self._inner.was_heard(peer, at)

    def came(self, peer: str) -> None:
        self._inner.came(peer)

    def is_calm(self) -> bool:
        return self._inner.is_calm()

    def _check(self, way: _Way, now: float) -> None:
        """Gives up what is not answered."""
        waits_since = way.asked_at if not way.is_open else way.unsettled[0][1] if way.unsettled else now
        if now - waits_since > ANSWER_S:
            self._lose(way, f"no answer through {way.via} within {ANSWER_S:g} s")

    def _ask(self, way: _Way, now: float) -> None:
        """Asks one peer after the other to stand in the middle."""
        near = self._host.middles(way.peer)
        middles = [one.peer for one in self._ways.values() if one.direct is not None and self._host.is_alive(one.peer)]
        if near is not None:
            middles = [peer for peer in middles if peer in near]
            if near and not middles:
                way.closed_at = now  # when the link to one of them is open we ask again
                self._tries += 1
                self._host.reach_for(sorted(near)[self._tries % len(near)])
        if not middles:
            return
        self._tries += 1
        way.via, way.asked_at = middles[self._tries % len(middles)], now
        self._next_way += 1
        way.number, way.parcels = self._next_way, 0
        way.unsettled.clear()
        self._tell(way.via, Relayed(OPEN, self._name, way.peer, way.number, text=self.journal_id))

    def _lose(self, way: _Way, problem: str) -> None:
        was_open = way.is_open
        way.via, way.is_open, way.closed_at = "", False, self._clock()
        way.unsettled.clear()
        if was_open:
            way.events.lost(problem)

    # What happens on direct ways.

    def direct_opened(self, way: _Way, direct: OpenWay) -> None:
        if way.via:
            self._lose(way, f"the direct way to {way.peer} is open again")
        way.direct, way.problem = direct, ""
        way.events.opened(direct)

    def direct_lost(self, way: _Way, problem: str) -> None:
        was_direct, way.direct, way.problem = way.direct is not None, None, problem
        if was_direct:
            way.closed_at = self._clock()
        if not way.is_open:
            way.events.lost(problem)
        for other in list(self._ways.values()):
            if other.via == way.peer:
                self._lose(other, f"{way.peer}, through which it went, is out of reach")
        for (sender, receiver), number in list(self._through.items()):
            if receiver == way.peer:
                self._break(sender, receiver, number, f"{self._name} lost its link to {receiver}: {problem}")

    def _break(self, sender: str, receiver: str, number: int, problem: str) -> None:
        self._through.pop((sender, receiver), None)
        self._tell(sender, Relayed(LOST, receiver, sender, number, text=problem))

    def heard_directly(self, peer: str) -> None:
        """The peer has opened a direct way to us: what still comes around is old."""
        self._ears.pop(peer, None)

    # What comes in relayed parcels.

    def arrived(self, peer: str, payload: bytes) -> None:
        item = decode_relayed(payload)
        if item.receiver != self._name:
            self._pass_on(peer, item, payload)
        elif item.kind in _ANSWERS:
            self._answered(item)
        elif item.kind == OPEN:
            self._opened(peer, item)
        else:
            self._heard(peer, item)

    def _pass_on(self, peer: str, item: Relayed, payload: bytes) -> None:
        """Only between two brokers that we both reach ourselves, and only what the peer says in its own name."""
        if item.sender != peer:
            raise ProtocolViolation(f"{peer} wants to pass on what {item.sender} says through two brokers")
        way = self._ways.get(item.receiver)
        if item.kind == OPEN:
            self._host.reach_for(item.sender)  # answers go back that way
        if way is not None and way.direct is not None:
            if item.kind == OPEN:
                self._through[item.sender, item.receiver] = item.way
            way.direct.send(RELAY_TOPIC, payload, False)
        elif item.kind not in _ANSWERS:
            self._break(item.sender, item.receiver, item.way, f"{self._name} has no link to {item.receiver} either")

    def _opened(self, via: str, item: Relayed) -> None:
        if not self._host.is_peer(item.sender):
            return  # it is no member of our city
        self._ears[item.sender] = _Ear(item.way, via)
        self._host.journal_told(item.sender, item.text)
        self._tell(via, Relayed(OPENED, self._name, item.sender, item.way))

    def _heard(self, via: str, item: Relayed) -> None:
        ear = self._ears.get(item.sender)
        if ear is None or ear.way != item.way or ear.via != via or ear.expected != item.number:
            self._refuse(via, item, "a parcel is missing")
            return
        ear.expected += 1
        waiter = _Answer(lambda is_stored: self._settle(via, item, is_stored)) if item.flag else None
        try:
            self._host.arrived(item.sender, item.text, item.data, waiter)
        except PeerViolation as error:
            self._refuse(via, item, str(error))

    def _refuse(self, via: str, item: Relayed, problem: str) -> None:
        ear = self._ears.get(item.sender)
        if ear is not None and ear.way == item.way:
            del self._ears[item.sender]
        self._tell(via, Relayed(LOST, self._name, item.sender, item.way, text=problem))

    def _settle(self, via: str, item: Relayed, is_stored: bool) -> None:
        self._tell(via, Relayed(SETTLED, self._name, item.sender, item.way, item.number, is_stored))

    def _answered(self, item: Relayed) -> None:
        way = self._ways.get(item.sender)
        if way is None or way.number != item.way or not way.via:
            return  # of a way that was given up
        if item.kind == LOST:
            self._lose(way, item.text)
        elif item.kind == OPENED:
            way.is_open = True
            way.events.opened(way)
        elif way.unsettled and way.unsettled[0][0] == item.number:
            way.unsettled.popleft()
            way.events.settled(-item.number, item.flag)

    def _tell(self, peer: str, item: Relayed) -> None:
        way = self._ways.get(peer)
        if way is not None and way.direct is not None:
            way.direct.send(RELAY_TOPIC, encode_relayed(item), False)
