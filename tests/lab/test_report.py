"""The report's verdicts and its JSON form, and the `lab` command around them."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from metromq.cli.lab import command
from metromq.errors import UsageError
from metromq.lab.intervals import Sample
from metromq.lab.plots import plot
from metromq.lab.registry import EXPERIMENTS, TITLES, run_experiment
from metromq.lab.report import Points, Report, RunOptions, Trend, compare, show


def small_report() -> Report:
    return Report(
        "a/fig1",
        {"ours": [(1, 2.5), (2, 3.5)]},
        [compare("x", 10, 10.5)],
        notes=("scaled",),
        seconds=1.5,
        samples={"ours": {1: Sample(2.5, 20, 2.0, 3.0), 2: Sample(3.5, 1, -math.inf, math.inf)}},
        trends=(Trend("it grows", "more at 2 than at 1", "2.5 to 3.5", True),),
        published_points={"ours": [(2, 4.0)]},
    )


def test_a_report_has_the_json_form_that_programs_rely_on() -> None:
    assert json.loads(small_report().to_json()) == {
        "figure": "a/fig1",
        "x_label": "x",
        "y_label": "y",
        "categories": [],
        "family": {},
        "series": {"ours": [[1, 2.5], [2, 3.5]]},
        "samples": {
            "ours": [
                {"x": 1, "instances": 20, "low": 2.0, "high": 3.0},
                {"x": 2, "instances": 1, "low": None, "high": None},
            ]
        },
        "published": [{"name": "x", "published": 10, "ours": 10.5, "ratio": 1.05, "verdict": "matches"}],
        "published_points": {"ours": [[2, 4.0]]},
        "trends": [{"name": "it grows", "rule": "more at 2 than at 1", "ours": "2.5 to 3.5", "holds": True}],
        "notes": ["scaled"],
        "seconds": 1.5,
    }


def test_the_table_has_intervals_instances_trends_and_notes() -> None:
    console = Console(record=True, width=120)
    show(small_report(), console)
    text = console.export_text()
    for words in ("2.5 ±0.5", "3.5 ±?", "20", "matches", "it grows", "more at 2 than at 1", "holds", "- scaled"):
        assert words in text


def test_a_table_of_single_instances_says_so_once() -> None:
    console = Console(record=True, width=120)
    alone = {"ours": {x: Sample(y, 1, -math.inf, math.inf) for x, y in small_report().series["ours"]}}
    show(replace(small_report(), samples=alone), console)
    text = console.export_text()
    assert "one instance for each point" in text
    assert "±" not in text


@pytest.mark.parametrize("categories", [(), ("none", "first", "second thing")])
def test_a_plot_has_published_points_and_a_legend_beside_the_data(
    categories: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The legend's box and the axes' box have no point in common."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    kept: list[Any] = []
    monkeypatch.setattr(pyplot, "close", kept.append)
    plot(replace(small_report(), categories=categories), tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 5_000
    [figure] = kept
    [axes], [legend] = figure.axes, figure.legends
    assert not axes.get_window_extent().overlaps(legend.get_window_extent())
    assert [text.get_text() for text in legend.get_texts()] == ["published: ours", "ours"]
    assert [(text.get_position()[0], text.get_text()) for text in axes.texts] == [(1, "n=20"), (2, "n=1")]
    renderer = figure.canvas.get_renderer()
    assert not any(text.get_window_extent(renderer).overlaps(axes.get_window_extent()) for text in axes.texts)
    assert not any(text.get_window_extent(renderer).overlaps(axes.title.get_window_extent()) for text in axes.texts)
    assert bool(axes.patches) == bool(categories)  # bars
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert not categories or labels == list(categories)
    pyplot.switch_backend("agg")


def test_a_curve_with_fewer_points_than_others_has_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A straight line from 50 to 150 would lie where the curve is not."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    kept: list[Any] = []
    monkeypatch.setattr(pyplot, "close", kept.append)
    plot(Report("a/fig1", {"formula": [(1, 9), (2, 4), (3, 1)], "live": [(1, 9), (3, 1)]}, []), tmp_path / "plot.png")
    [figure] = kept
    assert [line.get_linestyle() for line in figure.axes[0].lines] == ["-", "None"]
    pyplot.switch_backend("agg")


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_table_shows_every_number_whole_on_a_narrow_screen(width: int) -> None:
    """As many curves and places as geographic/fig6 has, and few of both with long names."""
    places = (30.0, 50.0, 60.0, 90.0, 120.0, 150.0, 180.0, 240.0, 300.0)
    many: dict[str, Points] = {f"flood-subscriptions, way {n}": [(x, 1000.5 * x + n) for x in places] for n in range(9)}
    few: dict[str, Points] = {f"flood-subscriptions, way {n}": [(x, 1000.5 * x + n) for x in places] for n in range(5)}
    for series in (many, few):
        console = Console(record=True, width=width)
        show(Report("a/fig6", series, [], x_label="seconds between a subscriber's changes"), console)
        text = console.export_text()
        assert "\u2026" not in text
        for name, points in series.items():
            assert name.split()[-1] in text
            assert all(f"{y:,.1f}" in text for _, y in points)
        assert max(map(len, text.splitlines())) <= width


def test_millions_are_written_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    kept: list[Any] = []
    monkeypatch.setattr(pyplot, "close", kept.append)
    plot(Report("a/fig1", {"ours": [(1, 4e6), (2, 0.0)]}, []), tmp_path / "plot.png")
    axis = kept[0].axes[0].yaxis
    assert axis.get_offset_text().get_text() == ""
    assert "4,000,000" in [label.get_text() for label in axis.get_ticklabels()]
    pyplot.switch_backend("agg")


def test_a_plot_of_many_long_names_shows_them_whole_and_each_in_its_colour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as geographic/fig5 has."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    kept: list[Any] = []
    monkeypatch.setattr(pyplot, "close", kept.append)
    series = {f"flood-subscriptions, 16 brokers, number {n}": [(0.0, 1.0)] for n in range(15)}
    plot(Report("a/fig1", series, [], categories=("one",)), tmp_path / "plot.png")
    [figure] = kept
    [axes], [legend] = figure.axes, figure.legends
    box, page = legend.get_window_extent(), figure.bbox
    assert page.x0 <= box.x0 < box.x1 <= page.x1
    assert len({bar.get_facecolor() for bar in axes.patches}) == 15
    pyplot.switch_backend("agg")


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
