"""The `metromq` command: a table of commands, each loaded only when it is called."""

import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import click

from metromq import __version__
from metromq.errors import MetroError, UsageError

COMMANDS: dict[str, tuple[str, str]] = {  # name: module, what it does
    "demo": ("metromq.cli.demo", "Start sixteen brokers with moving sensors on this machine."),
    "up": ("metromq.cli.up", "Start a whole city on this machine."),
    "status": ("metromq.cli.status", "Show what runs where in a city, and the traffic between brokers."),
    "explain": ("metromq.cli.explain", "Trace a message or a subscription through a city."),
    "delegate": ("metromq.cli.delegate", "Make a broker of the city responsible for a topic filter."),
    "recluster": ("metromq.cli.recluster", "Give the topics of a running overlay the clusters that were proposed."),
    "manager": ("metromq.cli.manager", "Manage a city with delegation: topics, services, devices, proxies."),
    "service": ("metromq.cli.service", "Run services at the edge: add, list, remove, logs."),
    "devices": ("metromq.cli.devices", "Show and change the edge devices of a manager."),
    "loop": ("metromq.cli.loop", "Move topics and services to where traffic wants them."),
    "proxy": ("metromq.cli.proxy", "Stand between clients and a city with delegation."),
    "tunnel": ("metromq.cli.tunnel", "Bring the clients of proxies to an edge broker."),
    "serve": ("metromq.cli.serve", "Run one broker, on its own or as part of a city."),
    "coordinate": ("metromq.cli.coordinate", "Run a coordination worker of a city with clusters of publishers."),
    "city": ("metromq.cli.city", "Show and change a running city: apply, undo, history, tokens for newcomers."),
    "area": ("metromq.cli.area", "Move areas between brokers of a running city."),
    "leave": ("metromq.cli.leave", "Make a broker leave its city for good, with all it has handed over."),
    "drain": ("metromq.cli.drain", "Send a broker's clients elsewhere before maintenance."),
    "check-config": ("metromq.cli.check_config", "Check a configuration and report every error."),
    "passwd": ("metromq.cli.passwd", "Manage password files in Mosquitto's format."),
    "pub": ("metromq.cli.pub", "Publish messages, with the options of mosquitto_pub."),
    "sub": ("metromq.cli.sub", "Subscribe and print messages, with the options of mosquitto_sub."),
    "pipeline": ("metromq.cli.pipeline", "Turn journals into tables and statistics, on Spark."),
    "plan": ("metromq.cli.plan", "Plan where brokers and services should run."),
    "lab": ("metromq.cli.lab", "Run the papers' experiments and compare with the published numbers."),
}
EPILOG = """\b
Examples:
  metromq demo               a city with moving sensors, and commands to explore it
  metromq serve              one broker on 127.0.0.1:1883
  metromq up city.toml       all brokers of your own city
\b
`metromq COMMAND --help` has the options of a command and more examples.
"""
EXTRAS = {
    "pipeline": "pipeline",
    "plan": "plan",
    "lab": "lab",
    "manager": "manager",
}  # commands that need more than the bare package

STOPPED = 130  # 128 + SIGINT


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, b"metromq: stopped\n")
    os._exit(STOPPED)


@contextmanager
def _leaving_at_once() -> Iterator[None]:
    """While modules are imported nothing is lost by that, and Ctrl-C would not always end us otherwise: extension
    modules swallow it, or say that they cannot be imported."""
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class LazyGroup(click.Group):
    """Imports `<module>.command` when a command is called, so that `pub` never pays for Spark."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        try:
            with _leaving_at_once():
                command = importlib.import_module(COMMANDS[cmd_name][0]).command
        except ModuleNotFoundError as error:
            if cmd_name not in EXTRAS or (error.name or "").startswith("metromq"):
                raise
            extra = EXTRAS[cmd_name]
            raise UsageError(
                f"{cmd_name} needs {error.name}, which is not installed: pip install 'metromq[{extra}]'"
            ) from error
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Ctrl-C that a command does not answer itself ends it as shells expect; 1 means other things."""
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort):
            click.echo("metromq: stopped", err=True)
            sys.exit(STOPPED)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["--help"]}, epilog=EPILOG)
@click.version_option(__version__, prog_name="metromq")
def group() -> None:
    """MetroMQ: many small MQTT brokers at the edge of a city, working as one."""


def main() -> None:
    try:
        group(prog_name="metromq")
    except MetroError as error:
        click.echo(f"metromq: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
