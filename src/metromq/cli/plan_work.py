"""Runs a planner so that Ctrl-C is answered within a second: it works in a thread of its own, and we watch."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import FrameType

from metromq.errors import MetroError
from metromq.planning import Clock, Job, Plan, Transition, make_plan, simple_bound

PATIENCE_S = 0.2  # for a planner to end by itself after Ctrl-C; a solver may not look up for longer
LOOK_S = 0.05
HURRY_S = 0.3  # for the order of steps, once Ctrl-C has ended the planner


class StoppedEarly(MetroError):
    """Ctrl-C came before there was a plan."""


@dataclass(frozen=True, slots=True)
class PlanAnswer:
    """A plan; `left_behind` when the planner still works, so that the process must end without waiting for it."""

    plan: Plan
    left_behind: bool = False


class Interrupts:
    """Ctrl-C as something to look at: raised anywhere, it would take a plan that was found already with it."""

    def __init__(self) -> None:
        self.pressed = False
        self._job: Job | None = None
        self._missed = False  # it came between two jobs

    @contextmanager
    def stopping(self, job: Job) -> Iterator[Job]:
        """While this lasts, Ctrl-C stops this job."""
        self._job = job
        job.stopped, self._missed = self._missed, False
        try:
            yield job
        finally:
            self._job = None

    def press(self, number: int, frame: FrameType | None) -> None:
        self.pressed = True
        if self._job is None:
            self._missed = True
        else:
            self._job.stopped = True


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """While this lasts, Ctrl-C raises nothing, however often it comes."""
    found = Interrupts()
    if threading.current_thread() is not threading.main_thread():  # Ctrl-C is somebody else's
        yield found
        return
    before = signal.signal(signal.SIGINT, found.press)
    try:
        yield found
    finally:
        signal.signal(signal.SIGINT, before)


def answered(work: Callable[[Job], Plan], clock: Clock, ctrl_c: Interrupts | None = None) -> PlanAnswer:
    """What `work` returns, or after Ctrl-C the best it had found."""
    started = clock()
    plans: list[Plan] = []
    failures: list[BaseException] = []
    with interrupts() if ctrl_c is None else nullcontext(ctrl_c) as ctrl_c, ctrl_c.stopping(Job()) as job:

        def run() -> None:
            try:
                plans.append(work(job))
            except BaseException as error:
                failures.append(error)

        worker = threading.Thread(target=run, name="planner", daemon=True)
        worker.start()
        while worker.is_alive() and not job.stopped:
            worker.join(LOOK_S)
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


def ordered(work: Callable[[Job], Transition], ctrl_c: Interrupts | None = None) -> tuple[Transition, bool]:
    """Steps in order, and whether their search was cut short: by Ctrl-C, or because that had ended the planner before
    and nobody waits for long now. The search looks up often: no thread is needed."""
    with interrupts() if ctrl_c is None else nullcontext(ctrl_c) as ctrl_c, ctrl_c.stopping(Job()) as job:
        hurry = threading.Timer(HURRY_S, lambda: setattr(job, "stopped", True))
        hurry.daemon = True
        if ctrl_c.pressed:
            hurry.start()
        found = work(job)
        hurry.cancel()
        return found, job.stopped
