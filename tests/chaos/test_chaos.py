"""Live storms: the seeds below, and steady traffic; `make chaos` plays more of both."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from metromq.lab.storm.contract import judge
from metromq.lab.storm.history import RESTLESS, History, history_of, parse_history
from tests.chaos.brokers import FAKETIME, TICK_S, CityTime
from tests.chaos.ensemble import is_there as has_servers
from tests.chaos.live import LiveStorm
from tests.chaos.playing import STEPS, live_history, play_live
from tests.chaos.steady import storm
from tests.lab.storm.test_storm import kinds_of

SEEDS = (6, 7, 8, 27, 36)  # together they have everything that a storm can have live
OVERLAYS = (("embedded", 1), ("workers", 239))  # coordination and seed
SHORT = 40  # steps of these
RESTLESS_SEED = 2  # sessions move about, brokers stand still, and one dies
MADE = {
    *("kill", "tear", "revise", "pause", "cut", "hold", "slow", "split", "slip keeps", "slip clean", "vanish", "clear"),
    *("clock fast", "clock slow", "MQTT 4", "MQTT 5", "at another broker", "will after 0 s", "will after 2 s"),
    *("retain at QoS 2", "shared at QoS 2", "wildcard at QoS 2", "plain at QoS 2"),
}


def test_the_seeds_have_every_kind_of_fault() -> None:
    assert {kind for seed in SEEDS for kind in kinds_of(history_of(seed, steps=STEPS))} >= MADE


def overlays() -> list[History]:
    """Short storms; those on an ensemble only where there is one."""
    kinds = [kind for kind in OVERLAYS if kind[0] == "embedded" or has_servers()]
    return [live_history(seed, SHORT, "overlay", coordination) for coordination, seed in kinds]


def test_the_storms_on_overlays_have_their_own_faults() -> None:
    made = {
        step.verb
        for coordination, seed in OVERLAYS
        for step in live_history(seed, SHORT, "overlay", coordination).steps
    }
    assert made >= {"topple", "restore", "fall", "rise", "fell", "hire", "away", "back", "unreach"}


def test_what_happens_while_the_city_stands_still_has_an_order() -> None:
    """A message of one connection came in the moment in which the next one was opened (seed 70228)."""
    clock = [100.0]
    city = CityTime(lambda: clock[0])
    clock[0] += 5.0
    told = [city.now() for _ in range(3)]
    assert told == sorted(set(told))
    assert told[0] == TICK_S
    assert told[-1] < TICK_S + 0.001, "it stands still all the same"
    city.tick()
    clock[0] += 0.05
    assert city.now() == pytest.approx(1.5 * TICK_S)


@pytest.mark.timeout(900)
@pytest.mark.skipif(FAKETIME is None, reason="needs libfaketime for wrong clocks: apt install faketime")
def test_live_storms_keep_the_contract() -> None:
    histories = [*map(live_history, SEEDS), *overlays(), live_history(RESTLESS_SEED, routing=RESTLESS)]
    played = play_live(histories, len(histories))  # all at a time: they wait more than they work
    assert {(history.routing, history.seed): found for history, found in played if found} == {}


FORGETFUL = """
storm 0 geographic clocks 0 0 0
0.0 connect c1 #0 keeps
0.0 connect c2 #1 keeps
0.5 subscribe c1 plain/# 2
3.0 disconnect c1
3.2 publish c2 plain/d m1 2 live
5.0 kill #0
5.5 start #0
"""


@pytest.mark.timeout(300)
def test_a_broker_that_stores_nothing_is_found(tmp_path: Path) -> None:
    def breaches(durability: str) -> list[str]:
        data = tmp_path / durability
        data.mkdir()
        return judge(LiveStorm(parse_history(FORGETFUL), data, durability).play())

    with ThreadPoolExecutor(2) as both:  # at a time: they wait more than they work
        kept, lost = both.map(breaches, ("os", "memory"))
    assert kept == []
    assert [breach.split(":")[0] for breach in lost] == ["lost"]


@pytest.mark.timeout(900)
def test_every_acknowledged_message_arrives(tmp_path: Path) -> None:
    verdict = storm(tmp_path, float(os.environ.get("METROMQ_CHAOS", "15")), seed=7)
    assert not verdict.problems, "\n".join(verdict.problems[:10])
    assert verdict.acknowledged[1] > 0
    assert verdict.acknowledged[2] > 0
    assert verdict.faults
