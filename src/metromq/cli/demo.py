"""`metromq demo`: a city of sixteen brokers with sensors that move through it, and commands to explore it."""

import asyncio
import dataclasses
import os
import shlex
import sys
from pathlib import Path

import click
import uvloop
from rich.console import Console
from rich.live import Live
from rich.text import Text

from metromq.cli.tables import totals
from metromq.cli.up import run
from metromq.control import CITY_FILE, DEFAULT_DATA, CityOptions, RunningCity, ask_city, city_named, is_free, only_one
from metromq.federation import City, CityStatus
from metromq.lab import Fleet, city_sensors

QUESTION = "SELECT topic, count(*) AS n FROM messages WHERE kind = 'publish' GROUP BY topic ORDER BY n DESC LIMIT 10"
LOOK_S = 2.0
LINE_EVERY = 5  # looks, where there is no terminal to draw on

EPILOG = """\b
Examples:
  metromq demo                             sixteen brokers, 32 buses and 16 bikes
  metromq demo --buses 200 --bikes 100     more traffic
  metromq demo central --data /tmp/demo    another preset, in a data directory of its own
\b
While it runs, in another terminal:
  metromq status                           what runs where, links and rates
  metromq sub -p 18830 -v -t '1/#'         everything in the north-east quarter of the city
"""


@click.command("demo", epilog=EPILOG)
@click.argument("city", default="geographic", metavar="[CITY]")
@click.option(
    "--data", type=click.Path(path_type=Path), default=DEFAULT_DATA, show_default=True, help="Data directory."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Random seed for sensor movement.")
@click.option("--buses", type=click.IntRange(0, 10_000), default=32, show_default=True, help="Number of buses.")
@click.option("--bikes", type=click.IntRange(0, 10_000), default=16, show_default=True, help="Number of bikes.")
@click.option("--durability", type=click.Choice(["memory", "os", "fsync"]), help="When a message counts as stored.")
def command(city: str, data: Path, seed: int, buses: int, bikes: int, durability: str | None) -> None:
    """Start a city with moving sensors, print commands to try, and show its traffic until Ctrl-C."""
    console = Console()
    chosen = free_city(city_named(city, os.environ), console)

    async def show(running: RunningCity, status: CityStatus) -> None:
        fleet = Fleet(running.city, city_sensors(running.city, seed, buses, bikes))
        console.print(hints(running.city, data), highlight=False, markup=False, soft_wrap=True)
        async with asyncio.TaskGroup() as group:
            group.create_task(fleet.run())
            group.create_task(follow(running, fleet, console))

    if durability != "memory":
        os.environ.setdefault("METROMQ_RECORDER__KEEP_COUNTS", "true")  # journals and counts wait for `pipeline run`
    with only_one(data):
        uvloop.run(run(chosen, data, (), CityOptions(durability), console, show))


def free_city(city: City, console: Console) -> City:
    """The demo must not fail because someone uses one of its ports: then the system chooses all of them."""
    taken = [broker.listen for broker in city.brokers if broker.port and not is_free(broker.host, broker.port)]
    if not taken:
        return city
    ports = ", ".join(address.rpartition(":")[2] for address in taken)
    used = f"Ports {ports} are in use" if len(taken) > 1 else f"Port {ports} is in use"
    console.print(f"{used}; choosing free ones.", highlight=False)
    brokers = tuple(dataclasses.replace(broker, listen=f"{broker.host}:0") for broker in city.brokers)
    return dataclasses.replace(city, brokers=brokers)


def hints(city: City, data: Path) -> str:
    """Commands that work as they are printed."""
    program = program_name()
    where = "" if data == DEFAULT_DATA else f" --data {shlex.quote(str(data))}"
    first, middle, last = city.brokers[0], city.brokers[len(city.brokers) // 2], city.brokers[-1]
    quarter = (last.area.split() or ["3"])[0].split("/")[0]
    lake, file = lake_option(data), shlex.quote(str(data / CITY_FILE))
    commands = {
        "every bus, wherever it is": f"mosquitto_sub -h {first.host} -p {first.port} -v -t '+/+/+/+/bus/#'",
        "everything in one quarter of the city": f"{program} sub -h {last.host} -p {last.port} -v -t '{quarter}/#'",
        "any other topic works too": f"{program} pub -h {middle.host} -p {middle.port} -t news/today -m hello",
        "what runs where, and the traffic between brokers": f"{program} status{where}",
        "trace a message": f"{program} explain {quarter}/0/1/2/bus/7/position --from {first.name}{where}",
        f"everything so far as tables ({lake_command()}first, once, for Spark)": pipeline_command(program, data),
        "ask them": f'{program} pipeline sql{lake} "{QUESTION}"',
        "what other routings would have cost": f"{program} pipeline what-if{lake} --city {file}",
    }
    lines = [f"  # {what}\n  {text}" for what, text in commands.items()]
    last_line = "Or kill a broker (kill -9 PID): another takes over its area until it is back."
    return "\n".join(("", "Try these in another terminal; any broker will do:", *lines, last_line, ""))


def pipeline_command(program: str, data: Path) -> str:
    return f"{program} pipeline run --once --data {shlex.quote(str(data))}{lake_option(data)}"


def lake_option(data: Path) -> str:
    return "" if data == DEFAULT_DATA else f" --lake {shlex.quote(f'{data}-lake')}"


def lake_command() -> str:
    """What brings the pipeline's packages: `make lake` where the sources are."""
    return "make lake " if Path("Makefile").is_file() else "pip install 'metromq[pipeline]' "


def program_name() -> str:
    """How the user called us, so that what we print can be pasted."""
    called = Path(sys.argv[0])
    if called.name != "metromq":
        return f"{shlex.quote(sys.executable)} -m metromq.cli.main"
    found = next(
        (Path(folder) / "metromq" for folder in os.get_exec_path() if (Path(folder) / "metromq").is_file()), None
    )
    return "metromq" if found is not None and found.resolve() == called.resolve() else shlex.quote(sys.argv[0])


async def follow(running: RunningCity, fleet: Fleet, console: Console) -> None:
    """One line that stays up to date; without a terminal, a line now and then."""
    if not console.is_terminal:
        looks = 0
        while True:
            await asyncio.sleep(LOOK_S)
            looks += 1
            if looks % LINE_EVERY == 0:
                console.print(await line(running, fleet), highlight=False, soft_wrap=True)
    with Live(Text(""), console=console, auto_refresh=False) as live:
        while True:
            live.update(Text(await line(running, fleet)), refresh=True)
            await asyncio.sleep(LOOK_S)


async def line(running: RunningCity, fleet: Fleet) -> str:
    status = await ask_city(running.city, running.data)
    tally = fleet.tally
    sensors = f"{len(fleet)} sensors, {tally.published} readings, {tally.moves} moves to a closer broker"
    return f"{totals(status)}; {sensors}"
