"""`metromq lab`: lists the papers' experiments and runs one, as a table, a plot or JSON."""

from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from metromq.lab import EXPERIMENTS, TITLES, Report, RunOptions, plot, run_experiment, show

GROUP_EPILOG = """\b
Examples:
  metromq lab list                                  the names of all experiments
  metromq lab run delegation/fig17                  one experiment, as a table
"""
RUN_EPILOG = """\b
Examples:
  metromq lab run delegation/fig19 --instances 2    a quick look: fewer random instances
  metromq lab run geographic/fig5 --plot fig5.png   with a plot
  metromq lab run delegation/fig22 --json           for programs
  metromq lab run delegation/fig21 --family tau=150,dsd=80
                                                    instances drawn in another way
"""


@click.group(name="lab", epilog=GROUP_EPILOG)
def command() -> None:
    """Run the papers' experiments and compare with the published numbers."""


@command.command(name="list")
def list_command() -> None:
    """List all experiments."""
    table = Table(box=None)
    table.add_column("experiment")
    table.add_column("shows")
    for name in EXPERIMENTS:
        table.add_row(name, TITLES.get(name, ""))
    Console().print(table)


@command.command(name="run", epilog=RUN_EPILOG)
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
@click.option("--plot", "image", type=click.Path(path_type=Path, dir_okay=False), help="Also plot the curves to FILE.")
@click.option("--instances", type=click.IntRange(min=1), help="Random instances per point. Default: as in the paper.")
@click.option("--seed", type=int, default=1, show_default=True, help="Random seed for the instances.")
@click.option(
    "--family",
    metavar="FIELD=VALUE,...",
    help="How instances of delegation/fig17 to fig22 are drawn: tau, dsd, dst (Mbps), price (times the printed one), "
    "services, utilisation (%), greedy (kind or all), random (shuffled or listed). Default: docs/planner.md.",
)
def run_command(
    name: str, as_json: bool, image: Path | None, instances: int | None, seed: int, family: str | None
) -> None:
    """Run the experiment NAME, for example delegation/fig17."""
    report = _run_with_bar(name, RunOptions(instances=instances, seed=seed, family=family))
    if image is not None:
        plot(report, image)
    if as_json:
        click.echo(report.to_json())
    else:
        show(report, Console())
        if image is not None:
            click.echo(f"plot: {image}")


def _run_with_bar(name: str, options: RunOptions) -> Report:
    """The bar goes to stderr, so that stdout holds the result alone."""
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(name, total=None)

        def advance(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        return run_experiment(name, replace(options, progress=advance))
