"""Every scenario runs against a real broker, loses nothing, and returns the values that its targets speak of."""

import dataclasses
from pathlib import Path

import pytest
from bench import peers, scenarios, standing
from bench.broker import measure
from bench.peers import Peer
from bench.scenarios import SCENARIOS, Scenario

from tests.peers import require

SOURCES = Path(peers.__file__).parent.parent / "src"
PURE = Peer("MetroMQ pure", "pure", peers._metromq(SOURCES))
BUSY = Peer("MetroMQ, busy poll", "busy poll", peers._metromq(SOURCES, {"METROMQ_BUSY_POLL_S": "0.003"}))
QUICK_S = 0.05


@pytest.mark.parametrize(
    "scenario",
    [s for s in SCENARIOS if s.name == "payload-1000" or ("1000" not in s.name and "50000" not in s.name)],
    ids=lambda s: s.name,
)
def test_a_scenario_measures(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "IDLE_CLIENTS", 50)
    monkeypatch.setattr(scenarios, "MANY_CLIENTS", 50)
    monkeypatch.setattr(standing, "FILTER_CLIENTS", 50)
    monkeypatch.setattr(standing, "MATCHED", 500)
    peers = [PURE, BUSY] if scenario.probe is not None else [PURE]
    runs = measure(scenario, peers, 0, QUICK_S)
    assert [run.peer for run in runs] == [peer.name for peer in peers]
    for run in runs:
        assert run.lost == 0
        assert set(scenario.targets) <= set(run.values)
        if scenario.name not in ("idle", "filters"):  # fifty clients may fit into memory that the broker had already
            assert all(value > 0 for value in run.values.values())
        assert run.shares.broker >= 0
        assert run.shares.generator > 0


def test_mosquitto_is_driven_the_same_way() -> None:
    require("mosquitto")
    by_name = {scenario.name: scenario for scenario in SCENARIOS}
    mosquitto = Peer("mosquitto", "mosquitto", peers._mosquitto(True))
    for name in ("qos0-1-1", "qos1-10-10", "v5-1-1", "payload-1000"):
        [run] = measure(by_name[name], [mosquitto], 0, QUICK_S)
        assert run.lost == 0
        assert run.values["rate"] > 0


def test_names_are_unique() -> None:
    assert len({scenario.name for scenario in SCENARIOS}) == len(SCENARIOS)
    for scenario in SCENARIOS:
        for target in scenario.targets.values():
            assert dataclasses.is_dataclass(target)
            assert target.relative_to in ("", "mosquitto", *(s.name for s in SCENARIOS))
