"""Figs. 17-22 of the delegation paper, and the search for what it leaves open."""

from metromq.lab.delegation.figures import run_failures, run_figure
from metromq.lab.delegation.sweep import run_sweep
from metromq.lab.report import Report, RunOptions


def run(name: str, options: RunOptions) -> Report:
    """Runs `delegation/fig17` ... `delegation/fig22` or `delegation/sweep`."""
    special = {"fig21": run_failures, "sweep": run_sweep}
    return special.get(name.rpartition("/")[2], run_figure)(name, options)
