"""Storms in a city whose areas move, and whose brokers join and leave, keep the contract."""

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


def test_brokers_join_and_leave_in_half_of_them_and_clients_come_to_newcomers() -> None:
    histories = [history_of(seed, routing=CHANGING) for seed in range(SEEDS)]
    verbs = [{step.verb for step in history.steps} for history in histories]
    assert SEEDS // 4 < sum("join" in found for found in verbs) < SEEDS * 3 // 4
    assert sum("leave" in found for found in verbs) > SEEDS // 8
    played = [SimulatedStorm(history) for history, found in zip(histories, verbs, strict=True) if "leave" in found][:6]
    for storm in played:
        assert not storm.play().stuck
    assert any(storm.gone for storm in played), "somebody has left"
    newcomers = {name for storm in played for name in storm.names if name.startswith("b9")}
    assert any(one.broker in newcomers for storm in played for one in storm.seen.connections)
