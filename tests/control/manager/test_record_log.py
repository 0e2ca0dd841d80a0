"""The manager's log begins anew when it is long; killed at any moment of that, nothing is lost."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metromq.control.core import Device, DeviceSet, Record, State
from metromq.control.manager import manager as managing
from metromq.control.manager.manager import Manager, ManagerOptions
from metromq.control.manager.record_log import LOG_FILE, RecordLog
from metromq.errors import UsageError
from metromq.federation import grid_city

STEPS = ("open", "fsync", "fdatasync", "replace", "write", "close", "unlink")


def record(number: int) -> Record:
    return Record(number, 1.0, "me", DeviceSet(Device(f"d{number}", "b1")))


def state_of(log: RecordLog) -> State:
    state = State()
    for one in log.read():
        state.apply(one)
    return state


def begin_anew(log: RecordLog, history: int = 3) -> None:
    known = log.read()
    state = State()
    for one in known:
        state.apply(one)
    log.begin_anew(Record(state.last, 1.0, "manager", state.snapshot(10, 10)), known[-history:])


def killed_at(step: int, work: Callable[[], None]) -> bool:
    """Whether a process of its own was killed before so many calls of the system; else it has done its work."""
    child = os.fork()
    if child == 0:
        left = [step]

        def counted(call: Callable[..., Any]) -> Callable[..., Any]:
            def made(*words: Any, **named: Any) -> Any:
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1
                return call(*words, **named)

            return made

        for name in STEPS:
            setattr(os, name, counted(getattr(os, name)))
        try:
            work()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def test_killed_at_any_step_of_beginning_anew_nothing_is_lost_and_it_goes_on(tmp_path: Path) -> None:
    wanted = {f"d{number}" for number in range(1, 22)}
    killed = 0
    for step in range(100):
        directory = tmp_path / str(step)
        log = RecordLog(directory)
        log.append([record(number) for number in range(1, 21)])
        log.close()

        def work(directory: Path = directory) -> None:
            child = RecordLog(directory)
            begin_anew(child)
            child.append([record(21)])

        was_killed = killed_at(step, work)
        log = RecordLog(directory)
        state = state_of(log)
        assert state.last in (20, 21)
        if state.last == 20:
            log.append([record(21)])
        assert set(state_of(log).devices) == wanted
        assert [one.name for one in directory.iterdir() if one.name.endswith(".tmp")] == []
        log.close()
        killed += was_killed
        if not was_killed:
            break
    assert not was_killed
    assert killed >= 8, "each step of it was the last one once"


def test_what_is_written_after_it_began_anew_is_read_and_history_counts_once(tmp_path: Path) -> None:
    log = RecordLog(tmp_path)
    log.append([record(number) for number in range(1, 6)])
    begin_anew(log, history=2)
    log.append([record(6)])
    assert [(one.kind, one.number) for one in log.read()] == [
        *(("snapshot", 5), ("device", 4), ("device", 5), ("device", 6)),
    ]
    assert log.lines == 4
    assert set(state_of(log).devices) == {f"d{number}" for number in range(1, 7)}


def test_a_second_manager_is_refused_also_after_it_began_anew(tmp_path: Path) -> None:
    log = RecordLog(tmp_path)
    log.append([record(1)])
    begin_anew(log)
    with pytest.raises(UsageError, match="another manager runs"):
        RecordLog(tmp_path)
    log.close()
    RecordLog(tmp_path).close()


def test_a_managers_log_stays_short_and_the_next_one_knows_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(managing, "MOST_REMEMBERED", 10)
    asyncio.run(two_managers(tmp_path))


async def two_managers(tmp_path: Path) -> None:
    city = grid_city("delegation", count=3)
    manager = Manager(city, ManagerOptions(tmp_path), tell=lambda text: None)
    await manager.open()
    for number in range(200):
        manager.note(DeviceSet(Device(f"d{number % 7}", "b1", capacity_workload=1.0 + number)), "me")
        assert len((tmp_path / "manager" / LOG_FILE).read_bytes().splitlines()) <= 20 + 1
    devices, history = dict(manager.state.devices), manager.records[-10:]
    await manager.close()
    after = Manager(city, ManagerOptions(tmp_path), tell=lambda text: None)
    await after.open()
    assert after.state.devices == devices
    assert after.records[-10:] == history
    await after.close()
