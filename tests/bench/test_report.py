"""Medians, the better of two settings, ratios, targets and notes."""

import json
from pathlib import Path

from bench.machine import Shares
from bench.report import Line, Run, lines, show, write
from bench.scenarios import SCENARIOS
from rich.console import Console

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
QUIET = Shares(0.9, 0.5, 0.0)


def _runs(scenario: str, peer: str, family: str, values: list[float], value: str = "rate", lost: int = 0) -> list[Run]:
    return [Run(scenario, peer, family, index, {value: one}, lost, QUIET) for index, one in enumerate(values)]


def _line(name: str, runs: list[Run]) -> Line:
    (line,) = lines([BY_NAME[name]], runs)
    return line


def test_medians_and_the_better_of_mosquittos_settings() -> None:
    runs = _runs("qos0-1-1", "MetroMQ", "metromq", [900, 100, 800])
    runs += _runs("qos0-1-1", "mosquitto", "mosquitto", [10, 90, 50])
    runs += _runs("qos0-1-1", "mosquitto, nodelay", "mosquitto", [100, 100, 100])
    line = _line("qos0-1-1", runs)
    assert line.medians == {"metromq": 800, "mosquitto": 100}
    assert line.ratio == 8
    assert line.met is True
    assert _line("qos0-1-1", runs + _runs("qos0-1-1", "MetroMQ", "metromq", [1, 1, 1])).met is False


def test_less_latency_is_better() -> None:
    runs = _runs("latency-1000", "MetroMQ", "metromq", [20], "p50")
    runs += _runs("latency-1000", "mosquitto", "mosquitto", [30], "p50")
    runs += _runs("latency-1000", "mosquitto, nodelay", "mosquitto", [19], "p50")
    line = _line("latency-1000", runs)
    assert line.medians["mosquitto"] == 19
    assert line.met is False


def test_mqtt_5_is_judged_by_our_own_311() -> None:
    runs = _runs("qos0-1-1", "MetroMQ", "metromq", [100]) + _runs("v5-1-1", "MetroMQ", "metromq", [76])
    found = lines([BY_NAME["qos0-1-1"], BY_NAME["v5-1-1"]], runs)
    assert [line.met for line in found] == [None, True]  # without mosquitto there is no ratio
    assert "76%" in found[1].target


def test_an_absolute_target_needs_no_peer() -> None:
    assert _line("idle", _runs("idle", "MetroMQ", "metromq", [2500], "bytes")).met is True
    assert _line("idle", _runs("idle", "MetroMQ", "metromq", [4097], "bytes")).met is False


def test_losses_a_busy_machine_and_a_busy_generator_are_noted() -> None:
    runs = _runs("qos0-1-1", "mosquitto", "mosquitto", [5, 5], lost=700)
    runs.append(Run("qos0-1-1", "MetroMQ", "metromq", 0, {"rate": 5}, 0, Shares(0.5, 0.99, 0.4)))
    notes = " ".join(_line("qos0-1-1", runs).notes)
    assert "mosquitto lost 1,400" in notes
    assert "generator-bound" in notes
    assert "1/3 on a busy machine" in notes


def test_table_and_json_say_the_same(tmp_path: Path) -> None:
    runs = _runs("fsync", "MetroMQ", "metromq", [25_000])
    found = lines([BY_NAME["fsync"]], runs)
    console = Console(record=True, width=170)
    show(console, found)
    text = console.export_text()
    assert "25,000" in text
    assert "met" in text
    write(tmp_path / "r.json", found, runs, ["amqtt: none"])
    document = json.loads((tmp_path / "r.json").read_text())
    assert document["lines"][0]["met"] is True
    assert document["missing"] == ["amqtt: none"]
    assert document["runs"][0]["values"] == {"rate": 25_000}
