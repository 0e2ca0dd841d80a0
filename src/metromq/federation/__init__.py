"""Many brokers as one: routing, links and coordination."""

from metromq.federation import stages
from metromq.federation.city import BrokerSpec, City, grid_city, haversine_km, split_address
from metromq.federation.explaining import (
    StepHop,
    TraceStep,
    explain_step,
    is_filter,
    step_from_json,
    step_to_json,
    with_ways,
)
from metromq.federation.node import Node
from metromq.federation.status import (
    DOWN,
    UNREACHABLE,
    UP,
    AreaStatus,
    BrokerStatus,
    CityStatus,
    LinkStatus,
    Traffic,
    broker_from_json,
    to_json,
)

__all__ = [
    "DOWN",
    "UNREACHABLE",
    "UP",
    "AreaStatus",
    "BrokerSpec",
    "BrokerStatus",
    "City",
    "CityStatus",
    "LinkStatus",
    "Node",
    "StepHop",
    "TraceStep",
    "Traffic",
    "broker_from_json",
    "explain_step",
    "grid_city",
    "haversine_km",
    "is_filter",
    "split_address",
    "stages",
    "step_from_json",
    "step_to_json",
    "to_json",
    "with_ways",
]
