"""Links as MQTT 5 over byte streams: each broker is a client of its peers, and proves that it belongs to the city.

Who makes the streams (TCP, TLS, memory under a virtual clock) is a dialler's business. A lost way is dialled again
after a pause that doubles, and that differs between brokers, so that a city does not come back all at once.
"""

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, final

from metromq.client.core import ClientCore, ClientOptions, Closed, Effect, Opened, Send, Unclaimed
from metromq.federation.links.auth import METHOD, Dialler
from metromq.federation.links.frames import LINK_CLIENT_PREFIX, VERSION, offer_text
from metromq.federation.links.transport import Transport, TransportEvents
from metromq.protocol.session import LINK_OFFER
from metromq.protocol.wire import MQTT5, Properties, encode_publish

FIRST_RETRY_S: Final = 0.1
LAST_RETRY_S: Final = 2.0
KEEPALIVE_S: Final = 10
HANGS_S: Final = 1.0  # a try that has had no answer for so long
CONNECT_TIMEOUT_S: Final = 5.0
MAX_BATCHES_UNDER_WAY: Final = 64
LARGEST_PACKET_BYTES: Final = 268_435_460


class ByteStream(Protocol):
    """One connection to a peer."""

    def write(self, data: bytes) -> None: ...

    def abort(self) -> None: ...


class StreamDialler(Protocol):
    """Makes byte streams: calls `connected`, `received`, `closed` and `may_write` of the line it was given."""

    def dial(self, peer: str, line: "Line") -> None: ...


@final
class LinkCredentials:
    """What a broker says and proves to its peers. `nonce` makes random bytes; no `secret`: certificates prove names."""

    def __init__(self, name: str, journal_id: str, secret: bytes | None, nonce: Callable[[], bytes]) -> None:
        self.name = name
        self.journal_id = journal_id
        self.secret = secret
        self.old_secret: bytes | None = None  # that is good too, while the secret changes
        self.nonce = nonce
        self.newest = VERSION  # of the link's versions that this broker reads

    def options(self, peer: str) -> ClientOptions:
        proof = None
        if self.secret is not None:
            proof = _Proof(Dialler(self.secret, self.name, peer, self.nonce(), self.old_secret))
        return ClientOptions(
            LINK_CLIENT_PREFIX + self.name,
            MQTT5,
            True,
            None,
            KEEPALIVE_S,
            self.journal_id,
            None,
            None,
            100,
            MAX_BATCHES_UNDER_WAY,
            0,
            LARGEST_PACKET_BYTES,
            Properties(user=((LINK_OFFER, offer_text(self.newest)),)),
            proof,
        )


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


@final
class Line:
    """One try to reach a peer, and the connection that came of it; falls silent when it is over."""

    def __init__(self, way: "_Way", core: ClientCore) -> None:
        self._way: _Way | None = way
        self.core = core
        self.stream: ByteStream | None = None

    def connected(self, stream: ByteStream) -> None:
        self.stream = stream
        if self._way is None:  # too late
            stream.abort()
        else:
            self._way.do(self.core.connect(self._way.clock()))

    def received(self, data: bytes) -> None:
        if self._way is not None:
            self._way.do(self.core.receive(data, self._way.clock()))

    def closed(self, problem: str) -> None:
        if self._way is not None:
            self._way.lost(problem or "the peer closed the connection")

    def may_write(self, allowed: bool) -> None:
        if self._way is not None:
            self._way.events.may_send(allowed)

    def hang_up(self) -> None:
        self._way = None
        if self.stream is not None:
            self.stream.abort()


@final
class _Way:
    """To one peer. It has many attributes because it knows its try, the pause before it, and what is under way."""

    def __init__(
        self,
        peer: str,
        events: TransportEvents,
        dialler: StreamDialler,
        credentials: LinkCredentials,
        clock: Callable[[], float],
    ) -> None:
        self.peer = peer
        self.events = events
        self.clock = clock
        self.is_open = False
        self._dialler = dialler
        self._credentials = credentials
        self._line: Line | None = None
        self._dialled_at = 0.0
        self._dial_at = 0.0  # not before
        self._tries = 0
        self._hurried = False  # this try began because the peer came while the one before it hung
        self._sent_at = 0.0  # when the last parcel was
        self._token = 0  # of the last parcel that must be stored
        self._under_way: dict[int, int] = {}  # tokens of such parcels by the packet identifiers of their PUBLISH
        self._waiting: deque[tuple[int, int, bytes]] = deque()  # those for which there is no room yet
        self._room = MAX_BATCHES_UNDER_WAY  # of parcels under way: a peer may allow less [MQTT-3.3.4-9]

    def tick(self, now: float) -> None:
        line = self._line
        if line is None:
            if now >= self._dial_at:
                self._dial(now)
        elif self.is_open:
            line.core.wrote(self._sent_at)
            self.do(line.core.tick(now))
        elif now - self._dialled_at > CONNECT_TIMEOUT_S:
            self.lost(f"no answer within {CONNECT_TIMEOUT_S:g} s")

    def was_heard(self, at: float) -> None:
        if self._line is not None and self.is_open:
            self._line.core.was_heard(at)

    def came(self) -> None:
        """The peer can be reached: neither the pause is waited for, nor a try that began when it could not.

        The next try began when it could. Were that one given up as well, two brokers whose ways are slow would hang up
        on each other again and again: each comes while the other's answer is on its way.
        """
        now = self.clock()
        hangs = self._line is not None and not self.is_open and now - self._dialled_at > HANGS_S
        if hangs and not self._hurried:
            self.lost("the peer came by itself before it answered")
            self._hurried = True
        if self._line is None:
            self._dial_at = min(self._dial_at, now)

    def _dial(self, now: float) -> None:
        self._dialled_at = now
        self._line = line = Line(self, ClientCore(self._credentials.options(self.peer)))
        self._dialler.dial(self.peer, line)

    def do(self, effects: list[Effect]) -> None:
        for effect in effects:
            line = self._line
            if line is None:
                return
            if isinstance(effect, Send):
                if line.stream is not None:
                    line.stream.write(effect.data)
            elif isinstance(effect, Unclaimed):
                self._acknowledged(effect.packet_id, effect.reason_code)
            elif isinstance(effect, Opened):
                self.is_open = True
                self._tries = 0
                allowed = effect.connack.properties.receive_maximum or MAX_BATCHES_UNDER_WAY
                self._room = min(MAX_BATCHES_UNDER_WAY, allowed)
                self.events.opened(self)
            else:
                assert isinstance(effect, Closed)  # nothing is asked of the core but to connect
                self.lost(str(effect.error or "closed"))

    def send(self, kind: str, parcel: bytes, must_store: bool) -> int:
        """Past the client's core, which has no part in it: every parcel is a plain PUBLISH on a topic that is known."""
        line = self._line
        if line is None or line.stream is None or not self.is_open:
            return 0
        self._sent_at = self.clock()
        if not must_store:
            line.stream.write(encode_publish(MQTT5, kind.encode(), parcel, 0, False, False, 0))
            return 0
        self._token += 1
        packet_id = self._token % 65535 + 1  # free: the last ones to have had it were settled long ago
        packet = encode_publish(MQTT5, kind.encode(), parcel, 1, False, False, packet_id)
        if len(self._under_way) < self._room:
            self._under_way[packet_id] = self._token
            line.stream.write(packet)
        else:
            self._waiting.append((packet_id, self._token, packet))
        return self._token

    def _acknowledged(self, packet_id: int, reason_code: int) -> None:
        token = self._under_way.pop(packet_id, 0)
        if not token:
            return
        if self._waiting and self._line is not None and self._line.stream is not None:
            next_id, next_token, packet = self._waiting.popleft()
            self._under_way[next_id] = next_token
            self._line.stream.write(packet)
        self.events.settled(token, reason_code < 0x80)

    def lost(self, problem: str) -> None:
        """Hangs up, and dials again after a while."""
        line, self._line = self._line, None
        if line is None:
            return
        # A try that hung was a pause: who answers no SYN may be back since the last one, which is some seconds old.
        begun = self.clock() if self.is_open else self._dialled_at
        self.is_open = self._hurried = False
        self._under_way.clear()
        self._waiting.clear()
        line.hang_up()
        self._dial_at = begun + self._pause_s()
        self._tries += 1
        self.events.lost(problem)

    def _pause_s(self) -> float:
        """Between half and one and a half times the pause, by names and number, so that it needs no chance."""
        text = f"{self._credentials.name}\0{self.peer}\0{self._tries}".encode()
        spread = int.from_bytes(hashlib.blake2b(text, digest_size=4).digest(), "big") / (1 << 32)
        return float(min(FIRST_RETRY_S * (1 << min(self._tries, 10)), LAST_RETRY_S) * (0.5 + spread))


@final
class MqttTransport(Transport):
    """`clock` is the time of the event that is being handled."""

    def __init__(self, dialler: StreamDialler, credentials: LinkCredentials, clock: Callable[[], float]) -> None:
        self.journal_id = credentials.journal_id
        self._dialler = dialler
        self._credentials = credentials
        self._clock = clock
        self._ways: dict[str, _Way] = {}

    def open(self, peer: str, events: TransportEvents) -> None:
        way = self._ways[peer] = _Way(peer, events, self._dialler, self._credentials, self._clock)
        way.tick(self._clock())  # dials: somebody may wait for it

    def close(self, peer: str) -> None:
        way = self._ways.pop(peer, None)
        if way is not None:
            way.lost("this broker keeps no link to it any more")

    def reset(self, peer: str, problem: str) -> None:
        self._ways[peer].lost(problem)

    def tick(self, now: float) -> None:
        for way in list(self._ways.values()):
            way.tick(now)

    def was_heard(self, peer: str, at: float) -> None:
        way = self._ways.get(peer)
        if way is not None:
            way.was_heard(at)

    def came(self, peer: str) -> None:
        way = self._ways.get(peer)
        if way is not None:
            way.came()

    def is_calm(self) -> bool:
        return all(way.is_open for way in self._ways.values())
