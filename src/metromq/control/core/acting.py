"""The manager's state machine: events and `now` in, records to write and steps to run out.

Every step is written down before it is done (write-ahead) and after it; steps are such that doing one twice does no
harm. So a manager that crashed anywhere reads its log, and goes on with the step that it was at.
"""

from dataclasses import dataclass

from metromq.control.core.records import Change, PlanAccepted, PlanEnded, Record, StepBegun, StepEnded
from metromq.control.core.state import DONE, OPEN, ROLLED_BACK, STUCK, UNDOING, PlanState, State
from metromq.control.core.words import ActionPlan, Step


@dataclass(frozen=True, slots=True)
class Write:
    """Durably, before any effect that follows it."""

    record: Record


@dataclass(frozen=True, slots=True)
class Run:
    """Do the step, or take it back, and say how it ended. `result` is what doing it had given."""

    plan: int
    step: int
    what: Step
    back: bool = False
    result: str = ""


Effect = Write | Run
MANAGER = "manager"


class ManagerCore:
    def __init__(self, state: State) -> None:
        self.state = state

    def accept(self, plan: ActionPlan, author: str, now: float) -> tuple[int, list[Effect]]:
        """The number of the plan; it runs when those before it have ended."""
        number = max(self.state.plans, default=0) + 1
        is_free = self.state.current is None
        effects = [self._write(PlanAccepted(number, plan), author, now)]
        return number, [*effects, *(self._next(now) if is_free else [])]

    def note(self, change: Change, author: str, now: float) -> list[Effect]:
        """A change that needs no plan."""
        return [self._write(change, author, now)]

    def resume(self, now: float) -> list[Effect]:
        """After a start: the step that was under way is done again."""
        return self._next(now)

    def ended(self, plan: int, step: int, result: str, failed: bool, back: bool, now: float) -> list[Effect]:
        """A step was done, taken back, or could not be."""
        known = self.state.plans.get(plan)
        if known is None or known.phase not in OPEN or known.at != step or (known.phase == UNDOING) != back:
            return []  # said twice
        effects: list[Effect] = [self._write(StepEnded(plan, step, result, failed, back), MANAGER, now)]
        return [*effects, *self._next(now)]

    def _next(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        while (plan := self.state.current) is not None:
            step = self._step_of(plan)
            if step is not None:
                number, back = step
                effects.append(self._write(StepBegun(plan.number, number, back), MANAGER, now))
                what = plan.plan.steps[number]
                return [*effects, Run(plan.number, number, what, back, plan.results.get(number, ""))]
            outcome = DONE if plan.phase != UNDOING else STUCK if " back: " in plan.why else ROLLED_BACK
            effects.append(self._write(PlanEnded(plan.number, outcome, plan.why), MANAGER, now))
        return effects

    def _step_of(self, plan: PlanState) -> tuple[int, bool] | None:
        """What is next in the plan; None: it is at its end."""
        if plan.phase != UNDOING:
            return (plan.at, False) if plan.at < len(plan.plan.steps) else None
        at = plan.at
        while at >= 0 and at not in plan.results:
            at -= 1
        return (at, True) if at >= 0 else None

    def _write(self, change: Change, author: str, now: float) -> Write:
        record = Record(self.state.last + 1, now, author, change)
        self.state.apply(record)
        return Write(record)
