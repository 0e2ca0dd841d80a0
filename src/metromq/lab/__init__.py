"""The lab: the papers' experiments, with the published numbers beside ours."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metromq.lab.fleet import Fleet
    from metromq.lab.plots import plot
    from metromq.lab.registry import EXPERIMENTS, TITLES, run_experiment
    from metromq.lab.report import Report, RunOptions, show
    from metromq.lab.sensors import city_sensors

_HOMES = {
    "EXPERIMENTS": "registry",
    "Fleet": "fleet",
    "Report": "report",
    "RunOptions": "report",
    "TITLES": "registry",
    "city_sensors": "sensors",
    "plot": "plots",
    "run_experiment": "registry",
    "show": "report",
}


def __getattr__(name: str) -> Any:
    """Opens a module when one of its names is asked for: what some of them need is optional, and slow to load."""
    if name not in _HOMES:
        raise AttributeError(f"{__name__} offers no {name}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


__all__ = [
    "EXPERIMENTS",
    "TITLES",
    "Fleet",
    "Report",
    "RunOptions",
    "city_sensors",
    "plot",
    "run_experiment",
    "show",
]
