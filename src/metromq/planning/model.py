"""The placement problem and the plan as frozen data: devices, topics, services, weights, and what a planner answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from metromq.constraints import NotEmpty, Range

Clock = Callable[[], float]  # seconds on any steady scale; an argument, so that planning itself reads no clock
Watch = Callable[[str, float | None, float | None], None]  # what goes on, the best price and the best bound so far

# Bounds that no city reaches and within which the solvers' arithmetic holds.
Mbps = Annotated[float, Range(0, 1e9)]
PerUnit = Annotated[float, Range(0, 1e9)]
Capacity = Annotated[float, Range(0, 1e15)]
Count = Annotated[int, Range(0)]
Name = Annotated[str, NotEmpty()]


def nobody(what: str, price: float | None, bound: float | None) -> None:
    """Watches nothing."""


@dataclass(frozen=True, slots=True)
class Device:
    """An edge machine: how much workload it can carry, and the power one unit of workload costs there."""

    name: Name
    capacity_workload: Capacity
    mw_per_workload: PerUnit


@dataclass(frozen=True, slots=True)
class TopicStatistics:
    """Who publishes and subscribes a topic, inside and outside the network: what the delegation policies look at."""

    publishers_inside: Count = 0
    publishers_outside: Count = 0
    subscribers_inside: Count = 0
    subscribers_outside: Count = 0


@dataclass(frozen=True, slots=True)
class Topic:
    """A delegated topic: its broker container has to run somewhere; `client_mbps` is its traffic per device."""

    name: Name
    client_mbps: Mapping[str, Mbps] = field(default_factory=dict)
    statistics: TopicStatistics | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """A user's program: MQTT traffic from topics, other traffic from users, and the workload each Mbps makes."""

    name: Name
    mqtt_workload_per_mbps: PerUnit
    user_workload_per_mbps: PerUnit
    topic_mbps: Mapping[str, Mbps] = field(default_factory=dict)
    user_mbps: Mapping[str, Mbps] = field(default_factory=dict)
    cloud_mbps: Mbps = 0.0  # MQTT traffic of topics that stayed with the central broker: workload, but no local hops


@dataclass(frozen=True, slots=True)
class Problem:
    """Everything a planner may know; `hops[i][j]` counts the hops between the devices of those positions."""

    broker_workload_per_mbps: float
    network_mw_per_mbps: float
    devices: tuple[Device, ...]
    hops: tuple[tuple[int, ...], ...]
    topics: tuple[Topic, ...]
    services: tuple[Service, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """Container -> device, by name."""

    topics: Mapping[str, str]
    services: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Goal:
    """What counts, and how much: mW of power, Mbps x hops of traffic, hops of the worst path, moved containers."""

    power: float = 1.0
    traffic: float = 0.0
    latency: float = 0.0
    move: float = 0.0
    present: Placement | None = None  # where containers run now; those it does not name are new and move for free
    max_moves: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """When a planner may stop: seconds of wall clock, and the relative gap that counts as proven."""

    seconds: float = 60.0
    gap: float = 1e-4


INFEASIBLE, NOT_FOUND = "infeasible", "not-found"
STATUSES = {
    "optimal": "proven to be the best",
    "feasible": "a plan by a method that proves nothing; the same for the same seed",
    "time-limit": "the best plan when the time was up",
    "interrupted": "the best plan when somebody stopped the planner",
    INFEASIBLE: "proven that no placement fits",
    NOT_FOUND: "no placement was found, which proves nothing",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """A placement with its price; STATUSES says what `status` may be and mean.

    `bound_mw` is a proven lower bound of the objective; it is in mW when only power is weighed, as by default.
    `shortage` says, without a plan, which capacity is short and by how much, or what was tried.
    """

    placement: Placement
    power_mw: float
    bound_mw: float
    gap: float
    network_mbps: float
    load: Mapping[str, float]
    status: str
    seconds: float
    objective: float = 0.0
    worst_hops: int = 0
    moves: int = 0
    shortage: str = ""
    method: str = ""

    @property
    def feasible(self) -> bool:
        """Whether there is a plan."""
        return self.status not in (INFEASIBLE, NOT_FOUND)


def plan_document(plan: Plan) -> dict[str, Any]:
    """The plan as JSON has it; numbers of a plan that does not exist are null."""
    numbers = {
        name: value if value == value else None
        for name, value in (
            ("power_mw", plan.power_mw),
            ("objective", plan.objective),
            ("bound_mw", plan.bound_mw),
            ("gap", plan.gap),
            ("network_mbps", plan.network_mbps),
        )
    }
    return {
        "topics": dict(plan.placement.topics),
        "services": dict(plan.placement.services),
        **numbers,
        "worst_hops": plan.worst_hops if plan.feasible else None,
        "moves": plan.moves if plan.feasible else None,
        "load": dict(plan.load),
        "method": plan.method,
        "status": plan.status,
        "shortage": plan.shortage or None,
        "seconds": plan.seconds,
    }
