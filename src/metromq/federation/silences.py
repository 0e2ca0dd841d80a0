"""How long peers could not be heard: what they say then may be as old, since frames can be held up on their way.

A greeting says what its sender's clock showed. The quickest one of late tells how far apart the clocks and brokers are;
what seems to take longer than that was held up.
"""

from collections.abc import Iterable
from typing import Final, final

BURST_US: Final = 5_000_000  # so long after a silence what a peer says may come from before
UNNOTICED_US: Final = 15_000_000  # so long a link may be dead before its keepalive says so
LATELY_US: Final = 30_000_000  # so long the quickest greeting counts, since clocks drift and are set
HELD_UP_US: Final = 5_000  # what takes so much longer than usual is late


@final
class Silences:
    def __init__(self, least_us: int) -> None:
        """Shorter silences than `least_us` are usual."""
        self._least_us = least_us
        self._resting: set[str] = set()
        self._heard_us: dict[str, int] = {}  # when the last frame of each peer came
        self._connected_us: dict[str, int] = {}  # and when it opened the connection that it speaks over
        self._ended: dict[str, tuple[int, int]] = {}  # the last unusual silence: how long, and when it ended
        self._stalled: dict[str, tuple[int, int]] = {}  # the same of one during which the connection stayed
        # Of each peer: since when this while lasts, and our clock less the sender's at the quickest greeting of the
        # while before, and of this one.
        self._quickest: dict[str, tuple[int, int, int]] = {}

    def restarted(self, peers: Iterable[str], away_us: int, now_us: int) -> None:
        """Before we were away nobody can say how long a peer was silent: as long as neither side would have noticed."""
        self._heard_us = dict.fromkeys(peers, now_us - away_us - UNNOTICED_US)
        self._connected_us = dict.fromkeys(peers, now_us)

    def rests(self, peer: str) -> None:
        """It has nothing to say and closes its connection: until the next one its silence is usual."""
        self._resting.add(peer)

    def connected(self, peer: str, now_us: int) -> None:
        """What comes over a new connection was said after it was opened."""
        if peer in self._resting:
            self._resting.discard(peer)
            self._heard_us[peer] = now_us
        self._connected_us[peer] = now_us
        self._stalled.pop(peer, None)

    def heard(self, peer: str, now_us: int) -> None:
        self._resting.discard(peer)
        last_us = self._heard_us.get(peer, now_us)
        self._heard_us[peer] = now_us
        if now_us - last_us >= self._least_us:
            self._ended[peer] = now_us - last_us, now_us
            if last_us >= self._connected_us.get(peer, 0):
                self._stalled[peer] = self._ended[peer]

    def greeted(self, peer: str, said_us: int, now_us: int) -> None:
        """A greeting has come that was sent when its sender's clock showed `said_us`."""
        took_us = now_us - said_us
        since_us, last_us, quickest_us = self._quickest.get(peer, (now_us, took_us, took_us))
        if now_us - since_us >= LATELY_US:
            since_us, last_us, quickest_us = now_us, quickest_us, took_us
        self._quickest[peer] = since_us, last_us, min(quickest_us, took_us)

    def held_up(self, peer: str, said_us: int, now_us: int) -> int:
        """How much longer a frame was under way than usual, apart from silences; 0: no longer, or nobody knows."""
        known = self._quickest.get(peer)
        if known is None or not said_us:
            return 0
        late_us = now_us - said_us - min(known[1:])
        # More would have been a silence: then a clock was set.
        return min(late_us, self._least_us) if late_us >= HELD_UP_US else 0

    def before(self, peer: str, now_us: int) -> int:
        """How long the silence was that has just ended; 0: there was none."""
        return _length(self._ended.get(peer, (0, 0)), now_us)

    def under_way(self, peer: str, now_us: int) -> int:
        """How long a frame that comes now may have been under way; 0: no longer than usual."""
        return _length(self._stalled.get(peer, (0, 0)), now_us)


def _length(silence: tuple[int, int], now_us: int) -> int:
    length_us, ended_us = silence
    return length_us + now_us - ended_us if length_us and now_us - ended_us <= BURST_US else 0
