"""`metromq loop`: statistics, planner, the difference to what runs, carried out; with a dry run, a history and undo."""

import json
from pathlib import Path
from typing import Any

import click

from metromq.cli.manager_options import manager_options, show_plan
from metromq.control import need_manager
from metromq.errors import UsageError
from metromq.moments import text_of

EPILOG = """\b
Examples:
  metromq loop --dry-run     what the manager would change now, and why
  metromq loop               change it
  metromq loop history       what was changed, by whom and when
  metromq loop undo          take the last change back
  metromq loop undo 17       take plan 17 back
\b
`metromq manager --every 60` does it by itself every minute, with patience: what is wanted must be wanted for some
time, and what has moved stays for a while.
"""
MOST_LEFT = 20


@click.group("loop", invoke_without_command=True, epilog=EPILOG)
@click.option("--dry-run", is_flag=True, help="Only show the steps.")
@click.option("--patient", is_flag=True, help="As the schedule does it: what is new must last for some looks.")
@manager_options
@click.pass_context
def command(
    ctx: click.Context,
    dry_run: bool,
    patient: bool,
    data: Path,
    url: str | None,
    token_file: Path | None,
    as_json: bool,
) -> None:
    """Look at what the city does, and move topics and services to where they should be."""
    if ctx.invoked_subcommand is not None:
        return
    door = need_manager(data, url, token_file)
    found = door.ask("POST", "/loop", dry_run=dry_run, patient=patient, wait_s=120)
    if as_json:
        click.echo(json.dumps(found))
        return
    if found["plan"] is not None:
        _show_left(found["left_alone"])
        show_plan(found["plan"], False)
        return
    for ground in found["grounds"]:
        click.echo(ground)
    for one in found["waiting"]:
        click.echo(f"not yet: {one}")
    _show_left(found["left_alone"])
    click.echo("Everything is where it should be.")


def _show_left(sentences: list[str]) -> None:
    for one in sentences[:MOST_LEFT]:
        click.echo(one)
    if len(sentences) > MOST_LEFT:
        click.echo(f"and {len(sentences) - MOST_LEFT} more that people decided on; `metromq delegate` shows them")


@command.command("history", epilog=EPILOG)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
@click.option("--all", "every", is_flag=True, help="Every change of the audit log, not only plans.")
@manager_options
def history(limit: int, every: bool, data: Path, url: str | None, token_file: Path | None, as_json: bool) -> None:
    """What was changed, the newest first."""
    found = need_manager(data, url, token_file).ask("GET", "/history" if every else "/plans", limit=limit)
    if as_json:
        click.echo(json.dumps(found))
        return
    for one in found:
        click.echo(_record(one) if every else _plan(one))


def _plan(one: dict[str, Any]) -> str:
    why = f": {one['why']}" if one["why"] else ""
    head = f"{one['number']:>4}  {text_of(round(one['time'] * 1e6))[:19]}  {one['author']:<10}"
    return f"{head} {one['kind']} {one['subject']} ({one['phase']}{why})"


def _record(one: dict[str, Any]) -> str:
    head = f"{one['number']:>6}  {text_of(round(one['time'] * 1e6))[:19]}  {one['author']:<10}"
    return f"{head} {one['kind']} {json.dumps(one['change'])}"


@command.command("undo", epilog=EPILOG)
@click.argument("number", type=int, required=False)
@click.option("--dry-run", is_flag=True, help="Only show the steps.")
@manager_options
def undo(
    number: int | None, dry_run: bool, data: Path, url: str | None, token_file: Path | None, as_json: bool
) -> None:
    """Take back what a plan did; without a number, the last one of the loop."""
    door = need_manager(data, url, token_file)
    if number is None:
        last = door.ask("GET", "/plans", kind="loop", limit=1)
        if not last:
            raise UsageError("the loop has changed nothing yet")
        number = last[0]["number"]
    show_plan(door.ask("POST", f"/plans/{number}/undo", dry_run=dry_run, wait_s=120), as_json)
