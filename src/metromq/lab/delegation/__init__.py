"""Figs. 8-22 of the delegation paper, and the search for what it leaves open."""

from metromq.lab.delegation.figures import run_failures, run_figure
from metromq.lab.delegation.schemes import run_schemes
from metromq.lab.delegation.sweep import run_sweep
from metromq.lab.report import Report, RunOptions

ARCHITECTURE = tuple(f"fig{number}" for number in range(8, 17))


def run(name: str, options: RunOptions) -> Report:
    """Runs `delegation/fig8` ... `delegation/fig22` or `delegation/sweep`."""
    special = {"fig21": run_failures, "sweep": run_sweep, **dict.fromkeys(ARCHITECTURE, run_schemes)}
    return special.get(name.rpartition("/")[2], run_figure)(name, options)
