"""How far peers' clocks are ahead of ours, from the round trips of hellos, as NTP does it; no I/O.

A hello says what its sender's clock showed, and returns what ours showed in the last hello that the sender got, with
how long ago that was. Both ways together took the round trip; if they took the same, its middle is the same moment
on both clocks. The sample with the shortest round trip of the last ones counts: it is wrong by half of that at most.

A broker that stood still reads many hellos late, one after the other. If their samples took the place of better ones,
its time would leap by half of what they were late, and the city's with it, for good. So they are left out, unless a
clock was set or nothing better comes for a while.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final, final

SAMPLES: Final = 8
LATE_US: Final = 1000  # a round trip that takes so much more than twice the best one was held up
LONGER_US: Final = 5_000_000  # after so long without a better one the way has become longer


@final
@dataclass(slots=True, init=False)
class Skew:
    """How far a peer's clock is ahead of ours, and how sure that is."""

    ahead_us: int
    round_trip_us: int

    def __init__(self, ahead_us: int, round_trip_us: int) -> None:  # by hand: every greeting makes one
        self.ahead_us = ahead_us
        self.round_trip_us = round_trip_us


@final
class ClockSkews:
    """Of one broker to all its peers. `wall_us` is our clock's time, `now_us` a monotonic one's."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[int, int]] = {}  # the clock in each peer's last hello, and when that came
        self._samples: dict[str, deque[Skew]] = {}
        self._late_us: dict[str, int] = {}  # since when all that came from a peer was held up
        self._apart: set[str] = set()  # peers whose clocks differ too much from ours

    def heard(self, peer: str, theirs_us: int, echo_us: int, held_us: int, wall_us: int, now_us: int) -> None:
        """A hello has come, sent when the peer's clock showed `theirs_us`."""
        if not wall_us or not theirs_us:
            return  # somebody has no clock
        self._heard[peer] = (theirs_us, now_us)
        round_trip_us = wall_us - echo_us - held_us
        if not echo_us or round_trip_us < 0:
            return  # it had heard nothing of us yet, or our own clock was set back
        skew = Skew(((theirs_us - held_us - echo_us) + (theirs_us - wall_us)) // 2, round_trip_us)
        samples = self._samples.get(peer)
        if samples is None:
            samples = self._samples[peer] = deque(maxlen=SAMPLES)
        for old in samples:
            if abs(skew.ahead_us - old.ahead_us) > round_trip_us + old.round_trip_us:
                samples.clear()  # a clock has been set
                break
        if not self._is_late(peer, skew, now_us):
            samples.append(skew)

    def _is_late(self, peer: str, skew: Skew, now_us: int) -> bool:
        """Whether it says less than what is known, because it was held up on its way or read late."""
        best = self.of(peer)
        if best is None or skew.round_trip_us <= 2 * best.round_trip_us + LATE_US:
            self._late_us.pop(peer, None)
            return False
        if now_us - self._late_us.setdefault(peer, now_us) < LONGER_US:
            return True
        del self._late_us[peer]
        self._samples[peer].clear()
        return False

    def echo(self, peer: str, now_us: int) -> tuple[int, int]:
        """What to return to the peer: its clock, and how long ago it said so."""
        theirs_us, heard_us = self._heard.get(peer, (0, now_us))
        return theirs_us, now_us - heard_us

    def forget(self, peer: str) -> None:
        """It has left the city."""
        self._heard.pop(peer, None)
        self._samples.pop(peer, None)
        self._late_us.pop(peer, None)
        self._apart.discard(peer)

    def of(self, peer: str) -> Skew | None:
        """None: not measured yet."""
        best: Skew | None = None
        samples = self._samples.get(peer)
        if samples is None:
            return None
        for sample in samples:
            if best is None or sample.round_trip_us < best.round_trip_us:
                best = sample
        return best

    def is_sure(self, peer: str) -> bool:
        """Whether a second look has confirmed the first, which may have been a late one: time does not go back."""
        samples = self._samples.get(peer)
        return samples is not None and len(samples) > 1

    def news(self, peer: str, limit_us: int) -> Skew | None:
        """Once when a peer's clock is too far off, and once when it is right again; None: nothing is new."""
        skew = self.of(peer)
        if skew is None or (abs(skew.ahead_us) > limit_us) == (peer in self._apart):
            return None
        (self._apart.discard if peer in self._apart else self._apart.add)(peer)
        return skew

    def is_apart(self, peer: str) -> bool:
        return peer in self._apart
