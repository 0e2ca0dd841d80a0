"""Processes that work for the planner, one per core: they start when they are first needed and end with us."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

from metromq.planning import Helpers


def _begin() -> None:
    """Ctrl-C is for the process that was asked to plan; without that one nobody needs us."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def leave() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=leave, daemon=True).start()


@contextmanager
def planning_helpers() -> Iterator[Helpers | None]:
    """As many as there are cores for us; with one core none, as they would only take turns."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores < 2:
        yield None
        return
    # Who leaves at once after Ctrl-C leaves semaphores to Python's tracker, which would tell the user about them.
    os.environ.setdefault("PYTHONWARNINGS", "ignore::UserWarning:multiprocessing.resource_tracker")
    before = set(multiprocessing.active_children())
    executor = ProcessPoolExecutor(cores, multiprocessing.get_context("spawn"), _begin)
    try:
        yield Helpers(executor, cores)
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()
