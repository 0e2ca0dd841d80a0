"""Replays together read no faster than they may, so that live traffic does not suffer."""

import asyncio
import time

import pytest

from metromq.broker.replaying import worker


class Clock:
    """Time that passes only where somebody waits for it."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(("rate", "seconds"), [(1 << 20, 64.0), (8 << 20, 8.0), (0, 0.0)])
def test_a_rate_is_kept(rate: int, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    monkeypatch.setattr(asyncio, "sleep", clock.sleep)
    pace = worker.Pace(rate)

    def drive(size: int) -> None:
        """To its end, without an event loop whose clock has been taken away."""
        work = pace.spent(size)
        with pytest.raises(StopIteration):
            work.send(None)

    clock.now += 60.0  # who has waited for long may not read all the more afterwards
    begun = clock.now
    for _ in range(64):
        drive(1 << 20)
    assert seconds - 0.2 <= clock.now - begun <= seconds


def test_the_real_one_waits() -> None:
    asyncio.run(worker.Pace(1 << 30).spent(1))
