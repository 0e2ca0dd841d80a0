"""When a broker stays awake between messages: waking up takes longer than handling one, staying awake takes a core."""

from collections.abc import Callable
from typing import Final, final

BUSY_SHARE: Final = 0.25  # a broker that works for more of the time hardly sleeps anyway, and what comes while it does
# is done together, which takes less time
PAYS_S: Final = 0.0015  # messages that come at least so often on average are worth staying awake for,
AWAKE_S: Final = 0.003  # so long after the last
RARELY_S: Final = 0.05  # longer gaps count as this one: after a pause it soon stays awake again
NEWER: Final = 0.05  # the weight of the newest gap in the average
LOST_S: Final = 0.0002  # from look to look, and what they find, takes less: somebody else had the core, or much came
MOST_LOST: Final = 0.1  # of the time awake; more: others want the core, or the broker may not use as much of it
MOST_OUSTED: Final = 80  # times a second; more: somebody works on this core who takes little time at once, such as
# a client of this machine that the broker itself has woken up, and who waits for milliseconds each time
JUDGED_S: Final = 0.25  # after so long awake: a kernel thread that had the core once for some milliseconds is no rival
FIRST_REST_S, LONGEST_REST_S = 1.0, 60.0  # not awake for so long then; twice as long each time, as long as it goes on


def never() -> int:
    return 0


@final
class Vigil:
    """Whether the next message is worth waiting for with open eyes.

    It is while messages come often and nobody else wants the core. With nothing to do, the broker sleeps.
    `ousted` says how often so far others were given the core although the broker had not gone to sleep.
    """

    def __init__(self, always_s: float = 0.0, adaptive: bool = False, ousted: Callable[[], int] = never) -> None:
        self._always_s = always_s
        self._adaptive = adaptive
        self._ousted = ousted
        self._ousted_before = 0
        self._judged_at = 0.0
        self._last = 0.0  # turn
        self._gap_s = RARELY_S  # between turns with something to do,
        self._work_s = 0.0  # and how long they take; on average
        self._rest_until = 0.0
        self._rest_s = FIRST_REST_S
        self._awake_s = self._lost_s = 0.0  # since it was last judged

    def after_turn(self, began: float, ended: float) -> float:
        """So long to stay awake after a turn with something to do; 0: sleep."""
        if self._always_s > 0 or not self._adaptive:
            return self._always_s
        gap, self._last = min(began - self._last, RARELY_S), began
        self._gap_s += (gap - self._gap_s) * NEWER
        self._work_s += (ended - began - self._work_s) * NEWER
        pays = self._gap_s <= PAYS_S and self._work_s <= BUSY_SHARE * self._gap_s
        return AWAKE_S if pays and began >= self._rest_until else 0.0

    def rest(self, until: float) -> None:
        """Not awake before then: processes of the broker's own need what the machine has."""
        self._rest_until = max(self._rest_until, until)

    def looked(self, seconds: float, now: float) -> bool:
        """So long passed since the last look at the network; False: better sleep, others want the core."""
        if not self._adaptive:
            return True
        self._awake_s += seconds
        if seconds > LOST_S:
            self._lost_s += seconds
        if self._awake_s < JUDGED_S:
            return True
        ousted = self._ousted()
        often = ousted - self._ousted_before > MOST_OUSTED * (now - self._judged_at)
        is_ours = self._lost_s <= MOST_LOST * self._awake_s and not often
        self._awake_s = self._lost_s = 0.0
        self._ousted_before, self._judged_at = ousted, now
        if is_ours:
            self._rest_s = FIRST_REST_S
        else:
            self._rest_until = now + self._rest_s
            self._rest_s = min(2 * self._rest_s, LONGEST_REST_S)
        return is_ours
