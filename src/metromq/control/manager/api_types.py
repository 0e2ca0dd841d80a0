"""What the manager's API takes and gives, as typed data; its OpenAPI document is made from this."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from metromq.control.core import ActionPlan, PlanState, Record, Step, says


@dataclass(frozen=True, slots=True)
class StepAnswer:
    action: str
    what: str
    where: str
    says: str
    state: str = ""  # done, under way, failed, taken back; empty: not yet
    result: str = ""


@dataclass(frozen=True, slots=True)
class PlanAnswer:
    """`number` 0: a dry run, nothing was done."""

    number: int
    kind: str
    subject: str
    phase: str
    author: str
    time: float
    ended: float
    why: str
    undoes: int
    grounds: list[str]
    steps: list[StepAnswer]


@dataclass(frozen=True, slots=True)
class ServiceAnswer:
    name: str
    device: str
    runtime: str
    topics: list[str]
    running: bool
    restarts: int
    plan: int


@dataclass(frozen=True, slots=True)
class DeviceAnswer:
    name: str
    broker: str
    capacity_workload: float
    mw_per_workload: float
    tunnel: str
    broker_up: bool
    load_workload: float
    services: list[str]
    filters: list[str]


@dataclass(frozen=True, slots=True)
class ProxyAnswer:
    name: str
    listen: str
    alive: bool
    clients: int
    knows_table: bool


@dataclass(frozen=True, slots=True)
class TableAnswer:
    central: str
    filters: dict[str, str]
    edges: dict[str, str]
    version: str


@dataclass(frozen=True, slots=True)
class TopicAnswer:
    filter: str
    broker: str
    by: str  # who decided: "person NAME", "service NAME", "loop"; "person": somebody without the manager


@dataclass(frozen=True, slots=True)
class TopicsAnswer:
    """`delegated` is as the central broker has it; `decided` also what is not so: its broker is away, or a wider filter
    that the same broker has stands for it, or it is the central broker's by decision."""

    delegated: list[TopicAnswer]
    decided: list[TopicAnswer]
    table: TableAnswer


@dataclass(frozen=True, slots=True)
class RecordAnswer:
    number: int
    time: float
    author: str
    kind: str
    change: dict[str, Any]


@dataclass(frozen=True, slots=True)
class LoopAnswer:
    grounds: list[str]
    crossing_now: float
    crossing_then: float
    waiting: list[str]
    left_alone: list[str]
    plan: PlanAnswer | None


@dataclass(frozen=True, slots=True)
class Removed:
    name: str


@dataclass(frozen=True, slots=True)
class Problem:
    """What every refusal looks like."""

    status_code: int
    detail: str


@dataclass(frozen=True, slots=True)
class DeviceBody:
    broker: str
    capacity_workload: float = 30_000.0
    mw_per_workload: float = 0.19
    tunnel: str = ""


@dataclass(frozen=True, slots=True)
class LimitsBody:
    cpus: float = 0.0
    memory_mb: int = 0


@dataclass(frozen=True, slots=True)
class ServiceBody:
    name: str
    topics: list[str]
    command: list[str] = field(default_factory=list)
    runtime: str = "process"
    image: str = ""
    rootfs: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    mqtt_workload_per_mbps: float = 10.0
    user_workload_per_mbps: float = 10.0
    limits: LimitsBody = field(default_factory=LimitsBody)
    device: str = ""
    delegate: bool = True


@dataclass(frozen=True, slots=True)
class DelegationBody:
    """`broker` empty: the filter goes back."""

    filter: str
    broker: str = ""


@dataclass(frozen=True, slots=True)
class ProxyBody:
    """What a proxy says of itself; `version` is that of the table that it has, empty: none."""

    listen: str
    version: str = ""
    clients: int = 0
    wait_s: float = 0.0


def plan_answer(state: PlanState) -> PlanAnswer:
    steps = [
        _step(step, _step_state(state, number), state.results.get(number, ""))
        for number, step in enumerate(state.plan.steps)
    ]
    made = _of_plan(state.plan, steps)
    return dataclasses.replace(
        made,
        number=state.number,
        phase=state.phase,
        author=state.author,
        time=state.time,
        ended=state.ended,
        why=state.why,
    )


def dry_answer(plan: ActionPlan) -> PlanAnswer:
    return _of_plan(plan, [_step(step, "", "") for step in plan.steps])


def _of_plan(plan: ActionPlan, steps: list[StepAnswer]) -> PlanAnswer:
    return PlanAnswer(0, plan.kind, plan.subject, "dry-run", "", 0.0, 0.0, "", plan.undoes, list(plan.grounds), steps)


def _step(step: Step, state: str, result: str) -> StepAnswer:
    return StepAnswer(step.action, step.what, step.where, says(step), state, result)


def _step_state(state: PlanState, number: int) -> str:
    if number in state.results:
        return "done"
    if number == state.failed:
        return "failed"
    if state.phase == "running" and number == state.at:
        return "under way"
    return "taken back" if number < state.failed else ""


def record_answer(record: Record) -> RecordAnswer:
    change: Mapping[str, Any] = dataclasses.asdict(record.change)
    return RecordAnswer(record.number, record.time, record.author, record.kind, dict(change))
