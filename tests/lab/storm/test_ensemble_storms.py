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
def test_a_coordinator_that_hears_only_the_first_of_several_facts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    said = ZooKeeperCoordinator.facts_said
    monkeypatch.setattr(ZooKeeperCoordinator, "facts_said", lambda self, facts, now_us: said(self, facts[:1], now_us))
    assert any(found for seed in range(FIND_WITHIN) if (found := breaches(seed, "geographic")))


@pytest.mark.timeout(3600)
def test_workers_whose_requests_die_with_them_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = SimWorkers.kill

    def kill(self: SimWorkers, name: str) -> None:
        kept(self, name)
        self._requests[name].clear()

    monkeypatch.setattr(SimWorkers, "kill", kill)
    assert any(found for seed in range(FIND_WITHIN) if (found := breaches(seed, "overlay", "workers")))
