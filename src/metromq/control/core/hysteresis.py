"""Keeps topics from flapping: a wish must last for several looks, and a filter that has moved stays for a while."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Patience:
    looks: int = 3  # in a row with the same wish
    dwell_s: float = 600.0  # after a move


class Hysteresis:
    """Remembers for how many looks each wish has lasted; a manager that restarts begins to count anew."""

    def __init__(self, patience: Patience) -> None:
        self.patience = patience
        self._wishes: dict[str, tuple[str, int]] = {}

    def settle(
        self, present: Mapping[str, str], wanted: Mapping[str, str], moved: Mapping[str, float], now: float
    ) -> dict[str, str]:
        """The wishes that may come true now. What `present` has and `wanted` has not, wishes for nobody ("")."""
        wishes = {name: wanted.get(name, "") for name in (*present, *wanted)}
        different = {name: wish for name, wish in wishes.items() if present.get(name, "") != wish}
        self._wishes = {name: (wish, self._lasted(name, wish)) for name, wish in different.items()}
        return {
            name: wish
            for name, (wish, looks) in self._wishes.items()
            if looks >= self.patience.looks and now - moved.get(name, float("-inf")) >= self.patience.dwell_s
        }

    def _lasted(self, name: str, wish: str) -> int:
        before, looks = self._wishes.get(name, ("", 0))
        return looks + 1 if before == wish else 1

    def waiting(self) -> Mapping[str, tuple[str, int]]:
        """Every wish that has not come true, and for how many looks it has lasted."""
        return dict(self._wishes)
