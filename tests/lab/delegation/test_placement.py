"""Figs. 17-22 with few instances: their shape, their seeds, and the paper's own claims about the methods."""

import json

import numpy as np
import pytest

from metromq.lab.delegation.instances import Family, draw, mesh
from metromq.lab.delegation.placement import place
from metromq.lab.registry import run_experiment
from metromq.lab.report import RunOptions
from metromq.planning.arrays import compile_arrays


@pytest.mark.parametrize("figure", ["fig17", "fig20"])
def test_power_grows_and_the_optimum_is_the_least(figure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metromq.lab.delegation.placement.SOLVE_LIMIT_S", 0.5)  # unproven plans will do here
    report = run_experiment(f"delegation/{figure}", RunOptions(instances=1))
    best, greedy, blind = (dict(report.series[name]) for name in ("optimal", "greedy", "random"))
    for x in best:
        assert best[x] <= greedy[x] * (1 + 1e-3)
        assert best[x] <= blind[x] * (1 + 1e-3)
    assert best[max(best)] > best[min(best)]
    assert list(json.loads(report.to_json())) == ["figure", "series", "published", "seconds"]


def test_failures_are_rarest_for_the_optimum() -> None:
    report = run_experiment("delegation/fig21", RunOptions(instances=5))
    curves = {name: dict(points) for name, points in report.series.items()}
    for ratio in curves["optimal"]:
        assert curves["optimal"][ratio] <= curves["greedy"][ratio]
    assert curves["random"][95] > curves["random"][50]
    assert {row.name.split()[0] for row in report.published} == {"random", "greedy", "optimum"}


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
