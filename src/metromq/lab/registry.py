"""The table of experiments: a name, the module that runs it, and what it shows; modules load only when run."""

import importlib
import time
from dataclasses import replace

from metromq.errors import UsageError
from metromq.lab.report import Report, RunOptions

EXPERIMENTS: dict[str, str] = {
    "delegation/fig17": "metromq.lab.delegation",
    "delegation/fig18": "metromq.lab.delegation",
    "delegation/fig19": "metromq.lab.delegation",
    "delegation/fig20": "metromq.lab.delegation",
    "delegation/fig21": "metromq.lab.delegation",
    "delegation/fig22": "metromq.lab.delegation",
    "delegation/sweep": "metromq.lab.delegation",
    "geographic/fig5": "metromq.lab.geographic",
    "geographic/fig6": "metromq.lab.geographic",
}

TITLES: dict[str, str] = {
    "delegation/fig17": "power against the number of topics",
    "delegation/fig18": "network traffic against the number of topics",
    "delegation/fig19": "power saved over random placement, by topic utilisation",
    "delegation/fig20": "power against the number of services",
    "delegation/fig21": "failed placements by workload ratio",
    "delegation/fig22": "power saved over random placement, by workload ratio",
    "delegation/sweep": "which choices for what the paper leaves open fit Figs. 19, 21 and 22 best",
    "geographic/fig5": "messages per second of three broker networks",
    "geographic/fig6": "messages per second against the subscription interval",
}


def run_experiment(name: str, options: RunOptions) -> Report:
    """Runs one experiment of the table and stamps the report with the time it took."""
    if name not in EXPERIMENTS:
        raise UsageError(f"there is no experiment {name!r}; `metromq lab list` shows them all")
    module = importlib.import_module(EXPERIMENTS[name])
    started = time.perf_counter()
    report: Report = module.run(name, options)
    return replace(report, seconds=round(time.perf_counter() - started, 3))
