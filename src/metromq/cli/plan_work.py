"""Runs a planner so that Ctrl-C is answered within a second: it works in a thread of its own, and we watch."""

import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

from metromq.errors import MetroError
from metromq.planning import Clock, Job, Plan, Transition, make_plan, simple_bound

PATIENCE_S = 0.5  # for a planner to end by itself after Ctrl-C; a solver may not look up for longer
LOOK_S = 0.2


class StoppedEarly(MetroError):
    """Ctrl-C came before there was a plan."""


@dataclass(frozen=True, slots=True)
class PlanAnswer:
    """A plan; `left_behind` when the planner still works, so that the process must end without waiting for it."""

    plan: Plan
    left_behind: bool = False


def answered(work: Callable[[Job], Plan], clock: Clock) -> PlanAnswer:
    """What `work` returns, or after Ctrl-C the best it had found."""
    job, started = Job(), clock()
    plans: list[Plan] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            plans.append(work(job))
        except BaseException as error:
            failures.append(error)

    worker = threading.Thread(target=run, name="planner", daemon=True)
    try:
        worker.start()
        while worker.is_alive():
            worker.join(LOOK_S)
    except KeyboardInterrupt:
        job.stopped = True
        worker.join(PATIENCE_S)
    if failures:
        raise failures[0]
    if plans:
        return PlanAnswer(plans[0])
    if job.found is None:
        raise StoppedEarly("stopped before a plan was found")
    arrays, where = job.found
    bound = max(job.bound, simple_bound(arrays))
    return PlanAnswer(make_plan(arrays, where, bound, "interrupted", clock() - started, "best so far"), True)


def ordered(work: Callable[[Job], Transition]) -> tuple[Transition, bool]:
    """Steps in order, and whether Ctrl-C cut their search short. It looks up often: no thread is needed."""
    job = Job()

    def stop(number: int, frame: FrameType | None) -> None:
        job.stopped = True

    if threading.current_thread() is not threading.main_thread():  # Ctrl-C is somebody else's
        return work(job), False
    before = signal.signal(signal.SIGINT, stop)
    try:
        return work(job), job.stopped
    finally:
        signal.signal(signal.SIGINT, before)
