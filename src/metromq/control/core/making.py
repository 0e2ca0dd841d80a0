"""Makes plans: the paper's service entry (its Fig. 6), removal, delegation by hand, the loop's difference, and undo."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from metromq.control.core.choosing import Scene, problem_of
from metromq.control.core.deciding import (
    LOOP,
    Decision,
    by_person,
    by_service,
    decided_by,
    is_persons,
    is_services,
    overruled,
    standing,
    stands,
)
from metromq.control.core.state import PlanState, ServiceState
from metromq.control.core.traffic import Statistics, published_mbps, units_of
from metromq.control.core.words import (
    APPROVE,
    AWAIT_SERVICE,
    CHECK,
    DELEGATE,
    MEASURE,
    PLACE,
    PULL,
    START_BROKER,
    START_SERVICE,
    START_TUNNEL,
    STOP_SERVICE,
    TELL_PROXIES,
    ActionPlan,
    Device,
    ServiceSpec,
    Step,
    filter_problem,
)
from metromq.errors import UsageError
from metromq.planning import Clock, Goal, Limits, Placement, make_placement, priced
from metromq.protocol.topics import covers, narrowest, overlaps

PLAN_S = 20.0
ROOM = 1e-9


class NotPossible(UsageError):
    """What was asked for cannot be done as things are; the message says why."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What plans are made from: the city's delegations, and what the manager runs."""

    central: str
    devices: Mapping[str, Device]
    delegations: Mapping[str, str]  # filter -> broker
    services: Mapping[str, ServiceState] = field(default_factory=dict)
    statistics: Statistics = field(default_factory=Statistics)
    decisions: Mapping[str, Decision] = field(default_factory=dict)  # that the manager knows of, by filter

    @property
    def decided(self) -> dict[str, Decision]:
        """By filter, also what somebody decided without the manager."""
        return standing(self.decisions, self.delegations, self.central)

    @property
    def peoples(self) -> dict[str, Decision]:
        """What is left alone."""
        return {one: decision for one, decision in self.decided.items() if is_persons(decision.by)}

    def broker_of(self, device: str) -> str:
        return self.devices[device].broker


def place_entry(spec: ServiceSpec, around: Surroundings, clock: Clock) -> tuple[Placement, tuple[str, ...]]:
    """Where the service and its topics go, and why; nothing that runs moves. Raises NotPossible."""
    if not around.devices:
        raise NotPossible("there are no devices; add one with `metromq devices add`")
    if spec.device and spec.device not in around.devices:
        raise NotPossible(f"there is no device {spec.device}; there are {', '.join(sorted(around.devices))}")
    fresh = new_filters(spec, around)
    scene = _scene(spec, around)
    known = [one for one in scene.units if one in scene.present or one in fresh]
    problem = problem_of(scene, known)
    if spec.device:
        placed = Placement(
            {one: _device_of(around, scene.present.get(one, "")) or spec.device for one in known},
            {**{name: state.device for name, state in around.services.items()}, spec.name: spec.device},
        )
        plan = priced(problem, placed)
        over = [] if plan is None else [d for d, load in plan.load.items() if load > _capacity(around, d)]
        if over:
            raise NotPossible(f"{', '.join(over)} cannot carry {spec.name} as well; see `metromq devices`")
    else:
        device_of = {device.broker: name for name, device in around.devices.items()}
        present = Placement(
            {one: device_of[b] for one, b in scene.present.items() if one in known and b in device_of},
            {name: state.device for name, state in around.services.items() if state.device in around.devices},
        )
        found = make_placement(problem, "auto", clock, Goal(present=present, max_moves=0), Limits(seconds=PLAN_S))
        if not found.feasible:
            raise NotPossible(f"the devices cannot carry {spec.name} as well: {found.shortage}")
        placed = found.placement
    mbps = sum(published_mbps(scene.units[one]) for one in spec.topics)
    grounds = (
        f"{around.statistics.source}: the topics of {spec.name} carry {mbps:.3g} Mbps",
        f"{placed.services[spec.name]} can carry it",
    )
    return Placement({one: placed.topics[one] for one in fresh}, {spec.name: placed.services[spec.name]}), grounds


def _scene(spec: ServiceSpec, around: Surroundings) -> Scene:
    services = {name: (state.spec, state.device) for name, state in around.services.items() if name != spec.name}
    services[spec.name] = (spec, spec.device)
    filters = dict.fromkeys(one for known, _ in services.values() for one in known.topics)
    return Scene(
        around.central,
        tuple(around.devices.values()),
        {one: around.statistics.of_filter(one) for one in filters},
        {one: around.delegations[one] for one in filters if one in around.delegations},
        services,
    )


def _device_of(around: Surroundings, broker: str) -> str:
    return next((name for name, device in around.devices.items() if device.broker == broker), "")


def _capacity(around: Surroundings, device: str) -> float:
    return around.devices[device].capacity_workload * (1 + ROOM)


def delegation_problem(topic_filter: str, known: Iterable[str]) -> str:
    """Why it cannot be delegated beside the known ones; empty: it can."""
    problem = filter_problem(topic_filter)
    if problem:
        return problem
    for one in known:
        if overlaps(one, topic_filter) and not covers(one, topic_filter) and not covers(topic_filter, one):
            return f"{topic_filter} and {one}, which is delegated, overlap, and neither lies within the other"
    return ""


def heal_plan(lost: Mapping[str, str], decisions: Mapping[str, Decision]) -> ActionPlan:
    """Filters that fell back when their broker was lost, and that it gets again now that it is there."""
    steps = [Step(DELEGATE, one, broker, "", decisions[one], decisions[one]) for one, broker in lost.items()]
    brokers = ", ".join(dict.fromkeys(lost.values()))
    return ActionPlan("heal", ", ".join(lost), (*steps, Step(TELL_PROXIES, "heal")), (f"{brokers} is back",))


def new_filters(spec: ServiceSpec, around: Surroundings) -> list[str]:
    """Those of its topics that nobody has or has decided on yet; raises NotPossible for one that crosses such a
    filter."""
    if not spec.delegate:
        return []
    fresh: list[str] = []
    taken = [*dict.fromkeys((*around.delegations, *around.peoples))]
    for one in dict.fromkeys(spec.topics):
        if any(covers(known, one) for known in (*taken, *fresh)):
            continue
        problem = delegation_problem(one, (*taken, *fresh))
        if problem:
            raise NotPossible(problem)
        fresh.append(one)
    return fresh


def entry_plan(spec: ServiceSpec, placed: Placement, grounds: tuple[str, ...], around: Surroundings) -> ActionPlan:
    """Fig. 6 in its order: statistics, feasibility, approval, placement, images, broker, table, proxies, service."""
    if spec.name in around.services:
        raise NotPossible(f"there is a service {spec.name} already; remove it first")
    device = placed.services[spec.name]
    brokers = dict.fromkeys([*(around.broker_of(where) for where in placed.topics.values()), around.broker_of(device)])
    steps = [Step(MEASURE, spec.name), Step(CHECK, spec.name)]
    steps += [Step(APPROVE, one, around.central) for one in placed.topics]
    steps += [Step(PLACE, spec.name, device), Step(PULL, spec.name, device)]
    steps += [Step(action, broker) for broker in brokers for action in (START_BROKER, START_TUNNEL)]
    by = by_service(spec.name)
    steps += [_hand(one, around.broker_of(where), by, around) for one, where in placed.topics.items()]
    steps += [Step(TELL_PROXIES, spec.name)] if placed.topics else []
    steps += [Step(START_SERVICE, spec.name, device), Step(AWAIT_SERVICE, spec.name, device)]
    peoples = {
        one: decision
        for one, decision in (around.peoples if spec.delegate else {}).items()
        if any(overlaps(one, topic) for topic in spec.topics)
    }
    return ActionPlan("enter", spec.name, tuple(steps), (*grounds, *left_alone(peoples, around)), (spec,))


def _hand(topic_filter: str, broker: str, by: str, around: Surroundings) -> Step:
    """To go back (no broker) is nobody's decision: the filter is free."""
    to = "" if broker == around.central else broker
    decision = Decision(to, by) if broker else None
    before = around.delegations.get(topic_filter, "")
    decided_before = stands(around.decisions.get(topic_filter), before, around.central)
    return Step(DELEGATE, topic_filter, to, before, decision, decided_before)


def removal_steps(name: str, around: Surroundings) -> ActionPlan:
    """Stops the service, and returns filters that were delegated for a service and that no other one uses. What people
    or the loop decided stays."""
    state = around.services.get(name)
    if state is None:
        raise NotPossible(f"there is no service {name}")
    others = {one for other, known in around.services.items() if other != name for one in known.spec.topics}
    decided = around.decided
    unused = [one for one in dict.fromkeys(state.spec.topics) if not any(covers(one, other) for other in others)]
    back = [one for one in unused if one in decided and is_services(decided[one].by)]
    kept = tuple(left_alone({one: decided[one] for one in unused if one in decided and one not in back}, around))
    steps = [Step(STOP_SERVICE, name, state.device)]
    steps += [_hand(one, "", "", around) for one in back]
    steps += [Step(TELL_PROXIES, name)] if back else []
    return ActionPlan("remove", name, tuple(steps), kept, (state.spec,))


def left_alone(decisions: Mapping[str, Decision], around: Surroundings) -> list[str]:
    """In sentences: what somebody decided, and is not changed."""
    return [
        f"left alone: {one} at {decision.broker or around.central}, {decided_by(decision.by)}"
        for one, decision in decisions.items()
    ]


def delegation_steps(topic_filter: str, broker: str, author: str, around: Surroundings) -> ActionPlan:
    """Somebody wants a filter to be somewhere, and it is theirs; empty: back, and it is nobody's."""
    if not broker and topic_filter not in around.decided:
        raise NotPossible(f"{topic_filter} is not delegated")
    step = _hand(topic_filter, broker, by_person(author), around)
    wider = narrowest(topic_filter, [one for one in around.delegations if one != topic_filter])
    if broker == around.central and wider is not None:  # to go back would be to go to the owner of the wider one
        step = replace(step, where=broker)
    tunnel = [Step(START_TUNNEL, step.where)] if step.where not in ("", around.central) else []
    ready = (Step(APPROVE, topic_filter, around.central), *tunnel)
    steps = (*(ready if broker else ()), step, Step(TELL_PROXIES, topic_filter))
    return ActionPlan("delegate", topic_filter, steps)


def loop_steps(
    filters: Mapping[str, str], services: Mapping[str, str], grounds: tuple[str, ...], around: Surroundings
) -> ActionPlan:
    """The difference to what runs: filters that change hands (empty: back), services that change devices."""
    peoples = around.peoples
    given = {
        one: broker
        for one, broker in filters.items()
        if one not in peoples and around.delegations.get(one, "") != broker
    }
    moved = {
        name: device
        for name, device in services.items()
        if name in around.services and around.services[name].device != device
    }
    brokers = dict.fromkeys([b for b in given.values() if b] + [around.broker_of(device) for device in moved.values()])
    steps = [Step(APPROVE, one, around.central) for one, broker in given.items() if broker]
    steps += [Step(PULL, name, device) for name, device in moved.items()]
    steps += [Step(action, broker) for broker in brokers for action in (START_BROKER, START_TUNNEL)]
    steps += [_hand(one, broker, _for_whom(one, around), around) for one, broker in given.items()]
    steps += [Step(TELL_PROXIES, "loop")] if given else []
    for name, device in moved.items():
        steps.append(Step(STOP_SERVICE, name, around.services[name].device))
        steps += [Step(START_SERVICE, name, device), Step(AWAIT_SERVICE, name, device)]
    specs = tuple(around.services[name].spec for name in moved)
    return ActionPlan("loop", ", ".join([*given, *moved]), tuple(steps), grounds, specs)


def _for_whom(topic_filter: str, around: Surroundings) -> str:
    """The loop delegates a service's filter for the service, and all others by itself."""
    users = [name for name, known in around.services.items() if topic_filter in known.spec.topics]
    known = around.decisions.get(topic_filter)
    if known is not None and is_services(known.by) and users:
        return known.by
    return by_service(users[0]) if users else LOOP


def scene_of(around: Surroundings, levels: int) -> Scene:
    """What the loop may change, and what it counts. People's decisions are left alone, and so is what overlaps with
    them."""
    peoples = around.peoples
    wanted = [one for state in around.services.values() if state.spec.delegate for one in state.spec.topics]
    own = {one: broker for one, broker in around.delegations.items() if one not in peoples}
    rows = around.statistics.rows
    units = units_of(rows, dict.fromkeys([*wanted, *own]), peoples, levels)
    return Scene(
        around.central,
        tuple(around.devices.values()),
        {unit: {topic: rows[topic] for topic in topics} for unit, topics in units.items()},
        {one: broker for one, broker in own.items() if one in units},
        {name: (state.spec, state.device) for name, state in around.services.items()},
    )


def undo_steps(done: PlanState, around: Surroundings) -> ActionPlan:
    """Takes back what a plan did, as far as it is still so and no other service needs it; the last first. Whoever had
    decided on a filter before has decided again."""
    steps: list[Step] = []
    decided = around.decided
    left: dict[str, Decision] = {}
    entered = {spec.name for spec in done.plan.services} if done.plan.kind == "enter" else set(around.services)
    others = {one for name, known in around.services.items() if name not in entered for one in known.spec.topics}
    for number in sorted(done.results, reverse=True):
        step = done.plan.steps[number]
        if step.action == DELEGATE and any(covers(step.what, one) for one in others):
            continue
        if step.action == DELEGATE:
            now, was = decided.get(step.what), done.after(step)
            if now is not None and overruled(now, was):
                left[step.what] = now
            elif around.delegations.get(step.what, "") == step.where and (was is None or done.before(step) != was):
                steps.append(Step(DELEGATE, step.what, step.before, step.where, done.before(step), was))
        elif step.action == START_SERVICE and step.what in around.services:
            steps.append(Step(STOP_SERVICE, step.what, step.where))
        elif step.action == STOP_SERVICE:
            steps.append(Step(START_SERVICE, step.what, step.where))
            steps.append(Step(AWAIT_SERVICE, step.what, step.where))
    if not steps:
        why = "".join(f"; {text}" for text in left_alone(left, around))
        raise NotPossible(f"nothing of plan {done.number} is left to take back{why}")
    if any(step.action == DELEGATE for step in steps):
        steps.append(Step(TELL_PROXIES, "undo"))
    grounds = tuple(left_alone(left, around))
    return ActionPlan("undo", f"plan {done.number}", tuple(steps), grounds, done.plan.services, done.number)
