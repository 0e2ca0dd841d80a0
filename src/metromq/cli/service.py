"""`metromq service`: services at the edge: add, list, remove, and what they print."""

import json
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from metromq.cli.manager_options import manager_options, show_plan
from metromq.cli.numbers import AMOUNT
from metromq.control import need_manager
from metromq.documents import read_document
from metromq.errors import UsageError

EPILOG = """\b
Examples:
  metromq service add noise --topic 'noise/+/level' -- python examples/noise_map.py
  metromq service add noise --topic 'noise/+/level' --dry-run -- python examples/noise_map.py
  metromq service add parking.toml                  a file with the fields of docs/manager.md
  metromq service add air --topic 'air/#' --runtime podman --image registry.example/air:3 --cpus 0.5 --memory 128
  metromq service list
  metromq service logs noise --follow
  metromq service remove noise
"""


@click.group("service", epilog=EPILOG)
def command() -> None:
    """Run services at the edge, beside the brokers that have their topics.

    The manager chooses the device, hands the topics over, tells the proxies, and then starts the service.
    """


@command.command("add", epilog=EPILOG)
@click.argument("name", metavar="NAME|FILE")
@click.argument("words", nargs=-1, metavar="[-- COMMAND ...]")
@click.option("--topic", "topics", multiple=True, metavar="FILTER", help="Topics that it uses; may be repeated.")
@click.option("--runtime", type=click.Choice(["process", "podman"]), default="process", show_default=True)
@click.option("--image", default="", help="podman: an image.")
@click.option("--rootfs", default="", help="podman: a directory instead of an image.")
@click.option("--env", "environment", multiple=True, metavar="NAME=VALUE")
@click.option("--device", default="", help="Where it must run. Default: the planner chooses.")
@click.option("--cpus", type=AMOUNT, default=0.0, help="podman: how many processors it may use; 0: all.")
@click.option("--memory", "memory_mb", type=int, default=0, help="Megabytes that it may use; 0: any.")
@click.option("--mqtt-workload", type=AMOUNT, default=10.0, show_default=True, help="Workload per Mbps of its topics.")
@click.option("--user-workload", type=AMOUNT, default=10.0, show_default=True, help="Workload per Mbps of its users.")
@click.option("--no-delegate", is_flag=True, help="Its topics stay where they are.")
@click.option("--dry-run", is_flag=True, help="Only show the steps.")
@manager_options
def add(
    name: str,
    words: tuple[str, ...],
    dry_run: bool,
    data: Path,
    url: str | None,
    token_file: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Let a service enter: statistics, feasibility, placement, broker, topics, proxies, and then the service."""
    spec = read_document(Path(name)) if name.endswith((".toml", ".json")) else _spec(name, words, options)
    door = need_manager(data, url, token_file)
    show_plan(door.ask("POST", "/services", spec, dry_run=dry_run, wait_s=120), as_json)


def _spec(name: str, words: tuple[str, ...], options: dict[str, Any]) -> dict[str, Any]:
    pairs = [text.partition("=") for text in options["environment"]]
    if any(not equals for _, equals, _ in pairs):
        raise UsageError("--env should look like NAME=VALUE")
    return {
        "name": name,
        "topics": options["topics"],
        "command": words,
        "runtime": options["runtime"],
        "image": options["image"],
        "rootfs": options["rootfs"],
        "environment": {key: value for key, _, value in pairs},
        "device": options["device"],
        "limits": {"cpus": options["cpus"], "memory_mb": options["memory_mb"]},
        "mqtt_workload_per_mbps": options["mqtt_workload"],
        "user_workload_per_mbps": options["user_workload"],
        "delegate": not options["no_delegate"],
    }


@command.command("list", epilog=EPILOG)
@manager_options
def show(data: Path, url: str | None, token_file: Path | None, as_json: bool) -> None:
    """Show what runs where."""
    found = need_manager(data, url, token_file).ask("GET", "/services")
    if as_json:
        click.echo(json.dumps(found))
        return
    if not found:
        click.echo("No service runs. Add one with `metromq service add`.")
        return
    table = Table("service", "device", "runtime", "topics", "state", "restarts")
    for one in found:
        state = "running" if one["running"] else "waiting for a restart"
        table.add_row(one["name"], one["device"], one["runtime"], " ".join(one["topics"]), state, str(one["restarts"]))
    Console().print(table)


@command.command("remove", epilog=EPILOG)
@click.argument("name")
@click.option("--dry-run", is_flag=True, help="Only show the steps.")
@manager_options
def remove(name: str, dry_run: bool, data: Path, url: str | None, token_file: Path | None, as_json: bool) -> None:
    """Stop a service, and return the topics that were delegated for it."""
    door = need_manager(data, url, token_file)
    show_plan(door.ask("DELETE", f"/services/{name}", dry_run=dry_run, wait_s=120), as_json)


@command.command("logs", epilog=EPILOG)
@click.argument("name")
@click.option("--follow", is_flag=True, help="Go on with what it prints from now on.")
@manager_options
def logs(name: str, follow: bool, data: Path, url: str | None, token_file: Path | None, as_json: bool) -> None:
    """What a service has printed."""
    for chunk in need_manager(data, url, token_file).stream(f"/services/{name}/logs", follow=follow):
        sys.stdout.buffer.write(chunk)
        sys.stdout.flush()
