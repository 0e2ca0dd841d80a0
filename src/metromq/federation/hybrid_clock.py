"""Hybrid logical time: the fastest clock of the city, as far as this broker has heard of it.

Brokers' clocks may differ by minutes. What decides between two CONNECTs of a client, or two values of a topic, must
follow what happened: whoever has heard of one stamps the next one later, and goes on with the time that it heard.

A time that is heard is as old as its way here. So clocks are compared too (`ClockSkews`): a broker whose clock is slow
does not stamp what happens now earlier than what happened elsewhere a moment ago.
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import mypyc_attr

MAX_ROUND_TRIP_US: Final = 50_000  # clocks that are read over longer ways count for what is heard of them, and no more

WORTH_KEEPING_US: Final = 1000  # of a change: smaller ones come with every comparison


def _no_clock() -> int:
    return 0


@mypyc_attr(native_class=False)  # tests plant bugs in it
@final
class HybridClock:
    def __init__(self, wall_us: Callable[[], int] | None = None) -> None:
        self._wall_us = wall_us or _no_clock
        self._ahead_us = 0  # of our own clock
        self._most_us = 0  # the same, or a peer's that is further ahead
        self._peers_ahead_us: dict[str, int] = {}  # the same of each peer's clock, as far as it was compared
        self._kept_us: dict[str, int] = {}  # and as the journal has it
        self._last_us = 0
        self.happened_us = 0  # the last time that something got for good, here or elsewhere, and is known here

    def stamp_us(self) -> int:
        """The time of something that happens now."""
        last_us = self._last_us = max(self._last_us + 1, self._wall_us() + self._most_us)
        return last_us

    def _look(self) -> None:
        """Whose clock is furthest ahead."""
        self._most_us = max(self._ahead_us, *self._peers_ahead_us.values()) if self._peers_ahead_us else self._ahead_us

    def ago_us(self, time_us: int) -> int:
        """How long ago something was stamped, here or elsewhere."""
        return max(0, self.stamp_us() - time_us)

    def compared(self, peer: str, ahead_us: int, round_trip_us: int) -> bool:
        """A peer's clock is so far ahead of ours, within half of the round trip; whether that is worth keeping."""
        if round_trip_us > MAX_ROUND_TRIP_US:
            self._forget(peer)
        elif self._peers_ahead_us.get(peer) != ahead_us:
            self._peers_ahead_us[peer] = ahead_us
            self._look()
        if abs(self.ahead_of_us(peer) - self._kept_us.get(peer, 0)) <= WORTH_KEEPING_US:
            return False
        self._kept_us[peer] = self.ahead_of_us(peer)
        return True

    def ahead_of_us(self, peer: str) -> int:
        """How far a peer's clock is ahead, as far as that counts here."""
        return self._peers_ahead_us.get(peer, 0)

    def recall(self, peer: str, ahead_us: int) -> None:
        """That was so before a restart, and counts until the clocks are compared again.

        A broker that starts while nobody can be reached would otherwise stamp what happens now by its own slow clock.
        """
        self._peers_ahead_us[peer] = self._kept_us[peer] = ahead_us
        self._look()

    def kept(self) -> dict[str, int]:
        return {peer: ahead_us for peer, ahead_us in self._kept_us.items() if ahead_us}

    def forget(self, peer: str) -> None:
        """It has left the city. Whoever went by its clock goes on so: the others do, too."""
        self._kept_us.pop(peer, None)
        self._ahead_us = max(self._ahead_us, self._peers_ahead_us.get(peer, 0))
        self._forget(peer)

    def _forget(self, peer: str) -> None:
        if self._peers_ahead_us.pop(peer, None) is not None:
            self._look()

    def happened(self, time_us: int) -> None:
        """Something has this time for good: whoever hears anything that we say from now on must stamp later."""
        self._last_us = max(self._last_us, time_us)
        self.happened_us = max(self.happened_us, time_us)

    def heard(self, time_us: int) -> None:
        """Something has happened at this time, somewhere."""
        self._last_us = max(self._last_us, time_us)
        wall_us = self._wall_us()
        if wall_us and time_us - wall_us > self._ahead_us:
            self._ahead_us = time_us - wall_us
            self._look()
