"""The planner's helpers are real processes: they work, and none is left when the planner is done."""

import multiprocessing
import os

import pytest

from metromq.cli.plan_helpers import planning_helpers


def test_helpers_work_and_end_with_the_planner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    before = set(multiprocessing.active_children())
    with planning_helpers() as helpers:
        assert helpers is not None
        assert helpers.count == 2
        assert helpers.executor.submit(os.getpid).result(60) != os.getpid()
        helping = set(multiprocessing.active_children()) - before
        assert helping
    for child in helping:
        child.join(60)
        assert not child.is_alive()


def test_one_core_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    with planning_helpers() as helpers:
        assert helpers is None
