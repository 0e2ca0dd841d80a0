"""`metromq city`: what a running city is, was and should be; `area`, `leave` and `drain` change a part of it."""

import asyncio
import dataclasses
import getpass
import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from metromq.control import (
    DEFAULT_DATA,
    CityNow,
    CityVersion,
    NoAnswer,
    city_named,
    city_now,
    city_text,
    give_order,
    with_chosen_ports,
)
from metromq.errors import UsageError
from metromq.federation import City, differences, plan_of, steps_to, with_area

FOLLOW_S = 60.0
LOOK_S = 0.2

EPILOG = """\b
Examples:
  metromq city show > city.toml          the city as it is now, as a file
  metromq city diff city.toml            what would change
  metromq city apply city.toml           change the running city; nothing restarts
  metromq city history
  metromq city undo                      as it was before the last change
  metromq city token                     lets one broker join: see `metromq serve --join`
\b
Commands speak to a broker that runs on this machine, and need the right to read its control.key.
"""


def example(line: str) -> str:
    return f"\b\nExample:\n  {line}"


data_option = click.option(
    "--data", type=click.Path(path_type=Path), default=DEFAULT_DATA, show_default=True, help="Data directory."
)
note_option = click.option("--note", default="", help="Why, for `city history`.")
dry_option = click.option("--dry-run", is_flag=True, help="Only print what would change.")
anyway_option = click.option("--anyway", is_flag=True, help="Even if brokers are away; they follow when they are back.")


@click.group("city", epilog=EPILOG)
def command() -> None:
    """Show and change a running city."""


@command.command("show", epilog=example("metromq city show --epoch 3"))
@click.option("--epoch", type=int, help="As it was then.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
@data_option
def show(epoch: int | None, as_json: bool, data: Path) -> None:
    """Print the city's description, without the secret."""
    now = asyncio.run(city_now(data))
    city = now.city if epoch is None else now.version(epoch)
    if as_json:
        page = now.page
        said = {name: getattr(page, name) for name in ("epoch", "author", "time", "note", "at")}
        answer = {**said, "city": plan_of(city), "following": dict(page.following), "away": now.away}
        click.echo(json.dumps(answer))
        return
    page = now.page
    click.echo(
        f"# epoch {page.epoch if epoch is None else epoch}{_by(page.author, page.time) if epoch is None else ''}"
    )
    click.echo(city_text(city).split("\n[links]")[0].rstrip())
    for line in (
        *(f"# {name} is away" for name in now.away),
        *(f"# {name} does not follow yet" for name in now.behind),
    ):
        click.echo(line)


@command.command("diff", epilog=example("metromq city diff city.toml"))
@click.argument("file")
@data_option
def diff(file: str, data: Path) -> None:
    """Print what FILE would change."""
    now = asyncio.run(city_now(data))
    _print_changes(differences(now.city, _wanted(file, now)))


@command.command("apply", epilog=example('metromq city apply city.toml --note "the new harbour"'))
@click.argument("file")
@dry_option
@anyway_option
@note_option
@data_option
def apply(file: str, dry_run: bool, anyway: bool, note: str, data: Path) -> None:
    """Make the running city what FILE says; [links] in it is ignored."""
    change(data, lambda now: _wanted(file, now), note or f"apply {Path(file).name}", dry_run, anyway)


@command.command("undo", epilog=example("metromq city undo --dry-run"))
@dry_option
@anyway_option
@data_option
def undo(dry_run: bool, anyway: bool, data: Path) -> None:
    """Make the city what it was before the last change; that is a change too."""

    def before(now: CityNow) -> City:
        """The steps of a change of routing are one change."""
        for one in reversed(now.page.history[:-1]):
            if not one.plan.beside:
                return now.version(one.epoch)
        raise UsageError(f"{now.page.broker} knows of no earlier description")

    change(data, before, "undo", dry_run, anyway)


@command.command("history", epilog=example("metromq city history --json"))
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
@data_option
def history(as_json: bool, data: Path) -> None:
    """What was changed when, and by whom, as the broker on this machine remembers it."""
    versions = asyncio.run(city_now(data)).page.history
    if as_json:
        names = ("epoch", "author", "time", "note", "at", "changes")
        click.echo(json.dumps([{name: getattr(one, name) for name in names} for one in versions]))
        return
    for one in versions:
        click.echo(_line(one))
        for text in one.changes:
            click.echo(f"    {text}")


@command.command("token", epilog=example("metromq city token --valid 600"))
@click.option("--valid", "valid_s", type=float, default=3600.0, show_default=True, help="For so many seconds.")
@data_option
def token(valid_s: float, data: Path) -> None:
    """Print a token with which one broker may join, once, at the broker on this machine."""
    now = asyncio.run(city_now(data))
    answer = asyncio.run(give_order(data, now.place, "/token", valid_s=valid_s))
    click.echo(answer["token"])
    click.echo(f"Good once, for {valid_s / 60:g} minutes, while {now.page.broker} runs. On the new machine:", err=True)
    click.echo(f"  metromq serve --join {answer['at']} --name NAME --listen HOST:PORT --token TOKEN", err=True)


@click.group("area")
def area_command() -> None:
    """Move areas between brokers of a running city."""


@area_command.command("move", epilog=example("metromq area move 1/2 b13"))
@click.argument("area")
@click.argument("broker")
@dry_option
@anyway_option
@note_option
@data_option
def move(area: str, broker: str, dry_run: bool, anyway: bool, note: str, data: Path) -> None:
    """Make BROKER at home in AREA (1/2, or 1 for all areas inside), whoever was before.

    A broker that has several areas keeps the others, so this splits its share; moved to a neighbour it merges with
    the neighbour's.
    """
    change(data, lambda now: with_area(now.city, area, broker), note or f"{area} to {broker}", dry_run, anyway)


@click.command("leave", epilog=example("metromq leave b12 --clients-per-s 10"))
@click.argument("broker")
@click.option("--clients-per-s", type=float, default=50.0, show_default=True, help="So many are sent elsewhere.")
@data_option
def leave_command(broker: str, clients_per_s: float, data: Path) -> None:
    """Make BROKER, which runs on this machine, leave its city for good.

    Its areas, sessions, queues and retained values go to other brokers first; then it ends. Its data can be deleted.
    """
    now = asyncio.run(city_now(data, broker))
    _refuse_while_away(now, False)
    asyncio.run(give_order(data, now.place, "/leave", author=_author(), clients_per_s=clients_per_s))
    _watch(data, broker, "has left")


@click.command("drain", epilog=example("metromq drain b12"))
@click.argument("broker")
@click.option("--clients-per-s", type=float, default=50.0, show_default=True, help="So many are sent elsewhere.")
@click.option("--stop", is_flag=True, help="Let clients come again.")
@data_option
def drain_command(broker: str, clients_per_s: float, stop: bool, data: Path) -> None:
    """Send the clients of BROKER elsewhere, with their sessions, before maintenance.

    Clients of MQTT 5 are told where to go (0x9C and a server reference). The broker runs on, and takes no clients until
    it is started again or told to --stop. Its areas are taken over when it ends, as always.
    """
    now = asyncio.run(city_now(data, broker))
    if stop:
        asyncio.run(give_order(data, now.place, "/resume"))
        click.echo(f"{broker} takes clients again.")
        return
    asyncio.run(give_order(data, now.place, "/drain", clients_per_s=clients_per_s))
    _watch(data, broker, "is drained")


def change(data: Path, wanted: Callable[[CityNow], City], note: str, dry_run: bool, anyway: bool) -> None:
    """Shows what will change, changes it, and waits until every broker follows."""
    now = asyncio.run(city_now(data))
    city = wanted(now)
    lines = differences(now.city, city)
    _print_changes(lines)
    if dry_run or not lines:
        return
    _refuse_while_away(now, anyway)
    steps, epoch = steps_to(now.city, city), now.page.epoch
    for number, step in enumerate(steps, 1):
        text = f"{note} ({number} of {len(steps)})" if steps[1:] else note
        words: dict[str, Any] = {"epoch": epoch, "plan": plan_of(step), "author": _author(), "note": text}
        epoch = asyncio.run(give_order(data, now.place, "/city", **words))["epoch"]
        if not _wait_for_followers(data, now.place.name, epoch) and steps[number:]:
            raise UsageError(
                "The routing goes on when all follow: until then both routings run side by side, and nothing is lost. "
                "Bring them back, and apply again"
            )


def _refuse_while_away(now: CityNow, anyway: bool) -> None:
    if now.away and not anyway:
        raise UsageError(
            f"{', '.join(now.away)} cannot be heard: a change now would reach it late. Start it, or take it out of the "
            "city's file; --anyway changes the city all the same, where the command has it"
        )


def _wait_for_followers(data: Path, broker: str, epoch: int) -> bool:
    end = time.monotonic() + FOLLOW_S
    while True:
        now = asyncio.run(city_now(data, broker))
        missing = [name for name in now.city.names if now.page.following.get(name, 0) < epoch]
        if not missing or time.monotonic() > end:
            break
        time.sleep(LOOK_S)
    if missing:
        click.echo(f"Epoch {epoch} is known; {', '.join(missing)} will follow when heard again.")
    else:
        click.echo(f"Epoch {epoch}: all {len(now.city.names)} brokers follow.")
    return not missing


def _watch(data: Path, broker: str, end: str) -> None:
    """Tells how far the broker is, until it is there or gone."""
    told = ""
    while True:
        try:
            page = asyncio.run(city_now(data, broker)).page
        except (UsageError, NoAnswer):
            click.echo(f"{broker} has ended.")
            return
        text = f"{broker} {page.leaving.state}" + "".join(f"; waits for {what}" for what in page.leaving.waits_for[:3])
        if text != told:
            click.echo(text)
        if page.leaving.state == end:
            return
        told = text
        time.sleep(LOOK_S)


def _wanted(file: str, now: CityNow) -> City:
    """What the file says, with the ports that were chosen at the start."""
    wanted = with_chosen_ports(city_named(file, os.environ), now.city.by_name)
    return dataclasses.replace(wanted, formerly=now.city.formerly)


def _author() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"


def _print_changes(lines: tuple[str, ...]) -> None:
    for line in lines:
        click.echo(line)
    if not lines:
        click.echo("Nothing would change.")


def _line(one: CityVersion) -> str:
    note = f": {one.note}" if one.note else ""
    return f"epoch {one.epoch}{_by(one.author, one.time) or ' the file that the city started with'}{note}"


def _by(author: str, when: float) -> str:
    if not when:
        return ""
    return f", {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(when))} by {author}"
