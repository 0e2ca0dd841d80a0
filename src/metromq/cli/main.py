"""The `metromq` command: a table of commands, each loaded only when it is called."""

import importlib
import sys

import click

from metromq import __version__
from metromq.errors import MetroError, UsageError

COMMANDS: dict[str, tuple[str, str]] = {  # name: module, what it does
    "demo": ("metromq.cli.demo", "Sixteen brokers and moving sensors on this machine."),
    "up": ("metromq.cli.up", "Start a whole city on this machine."),
    "status": ("metromq.cli.status", "What runs where in a city, and what passes between brokers."),
    "explain": ("metromq.cli.explain", "The way of a message or a subscription, and why."),
    "serve": ("metromq.cli.serve", "Run one broker, alone or of a city."),
    "check-config": ("metromq.cli.check_config", "Every problem of a configuration, and its place."),
    "passwd": ("metromq.cli.passwd", "Passwords in Mosquitto's format."),
    "pub": ("metromq.cli.pub", "Publish, with the options of mosquitto_pub."),
    "sub": ("metromq.cli.sub", "Subscribe, with the options of mosquitto_sub."),
    "pipeline": ("metromq.cli.pipeline", "From journals to tables to statistics, on Spark."),
    "plan": ("metromq.cli.plan", "Where brokers and services should run."),
    "lab": ("metromq.cli.lab", "The papers' experiments, published numbers beside ours."),
}
EXTRAS = {"pipeline": "pipeline", "plan": "plan", "lab": "lab"}  # commands that need more than the bare package


class LazyGroup(click.Group):
    """Imports `<module>.command` when a command is called, so that `pub` never pays for Spark."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        try:
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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["--help"]})
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
