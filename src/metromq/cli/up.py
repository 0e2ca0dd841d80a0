"""`metromq up`: a whole city on this machine, kept running until it is told to stop."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import click
import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from metromq.cli.tables import brokers_table
from metromq.control import DEFAULT_DATA, CityOptions, Keeper, RunningCity, city_named, only_one
from metromq.federation import City, CityStatus

EPILOG = """\b
Examples:
  metromq up                                      sixteen brokers: the preset "geographic"
  metromq up central --durability memory          another preset
  metromq up city.toml --data /var/lib/metromq    your own city
  metromq up city.toml --only harbour,airport     only the brokers that run on this machine
\b
While it runs:
  metromq status          what runs where, links and rates
  metromq explain TOPIC   trace a message
"""

Work = Callable[[RunningCity, CityStatus], Awaitable[None]]


@click.command("up", epilog=EPILOG)
@click.argument("city", default="geographic", metavar="[CITY]")
@click.option(
    "--data", type=click.Path(path_type=Path), default=DEFAULT_DATA, show_default=True, help="Data directory."
)
@click.option("--only", metavar="NAME,...", default="", help="Start only these brokers.")
@click.option("--durability", type=click.Choice(["memory", "os", "fsync"]), help="When a message counts as stored.")
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path, exists=True),
    help="TOML file with settings for every broker.",
)
def command(city: str, data: Path, only: str, durability: str | None, config_file: Path | None) -> None:
    """Start every broker of CITY (a TOML file or the name of a preset) and restart any that dies. Ctrl-C stops them."""
    names = tuple(name for name in only.split(",") if name)
    console = Console()
    with only_one(data):
        uvloop.run(
            run(city_named(city, os.environ), data, names, CityOptions(durability, config_file), console, wait_for_ever)
        )


async def wait_for_ever(running: RunningCity, status: CityStatus) -> None:
    await asyncio.Event().wait()


async def run(
    city: City, data: Path, only: tuple[str, ...], options: CityOptions, console: Console, work: Work
) -> None:
    """Starts the city, does `work` until it ends or a signal comes, and stops the city."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    running = RunningCity(city, data, only, options, lambda text: console.print(text, highlight=False))
    main = asyncio.create_task(_start_and_work(running, console, work))
    asking = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((main, asking), return_when=asyncio.FIRST_COMPLETED)
        if main.done():
            main.result()
    finally:
        asking.cancel()
        main.cancel()
        await asyncio.gather(main, return_exceptions=True)
        console.print("Stopping.", highlight=False)
        await running.stop()
    console.print("All stopped.", highlight=False)


async def _start_and_work(running: RunningCity, console: Console, work: Work) -> None:
    status = await start_with_bar(running, console)
    console.print(brokers_table(status, console.width))
    console.print(f"Data and logs are in {running.data}. Ctrl-C stops the city.", highlight=False)
    await work(running, status)


async def start_with_bar(running: RunningCity, console: Console) -> CityStatus:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        brokers = progress.add_task("Starting brokers", total=len(running.supervisor.keepers))
        links = progress.add_task("Connecting them", total=None)

        def ready(keeper: Keeper) -> None:
            progress.advance(brokers)

        await running.start(ready)
        return await running.joined(lambda up, wanted: progress.update(links, completed=up, total=wanted))
