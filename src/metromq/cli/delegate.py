"""`metromq delegate`: makes a broker responsible for a topic filter, takes it back, or shows who has what."""

import asyncio
import dataclasses
import json
import os
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from metromq.cli.manager_options import show_plan
from metromq.control import DEFAULT_DATA, ManagerDoor, city_running, delegate, delegations, find_manager
from metromq.errors import MetroError, UsageError
from metromq.federation import Delegation
from metromq.protocol.topics import narrowest

EPILOG = """\b
Examples:
  metromq delegate                           which filters are delegated, and to whom
  metromq delegate 'parking/north/#' b12     b12 is responsible for these topics from now on
  metromq delegate 'parking/north/#' b31     they move to b31
  metromq delegate 'parking/north/#' b00     they are the central broker's, and the manager leaves them there
  metromq delegate 'parking/north/#' --return   they go back, and the manager may decide on them again

\b
No message is lost or overtaken while a filter changes hands. A filter inside a delegated one may be delegated on its
own (split), and returns to the wider one (merge). docs/delegation.md says how it works.
"""
WAIT_S = 30.0


@click.command("delegate", epilog=EPILOG)
@click.argument("topic_filter", required=False, metavar="[FILTER]")
@click.argument("broker", required=False, metavar="[BROKER]")
@click.option("--return", "back", is_flag=True, help="The filter goes back.")
@click.option("--city", "city_name", metavar="CITY", help="A TOML file or the name of a preset.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    default=DEFAULT_DATA,
    show_default=True,
    help="Data directory, as given to `up`.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="A token of your own for the manager. Default: the manager's, in the data directory.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def command(
    topic_filter: str | None,
    broker: str | None,
    back: bool,
    city_name: str | None,
    data: Path,
    token_file: Path | None,
    as_json: bool,
) -> None:
    """Make BROKER responsible for the topics of FILTER; without arguments, show who has which.

    For cities with routing = "delegation". Asks the manager if one runs here, else the central broker, and waits until
    it is done.
    """
    city = city_running(city_name, data, os.environ)
    if topic_filter is None:
        _show(asyncio.run(delegations(city, data)), _decided(data, token_file), city.central, as_json)
        return
    if back == bool(broker):
        raise UsageError("name the broker that gets the filter, or --return, and not both")
    to = city.broker(broker).name if broker else ""
    manager = find_manager(data, None, token_file)
    if manager is not None:
        _through(manager, topic_filter, to, as_json)
        return
    found = asyncio.run(delegate(city, data, topic_filter, to, WAIT_S))
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(found) if found is not None else None))
    else:
        click.echo(_outcome(topic_filter, found))
    if found is not None and found.phase:
        raise UsageError("that takes longer than usual; `metromq delegate` shows what becomes of it")
    owner = found.broker if found is not None else city.central
    is_back = found is None or found.filter != topic_filter or owner == city.central
    if owner != to if to else not is_back:
        raise UsageError("the hand-over was given up, and nothing has changed; are all brokers up? `metromq status`")


def _through(manager: ManagerDoor, topic_filter: str, to: str, as_json: bool) -> None:
    """Where a manager runs, it does it: proxies are told, and the audit log has it."""
    body = {"filter": topic_filter, "broker": to}
    show_plan(manager.ask("POST", "/topics", body, wait_s=2 * WAIT_S), as_json)


def _outcome(topic_filter: str, found: Delegation | None) -> str:
    if found is None:
        return f"{topic_filter} is not delegated any more."
    if found.phase:
        return f"{topic_filter} is still on its way from {found.broker} to {found.to} ({found.phase})."
    part = f", as a part of {found.filter}" if found.filter != topic_filter else ""
    return f"{found.broker} is responsible for {topic_filter}{part}."


def _decided(data: Path, token_file: Path | None) -> dict[str, tuple[str, str]]:
    """By filter, where it should be and who decided that; only a manager knows. Who has what anybody may see."""
    try:
        manager = find_manager(data, None, token_file)
        found = manager.ask("GET", "/topics")["decided"] if manager is not None else []
    except MetroError as error:
        click.echo(f"Who decided is not known: {error}", err=True)
        return {}
    return {one["filter"]: (one["broker"], one["by"]) for one in found}


def _show(found: tuple[Delegation, ...], decided: dict[str, tuple[str, str]], central: str, as_json: bool) -> None:
    if as_json:
        whose = {one: by for one, (_, by) in decided.items()}
        click.echo(json.dumps([{**dataclasses.asdict(one), "by": whose.get(one.filter, "")} for one in found]))
        return
    absent = {one: known for one, known in decided.items() if one not in {item.filter for item in found}}
    if not found and not absent:
        click.echo("Nothing is delegated: the central broker distributes every message.")
        return
    table = Table("filter", "broker", "decided by", "epoch", "changing")
    for item in found:
        by = decided[item.filter][1] if item.filter in decided else ""
        table.add_row(*map(escape, (item.filter, item.broker, by)), str(item.epoch), f"{item.phase} {item.to}".strip())
    for one, (broker, by) in absent.items():  # the central broker has no entry for it
        wider = narrowest(one, [item.filter for item in found])
        now = next((item.broker for item in found if item.filter == wider), central)
        table.add_row(*map(escape, (one, broker, by)), "", f"{now} has it" if now != broker else "")
    Console().print(table)
