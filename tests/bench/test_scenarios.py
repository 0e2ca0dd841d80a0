"""Every scenario runs against a real broker, loses nothing, and returns the values that its targets speak of."""

import dataclasses
import shutil
from pathlib import Path

import pytest
from bench import peers, scenarios
from bench.machine import Watch
from bench.peers import Peer, running
from bench.scenarios import SCENARIOS, Scenario

PURE = Peer("MetroMQ pure", "pure", peers._metromq(Path(peers.__file__).parent.parent / "src"))
QUICK_S = 0.05


@pytest.mark.parametrize("scenario", [s for s in SCENARIOS if "1000" not in s.name], ids=lambda s: s.name)
def test_a_scenario_measures(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenarios, "IDLE_CLIENTS", 50)
    monkeypatch.setattr(scenarios, "MANY_CLIENTS", 50)
    with running(PURE, scenario.durability) as broker:
        watch = Watch(broker.pid)
        measured = scenario.run(broker, QUICK_S)
        shares = watch.stop()
    assert measured.lost == 0
    assert set(scenario.targets) <= set(measured.values)
    if scenario.name != "idle":  # fifty clients may fit into memory that the broker had already
        assert all(value > 0 for value in measured.values.values())
    assert shares.broker >= 0
    assert shares.generator > 0


def test_mosquitto_is_driven_the_same_way() -> None:
    if shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin") is None:
        pytest.skip("mosquitto is not installed")
    by_name = {scenario.name: scenario for scenario in SCENARIOS}
    with running(Peer("mosquitto", "mosquitto", peers._mosquitto(True))) as broker:
        for name in ("qos0-1-1", "qos1-10-10", "v5-1-1"):
            measured = by_name[name].run(broker, QUICK_S)
            assert measured.lost == 0
            assert measured.values["rate"] > 0


def test_names_are_unique() -> None:
    assert len({scenario.name for scenario in SCENARIOS}) == len(SCENARIOS)
    for scenario in SCENARIOS:
        for target in scenario.targets.values():
            assert dataclasses.is_dataclass(target)
            assert target.relative_to in ("", "mosquitto", *(s.name for s in SCENARIOS))
