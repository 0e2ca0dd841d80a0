"""What the manager knows: the log's records, added up. Live and after a crash it comes about in the same way."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from metromq.control.core.deciding import LOOP, Decision, by_person, is_persons
from metromq.control.core.records import (
    DeviceGone,
    DeviceSet,
    KeptDecision,
    KeptPlan,
    KeptService,
    PlanAccepted,
    PlanEnded,
    ProxyGone,
    ProxySeen,
    Record,
    ServiceRestarted,
    Snapshot,
    StepBegun,
    StepEnded,
)
from metromq.control.core.words import (
    DELEGATE,
    START_BROKER,
    START_SERVICE,
    STOP_SERVICE,
    ActionPlan,
    Device,
    ProxyPlace,
    ServiceSpec,
    Step,
)

WAITING: Final = "waiting"
RUNNING: Final = "running"
UNDOING: Final = "undoing"
DONE: Final = "done"
FAILED: Final = "failed"
ROLLED_BACK: Final = "rolled-back"
STUCK: Final = "stuck"  # a step failed, and so did taking one back
OPEN: Final = (WAITING, RUNNING, UNDOING)
STARTED: Final = "started"  # the result of a step that started something: whoever takes it back stops it


@dataclass(slots=True)
class PlanState:
    number: int
    plan: ActionPlan
    author: str
    time: float
    phase: str = WAITING
    at: int = 0  # the step that is next, or under way
    results: dict[int, str] = field(default_factory=dict)
    why: str = ""
    ended: float = 0.0
    failed: int = -1  # the step that failed; -1: none

    def after(self, step: Step) -> Decision | None:
        """What is decided on a filter when the step is done; None: nothing. Older logs have brokers only."""
        if step.decision is not None or not step.where:
            return step.decision
        return Decision(step.where, by_person(self.author) if self.plan.kind == "delegate" else LOOP)

    def before(self, step: Step) -> Decision | None:
        """What was decided before, and is again when the step is taken back."""
        if step.decision_before is not None or not step.before or self.plan.kind == "delegate":
            return step.decision_before
        return Decision(step.before, LOOP)


@dataclass(slots=True)
class ServiceState:
    spec: ServiceSpec
    device: str
    plan: int
    restarts: int = 0


class State:
    """`apply` is the only way to change it."""

    def __init__(self) -> None:
        self.devices: dict[str, Device] = {}
        self.proxies: dict[str, ProxyPlace] = {}
        self.services: dict[str, ServiceState] = {}
        self.plans: dict[int, PlanState] = {}
        self.brokers: set[str] = set()  # that the manager started, and keeps running
        self.decisions: dict[str, Decision] = {}  # by filter
        self.moved: dict[str, float] = {}  # when the manager last handed over or returned a filter
        self.last = 0
        self._appliers: Mapping[type, Callable[[Record, Any], None]] = {
            DeviceSet: self._device_set,
            DeviceGone: self._device_gone,
            ProxySeen: self._proxy_seen,
            ProxyGone: self._proxy_gone,
            PlanAccepted: self._accepted,
            StepBegun: self._begun,
            StepEnded: self._step_ended,
            PlanEnded: self._plan_ended,
            ServiceRestarted: self._restarted,
            Snapshot: self._restored,
        }

    def apply(self, record: Record) -> None:
        """What a snapshot contains already is only history."""
        if record.number > self.last or isinstance(record.change, Snapshot):
            self.last = record.number
            self._appliers[type(record.change)](record, record.change)

    def snapshot(self, most_plans: int, most_moved: int) -> Snapshot:
        """Everything, but of the plans that have ended only the newest and those of services, and the last moves."""
        needed = {service.plan for service in self.services.values()}
        ended = [number for number, plan in self.plans.items() if plan.phase not in OPEN and number not in needed]
        dropped = set(ended[: max(0, len(ended) - most_plans)])
        moved = sorted(self.moved.items(), key=lambda item: item[1])[-most_moved:]
        return Snapshot(
            tuple(self.devices.values()),
            tuple(self.proxies.values()),
            tuple(KeptService(one.spec, one.device, one.plan, one.restarts) for one in self.services.values()),
            tuple(_kept(plan) for number, plan in self.plans.items() if number not in dropped),
            tuple(sorted(self.brokers)),
            {},
            dict(moved),
            tuple(KeptDecision(one, decision.broker, decision.by) for one, decision in self.decisions.items()),
        )

    @property
    def filters(self) -> dict[str, str]:
        """Those that the manager has decided on, not a person, and who should have them."""
        return {one: decision.broker for one, decision in self.decisions.items() if not is_persons(decision.by)}

    @property
    def current(self) -> PlanState | None:
        """The oldest plan that is not at its end: plans are carried out one after the other."""
        return next((plan for plan in self.plans.values() if plan.phase in OPEN), None)

    def _restored(self, record: Record, kept: Snapshot) -> None:
        self.devices = {device.name: device for device in kept.devices}
        self.proxies = {proxy.name: proxy for proxy in kept.proxies}
        self.services = {
            one.spec.name: ServiceState(one.spec, one.device, one.plan, one.restarts) for one in kept.services
        }
        self.plans = {one.number: _restored(one) for one in kept.plans}
        self.brokers = set(kept.brokers)
        self.moved = dict(kept.moved)
        self.decisions = {one: Decision(broker, LOOP) for one, broker in kept.filters.items()}
        self.decisions |= {one.filter: Decision(one.broker, one.by) for one in kept.decisions}

    def _device_set(self, record: Record, change: DeviceSet) -> None:
        self.devices[change.device.name] = change.device

    def _device_gone(self, record: Record, change: DeviceGone) -> None:
        self.devices.pop(change.name, None)

    def _proxy_seen(self, record: Record, change: ProxySeen) -> None:
        self.proxies[change.proxy.name] = change.proxy

    def _proxy_gone(self, record: Record, change: ProxyGone) -> None:
        self.proxies.pop(change.name, None)

    def _accepted(self, record: Record, change: PlanAccepted) -> None:
        self.plans[change.plan] = PlanState(change.plan, change.what, record.author, record.time)

    def _begun(self, record: Record, change: StepBegun) -> None:
        plan = self.plans[change.plan]
        plan.phase = UNDOING if change.back else RUNNING
        plan.at = change.step

    def _step_ended(self, record: Record, change: StepEnded) -> None:
        plan = self.plans[change.plan]
        step = plan.plan.steps[change.step]
        if change.back:
            if not change.failed:
                self._taken_back(plan, step, plan.results.pop(change.step, ""), record.time)
            plan.at = change.step - 1
            plan.why = plan.why if not change.failed else f"{plan.why}; step {change.step + 1} back: {change.result}"
        elif change.failed:
            plan.phase, plan.why, plan.at = UNDOING, change.result, change.step - 1
            plan.failed = change.step
        else:
            plan.results[change.step] = change.result
            plan.at = change.step + 1
            self._done(plan, step, change.result, record.time)

    def _done(self, plan: PlanState, step: Step, result: str, time: float) -> None:
        if step.action == START_SERVICE:
            self.services[step.what] = ServiceState(plan.plan.service(step.what), step.where, plan.number)
        elif step.action == STOP_SERVICE:
            self.services.pop(step.what, None)
        elif step.action == START_BROKER and result == STARTED:
            self.brokers.add(step.what)
        elif step.action == DELEGATE:
            self._decided(step.what, plan.after(step), time)

    def _taken_back(self, plan: PlanState, step: Step, result: str, time: float) -> None:
        if step.action == START_SERVICE:
            self.services.pop(step.what, None)
        elif step.action == STOP_SERVICE:
            self.services[step.what] = ServiceState(plan.plan.service(step.what), step.where, plan.number)
        elif step.action == START_BROKER and result == STARTED:
            self.brokers.discard(step.what)
        elif step.action == DELEGATE:
            self._decided(step.what, plan.before(step), time)

    def _decided(self, topic_filter: str, decision: Decision | None, time: float) -> None:
        self.moved[topic_filter] = time
        if decision is not None:
            self.decisions[topic_filter] = decision
        else:
            self.decisions.pop(topic_filter, None)

    def _plan_ended(self, record: Record, change: PlanEnded) -> None:
        plan = self.plans[change.plan]
        plan.phase, plan.ended = change.outcome, record.time
        plan.why = change.why or plan.why

    def _restarted(self, record: Record, change: ServiceRestarted) -> None:
        service = self.services.get(change.name)
        if service is not None:
            service.restarts = change.times


def _kept(plan: PlanState) -> KeptPlan:
    results = tuple(plan.results.items())
    return KeptPlan(
        *(plan.number, plan.plan, plan.author, plan.time, plan.phase),
        *(plan.at, results, plan.why, plan.ended, plan.failed),
    )


def _restored(kept: KeptPlan) -> PlanState:
    results = dict(kept.results)
    return PlanState(
        *(kept.number, kept.plan, kept.author, kept.time, kept.phase),
        *(kept.at, results, kept.why, kept.ended, kept.failed),
    )
