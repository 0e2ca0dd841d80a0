"""What is said of brokers that a broker does not greet itself: who is lost, who is doubted, who is back; no I/O.

Whoever keeps company with a broker finds out that it is lost, or back, and says so. Everybody passes such news on to
its companions once, so it costs a broker a few frames, and a quiet city nothing. The broker itself has the last word:
what is said of it carries the number of its last sign of life, and it answers with a greater one.

Greetings carry a digest of who is lost. Where two differ, they tell each other, and what comes that way is only
doubted at first: whoever was away may have found half of the city lost, which is there all the same and says so.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, final

ALIVE: Final = 0
DOUBTED: Final = 1
LOST: Final = 2

DIGEST_MASK: Final = (1 << 62) - 1


@dataclass(frozen=True, slots=True)
class Rumour:
    """`incarnation` and `count` are those of the broker's last sign of life that is known where this comes from."""

    broker: str
    incarnation: int
    count: int
    state: int

    @property
    def version(self) -> tuple[int, int, int]:
        return self.incarnation, self.count, self.state


@final
class Rumours:
    """What one broker has heard of the others. Times are microseconds of a monotonic clock."""

    def __init__(self) -> None:
        self._latest: dict[str, Rumour] = {}  # of whom nothing was heard is taken for alive
        self._doubted_us: dict[str, int] = {}  # until when they may answer
        self._digest = 0
        self.lost: set[str] = set()

    def is_lost(self, broker: str) -> bool:
        return broker in self.lost

    def of(self, broker: str) -> Rumour:
        return self._latest.get(broker) or Rumour(broker, 0, 0, ALIVE)

    def digest(self) -> int:
        """Of who is lost; brokers that agree on that have equal ones."""
        return self._digest

    def all_lost(self) -> tuple[Rumour, ...]:
        return tuple(self._latest[broker] for broker in sorted(self.lost))

    def hear(self, rumour: Rumour, doubted_until_us: int) -> bool:
        """Whether it is news, to be passed on. Who is doubted is taken for lost at `doubted_until_us`."""
        if rumour.version <= self.of(rumour.broker).version:
            return False
        self._latest[rumour.broker] = rumour
        self._doubted_us.pop(rumour.broker, None)
        if rumour.state == DOUBTED:
            if rumour.broker not in self.lost:
                self._doubted_us[rumour.broker] = doubted_until_us
        else:
            self._set_lost(rumour.broker, rumour.state == LOST)
        return True

    def run_out(self, now_us: int) -> tuple[str, ...]:
        """Who was doubted and has not answered in time: they are lost now."""
        done = tuple(broker for broker, due_us in self._doubted_us.items() if now_us >= due_us)
        for broker in done:
            del self._doubted_us[broker]
            last = self._latest[broker]
            self._latest[broker] = Rumour(broker, last.incarnation, last.count, LOST)
            self._set_lost(broker, True)
        return done

    def next_us(self) -> int | None:
        """When somebody's time to answer is over; None: nobody is doubted."""
        return min(self._doubted_us.values(), default=None)

    def forget(self, members: Iterable[str]) -> None:
        """Only these belong to the city."""
        kept = set(members)
        for broker in [broker for broker in self._latest if broker not in kept]:
            self._set_lost(broker, False)
            del self._latest[broker]
            self._doubted_us.pop(broker, None)

    def _set_lost(self, broker: str, is_lost: bool) -> None:
        if is_lost == (broker in self.lost):
            return
        (self.lost.add if is_lost else self.lost.discard)(broker)
        weight = _weight(broker)
        self._digest = (self._digest + (weight if is_lost else -weight)) & DIGEST_MASK


@lru_cache(maxsize=65536)
def _weight(broker: str) -> int:
    return int.from_bytes(hashlib.blake2b(broker.encode(), digest_size=8).digest(), "big") & DIGEST_MASK
