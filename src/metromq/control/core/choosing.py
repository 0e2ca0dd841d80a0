"""Which filters should be delegated and to whom, and where services should run: statistics in, a proposal out.

LP, NS and EP are the paper's rules. `auto` counts what would cross between brokers either way, and delegates what saves
enough. Where things go the planner says.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from metromq.control.core.traffic import Rows, Statistics, client_mbps, messages_between, published_mbps, seen_by
from metromq.control.core.words import Device, ServiceSpec
from metromq.planning import (
    POLICIES,
    Clock,
    Goal,
    Limits,
    Placement,
    Plan,
    Problem,
    Service,
    Topic,
    TopicStatistics,
    choose,
    make_placement,
    move_price,
    priced,
    service_workload,
    topic_workloads,
    wants,
)
from metromq.planning import Device as Machine

PolicyName = Literal["LP", "NS", "EP", "auto"]
BROKER_WORKLOAD: Final = 10.0  # per Mbps, the paper's
NETWORK_MW: Final = 0.0137  # per Mbps
PLAN_S: Final = 20.0
ROOM: Final = 1e-9  # of rounding
POWER_WEIGHT: Final = 0.1  # beside traffic: who is near counts for more than who needs little power


@dataclass(frozen=True, slots=True)
class LoopSettings:
    policy: PolicyName = "auto"
    levels: int = 2  # topics go together by so many first levels
    least_saving: float = 0.1  # auto: the share of messages between brokers that a delegation must save


@dataclass(frozen=True, slots=True)
class Proposal:
    """`filters` and `services` are where things should be; what crosses per second now and then, as estimated."""

    filters: Mapping[str, str] = field(default_factory=dict)
    services: Mapping[str, str] = field(default_factory=dict)
    crossing_now: float = 0.0
    crossing_then: float = 0.0
    grounds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scene:
    """What a proposal starts from."""

    central: str
    devices: tuple[Device, ...]
    units: Mapping[str, Rows]  # filter -> its topics' counts
    present: Mapping[str, str]  # filter -> broker, of those that the manager may move
    services: Mapping[str, tuple[ServiceSpec, str]]  # with the device
    users: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # service -> device -> Mbps


def propose(scene: Scene, statistics: Statistics, settings: LoopSettings, clock: Clock) -> Proposal:
    """What should be, without any patience."""
    if not scene.devices:
        return Proposal(grounds=("there are no devices",))
    wished = _by_saving(scene, settings) if settings.policy == "auto" else _by_rule(scene, settings.policy)
    if not wished and not scene.services:
        return Proposal({}, {}, *_crossing(scene, {}), (f"{settings.policy} delegates nothing",))
    problem = problem_of(scene, wished)
    present = _present(scene, wished)
    weights = Goal(power=POWER_WEIGHT, traffic=1.0)
    goal = replace(weights, present=present, move=move_price(problem, present, weights))
    plan = make_placement(problem, "auto", clock, goal, Limits(seconds=PLAN_S))
    if not plan.feasible:
        kept = {name: broker for name, broker in scene.present.items() if name in scene.units}
        where = {name: device for name, (_, device) in scene.services.items()}
        return Proposal(kept, where, *_crossing(scene, kept), (f"no placement fits: {plan.shortage}",))
    if settings.policy == "auto":
        plan = replace(plan, placement=_without_losses(scene, settings, plan.placement))
    return _answer(scene, settings, statistics, plan)


def _services_then(scene: Scene, placement: Placement) -> dict[str, str]:
    return {
        name: spec.device or placement.services.get(name, device) for name, (spec, device) in scene.services.items()
    }


def _without_losses(scene: Scene, settings: LoopSettings, placement: Placement) -> Placement:
    """The planner counts bytes at devices, `auto` messages between brokers: where more of them would cross than now, a
    filter stays where it is if there is room, and one that nobody needs there is not delegated.

    Filters of services that move are counted where the services are now, so there the planner is right.
    """
    broker_of = {device.name: device.broker for device in scene.devices}
    device_of = {device.broker: device.name for device in scene.devices}
    then = _services_then(scene, placement)
    moving = [one for name, (spec, device) in scene.services.items() if then[name] != device for one in spec.topics]
    needed = {one for spec, _ in scene.services.values() for one in spec.topics}
    topics = dict(placement.topics)
    for name, device in placement.topics.items():
        rows, before = scene.units[name], scene.present.get(name, "")
        now, after = (messages_between(rows, broker, scene.central) for broker in (before, broker_of[device]))
        if name in moving or (after <= now if before in device_of else now - after > settings.least_saving * now):
            continue
        if before in device_of:
            topics[name] = device_of[before]
        elif name not in needed:
            del topics[name]
    kept = Placement(topics, placement.services)
    found = priced(problem_of(scene, list(topics)), kept)
    capacity = {device.name: device.capacity_workload * (1 + ROOM) for device in scene.devices}
    fits = found is not None and all(load <= capacity[device] for device, load in found.load.items())
    return kept if fits else placement


def _answer(scene: Scene, settings: LoopSettings, statistics: Statistics, plan: Plan) -> Proposal:
    home = {device.name: device.broker for device in scene.devices}
    filters = {name: home[device] for name, device in plan.placement.topics.items()}
    services = _services_then(scene, plan.placement)
    now, then = _crossing(scene, filters)
    grounds = (
        f"{statistics.source}, {len(statistics.rows)} topics in {statistics.seconds:.0f} s",
        f"{settings.policy} wants {len(filters)} filters delegated; {plan.method} placed them ({plan.status})",
        f"messages between brokers: {now:.1f} per second now, about {then:.1f} then",
    )
    return Proposal(filters, services, now, then, grounds)


def _crossing(scene: Scene, filters: Mapping[str, str]) -> tuple[float, float]:
    return (
        sum(messages_between(rows, scene.present.get(name, ""), scene.central) for name, rows in scene.units.items()),
        sum(messages_between(rows, filters.get(name, ""), scene.central) for name, rows in scene.units.items()),
    )


def _by_saving(scene: Scene, settings: LoopSettings) -> list[str]:
    """What saves most first, while the devices have room for it. What a service needs is delegated anyway."""
    needed = _needed(scene)
    worth: dict[str, float] = {}
    for name, rows in scene.units.items():
        before = messages_between(rows, "", scene.central)
        after = min(messages_between(rows, device.broker, scene.central) for device in scene.devices)
        enough = 0.0 if name in scene.present else settings.least_saving * before
        if name in needed:
            worth[name] = float("inf")
        elif before - after > max(enough, 0.0):
            worth[name] = before - after
    return _within_budget(scene, sorted(worth, key=lambda name: (-worth[name], name)))


def _needed(scene: Scene) -> list[str]:
    """What services use is delegated by every policy: their entry did it."""
    used = (name for spec, _ in scene.services.values() if spec.delegate for name in spec.topics)
    return [name for name in dict.fromkeys(used) if name in scene.units]


def _within_budget(scene: Scene, ranked: list[str]) -> list[str]:
    problem = problem_of(scene, ranked)
    need = topic_workloads(problem)
    left = sum(device.capacity_workload for device in scene.devices) - service_workload(problem)
    taken: list[str] = []
    for name in ranked:
        if need[name] <= left:
            taken.append(name)
            left -= need[name]
    return taken


def _by_rule(scene: Scene, policy: PolicyName) -> list[str]:
    """A filter is delegated if the rule wants most of its traffic to be, or a service uses it."""
    needed = _within_budget(scene, _needed(scene))
    rule = next(one for one in POLICIES if one == policy)
    inside = frozenset(device.broker for device in scene.devices)
    sums: dict[str, TopicStatistics] = {}
    for name, rows in scene.units.items():
        if name in needed:
            continue
        seen = {topic: seen_by(found, inside) for topic, found in rows.items()}
        wanted = [topic for topic, one in seen.items() if wants(rule, one)]
        rate = {topic: sum(counts.publications for counts in found.values()) for topic, found in rows.items()}
        if wanted and 2 * sum(rate[topic] for topic in wanted) >= sum(rate.values()):
            sums[name] = _sum([seen[topic] for topic in wanted])
    problem = problem_of(scene, list(sums))
    budget = sum(device.capacity_workload for device in scene.devices) - service_workload(problem)
    taken = topic_workloads(problem_of(scene, needed))
    return [*needed, *choose(problem, rule, max(budget - sum(taken.values()), 0.0), sums).delegated]


def _sum(found: list[TopicStatistics]) -> TopicStatistics:
    return TopicStatistics(
        sum(one.publishers_inside for one in found),
        sum(one.publishers_outside for one in found),
        sum(one.subscribers_inside for one in found),
        sum(one.subscribers_outside for one in found),
    )


def problem_of(scene: Scene, filters: list[str]) -> Problem:
    """The planner's problem: every device is one hop from every other."""
    device_of = {device.broker: device.name for device in scene.devices}
    count = len(scene.devices)
    return Problem(
        BROKER_WORKLOAD,
        NETWORK_MW,
        tuple(Machine(one.name, one.capacity_workload, one.mw_per_workload) for one in scene.devices),
        tuple(tuple(int(i != j) for j in range(count)) for i in range(count)),
        tuple(Topic(name, _at_devices(scene.units.get(name, {}), device_of)) for name in filters),
        tuple(_service(scene, name, set(filters)) for name in scene.services),
    )


def _at_devices(rows: Rows, device_of: Mapping[str, str]) -> dict[str, float]:
    return {device_of[broker]: mbps for broker, mbps in client_mbps(rows).items() if broker in device_of}


def _service(scene: Scene, name: str, filters: set[str]) -> Service:
    spec, _ = scene.services[name]
    used = {one: published_mbps(scene.units.get(one, {})) for one in spec.topics}
    known = {device.name for device in scene.devices}
    return Service(
        name,
        spec.mqtt_workload_per_mbps,
        spec.user_workload_per_mbps,
        {one: mbps for one, mbps in used.items() if one in filters},
        {device: mbps for device, mbps in scene.users.get(name, {}).items() if device in known},
        sum(mbps for one, mbps in used.items() if one not in filters),
    )


def _present(scene: Scene, filters: list[str]) -> Placement:
    device_of = {device.broker: device.name for device in scene.devices}
    topics = {
        name: device_of[broker] for name, broker in scene.present.items() if name in filters and broker in device_of
    }
    known = {device.name for device in scene.devices}
    return Placement(topics, {name: device for name, (_, device) in scene.services.items() if device in known})
