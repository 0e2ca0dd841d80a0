"""The simulated network: delays, cuts and broken connections, on SimPy's virtual clock."""

from collections.abc import Callable, Iterable
from typing import Any

import simpy

Latency = Callable[[str, str], float]


def constant_latency(seconds: float) -> Latency:
    return lambda sender, receiver: seconds


class Network:
    """Connects every pair of running brokers that no cut separates; a connection keeps order and can break."""

    def __init__(self, env: Any, latency: Latency) -> None:
        self.env = env
        self._latency = latency
        self._cuts: set[frozenset[str]] = set()
        self._running: set[str] = set()
        self._generations: dict[frozenset[str], int] = {}  # counts broken connections, so that late bytes are lost
        self._connected: set[frozenset[str]] = set()
        self.on_up: Callable[[str, str], None] = lambda broker, peer: None
        self.on_down: Callable[[str, str], None] = lambda broker, peer: None

    def start(self, broker: str) -> None:
        self._running.add(broker)
        for other in sorted(self._running - {broker}):
            self._dial(broker, other)

    def stop(self, broker: str) -> None:
        self._running.discard(broker)
        for pair in [pair for pair in sorted(self._connected, key=sorted) if broker in pair]:
            self._break(pair)

    def cut(self, one: str, other: str) -> None:
        pair = frozenset((one, other))
        self._cuts.add(pair)
        if pair in self._connected:
            self._break(pair)

    def split(self, side: Iterable[str], everyone: Iterable[str]) -> None:
        inside = set(side)
        for one in sorted(inside):
            for other in sorted(set(everyone) - inside):
                self.cut(one, other)

    def heal(self) -> None:
        healed, self._cuts = self._cuts, set()
        for pair in sorted(healed, key=sorted):
            self._dial(*sorted(pair))

    def connected(self, one: str, other: str) -> bool:
        return frozenset((one, other)) in self._connected

    def generation(self, one: str, other: str) -> int:
        """Which connection of the two it is: an answer belongs on the one that brought the question."""
        return self._generations.get(frozenset((one, other)), 0)

    def send(self, sender: str, receiver: str, arrive: Callable[[], None]) -> None:
        """Calls `arrive` after the delay, unless the connection breaks before."""
        pair = frozenset((sender, receiver))
        if pair not in self._connected:
            return
        generation = self._generations.get(pair, 0)

        def deliver(_: Any) -> None:
            if self._generations.get(pair, 0) == generation:
                arrive()

        self.env.timeout(self._latency(sender, receiver)).callbacks.append(deliver)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self.env.timeout(seconds).callbacks.append(lambda _: action())

    def _dial(self, one: str, other: str) -> None:
        """A connection takes three trips: TCP, CONNECT and the proofs of the secret."""
        pair = frozenset((one, other))

        def connect() -> None:
            if pair in self._connected or pair in self._cuts or not pair <= self._running:
                return
            self._connected.add(pair)
            for broker, peer in ((one, other), (other, one)):
                self.on_up(broker, peer)

        self.after(3 * self._latency(one, other), connect)

    def _break(self, pair: frozenset[str]) -> None:
        self._connected.discard(pair)
        self._generations[pair] = self._generations.get(pair, 0) + 1
        for broker in sorted(pair & self._running):
            (peer,) = pair - {broker}
            self.on_down(broker, peer)


def environment() -> Any:
    return simpy.Environment()
