"""`metromq manager`: runs the manager of a city with delegation, with its HTTP API."""

import asyncio
import os
from pathlib import Path

import click

from metromq.cli.addresses import address
from metromq.cli.lake_statistics import lake_statistics
from metromq.control import DEFAULT_DATA, city_running
from metromq.control.manager import (
    LoopOptions,
    LoopSettings,
    Manager,
    ManagerOptions,
    Patience,
    PolicyName,
    serve_manager,
)

EPILOG = """\b
Examples:
  metromq manager                                   for the city that runs in ./metromq-data
  metromq manager --policy auto --every 60          it also decides which topics go where, every minute
  metromq manager --lake s3://city/lake --every 600   by the lake's statistics, not the brokers' counters
\b
Then: metromq service add, metromq devices, metromq delegate, metromq loop, metromq proxy --manager URL.
Whoever has the token can run programs on this machine: keep it, and the API, to yourself (docs/manager.md).
"""


@click.command("manager", epilog=EPILOG)
@click.argument("city_name", required=False, metavar="[CITY]")
@click.option("--listen", default="127.0.0.1:8800", show_default=True, help="Where the HTTP API answers.")
@click.option("--tunnels", default="127.0.0.1", show_default=True, help="Address on which proxies' tunnels end.")
@click.option("--policy", type=click.Choice(["auto", "LP", "NS", "EP"]), default="auto", show_default=True)
@click.option("--every", "every_s", type=float, default=0.0, help="Seconds between looks; 0: only when asked.")
@click.option("--levels", type=click.IntRange(1, 20), default=2, show_default=True, help="Topics go together by these.")
@click.option("--looks", type=click.IntRange(1, 1000), default=3, show_default=True, help="A wish must last so long.")
@click.option("--dwell", "dwell_s", type=float, default=600.0, show_default=True, help="Seconds that moves stay.")
@click.option("--span", "span_s", type=float, default=120.0, show_default=True, help="Seconds of traffic that count.")
@click.option(
    "--window",
    "window_s",
    type=click.FloatRange(1, 3600),
    default=10.0,
    show_default=True,
    help="Seconds of service telemetry that are written at once.",
)
@click.option("--lake", metavar="LAKE", help="Statistics from a lake's tables, a directory or URI.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    default=DEFAULT_DATA,
    show_default=True,
    help="Data directory, as given to `up`.",
)
def command(
    city_name: str | None,
    listen: str,
    tunnels: str,
    policy: PolicyName,
    every_s: float,
    levels: int,
    looks: int,
    dwell_s: float,
    span_s: float,
    window_s: float,
    lake: str | None,
    data: Path,
) -> None:
    """Manage a city with delegation: topics, services, devices and proxies, behind one HTTP API.

    What it starts goes on when the manager stops or dies; the next one finds it again and finishes what was begun.
    """
    city = city_running(city_name, data, os.environ)
    loop = LoopOptions(every_s, LoopSettings(policy, levels), Patience(looks, dwell_s))
    options = ManagerOptions(data, tunnels, span_s, window_s, loop)
    reader = lake_statistics(lake, span_s) if lake is not None else None
    where = address(listen, "127.0.0.1:8800")

    async def run() -> None:
        await serve_manager(Manager(city, options, reader, click.echo), where, click.echo)

    asyncio.run(run())
