"""The `metromq` command: a table of commands, each loaded only when it is called."""

import importlib
import sys

import click

from metromq import __version__
from metromq.errors import MetroError

COMMANDS: dict[str, str] = {
    "demo": "metromq.cli.demo",
    "up": "metromq.cli.up",
    "status": "metromq.cli.status",
    "explain": "metromq.cli.explain",
    "serve": "metromq.cli.serve",
    "check-config": "metromq.cli.check_config",
    "passwd": "metromq.cli.passwd",
    "pub": "metromq.cli.pub",
    "sub": "metromq.cli.sub",
    "plan": "metromq.cli.plan",
    "lab": "metromq.cli.lab",
    "pipeline": "metromq.cli.pipeline",
}


class LazyGroup(click.Group):
    """Imports `<module>.command` when a command is asked for, so that `pub` never pays for Spark."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(COMMANDS[cmd_name]).command
        assert isinstance(command, click.Command)
        return command


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
