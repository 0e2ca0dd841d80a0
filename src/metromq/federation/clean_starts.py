"""Which clients began anew, and when: what they had left before that is void, also where nobody heard of it yet.

In calm a clean start ends older sessions at once. While somebody is out of reach it is remembered, in the journal too,
and told to whoever comes back, also if the session that the client began has ended since.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from mypy_extensions import mypyc_attr

from metromq.federation.effects import Effect, Keep, Send
from metromq.federation.links.frames import ClientMoved

MOST = 10_000  # that are remembered


@dataclass(frozen=True, slots=True)
class CleanStart:
    client: str
    user: str
    clean_us: int
    broker: str

    def frame(self) -> ClientMoved:
        """Whatever the client has had before is void, wherever it is now."""
        clean_us = self.clean_us
        return ClientMoved(self.client, clean_us, self.broker, True, self.user, clean_us, False, clean_us)


def _certain() -> bool:
    return False


@mypyc_attr(native_class=False)  # tests plant bugs in it
@final
class CleanStarts:
    def __init__(self) -> None:
        self._known: dict[tuple[str, str], CleanStart] = {}
        self.doubts: Callable[[], bool] = _certain  # whether somebody is out of reach, or was until a moment ago

    def began(self, client: str, user: str, clean_us: int, broker: str) -> list[Effect]:
        known = self._known.pop((client, user), None)
        if known is not None and known.clean_us >= clean_us:
            self._known[client, user] = known
            return []
        start = CleanStart(client, user, clean_us, broker)
        self._put(start)
        return [Keep("", start.frame())] if self.doubts() else []

    def _put(self, start: CleanStart) -> None:
        self._known[start.client, start.user] = start
        if len(self._known) > MOST:
            del self._known[next(iter(self._known))]

    def of(self, client: str, user: str) -> CleanStart | None:
        return self._known.get((client, user))

    def before(self, client: str, user: str) -> int:
        """What the user's client left before this is void."""
        start = self._known.get((client, user))
        return start.clean_us if start is not None else 0

    def told_to(self, peer: str) -> list[Effect]:
        """It was away, and may come back with something older."""
        return [Send(peer, start.frame()) for start in self._known.values() if start.broker != peer]

    def restore(self, frame: ClientMoved) -> None:
        """What an earlier life of this broker has noted."""
        self._known.pop((frame.client, frame.user), None)
        self._put(CleanStart(frame.client, frame.user, frame.clean_us, frame.broker))

    def snapshot(self) -> list[Keep]:
        return [Keep("", start.frame()) for start in self._known.values()]
