"""The simulated network: byte streams with delays that keep order, can be cut, and can be held up.

Every stream runs between two named ends, brokers or clients. A cut breaks the streams between two ends at once, as a
reset does; a hold keeps the bytes of one direction back until `heal`, as a network does that loses every packet. Who
dials meanwhile hears nothing; as a kernel does, the network sends the SYN again after a second and after three.
"""

from collections.abc import Callable, Iterable
from typing import Final, Protocol, final

from metromq.lab.sim.clock import Due, VirtualClock

Latency = Callable[[str, str], float]

SYN_S: Final = (
    0.0,
    1.0,
    3.0,
)  # when SYNs are sent; before the next one, at seven, whoever dials has given up


def constant_latency(seconds: float) -> Latency:
    return lambda sender, receiver: seconds


class StreamListener(Protocol):
    """Who gets what a stream brings."""

    def received(self, data: bytes) -> None: ...

    def closed(self, problem: str) -> None: ...


class Acceptor(Protocol):
    """A broker that takes connections; None: it does not."""

    def accept(self, end: "StreamEnd") -> StreamListener | None: ...


@final
class StreamEnd:
    """One end of a connection; what is written comes out at the other."""

    def __init__(self, network: "Network", own: str, far: str) -> None:
        self._network = network
        self.own = own
        self.far = far
        self.other: StreamEnd | None = None
        self.listener: StreamListener | None = None
        self.is_open = True
        self._held: list[bytes] = []
        self._latency_s = network.latency(own, far)
        self._arrives_at = 0.0  # of the last bytes: later ones never overtake

    def write(self, data: bytes) -> None:
        other = self.other
        if not self.is_open or other is None:
            return
        self._network.bytes_written += len(data)
        if self._held or (self._network.holds and (self.own, self.far) in self._network.holds):
            self._held.append(data)
            return
        self._network.clock.add(self._arrives_in_s(), _Arrival(other, data))

    def release(self) -> None:
        held, self._held = self._held, []
        for data in held:
            self.write(data)

    def take(self, data: bytes) -> None:
        if self.is_open and self.listener is not None:
            self.listener.received(data)
        elif not self.is_open and self.other is not None and (self.own, self.far) not in self._network.holds:
            self._later(lambda: self._reset())

    def _reset(self) -> None:
        if self.other is not None:
            self.other.fail("connection reset")

    def abort(self) -> None:
        """Closes; the other end hears of it."""
        if not self.is_open:
            return
        self.is_open = False
        self._network.streams.pop(self, None)
        other = self.other
        if other is not None and (self.own, self.far) not in self._network.holds:
            self._later(lambda: other.fail("the peer closed the connection"))

    def fail(self, problem: str) -> None:
        """The connection is gone, from outside."""
        if self.is_open:
            self.is_open = False
            self._network.streams.pop(self, None)
            if self.listener is not None:
                self.listener.closed(problem)

    def _later(self, action: Callable[[], None]) -> None:
        self._network.clock.after(self._arrives_in_s(), action)

    def _arrives_in_s(self) -> float:
        """When what is sent now arrives."""
        network, now, delay_s = self._network, self._network.clock.now, self._latency_s
        if network.slowed:
            delay_s += network.slowed.get((self.own, self.far), 0.0)
        self._arrives_at = max(self._arrives_at, now + delay_s)
        return self._arrives_at - now


@final
class _Arrival(Due):
    """Bytes on their way."""

    def __init__(self, end: StreamEnd, data: bytes) -> None:
        self._end = end
        self._data = data

    def happen(self) -> None:
        self._end.take(self._data)


@final
class _Dial(Due):
    """A try to connect: what is due is the next SYN, or the answer to one."""

    def __init__(
        self,
        network: "Network",
        own: str,
        far: str,
        connected: Callable[[StreamEnd], None],
        failed: Callable[[str], None],
        waits: Callable[[], bool],
    ) -> None:
        self._network = network
        self._own, self._far = own, far
        self._connected, self._failed, self._waits = connected, failed, waits
        self._begun = network.clock.now
        self._sent = 0  # SYNs
        self._is_answered = False

    def happen(self) -> None:
        network, own, far = self._network, self._own, self._far
        if not self._waits():
            return
        if network.loses(own, far):
            self._is_answered = False
            self._send_later()
        elif self._is_answered:
            self._connect()
        else:
            self._is_answered = True
            network.clock.add(network.delay_s(own, far) + network.delay_s(far, own), self)

    def _send_later(self) -> None:
        self._sent += 1
        if self._sent < len(SYN_S):
            clock = self._network.clock
            clock.add(max(0.0, self._begun + SYN_S[self._sent] - clock.now), self)

    def _connect(self) -> None:
        network, own, far = self._network, self._own, self._far
        acceptor = network.acceptors.get(far)
        if acceptor is None or network.is_refused(own, far):
            self._failed("connection refused")
            return
        near_end, far_end = StreamEnd(network, own, far), StreamEnd(network, far, own)
        near_end.other, far_end.other = far_end, near_end
        far_end.listener = acceptor.accept(far_end)
        if far_end.listener is None:
            self._failed("connection refused")
            return
        network.streams[near_end] = network.streams[far_end] = None
        self._connected(near_end)


@final
class Network:
    def __init__(self, clock: VirtualClock, latency: Latency) -> None:
        self.clock = clock
        self.latency = latency
        self.acceptors: dict[str, Acceptor] = {}
        self.streams: dict[StreamEnd, None] = {}
        self.holds: set[tuple[str, str]] = set()
        self.slowed: dict[tuple[str, str], float] = {}  # sender and receiver: seconds more
        self._cuts: set[frozenset[str]] = set()
        self.bytes_written = 0

    def delay_s(self, sender: str, receiver: str) -> float:
        more_s = self.slowed.get((sender, receiver), 0.0) if self.slowed else 0.0
        return self.latency(sender, receiver) + more_s

    def dial(
        self,
        own: str,
        far: str,
        connected: Callable[[StreamEnd], None],
        failed: Callable[[str], None],
        waits: Callable[[], bool],
    ) -> None:
        """Calls one of the two after a round trip; `connected` gets the near end, and must set its listener.

        Neither while the SYN or its answer is lost. `waits`: whether whoever dials is still there.
        """
        _Dial(self, own, far, connected, failed, waits).happen()

    def loses(self, one: str, other: str) -> bool:
        """Whether a question of one, or the answer, does not arrive."""
        return (one, other) in self.holds or (other, one) in self.holds

    def is_refused(self, own: str, far: str) -> bool:
        return frozenset((own, far)) in self._cuts

    def drop(self, name: str) -> None:
        """An end of streams is gone: its process died."""
        for end in [end for end in self.streams if end.own == name]:
            end.listener = None
            end.abort()

    def cut(self, one: str, other: str) -> None:
        pair = frozenset((one, other))
        self._cuts.add(pair)
        for end in [end for end in self.streams if {end.own, end.far} == pair]:
            end.fail("connection reset")

    def hold(self, sender: str, receiver: str) -> None:
        """Nothing that one sends arrives at the other, and nobody is told."""
        self.holds.add((sender, receiver))

    def slow(self, sender: str, receiver: str, by_s: float) -> None:
        """What one sends arrives at the other so much later."""
        self.slowed[sender, receiver] = by_s

    def split(self, side: Iterable[str], everyone: Iterable[str]) -> None:
        inside = set(side)
        for one in sorted(inside):
            for other in sorted(set(everyone) - inside):
                self.cut(one, other)

    def heal(self) -> None:
        self._cuts.clear()
        self.holds.clear()
        self.slowed.clear()
        for end in list(self.streams):
            end.release()

    def is_cut(self, one: str, other: str) -> bool:
        return self.loses(one, other) or self.is_refused(one, other)
