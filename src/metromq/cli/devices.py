"""`metromq devices`: edge devices, what they carry, and what they could."""

import json
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from metromq.cli.manager_options import manager_options
from metromq.cli.numbers import AMOUNT
from metromq.control import need_manager

EPILOG = """\b
Examples:
  metromq devices                                        what there is, and what it carries
  metromq devices add dock --broker b12 --capacity 20000
  metromq devices remove dock
"""


@click.group("devices", invoke_without_command=True, epilog=EPILOG)
@manager_options
@click.pass_context
def command(ctx: click.Context, data: Path, url: str | None, token_file: Path | None, as_json: bool) -> None:
    """Show edge devices. Without any other word, every broker of the city but the central one is a device."""
    if ctx.invoked_subcommand is not None:
        return
    found = need_manager(data, url, token_file).ask("GET", "/devices")
    if as_json:
        click.echo(json.dumps(found))
        return
    table = Table("device", "broker", "load", "capacity", "services", "filters")
    for one in found:
        broker = one["broker"] + ("" if one["broker_up"] else " (down)")
        load = f"{one['load_workload']:,.1f}", f"{one['capacity_workload']:,.0f}"
        table.add_row(one["name"], broker, *load, " ".join(one["services"]), " ".join(one["filters"]))
    Console().print(table)


@command.command("add", epilog=EPILOG)
@click.argument("name")
@click.option("--broker", required=True, help="The broker of the city that runs there.")
@click.option("--capacity", type=AMOUNT, default=30_000.0, show_default=True, help="Workload that it can carry.")
@click.option("--power", type=AMOUNT, default=0.19, show_default=True, help="mW per workload.")
@click.option(
    "--tunnel", default="", metavar="HOST:PORT", help="Where `metromq tunnel` runs there, if it is elsewhere."
)
@manager_options
def add(
    name: str,
    broker: str,
    capacity: float,
    power: float,
    tunnel: str,
    data: Path,
    url: str | None,
    token_file: Path | None,
    as_json: bool,
) -> None:
    """Add a device, or change it."""
    body = {"broker": broker, "capacity_workload": capacity, "mw_per_workload": power, "tunnel": tunnel}
    found = need_manager(data, url, token_file).ask("PUT", f"/devices/{name}", body)
    click.echo(json.dumps(found) if as_json else f"{name} is a device with broker {broker}.")


@command.command("remove", epilog=EPILOG)
@click.argument("name")
@manager_options
def remove(name: str, data: Path, url: str | None, token_file: Path | None, as_json: bool) -> None:
    """Forget a device that carries no service."""
    found = need_manager(data, url, token_file).ask("DELETE", f"/devices/{name}")
    click.echo(json.dumps(found) if as_json else f"{name} is not a device any more.")
