"""Which brokers a message must visit: one interface, one file per choice, no I/O.

A new routing is a file with its router (and its succession, if it has a topic table) and a line in ROUTINGS.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from metromq.federation.city import City, Routing
from metromq.federation.coordination.succession import NoSuccession, Succession, TopicTable
from metromq.federation.routing.central import CentralRouter
from metromq.federation.routing.changing import ChangingRouter, must_retain
from metromq.federation.routing.delegation import DelegationRouter, FilterSuccession
from metromq.federation.routing.flood_publications import FloodPublicationsRouter
from metromq.federation.routing.flood_subscriptions import FloodSubscriptionsRouter
from metromq.federation.routing.geographic import AreaSuccession, GeographicRouter
from metromq.federation.routing.overlay import OverlayRouter, OverlaySuccession
from metromq.federation.routing.overlay_map import changes_to, clusters_led, split_key
from metromq.federation.routing.reclustering import ClusterWays, Usage, improved
from metromq.federation.routing.router import EVERYTHING, Audience, Carry, Onward, Router, Suggestion, Ways
from metromq.federation.routing.workers import Request, Worker, assigned, topics_of


def no_succession(city: City) -> Succession:
    return NoSuccession()


@dataclass(frozen=True, slots=True)
class RoutingChoice:
    """A word for `routing` in a city's file, and what it means."""

    router: type[Router]
    succession: Callable[[City], Succession] = no_succession


ROUTINGS: dict[str, RoutingChoice] = {
    "central": RoutingChoice(CentralRouter),
    "delegation": RoutingChoice(DelegationRouter, FilterSuccession),
    "flood-publications": RoutingChoice(FloodPublicationsRouter),
    "flood-subscriptions": RoutingChoice(FloodSubscriptionsRouter),
    "geographic": RoutingChoice(GeographicRouter, AreaSuccession),
    "overlay": RoutingChoice(OverlayRouter, OverlaySuccession),
}


def router_for(city: City, name: str, table: TopicTable) -> Router:
    """The router of the city, or of a city whose routing changes."""
    router = ROUTINGS[city.routing].router(city, name, table)
    if not city.beside:
        return router
    other = dataclasses.replace(city, routing=cast(Routing, city.beside), central=city.beside_central)
    return ChangingRouter(router, ROUTINGS[city.beside].router(other, name, table))


def succession_for(city: City) -> Succession:
    """Of whichever routing has a topic table."""
    own = ROUTINGS[city.routing].succession(city)
    return own if own.kind or not city.beside else ROUTINGS[city.beside].succession(city)


__all__ = [
    "EVERYTHING",
    "ROUTINGS",
    "Audience",
    "Carry",
    "ClusterWays",
    "FloodSubscriptionsRouter",
    "Onward",
    "OverlayRouter",
    "OverlaySuccession",
    "Request",
    "Router",
    "RoutingChoice",
    "Suggestion",
    "Usage",
    "Ways",
    "Worker",
    "assigned",
    "changes_to",
    "clusters_led",
    "improved",
    "must_retain",
    "router_for",
    "split_key",
    "succession_for",
    "topics_of",
]
