"""What stands between a coordinator and the servers that it needs: kazoo in the live broker, a simulated ensemble."""

from typing import Protocol


class Shim(Protocol):
    """It tells the coordinator what the servers say, and gives the node the events that follow."""

    def start(self) -> None:
        """After the host has started."""

    def take_writes(self) -> None:
        """After each tick: what the coordinator wants written or asked."""
