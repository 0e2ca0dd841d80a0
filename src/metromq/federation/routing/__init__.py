"""Which brokers a message must visit: one interface, one file per choice, no I/O.

A new routing is a file with its router (and its succession, if it has a topic table) and a line in ROUTINGS.
"""

from collections.abc import Callable
from dataclasses import dataclass

from metromq.federation.city import City
from metromq.federation.coordination.succession import NoSuccession, Succession
from metromq.federation.routing.central import CentralRouter
from metromq.federation.routing.flood_publications import FloodPublicationsRouter
from metromq.federation.routing.flood_subscriptions import FloodSubscriptionsRouter
from metromq.federation.routing.geographic import AreaSuccession, GeographicRouter
from metromq.federation.routing.router import Audience, Onward, Router, Suggestion


def no_succession(city: City) -> Succession:
    return NoSuccession()


@dataclass(frozen=True, slots=True)
class RoutingChoice:
    """A word for `routing` in a city's file, and what it means."""

    router: type[Router]
    succession: Callable[[City], Succession] = no_succession


ROUTINGS: dict[str, RoutingChoice] = {
    "central": RoutingChoice(CentralRouter),
    "flood-publications": RoutingChoice(FloodPublicationsRouter),
    "flood-subscriptions": RoutingChoice(FloodSubscriptionsRouter),
    "geographic": RoutingChoice(GeographicRouter, AreaSuccession),
}

__all__ = ["ROUTINGS", "Audience", "Onward", "Router", "RoutingChoice", "Suggestion"]
