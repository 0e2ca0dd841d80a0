"""The rhythm of the broker, on a clock of the test's own."""

import asyncio
from collections.abc import Callable
from typing import Any

from metromq.broker.turns import Turns
from metromq.protocol.session.hub import Hub
from metromq.protocol.session.settings import Settings


class Loop(asyncio.AbstractEventLoop):
    """What `Turns` needs of a loop."""

    def __init__(self) -> None:
        self.now = 100.0
        self.soon: list[Callable[..., object]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[..., object], *args: Any, **options: Any) -> Any:  # type: ignore[override]
        self.soon.append(callback)

    def turn(self) -> bool:
        """One turn of the loop; False: it would sleep now."""
        ready, self.soon = self.soon, []
        for callback in ready:
            callback()
        return bool(self.soon)


def turns(busy_poll_s: float) -> tuple[Turns, Loop]:
    loop = Loop()  # type: ignore[abstract]
    made = Turns(Hub(Settings(), None, "b"), loop, 1 << 20, busy_poll_s)
    made.now()
    return made, loop


def test_without_busy_polling_it_sleeps_after_a_turn() -> None:
    made, loop = turns(0.0)
    made.worked()
    made.worked()
    assert len(loop.soon) == 1
    assert not loop.turn()


def test_busy_polling_ends_when_nothing_comes() -> None:
    made, loop = turns(0.003)
    made.worked()
    for _ in range(5):
        assert loop.turn()
    loop.now += 0.002
    made.now()  # a message
    made.worked()
    assert loop.turn()
    assert len(loop.soon) == 1  # one poll, however many messages
    loop.now += 0.002
    assert loop.turn()
    loop.now += 0.002
    assert not loop.turn()
    made.now()
    made.worked()
    assert loop.turn()
