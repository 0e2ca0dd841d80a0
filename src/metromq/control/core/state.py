"""What the manager knows: the log's records, added up. Live and after a crash it comes about in the same way."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from metromq.control.core.records import (
    DeviceGone,
    DeviceSet,
    PlanAccepted,
    PlanEnded,
    ProxyGone,
    ProxySeen,
    Record,
    ServiceRestarted,
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
        self.filters: dict[str, str] = {}  # that the manager has delegated, not a person, and to whom
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
        }

    def apply(self, record: Record) -> None:
        self.last = record.number
        self._appliers[type(record.change)](record, record.change)

    @property
    def current(self) -> PlanState | None:
        """The oldest plan that is not at its end: plans are carried out one after the other."""
        return next((plan for plan in self.plans.values() if plan.phase in OPEN), None)

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
            self._delegated(step.what, step.where if plan.plan.kind != "delegate" else "", time)

    def _taken_back(self, plan: PlanState, step: Step, result: str, time: float) -> None:
        if step.action == START_SERVICE:
            self.services.pop(step.what, None)
        elif step.action == STOP_SERVICE:
            self.services[step.what] = ServiceState(plan.plan.service(step.what), step.where, plan.number)
        elif step.action == START_BROKER and result == STARTED:
            self.brokers.discard(step.what)
        elif step.action == DELEGATE:
            self._delegated(step.what, step.before if plan.plan.kind != "delegate" else "", time)

    def _delegated(self, topic_filter: str, owner: str, time: float) -> None:
        """What a person delegates is theirs: the loop leaves it alone."""
        self.moved[topic_filter] = time
        if owner:
            self.filters[topic_filter] = owner
        else:
            self.filters.pop(topic_filter, None)

    def _plan_ended(self, record: Record, change: PlanEnded) -> None:
        plan = self.plans[change.plan]
        plan.phase, plan.ended = change.outcome, record.time
        plan.why = change.why or plan.why

    def _restarted(self, record: Record, change: ServiceRestarted) -> None:
        service = self.services.get(change.name)
        if service is not None:
            service.restarts = change.times
