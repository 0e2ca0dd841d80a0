"""`metromq drain`: one of the commands that change a running city; they share their work in city.py."""

from metromq.cli.city import drain_command as command

__all__ = ["command"]
