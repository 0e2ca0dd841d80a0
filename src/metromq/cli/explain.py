"""`metromq explain`: traces a message or a subscription through a city, hop by hop, with the reasons."""

import asyncio
import dataclasses
import json
import os
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from metromq.control import (
    CITY_FILE,
    DEFAULT_DATA,
    Leg,
    Trace,
    city_named,
    city_running,
    is_running,
    live_ask,
    planned_ask,
    running_here,
    trace,
)
from metromq.federation import City, TraceStep, is_filter
from metromq.protocol.topics import validate_filter, validate_topic

EPILOG = """\b
Examples:
  metromq explain 1/0/2/1/temperature               a message published at the city's first broker
  metromq explain 1/0/2/1/temperature --from b33    the same message, published at b33
  metromq explain '1/+/2/#' --from b00              a subscription
  metromq explain news/today --city central         from the preset; works without a running city

\b
Stages: a client's message goes to the broker responsible for its area (owner), which sends out final copies.
A broker that has taken over the area also passes the message on to the home broker (handover).
"""


@click.command("explain", epilog=EPILOG)
@click.argument("topic", metavar="TOPIC|FILTER")
@click.option(
    "--from", "start", metavar="BROKER", help="Broker the client is connected to. Default: the first that runs here."
)
@click.option(
    "--city",
    "city_name",
    metavar="CITY",
    help="A TOML file or the name of a preset. Default: the city in the data directory.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    default=DEFAULT_DATA,
    show_default=True,
    help="Data directory, as given to `up`.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def command(topic: str, start: str | None, city_name: str | None, data: Path, as_json: bool) -> None:
    """Trace a message published to TOPIC, or a subscription to FILTER: which brokers get it, and why."""
    (validate_filter if is_filter(topic) else validate_topic)(topic)
    city = _city(city_name, data)
    start = city.broker(start).name if start else _first(city, data)
    live = is_running(city, data, start)
    found = asyncio.run(trace(topic, start, live, live_ask(city, data) if live else planned_ask(city)))
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(found)))
        return
    console = Console()
    _show(found, console)
    if not live:
        console.print(f"{start} is not running here: this is computed from the city's file, without any subscribers.")


def _city(name: str | None, data: Path) -> City:
    """Without a city and a data directory that somebody named, the preset that everybody starts with."""
    if name is None and data == DEFAULT_DATA and not (data / CITY_FILE).is_file() and not running_here(data):
        return city_named("geographic", os.environ)
    return city_running(name, data, os.environ)


def _first(city: City, data: Path) -> str:
    """The first broker that can be asked here, otherwise the city's first."""
    running = {place.name for place in running_here(data)}
    return next((name for name in city.names if name in running), city.names[0])


def _show(found: Trace, console: Console) -> None:
    first = found.legs[0]
    subscription = is_filter(found.topic)
    what = "A subscription to" if subscription else "A message to"
    tree = Tree(f"{what} [bold]{escape(found.topic)}[/], from a client of [bold]{first.broker}[/]")
    branches = {(first.broker, first.stage): tree}
    for leg in found.legs:
        if leg is not first:
            parent = next(branch for (broker, _), branch in reversed(branches.items()) if broker == leg.sender)
            branches[leg.broker, leg.stage] = parent.add(
                f"-> [bold]{leg.broker}[/] as {leg.stage}{_way(leg)}: it {leg.why}"
            )
        _add_facts(branches[leg.broker, leg.stage], leg, subscription)
    console.print(tree, highlight=False)


def _way(leg: Leg) -> str:
    if leg.via:
        return f", through [bold]{leg.via}[/] because {leg.sender} cannot reach it directly"
    if leg.waits:
        return f", [red]waiting at {leg.sender}[/] ({escape(leg.waits)})"
    return f", over a link that {leg.sender} opens for it" if leg.opens else ""


def _add_facts(branch: Tree, leg: Leg, subscription: bool) -> None:
    step = leg.step
    if step is None:
        branch.add(f"{leg.broker} does not answer")
        return
    for reason in step.reasons:
        branch.add(escape(reason))
    if subscription:
        for hop in step.hops:
            through = f", through [bold]{hop.via}[/]" if hop.via else ""
            branch.add(f"announced to [bold]{hop.peer}[/]{through}: {hop.why}")
        if not step.hops:
            branch.add("announced to no other broker")
    branch.add(_interest(step, subscription))


def _interest(step: TraceStep, subscription: bool) -> str:
    if step.subscribers < 0:
        return "subscribers are known only while the city is running"
    own = f"{step.subscribers} {'subscription' if subscription else 'subscriber'}{'' if step.subscribers == 1 else 's'}"
    if not step.interested:
        return f"now: {own} at {step.broker} itself"
    have = "has" if len(step.interested) == 1 else "have"
    return f"now: {own} at {step.broker} itself; {', '.join(step.interested)} {have} announced interest here"
