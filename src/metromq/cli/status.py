"""`metromq status`: what runs where in a city, its links with their backlog, its clients and rates."""

import asyncio
import json
import os
import sys
from pathlib import Path

import click
from rich.console import Console

from metromq.cli.tables import brokers_table, links_table, problems, totals
from metromq.control.asking import ask_city
from metromq.control.places import DEFAULT_DATA, city_running
from metromq.federation.status import UP, to_json

EPILOG = """\b
Serves: the areas that a broker is responsible for now; 1/2@3 means since epoch 3, (1/2@3) in place of another broker.
Without --links the table of links has those that are down, behind, or carry messages.

\b
Exit status: 0 when every broker of the city is up, 1 when not.
"""


@click.command("status", epilog=EPILOG)
@click.argument("city", required=False)
@click.option(
    "--data", type=click.Path(path_type=Path), default=DEFAULT_DATA, show_default=True, help="As given to `up`."
)
@click.option("--links", "every_link", is_flag=True, help="Show every link.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs; docs/operations.md has its shape.")
def command(city: str | None, data: Path, every_link: bool, as_json: bool) -> None:
    """Show the city that runs on the data of DIR, or CITY (a TOML file or a preset's name)."""
    status = asyncio.run(ask_city(city_running(city, data, os.environ), data))
    if as_json:
        click.echo(json.dumps(to_json(status)))
    else:
        console = Console()
        console.print(brokers_table(status, console.width))
        links = links_table(status, every_link)
        if links is not None:
            console.print()
            console.print(links)
        for line in problems(status):
            console.print(line, highlight=False)
        console.print(totals(status), highlight=False)
    sys.exit(0 if all(broker.state == UP for broker in status.brokers) else 1)
