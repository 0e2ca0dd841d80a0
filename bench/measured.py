"""What a run of a scenario came to."""

from collections.abc import Callable
from dataclasses import dataclass

# For some seconds: what was found (each message's nanoseconds, or one rate), and how many messages were lost.
Probe = Callable[[float], tuple[list[int], int]]


@dataclass(frozen=True, slots=True)
class Measured:
    """The outcome of one run against one broker."""

    values: dict[str, float]
    lost: int = 0
