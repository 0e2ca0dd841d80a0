"""Medians, the better of two settings, ratios, targets and notes."""

import json
from pathlib import Path

import pytest
from bench.generator import CPU
from bench.machine import Shares
from bench.marks import AIM, PUBLISHED, beside_flashmq
from bench.report import Line, Run, lines, show, show_marks, write
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
    write(tmp_path / "r.json", found, beside_flashmq({}), runs, ["amqtt: none"])
    document = json.loads((tmp_path / "r.json").read_text())
    assert document["lines"][0]["met"] is True
    assert document["missing"] == ["amqtt: none"]
    assert document["runs"][0]["values"] == {"rate": 25_000}


def test_every_published_row_of_flashmq_is_a_scenario_with_a_rate_beside_mosquitto() -> None:
    assert len(PUBLISHED) == len({mark.scenario for mark in PUBLISHED}) == 8
    for mark in PUBLISHED:
        assert BY_NAME[mark.scenario].unit == "messages/s"
        assert {"metromq", "mosquitto"} <= set(BY_NAME[mark.scenario].families)
        assert (" pipelined" in BY_NAME[mark.scenario].title) == (mark.pipelined == "yes")


def test_flashmqs_marks_are_reached_at_one_and_a_half_times_and_the_rest_is_not_measured(tmp_path: Path) -> None:
    marks = {mark.scenario: mark for mark in beside_flashmq({"fan-in": 1.71, "topics-50000": 13.4, "qos0-1-1": None})}
    assert marks["fan-in"].flashmq * AIM == pytest.approx(1.71)
    assert marks["fan-in"].reached is True
    assert marks["topics-50000"].reached is False  # 13.5 would do
    assert marks["qos0-1-1"].reached is None
    assert marks["payload-1000"].ours is None
    console = Console(record=True, width=170)
    show_marks(console, list(marks.values()))
    rows = {line.split("│")[1].strip(): line for line in console.export_text().splitlines() if "│" in line}
    assert "1.71" in rows["fan-in of 1,000"]
    assert "reached" in rows["fan-in of 1,000"]
    assert "missed" in rows["50,000 topics"]
    assert "not measured" in rows["1 -> 1"]
    write(tmp_path / "r.json", [], list(marks.values()), [], [])
    document = json.loads((tmp_path / "r.json").read_text())["flashmq"]
    assert document["aim"] == AIM
    assert "published" in document["source"]
    assert {row["scenario"]: row["reached"] for row in document["rows"]}["fan-in"] is True


def test_processor_time_is_a_median_too() -> None:
    runs = [
        Run("qos0-1-1", "MetroMQ", "metromq", index, {"rate": 5, CPU: spent}, 0, QUIET)
        for index, spent in enumerate([0.5, 0.25, 9.0])
    ]
    assert "CPU us/message: metromq 0.50" in _line("qos0-1-1", runs).notes
