"""`metromq status`: what runs where in a city, its links with their backlog, its clients and rates."""

import asyncio
import json
import os
import sys
from pathlib import Path

import click
from rich.console import Console

from metromq.cli.tables import (
    brokers_table,
    clusters_table,
    links_table,
    problems,
    totals,
    workers_table,
    wrong_clocks,
)
from metromq.control import DEFAULT_DATA, ask_city, city_running
from metromq.federation import UP, to_json

EPILOG = """\b
Examples:
  metromq status                                  the city started by `metromq up` or `metromq demo` here
  metromq status --data /var/lib/metromq --links  another data directory, with every link
  metromq status --json                           for programs

\b
The column "serves" has the areas that a broker is responsible for now: 1/2@3 means since epoch 3, and (1/2@3) that
it has taken the area over from its home broker.
The clusters of a city with routing = "overlay" are named after the brokers that founded them. If it has coordination
workers, the brokers that each decides for are listed; what brokers for which nobody decides have asked waits.
Without --links, only links that are down, behind, relayed or carrying messages are listed. "through b21" means that
the broker cannot be reached directly, and messages go through b21. The column "clock" says how far the clock of the
broker at the other end is ahead.

\b
Exit status: 0 if every broker of the city is up, 1 if not.
"""


@click.command("status", epilog=EPILOG)
@click.argument("city", required=False)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    default=DEFAULT_DATA,
    show_default=True,
    help="Data directory, as given to `up`.",
)
@click.option("--links", "every_link", is_flag=True, help="List every link.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs; docs/json.md has the fields.")
def command(city: str | None, data: Path, every_link: bool, as_json: bool) -> None:
    """Show what runs where, the links and their backlog, clients and rates.

    Shows the city in the data directory, or CITY (a TOML file or the name of a preset).
    """
    known = city_running(city, data, os.environ)
    status = asyncio.run(ask_city(known, data))
    if as_json:
        click.echo(json.dumps(to_json(status)))
    else:
        console = Console()
        console.print(brokers_table(status, console.width))
        workers = workers_table(status, bool(known.overlay.workers))
        for table in (workers, clusters_table(status), links_table(status, every_link)):
            if table is not None:
                console.print()
                console.print(table)
        for line in (*problems(status), *wrong_clocks(status, known.membership.clock_warning_ms / 1000)):
            console.print(line, highlight=False)
        console.print(totals(status), highlight=False)
    sys.exit(0 if all(broker.state == UP for broker in status.brokers) else 1)
