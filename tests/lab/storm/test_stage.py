"""When a broker counts as out of another's reach: what the judge excuses then must end as soon as it can be heard."""

import pytest

from metromq.lab.storm.history import History, Step
from metromq.lab.storm.simulated import SimulatedStorm

STARTED = 5.0


def is_apart(at: float, slow: tuple[str, ...], down: str = "#2") -> bool:
    """Whether a client that goes from #0 to #2 may find that #2 has not heard #0, since one of the brokers was down."""
    steps = [
        Step(0.0, "connect", ("c", "#0", "keeps")),
        Step(1.0, "kill", (down,)),
        *(Step(2.0 + number, "slow", tuple(words.split())) for number, words in enumerate(slow)),
        Step(STARTED, "start", (down,)),
        Step(STARTED + at, "connect", ("c", "#2", "keeps")),
    ]
    seen = SimulatedStorm(History(0, "geographic", 3, (0.0, 0.0, 0.0), tuple(steps))).play()
    return [one for one in seen.connections if one.client == "c"][1].apart


@pytest.mark.parametrize(
    ("at", "slow", "expected"),
    [
        (2.9, (), True),
        (3.1, (), False),
        (5.9, ("#2 #0 1",), True),
        (5.9, ("#0 #2 1",), True),
        (6.1, ("#2 #0 1",), False),
        (6.1, ("#2 #0 1", "#0 #2 0.3"), True),
        (7.1, ("#2 #0 1", "#0 #2 0.3"), False),
        (3.1, ("#1 #0 1", "#2 #1 1"), False),
        (3.1, ("#2 #0 1", "#2 #0 0"), False),
    ],
    ids=[
        "just back",
        "back",
        "back by a slow link",
        "that is slow the other way",
        "long enough",
        "slow both ways",
        "long enough for both",
        "other links are slow",
        "not slow any more",
    ],
)
def test_a_broker_that_is_back_is_apart_until_links_may_be_up(at: float, slow: tuple[str, ...], expected: bool) -> None:
    assert is_apart(at, slow) is expected


@pytest.mark.parametrize(("at", "expected"), [(2.9, True), (3.1, False)])
def test_a_slow_link_that_was_not_lost_need_not_come_up(at: float, expected: bool) -> None:
    assert is_apart(at, ("#2 #0 1",), down="#1") is expected
