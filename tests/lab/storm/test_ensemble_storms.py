"""Storms on a simulated ensemble keep the contract; a coordinator with a planted bug does not."""

from collections import Counter

import pytest

from metromq.federation.coordination.zookeeper import ZooKeeperCoordinator
from metromq.lab.sim.sim_workers import SimWorkers
from metromq.lab.storm.contract import judge
from metromq.lab.storm.history import History, history_of, parse_history
from metromq.lab.storm.simulated import SimulatedStorm

SEEDS = 8
FIND_WITHIN = 40


def breaches(seed: int, routing: str, coordination: str = "zookeeper") -> list[str]:
    return judge(SimulatedStorm(history_of(seed, routing=routing, coordination=coordination)).play())


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("routing", "coordination"), [("geographic", "zookeeper"), ("overlay", "zookeeper"), ("overlay", "workers")]
)
def test_storms_on_an_ensemble_keep_the_contract(routing: str, coordination: str) -> None:
    assert {seed: found[0] for seed in range(SEEDS) if (found := breaches(seed, routing, coordination))} == {}


def test_every_trouble_of_an_ensemble_is_generated() -> None:
    verbs = Counter(step.verb for seed in range(40) for step in history_of(seed, coordination="workers").steps)
    assert {"away", "back", "unreach", "expire", "lag", "fell", "hire"} <= verbs.keys()


def test_a_storm_on_an_ensemble_is_read_as_it_is_printed() -> None:
    history = history_of(3, routing="overlay", coordination="workers")
    found = parse_history(str(history))
    assert isinstance(found, History)
    assert (found.coordination, found.routing, found.steps) == ("workers", "overlay", history.steps)


@pytest.mark.timeout(3600)
def test_a_coordinator_that_forgets_what_was_not_answered_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ZooKeeperCoordinator, "failed", lambda self, facts: None)
    monkeypatch.setattr(ZooKeeperCoordinator, "connected", _connected_without_asking_again)
    assert any(found for seed in range(FIND_WITHIN) if (found := breaches(seed, "overlay")))


def _connected_without_asking_again(self: ZooKeeperCoordinator, now_us: int) -> list[object]:
    self._is_connected = True
    self._judges_from_us = now_us + self._grace_us()
    return []


@pytest.mark.timeout(3600)
def test_workers_whose_requests_die_with_them_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = SimWorkers.kill

    def kill(self: SimWorkers, name: str) -> None:
        kept(self, name)
        self._requests[name].clear()

    monkeypatch.setattr(SimWorkers, "kill", kill)
    assert any(found for seed in range(FIND_WITHIN) if (found := breaches(seed, "overlay", "workers")))
