"""The federation's bench: targets are judged by the median, and a live pair of brokers really carries the load."""

import json
from pathlib import Path

import pytest
from bench import between, moving
from bench.federation import Part, Row, Target, main, rows, write

from metromq.errors import UsageError


def _part(*targets: Target) -> Part:
    return Part("hop", "one hop", dict, targets)


def test_the_median_of_the_rounds_is_judged() -> None:
    measured = [{"rate": 100.0, "ms": 4.0}, {"rate": 300.0, "ms": 9.0}, {"rate": 200.0, "ms": 5.0}]
    found = rows(_part(Target("rate", 200, at_most=False), Target("ms", 4.9)), measured)
    assert [(row.value, row.found, row.met) for row in found] == [("rate", 200.0, True), ("ms", 5.0, False)]
    assert found[0].rounds == (100.0, 300.0, 200.0)


def test_what_has_no_target_is_told_without_a_verdict() -> None:
    [row] = rows(_part(), [{"copies": 2.0}])
    assert row.met is None


def test_the_file_has_every_round(tmp_path: Path) -> None:
    write(tmp_path / "out.json", [Row("hop", "one hop", "ms", 1.0, (1.0, 2.0), "<= 5", True)])
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["rows"][0]["rounds"] == [1.0, 2.0]


def test_an_unknown_part_is_named() -> None:
    with pytest.raises(UsageError, match="no part is named flight"):
        main(["--only", "flight"])


def test_every_message_of_a_stream_crosses_the_link() -> None:
    found = between.stream(0.2)
    assert found["lost"] == 0
    assert found["messages/s"] > 0


def test_a_moved_session_brings_all_that_waited() -> None:
    found = moving.move(queued=300)
    assert found["all moved s"] > 0
    assert found["others at the new broker, max ms"] > 0
