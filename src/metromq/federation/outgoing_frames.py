"""What leaves for peers: frames to those within reach, counted; no I/O."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

from metromq.federation.effects import Effect, Send
from metromq.federation.greetings import Greetings
from metromq.federation.links.frames import ClientAnswer, ClientMoved, Interest
from metromq.federation.links.versions import ANEW_SINCE, SAID_SINCE
from metromq.federation.reach import Reach


@dataclass(slots=True)
class NodeCounters:
    """What passed between brokers, for status and for the paper's formulas; the host counts the messages."""

    interest_in: int = 0
    interest_out: int = 0
    frames_in: int = 0
    frames_out: int = 0


@final
class OutgoingFrames:
    def __init__(self, up: Reach, greetings: Greetings, counters: NodeCounters, wall_us: Callable[[], int]) -> None:
        self._up = up
        self._greetings = greetings
        self._counters = counters
        self._wall_us = wall_us
        self._parting: set[str] = set()  # members that have just left: the last frames for them say so

    def parts(self, peer: str) -> None:
        self._parting.add(peer)

    def counted(self, effects: list[Effect]) -> list[Effect]:
        """Frames to peers that cannot be reached are left out: digests mend what they would have said."""
        sent: list[Effect] = []
        if not effects and not self._parting:
            return sent
        for effect in effects:
            if isinstance(effect, Send):
                if effect.peer not in self._up and effect.peer not in self._parting:
                    continue
                self._counters.frames_out += 1
                if isinstance(effect.frame, Interest):
                    self._counters.interest_out += len(effect.frame.wanted)
                    effect = Send(effect.peer, self._said(effect.peer, effect.frame))
                elif isinstance(effect.frame, ClientAnswer | ClientMoved):
                    effect = Send(effect.peer, self._understood(effect.peer, effect.frame))
            sent.append(effect)
        self._parting.clear()
        return sent

    def _understood(self, peer: str, frame: ClientAnswer | ClientMoved) -> ClientAnswer | ClientMoved:
        if self._greetings.spoken_to(peer) >= ANEW_SINCE:
            return frame
        if isinstance(frame, ClientAnswer):
            return replace(frame, clean_us=0, since_us=0)
        return replace(frame, clean_us=0)

    def _said(self, peer: str, frame: Interest) -> Interest:
        """With the time, so that the peer sees when it was held up on its way."""
        said = self._greetings.spoken_to(peer) >= SAID_SINCE
        return Interest(frame.whole, frame.wanted, frame.unwanted, self._wall_us()) if said else frame
