"""Makes a failing history small: drops whatever is not needed for the same rule to fail."""

import dataclasses
from collections.abc import Callable, Iterator

from metromq.lab.storm.history import History, Step

Fails = Callable[[History], bool]


def shrunk(history: History, fails: Fails, tries: int = 600) -> History:
    """The smallest history found within so many plays for which `fails` holds; it holds for the given one."""
    left = [tries]

    def still_fails(smaller: History) -> bool:
        left[0] -= 1
        return left[0] >= 0 and fails(smaller)

    before: History | None = None
    while before != history and left[0] > 0:
        before = history
        for smaller in (_without_people, _without_runs, _with_right_clocks, _with_whole_seconds):
            history = smaller(history, still_fails)
    return history


def _with(history: History, steps: list[Step]) -> History:
    return dataclasses.replace(history, steps=tuple(steps))


def _without_people(history: History, fails: Fails) -> History:
    """Drops clients, and all that happens to brokers, one whole name at a time."""
    for name in sorted({step.words[0] for step in history.steps if step.words}):
        fewer = _with(history, [step for step in history.steps if step.words[:1] != (name,)])
        if len(fewer.steps) < len(history.steps) and fails(fewer):
            history = fewer
    return history


def _without_runs(history: History, fails: Fails) -> History:
    """Delta debugging: drops runs of steps, long ones first."""
    size = max(1, len(history.steps) // 2)
    while size:
        at = 0
        while at < len(history.steps):
            fewer = _with(history, [*history.steps[:at], *history.steps[at + size :]])
            if fails(fewer):
                history = fewer
            else:
                at += size
        size //= 2
    return history


def _with_right_clocks(history: History, fails: Fails) -> History:
    right = dataclasses.replace(history, skews_s=(0.0,) * history.brokers)
    return right if right != history and fails(right) else history


def _with_whole_seconds(history: History, fails: Fails) -> History:
    """One step a second reads better than milliseconds, where the moment does not matter."""
    for steps in _slower(history):
        if steps != list(history.steps) and fails(_with(history, steps)):
            return _with(history, steps)
    return history


def _slower(history: History) -> Iterator[list[Step]]:
    for pause_s in (2.0, 1.0):
        yield [dataclasses.replace(step, at=pause_s * number) for number, step in enumerate(history.steps)]
