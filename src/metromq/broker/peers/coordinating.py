"""Makes a coordination worker, where kazoo is installed."""

from collections.abc import Callable
from typing import Protocol

from metromq.errors import MetroError, UsageError
from metromq.federation import City

NEEDS_KAZOO = 'coordination = "zookeeper" needs kazoo: pip install "metromq[zookeeper]"'


class Working(Protocol):
    def run(self) -> None: ...

    def stop(self) -> None: ...


def coordination_worker(city: City, name: str, ready: Callable[[], None]) -> Working:
    """One that calls `ready` whenever it begins to work."""
    if not city.overlay.workers:
        raise UsageError("in this city each broker decides for itself: [overlay] workers is 0, or there is none")
    try:
        from metromq.broker.peers.worker import CoordinationWorker  # kazoo is an extra
    except ImportError as error:
        raise MetroError(NEEDS_KAZOO) from error
    return CoordinationWorker(city, name, ready)
