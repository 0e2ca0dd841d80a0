"""What a city agrees on: who is a member, who is there, and facts about who is responsible for what; no I/O.

A new coordinator is a class in a file of its own and a line in COORDINATORS.
"""

from metromq.errors import UsageError
from metromq.federation.city import City
from metromq.federation.coordination.coordinator import Coordinator, Event
from metromq.federation.coordination.embedded import EmbeddedCoordinator
from metromq.federation.coordination.facts import CLUSTER, PUBLISHER, REQUEST, SUBSCRIBER, WANTED, Book, Fact
from metromq.federation.coordination.shim import Shim
from metromq.federation.coordination.succession import NoSuccession, Succession, TopicTable
from metromq.federation.coordination.zookeeper import ZooKeeperCoordinator

COORDINATORS: dict[str, type[Coordinator]] = {"embedded": EmbeddedCoordinator, "zookeeper": ZooKeeperCoordinator}


def coordinator_for(city: City, name: str, incarnation: int, succession: Succession, now_us: int) -> Coordinator:
    """The coordinator that the city's file names."""
    if city.coordination not in COORDINATORS:
        raise UsageError(f"coordination = {city.coordination} cannot be run; choose {' or '.join(COORDINATORS)}")
    return COORDINATORS[city.coordination](city, name, incarnation, succession, now_us)


__all__ = [
    "CLUSTER",
    "COORDINATORS",
    "PUBLISHER",
    "REQUEST",
    "SUBSCRIBER",
    "WANTED",
    "Book",
    "Coordinator",
    "Event",
    "Fact",
    "NoSuccession",
    "Shim",
    "TopicTable",
    "ZooKeeperCoordinator",
    "coordinator_for",
]
