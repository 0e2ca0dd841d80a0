"""The report's verdicts and its JSON form, and the `lab` command around them."""

import json

import pytest
from click.testing import CliRunner

from metromq.cli.lab import command
from metromq.errors import UsageError
from metromq.lab.registry import EXPERIMENTS, TITLES, run_experiment
from metromq.lab.report import Report, RunOptions, compare


def test_a_report_has_the_json_form_that_programs_rely_on() -> None:
    report = Report("a/fig1", {"ours": [(1, 2.5)]}, [compare("x", 10, 10.5)], notes=("for people",), seconds=1.5)
    assert json.loads(report.to_json()) == {
        "figure": "a/fig1",
        "series": {"ours": [[1, 2.5]]},
        "published": [{"name": "x", "published": 10, "ours": 10.5, "ratio": 1.05, "verdict": "matches"}],
        "seconds": 1.5,
    }


@pytest.mark.parametrize(
    ("published", "ours", "at_most", "verdict"),
    [
        (20, 21, False, "matches"),
        (20, 15, False, "near"),
        (20, 2, False, "differs"),
        (5, 0.5, True, "matches"),
        (5, 9, True, "differs"),
        (0, 0, False, "matches"),
        (0, 1, False, "differs"),
    ],
)
def test_verdicts(published: float, ours: float, at_most: bool, verdict: str) -> None:
    assert compare("x", published, ours, at_most=at_most).verdict == verdict


def test_every_experiment_has_a_title_and_is_listed() -> None:
    assert set(TITLES) == set(EXPERIMENTS)
    output = CliRunner().invoke(command, ["list"]).output
    assert all(name in output for name in EXPERIMENTS)


def test_an_unknown_experiment_says_where_the_names_are() -> None:
    with pytest.raises(UsageError, match="lab list"):
        run_experiment("delegation/fig99", RunOptions())
