"""How long peers could not be heard: what they say then may be as old, since frames can be held up on their way."""

from typing import Final, final

BURST_US: Final = 5_000_000  # so long after a silence what a peer says may come from before


@final
class Silences:
    def __init__(self, least_us: int, now_us: int) -> None:
        """Shorter silences than `least_us` are usual."""
        self._least_us = least_us
        self._started_us = now_us
        self._heard_us: dict[str, int] = {}  # when the last frame of each peer came
        self._ended: dict[str, tuple[int, int]] = {}  # the last unusual silence: how long, and when it ended

    def heard(self, peer: str, now_us: int) -> None:
        silence_us = now_us - self._heard_us.get(peer, self._started_us)
        self._heard_us[peer] = now_us
        if silence_us >= self._least_us:
            self._ended[peer] = silence_us, now_us

    def before(self, peer: str, now_us: int) -> int:
        """How long the silence was that has just ended; 0: there was none."""
        silence_us, ended_us = self._ended.get(peer, (0, 0))
        return silence_us + now_us - ended_us if silence_us and now_us - ended_us <= BURST_US else 0
