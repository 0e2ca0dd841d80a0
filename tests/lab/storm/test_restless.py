"""Storms in which sessions move all the time while brokers stand still and one of them dies again and again."""

from typing import Any

import pytest

from metromq.federation.host.departures import Departures
from metromq.lab.storm.command import breaches_of
from metromq.lab.storm.history import RESTLESS, history_of
from metromq.lab.storm.simulated import SimulatedStorm
from metromq.protocol.session import SeenIds

SEEDS = 16
FIND_WITHIN = 40


def test_sessions_that_move_all_the_time_keep_the_contract() -> None:
    assert {seed: found for seed in range(SEEDS) if (found := breaches_of(history_of(seed, routing=RESTLESS)))} == {}


def test_such_storms_have_many_moves_standstills_and_deaths() -> None:
    histories = [history_of(seed, routing=RESTLESS) for seed in range(40)]
    assert len({history.routing for history in histories}) == 4
    for verb, least in (("connect", 400), ("slip", 200), ("pause", 200), ("kill", 40)):
        assert sum(step.verb == verb for history in histories for step in history.steps) > least, verb
    seen = SimulatedStorm(histories[0]).play()
    movers = [one for one in seen.connections if one.client.startswith("c") and one.present]
    assert len({one.broker for one in movers}) > 2


def nothing_was_had(self: Departures, session: Any) -> SeenIds:
    return SeenIds()


@pytest.mark.timeout(3600)
def test_a_session_that_forgets_what_it_had_when_it_moves_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Departures, "seen_by", nothing_was_had)
    found = (breach for seed in range(FIND_WITHIN) for breach in breaches_of(history_of(seed, routing=RESTLESS)))
    assert any("twice" in breach for breach in found)
