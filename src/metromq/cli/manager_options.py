"""What the commands that ask a manager have in common: where it is, and plans as people read them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.markup import escape

from metromq.control import DEFAULT_DATA
from metromq.errors import UsageError

Command = TypeVar("Command", bound=Callable[..., Any])
MARKS = {"done": "[green]✓[/]", "under way": "[yellow]…[/]", "failed": "[red]✗[/]", "taken back": "↩", "": " "}


def manager_options(command: Command) -> Command:
    """--data, --manager, --token-file and --json."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON for programs."),
        click.option(
            "--token-file", type=click.Path(path_type=Path), help="The manager's token. Default: in the data directory."
        ),
        click.option("--manager", "url", metavar="URL", help="A manager elsewhere."),
        click.option(
            "--data",
            type=click.Path(path_type=Path),
            default=DEFAULT_DATA,
            show_default=True,
            help="Data directory, as given to `up`.",
        ),
    ):
        command = option(command)
    return command


def show_plan(plan: dict[str, Any], as_json: bool) -> None:
    """The same steps, whether they are to be done, or were; raises UsageError for one that failed."""
    if as_json:
        click.echo(json.dumps(plan))
    else:
        console = Console()
        number = f"plan {plan['number']}: " if plan["number"] else "dry run: "
        console.print(escape(f"{number}{plan['kind']} {plan['subject']} ({plan['phase']})"), highlight=False)
        for ground in plan["grounds"]:
            because = "" if ground.startswith("left alone: ") else "because "
            console.print(f"  {because}{escape(ground)}", highlight=False)
        for place, step in enumerate(plan["steps"], 1):
            result = f" [dim]{escape(step['result'])}[/]" if step["result"] else ""
            console.print(f"  {MARKS[step['state']]} {place}. {escape(step['says'])}{result}", highlight=False)
    if plan["phase"] == "rolled-back":
        raise UsageError(f"plan {plan['number']} failed and was taken back: {plan['why']}")
    if plan["phase"] == "stuck":
        raise UsageError(f"plan {plan['number']} failed, and not all of it could be taken back: {plan['why']}")
