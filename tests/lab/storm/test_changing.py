"""Storms in a city whose areas move all the time keep the contract; one that forgets former homes does not."""

import pytest

from metromq.lab.storm.contract import judge
from metromq.lab.storm.history import CHANGING, history_of, parse_history
from metromq.lab.storm.simulated import SimulatedStorm

SEEDS = 40


def breaches(seed: int) -> list[str]:
    return judge(SimulatedStorm(history_of(seed, routing=CHANGING)).play())


@pytest.mark.timeout(1200)
def test_storms_keep_the_contract_while_areas_move() -> None:
    assert {seed: found[0] for seed in range(SEEDS) if (found := breaches(seed))} == {}


def test_areas_move_in_every_such_storm() -> None:
    for seed in range(SEEDS):
        history = history_of(seed, routing=CHANGING)
        assert any(step.verb == "move" for step in history.steps)
        assert parse_history(str(history)) == history
