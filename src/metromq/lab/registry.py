"""The table of experiments: a name, the module that runs it, and what it shows; modules load only when run."""

import importlib
import time
from dataclasses import replace

from metromq.errors import UsageError
from metromq.lab.report import Report, RunOptions

EXPERIMENTS: dict[str, str] = {
    "delegation/fig8": "metromq.lab.delegation",
    "delegation/fig9": "metromq.lab.delegation",
    "delegation/fig10": "metromq.lab.delegation",
    "delegation/fig11": "metromq.lab.delegation",
    "delegation/fig12": "metromq.lab.delegation",
    "delegation/fig13": "metromq.lab.delegation",
    "delegation/fig14": "metromq.lab.delegation",
    "delegation/fig15": "metromq.lab.delegation",
    "delegation/fig16": "metromq.lab.delegation",
    "delegation/fig17": "metromq.lab.delegation",
    "delegation/fig18": "metromq.lab.delegation",
    "delegation/fig19": "metromq.lab.delegation",
    "delegation/fig20": "metromq.lab.delegation",
    "delegation/fig21": "metromq.lab.delegation",
    "delegation/fig22": "metromq.lab.delegation",
    "delegation/sweep": "metromq.lab.delegation",
    "geographic/fig5": "metromq.lab.geographic",
    "geographic/fig6": "metromq.lab.geographic",
    "growth/size": "metromq.lab.growth",
    "overlay/fig6": "metromq.lab.overlay",
    "overlay/fig7": "metromq.lab.overlay",
    "overlay/fig8": "metromq.lab.overlay",
    "overlay/fig9": "metromq.lab.overlay",
    "overlay/fig10": "metromq.lab.overlay",
    "overlay/fig11": "metromq.lab.overlay",
    "overlay/sweep": "metromq.lab.overlay",
}

FAMILIES = tuple(f"delegation/fig{number}" for number in range(17, 23))  # those that `--family` is for

TITLES: dict[str, str] = {
    "delegation/fig8": "external traffic by subscription locality",
    "delegation/fig9": "messages per distributed broker by subscription locality",
    "delegation/fig10": "subscription tables by subscription locality",
    "delegation/fig11": "external traffic by subscribers per topic",
    "delegation/fig12": "messages per distributed broker by subscribers per topic",
    "delegation/fig13": "subscription tables by subscribers per topic",
    "delegation/fig14": "external traffic by topic popularity",
    "delegation/fig15": "messages per distributed broker by topic popularity",
    "delegation/fig16": "subscription tables by topic popularity",
    "delegation/fig17": "power against the number of topics",
    "delegation/fig18": "network traffic against the number of topics",
    "delegation/fig19": "power saved over random placement, by topic utilisation",
    "delegation/fig20": "power against the number of services",
    "delegation/fig21": "failed placements by workload ratio",
    "delegation/fig22": "power saved over random placement, by workload ratio",
    "delegation/sweep": "which choices for what the paper leaves open fit Figs. 19, 21 and 22 best",
    "geographic/fig5": "messages per second of three broker networks",
    "geographic/fig6": "messages per second against the subscription interval",
    "growth/size": "what a broker costs in cities of 16 to 5,000 (20 minutes; --instances 1000: up to that size)",
    "overlay/fig6": "delivery latency by local subscription rate",
    "overlay/fig7": "forwarded traffic by local subscription rate",
    "overlay/fig8": "delivery latency of three schemes, subscriptions chosen evenly",
    "overlay/fig9": "delivery latency of three schemes, subscriptions chosen by Zipf",
    "overlay/fig10": "forwarded traffic of three schemes, subscriptions chosen evenly",
    "overlay/fig11": "forwarded traffic of three schemes, subscriptions chosen by Zipf",
    "overlay/sweep": "the published numbers under every choice that the paper leaves open",
}


def run_experiment(name: str, options: RunOptions) -> Report:
    """Runs one experiment of the table and stamps the report with the time it took."""
    if name not in EXPERIMENTS:
        raise UsageError(f"there is no experiment {name!r}; `metromq lab list` shows them all")
    if options.family is not None and name not in FAMILIES:
        raise UsageError(f"--family is for {FAMILIES[0]} to {FAMILIES[-1]}, not for {name}")
    module = importlib.import_module(EXPERIMENTS[name])
    started = time.perf_counter()
    report: Report = module.run(name, options)
    return replace(report, seconds=round(time.perf_counter() - started, 3))
