"""Waits until what was sent to peers has reached them: a topic that changes hands must not overtake itself."""

from collections.abc import Callable
from typing import final

from metromq.federation.effects import Drain, Effect
from metromq.federation.node import Node
from metromq.protocol.session import Hub


@final
class Draining:
    def __init__(self, hub: Hub, node: Node, run: Callable[[list[Effect]], None]) -> None:
        self._hub = hub
        self._node = node
        self._run = run
        self.waiting: dict[str, tuple[Drain, int]] = {}  # by key: and the offset before which all must be settled

    def begin(self, effect: Drain) -> None:
        log = self._hub.commits.log
        self.waiting[effect.key] = effect, log.next_offset() if log is not None else 0
        self.tick()

    def is_busy(self) -> bool:
        return bool(self.waiting)

    def tick(self) -> None:
        now_us = int(self._hub.clock.now * 1_000_000)
        for key, (effect, end) in list(self.waiting.items()):
            is_waiting = self.waiting.get(key) == (effect, end)  # what one drain leads to may change the others
            if is_waiting and self._is_settled(end):
                del self.waiting[key]
                self._run(self._node.drained(effect, now_us))

    def _is_settled(self, end: int) -> bool:
        """Peers out of reach are not waited for: what they miss comes when they are back."""
        up = self._node.up
        waiting = (backlog for peer, backlog in self._hub.links.by_peer.items() if peer in up)
        return not any(0 <= backlog.oldest_offset() < end for backlog in waiting)
