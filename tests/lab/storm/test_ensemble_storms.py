"""Storms on a simulated ensemble keep the contract; a coordinator with a planted bug does not."""

from collections import Counter

import pytest

from metromq.federation.coordination.zookeeper import ZooKeeperCoordinator
from metromq.federation.routing.overlay import OverlayWays
from metromq.lab.storm.contract import judge
from metromq.lab.storm.history import History, history_of, parse_history
from metromq.lab.storm.simulated import SimulatedStorm

SEEDS = 5
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


def test_what_a_dead_worker_was_asked_another_answers() -> None:
    city = SimulatedStorm(history_of(2, routing="overlay", coordination="workers")).city  # topics are kept for an hour
    assert city.workers is not None
    assert city.ensemble is not None
    city.start()
    city.run(1.0)
    victim = city.workers.worker_of("b00")
    city.workers.kill(victim)
    city.connect("c", "b00").publish("new/topic", "x", 1)
    city.run(0.5)
    assert ("publisher", "b00/new/topic") not in city.ensemble.facts, "nobody has answered"
    city.run(5.0)
    assert city.ensemble.facts["publisher", "b00/new/topic"].owner == "b00"
    assert city.workers.worker_of("b00") != victim
    city.settle()


def test_topics_are_given_back_in_storms(monkeypatch: pytest.MonkeyPatch) -> None:
    listens, given_back = OverlayWays.listens, Counter[int]()

    def counted(self: OverlayWays, now_us: int) -> tuple[str, ...]:
        before = len(self._joined)
        heard = listens(self, now_us)
        given_back[seed] += before - len(self._joined)
        return heard

    monkeypatch.setattr(OverlayWays, "listens", counted)
    for seed in (0, 1):
        assert breaches(seed, "overlay", "embedded") == []
    assert given_back[1] > 10
    assert not given_back[0], "every second storm has the hour that a city has if nothing is set"
