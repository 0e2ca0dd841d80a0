"""Addresses as people type them."""

from metromq.errors import UsageError
from metromq.federation import split_address

LAST_PORT = 65_535


def address(text: str, example: str = "127.0.0.1:1883") -> tuple[str, int]:
    """Host and port; raises UsageError for what is no HOST:PORT."""
    try:
        host, port = split_address(text)
    except ValueError:
        port = -1
    if not 0 <= port <= LAST_PORT:
        raise UsageError(f"{text!r} is no address; it should look like {example}")
    return host, port
