"""Figs. 17-22 with few instances: their shape, their seeds, and the paper's own claims about the methods."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from metromq.errors import UsageError
from metromq.lab.delegation import sweep
from metromq.lab.delegation.figures import FIGURES, PRINTED_21
from metromq.lab.delegation.instances import Family, draw, mesh
from metromq.lab.delegation.placement import place
from metromq.lab.delegation.sweep import Fit
from metromq.lab.intervals import Sample
from metromq.lab.registry import run_experiment
from metromq.lab.report import RunOptions
from metromq.planning.arrays import compile_arrays
from metromq.planning.baselines import greedy_places
from metromq.planning.model import Device, Problem, Service, Topic


@pytest.mark.parametrize("figure", ["fig17", "fig20"])
def test_power_grows_and_the_optimum_is_the_least(figure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metromq.lab.delegation.placement.SOLVE_LIMIT_S", 0.5)  # unproven plans will do here
    report = run_experiment(f"delegation/{figure}", RunOptions(instances=1))
    best, greedy, blind = (dict(report.series[name]) for name in ("optimal", "greedy", "random"))
    for x in best:
        assert best[x] <= greedy[x] * (1 + 1e-3)
        assert best[x] <= blind[x] * (1 + 1e-3)
    assert best[max(best)] > best[min(best)]
    found = json.loads(report.to_json())
    assert any("scaled: network power 4.11" in note for note in found["notes"])
    for method in ("optimal", "greedy", "random"):
        assert [point["instances"] for point in found["samples"][method]] == [1] * len(best)
    assert not report.published  # these figures print no number
    assert [trend.rule for trend in report.trends if not trend.rule] == []


def test_failures_are_rarest_for_the_optimum() -> None:
    report = run_experiment("delegation/fig21", RunOptions(instances=5))
    curves = {name: dict(points) for name, points in report.series.items()}
    for ratio in curves["optimal"]:
        assert curves["optimal"][ratio] <= curves["greedy"][ratio]
    assert curves["random"][95] > curves["random"][50]
    assert [(row.name.split(",")[0], row.published) for row in report.published] == [("random", 70), ("greedy", 40)]
    assert any("at most 10 %" in trend.rule for trend in report.trends)  # "low" is a word, not a number
    assert report.published_points == {"random": [(90.0, 70.0)], "greedy": [(90.0, 40.0)]}


def test_an_instance_is_the_seeds() -> None:
    family = Family(workload_ratio=0.3)
    one, two = (place(family, np.random.default_rng(7)) for _ in range(2))
    assert one is not None
    assert two is not None
    assert one.optimal.power_mw == two.optimal.power_mw
    assert one.random[0].power_mw == two.random[0].power_mw


def test_instances_have_the_printed_parameters() -> None:
    problem = draw(Family(), np.random.default_rng(1))
    assert all(20_000 <= device.capacity_workload <= 40_000 for device in problem.devices)
    assert all(0.13 <= device.mw_per_workload <= 0.25 for device in problem.devices)
    assert all(1 <= service.user_workload_per_mbps <= 50 for service in problem.services)
    tight = compile_arrays(draw(Family(workload_ratio=0.8), np.random.default_rng(1)))
    assert tight.load.sum() / tight.capacity.sum() == pytest.approx(0.8)


@pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
def test_a_mesh_is_connected(density: float) -> None:
    hops = np.array(mesh(12, density, np.random.default_rng(2)))
    assert (hops == hops.T).all()
    assert ((hops == 0) == np.eye(12, dtype=bool)).all()
    assert (hops == 1).sum() / 2 >= 11
    assert hops.max() < 12


def test_only_printed_numbers_get_a_verdict() -> None:
    """As the paper's text has them, read by hand; what it draws without printing it is not there."""
    printed = {name: figure.printed for name, figure in FIGURES.items() if figure.printed}
    assert printed == {
        "fig19": (("greedy", 50, 5.0, True), ("optimal", 50, 20.0, False)),
        "fig22": (("greedy", 80, 10.0, False), ("optimal", 80, 26.0, False)),
    }
    assert PRINTED_21 == (("random", 90.0, 70.0, False), ("greedy", 90.0, 40.0, False))


def test_greedy_by_kind_takes_all_brokers_first() -> None:
    """A large service comes before small brokers, unless kinds are kept apart: then it finds no room."""
    devices = (Device("a", 100, 0.1), Device("b", 60, 0.2))
    topics = (Topic("t0", {"a": 4.0}), Topic("t1", {"a": 3.0}))  # 40 and 30 workload
    service = Service("s", 1.0, 1.0, {}, {"a": 90.0})
    arrays = compile_arrays(Problem(10.0, 0.0, devices, ((0, 1), (1, 0)), topics, (service,)))
    assert greedy_places(arrays)[0].tolist() == [1, -1, 0]  # t1 is too large for what is left
    assert greedy_places(arrays, by_kind=True)[0].tolist() == [0, 0, -1]
    assert greedy_places(arrays, by_kind=True)[1] == 2


def test_the_measure_of_a_family_is_counted_by_hand() -> None:
    values = {
        "Fig. 19 optimum": 23.0,  # 3 too many
        "Fig. 19 greedy": 2.0,  # below "< 5 %": fine
        "Fig. 21 random": 64.0,  # 6 too few
        "Fig. 21 greedy": 40.0,
        "Fig. 22 optimum": 20.0,  # 6 too few
        "Fig. 22 greedy": 13.0,  # 3 too many
        "Fig. 21 optimum": 20.0,
    }
    fit = Fit(Family(), {name: Sample(value, 9, value, value) for name, value in values.items()})
    assert fit.distance == pytest.approx((3 + 0 + 6 + 0 + 6 + 3) / 6)
    assert fit.candidate
    worse = Fit(Family(), fit.found | {"Fig. 21 optimum": Sample(21.0, 9, 0, 40)})
    assert not worse.candidate


def test_the_sweep_searches_its_grid_openly(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, values in (("TAU", (80.0,)), ("DSD", (40.0,)), ("DST", (160.0,)), ("PRICES", (100.0, 1000.0))):
        monkeypatch.setattr(sweep, name, values)
    monkeypatch.setattr("metromq.lab.delegation.placement.SOLVE_LIMIT_S", 0.2)
    monkeypatch.setattr(sweep, "SERVICES", (6,))
    monkeypatch.setattr(sweep, "FAILURES", 3)
    report = run_experiment("delegation/sweep", RunOptions(instances=2))
    assert "8 families" in report.notes[0]
    assert 0 < len(report.categories) <= 8 + 2
    assert report.categories[-2:] == ("for Fig. 21", "for Fig. 19")  # beside the grid, and not chosen from
    for label, text in sweep.NAMED.items():
        [note] = [note for note in report.notes if note.startswith(label)]
        assert f"--family {text}" in note
    assert set(report.series) == set(report.samples) == {name for name, _, _ in sweep.PRINTED} | {sweep.LOW}
    assert not report.published


def test_a_family_of_ones_own_is_shown() -> None:
    usual, other = (
        json.loads(run_experiment("delegation/fig21", RunOptions(instances=1, family=text)).to_json())
        for text in (None, "tau=150, dsd=80,price=100,services=10,utilisation=30,greedy=all,random=listed")
    )
    assert usual["family"] == {
        **{"tau": 100, "dsd": 55, "dst": 200, "price": 300, "services": 6, "utilisation": 20},
        **{"greedy": "kind", "random": "shuffled"},
    }
    assert other["family"] == {
        **{"tau": 150, "dsd": 80, "dst": 200, "price": 100, "services": 10, "utilisation": 30},
        **{"greedy": "all", "random": "listed"},
    }
    assert not any("--family" in note for note in usual["notes"])
    assert any(
        note.endswith("--family tau=150,dsd=80,dst=200,price=100,services=10,utilisation=30,greedy=all,random=listed")
        for note in other["notes"]
    )
    assert any("tau up to 150, dsd 80, dst 200" in note for note in other["notes"])


@pytest.mark.parametrize("figure", ["fig17", "fig18", "fig19", "fig20", "fig21", "fig22"])
def test_a_family_reaches_the_instances_of_a_figure(figure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every point."""
    drawn: list[Family] = []

    def spy(family: Family, rng: np.random.Generator) -> Problem:
        drawn.append(family)
        return draw(replace(family, client_mbps=1.0, user_mbps=1.0, topic_mbps=1.0, topics=1, services=1), rng)

    monkeypatch.setattr("metromq.lab.delegation.figures.draw", spy)
    monkeypatch.setattr("metromq.lab.delegation.placement.draw", spy)
    text = "tau=21,dsd=22,dst=23,price=4,greedy=all,random=listed"
    run_experiment(f"delegation/{figure}", RunOptions(instances=1, family=text))
    assert len(drawn) >= 6
    for family in drawn:
        assert (family.client_mbps, family.user_mbps, family.topic_mbps) == (21, 22, 23)
        assert family.network_mw_per_mbps == pytest.approx(4 * 0.0137)
        assert (family.greedy_by_kind, family.random_shuffled) == (False, False)


@pytest.mark.parametrize(
    ("figure", "text", "words"),
    [
        ("delegation/fig21", "tau=-1", "tau must be a number of Mbps from 0"),
        ("delegation/fig21", "dst=nan", "dst must be"),
        ("delegation/fig19", "dsd=0", "dsd must be"),
        ("delegation/fig21", "price=cheap", "price must be a number"),
        ("delegation/fig21", "services=1.5", "services must be a whole number"),
        ("delegation/fig21", "greedy=both", "greedy must be kind or all, not 'both'"),
        ("delegation/fig21", "tau=1,tau=2", "tau is there twice"),
        ("delegation/fig21", "tua=1", "'tua=1' is none of tau=..., dsd=..."),
        ("delegation/fig21", "tau", "'tau' is none of"),
        ("delegation/fig21", "", "'' is none of"),
        ("delegation/fig19", "utilisation=20", "utilisation is what this figure varies"),
        ("delegation/fig20", "services=6", "services is what this figure varies"),
        ("delegation/fig8", "tau=1", "--family is for delegation/fig17 to delegation/fig22"),
        ("geographic/fig5", "tau=1", "--family is for"),
    ],
)
def test_a_family_that_cannot_be_is_told_by_its_field(figure: str, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        run_experiment(figure, RunOptions(instances=1, family=text))
