"""`metromq coordinate`: one of the workers that decide which brokers of an overlay form clusters."""

import os
import signal
import sys
import threading
from pathlib import Path

import click

from metromq.broker.peers import coordination_worker
from metromq.control import DEFAULT_DATA, city_running, keep_worker
from metromq.errors import UsageError

EPILOG = """\b
Example:
  metromq coordinate --city city.toml --name worker-4

\b
`metromq up` starts as many as [overlay] workers says. More of them, on any machine, share the work with these; when one
dies the others answer what it was asked. docs/overlay.md says how it works.
"""


@click.command("coordinate", epilog=EPILOG)
@click.option("--city", "city_name", metavar="CITY", help="A TOML file or the name of a preset.")
@click.option("--name", required=True, help="Of the worker; no two may have the same.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    default=DEFAULT_DATA,
    show_default=True,
    help="Data directory, as given to `up`.",
)
@click.option("--until-eof", is_flag=True, hidden=True, help="Stop when standard input ends: `up` holds its other end.")
def command(city_name: str | None, name: str, data: Path, until_eof: bool) -> None:
    """Answer what the brokers of a city with routing = "overlay" ask, until stopped.

    For cities with coordination = "zookeeper" and [overlay] workers above 0.
    """
    if not name.isprintable() or "/" in name:
        raise UsageError("a worker's name must be printable text without a slash")
    city = city_running(city_name, data, os.environ)
    worker = coordination_worker(city, name, lambda: keep_worker(data / name))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: worker.stop())
    if until_eof:
        threading.Thread(target=_stop_at_eof, args=(worker.stop,), daemon=True).start()
    worker.run()


def _stop_at_eof(stop: object) -> None:
    while os.read(sys.stdin.fileno(), 4096):
        continue
    assert callable(stop)
    stop()
