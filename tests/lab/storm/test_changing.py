"""Storms in a city whose areas move, whose brokers join and leave, and whose routing changes, keep the contract."""

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
    played = [SimulatedStorm(history) for history, found in zip(histories, verbs, strict=True) if "leave" in found][:12]
    for storm in played:
        assert not storm.play().stuck
    assert any(storm.gone for storm in played), "somebody has left"
    newcomers = {name for storm in played for name in storm.names if name.startswith("b9")}
    assert any(one.broker in newcomers for storm in played for one in storm.seen.connections)


def test_the_routing_changes_in_half_of_them_and_these_changes_are_seen_through() -> None:
    histories = [history_of(seed, routing=CHANGING) for seed in range(SEEDS)]
    routed = [history for history in histories if any(step.verb == "route" for step in history.steps)]
    assert SEEDS // 4 < len(routed) < SEEDS * 3 // 4
    played = [SimulatedStorm(history) for history in routed[:6]]
    for storm in played:
        assert not storm.play().stuck
    ended = [host.city for storm in played for broker in storm.city.brokers.values() if (host := broker.host)]
    assert {city.beside for city in ended} == {""}
    assert len({city.routing for city in ended}) > 1
    assert any(storm.seen.reroutes for storm in played)


ROUTED = """storm 1 geographic clocks 0 0 0
0 connect c0 #0 keeps
0 connect c1 #1 keeps
0.5 subscribe c1 plain/d 2
3 route central #1
3.05 publish c0 plain/d m1 2 live
3.15 kill #1
5 start #1
20 publish c0 plain/d m2 2 live
"""


def test_a_change_of_the_routing_whose_broker_is_killed_is_made_again_at_the_end() -> None:
    storm = SimulatedStorm(parse_history(ROUTED))
    assert judge(storm.play()) == []
    assert {broker.host.city.routing for broker in storm.city.brokers.values() if broker.host} == {"central"}
    assert {broker.host.city.beside for broker in storm.city.brokers.values() if broker.host} == {""}
