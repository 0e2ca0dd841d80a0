"""When to start again what should run and does not: the first time soon, then later each time."""

from collections.abc import Iterable
from dataclasses import dataclass

FIRST_S = 0.5
MOST_S = 30.0
STEADY_S = 30.0  # who ran this long gets the first delay again


@dataclass(slots=True)
class _Life:
    since: float
    delay_s: float = FIRST_S
    not_before: float = 0.0
    is_up: bool = True
    starts: int = 0


class Supervision:
    """Tell it what should run and what does; it says what to start now."""

    def __init__(self) -> None:
        self._lives: dict[str, _Life] = {}

    def look(self, wanted: Iterable[str], running: Iterable[str], now: float) -> list[str]:
        names, up = set(wanted), set(running)
        for name in self._lives.keys() - names:
            del self._lives[name]
        due: list[str] = []
        for name in sorted(names):
            life = self._lives.setdefault(name, _Life(now))
            if name in up:
                if not life.is_up:
                    life.since, life.is_up = now, True
                continue
            if life.is_up:
                life.is_up = False
                if now - life.since >= STEADY_S:
                    life.delay_s = FIRST_S
                life.not_before = now + life.delay_s
                life.delay_s = min(life.delay_s * 2, MOST_S)
            if now >= life.not_before:
                due.append(name)
                life.since, life.is_up = now, True  # until the next look says otherwise
                life.starts += 1
        return due

    def starts(self, name: str) -> int:
        """How often it was started again."""
        life = self._lives.get(name)
        return life.starts if life is not None else 0
