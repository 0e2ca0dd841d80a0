"""Which brokers a message must visit: one interface, one file per choice, no I/O."""

from metromq.federation.city import City
from metromq.federation.coordination.core import TopicTable
from metromq.federation.routing.central import CentralRouter
from metromq.federation.routing.flood_publications import FloodPublicationsRouter
from metromq.federation.routing.flood_subscriptions import FloodSubscriptionsRouter
from metromq.federation.routing.geographic import GeographicRouter
from metromq.federation.routing.router import Audience, Decision, Router

ROUTERS: dict[str, type[Router]] = {
    "central": CentralRouter,
    "flood-publications": FloodPublicationsRouter,
    "flood-subscriptions": FloodSubscriptionsRouter,
    "geographic": GeographicRouter,
}


def router_for(city: City, name: str, table: TopicTable) -> Router:
    return ROUTERS[city.routing](city, name, table)


__all__ = ["ROUTERS", "Audience", "Decision", "Router", "router_for"]
