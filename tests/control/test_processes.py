"""Programs that are kept running: started, waited for, started again when they die, stopped with patience."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from metromq.control import processes
from metromq.control.data_directory import lives
from metromq.control.processes import STOPPED, UP, Keeper, ProcessSpec, StartFailed, Supervisor
from tests.peers import play

WAITS = "import sys; print('started', flush=True); sys.stdin.read()"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAITS}; sys.stdin.close(); signal.pause()"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "FIRST_DELAY_S", 0.01)
    monkeypatch.setattr(processes, "READY_POLL_S", 0.005)


def program(directory: Path, code: str, name: str = "p", answers: bool = True) -> ProcessSpec:
    """It is ready when its log says so."""
    log = directory / name / "log"

    async def is_ready(pid: int) -> bool:
        return answers and log.exists() and "started" in log.read_text()

    return ProcessSpec(name, "broker", (sys.executable, "-c", code), log, is_ready)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def test_what_dies_is_started_again_and_told(tmp_path: Path) -> None:
    told: list[str] = []

    async def story() -> None:
        keeper = Keeper(program(tmp_path, WAITS), told.append)
        await keeper.start()
        first = keeper.pid
        assert (keeper.state, keeper.starts, told) == (UP, 1, [])
        os.kill(first, signal.SIGKILL)
        await until(lambda: keeper.starts == 2 and keeper.state == UP)
        second = keeper.pid
        assert second != first
        assert told == ["p was killed by SIGKILL; restarting it in 0.01 s", f"p is back as process {second}"]
        keeper.terminate()
        await keeper.stopped()
        assert (keeper.state, keeper.pid) == (STOPPED, 0)
        assert not lives(second)

    play(story())


def test_one_that_ends_at_once_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    broken = program(tmp_path, "import sys; [print(n) for n in range(20)]; sys.exit('no room')", answers=False)

    async def story() -> None:
        with pytest.raises(StartFailed) as caught:
            await Keeper(broken, print).start()
        lines = str(caught.value).splitlines()
        assert lines[0] == "p did not start."
        assert lines[1] == f"The end of {broken.log}:"
        assert len(lines) == 2 + processes.LOG_TAIL_LINES
        assert "  no room" in lines

    play(story())


def test_one_that_stays_silent_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "READY_PATIENCE_S", 0.05)

    async def story() -> None:
        keeper = Keeper(program(tmp_path, WAITS, answers=False), print)
        with pytest.raises(StartFailed):
            await keeper.start()
        keeper.terminate()
        await keeper.stopped()
        assert keeper.state == STOPPED

    play(story())


def test_who_does_not_stop_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "STOP_PATIENCE_S", 0.1)
    told: list[str] = []

    async def story() -> None:
        keeper = Keeper(program(tmp_path, DEAF), told.append)
        await keeper.start()
        pid = keeper.pid
        keeper.terminate()
        await keeper.stopped()
        assert told == ["p did not stop and was killed"]
        assert not lives(pid)

    play(story())


def test_when_one_does_not_start_all_are_stopped(tmp_path: Path) -> None:
    good, bad = program(tmp_path, WAITS, "good"), program(tmp_path, "raise SystemExit(1)", "bad", answers=False)
    supervisor = Supervisor((good, bad), print)
    ready: list[str] = []

    async def story() -> None:
        with pytest.raises(StartFailed, match="bad did not start"):
            await supervisor.start(lambda keeper: ready.append(keeper.program.name))

    play(story())
    assert "bad" not in ready
    assert all(keeper.state == STOPPED and keeper.pid == 0 for keeper in supervisor.keepers.values())


def test_all_start_and_stop_together(tmp_path: Path) -> None:
    supervisor = Supervisor(tuple(program(tmp_path, WAITS, name) for name in ("a", "b", "c")), print)
    ready: list[str] = []

    async def story() -> None:
        await supervisor.start(lambda keeper: ready.append(keeper.program.name))
        pids = [keeper.pid for keeper in supervisor.keepers.values()]
        assert all(map(lives, pids))
        await supervisor.stop()
        assert not any(map(lives, pids))

    play(story())
    assert sorted(ready) == ["a", "b", "c"]


def test_a_program_ends_when_its_keeper_is_gone(tmp_path: Path) -> None:
    """Its standard input ends, however we end."""
    keeper_code = f"""
import asyncio, os, pathlib
from tests.control.test_processes import WAITS, program
from metromq.control.processes import Keeper
async def main():
    keeper = Keeper(program(pathlib.Path({str(tmp_path)!r}), WAITS), print)
    await keeper.start()
    print(keeper.pid, flush=True)
    os._exit(1)
asyncio.run(main())
"""

    async def story() -> None:
        keeping = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            keeper_code,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), *sys.path]))},
        )
        assert keeping.stdout is not None
        pid = int(await keeping.stdout.readline())
        await keeping.wait()
        await until(lambda: not lives(pid))

    play(story())


def test_ready_is_asked_with_the_process_number(tmp_path: Path) -> None:
    asked: list[int] = []

    async def is_ready(pid: int) -> bool:
        asked.append(pid)
        return len(asked) > 2

    def made(ready: Callable[[int], Awaitable[bool]]) -> ProcessSpec:
        return ProcessSpec("p", "broker", (sys.executable, "-c", WAITS), tmp_path / "log", ready)

    async def story() -> None:
        keeper = Keeper(made(is_ready), print)
        await keeper.start()
        assert asked == [keeper.pid] * 3
        keeper.terminate()
        await keeper.stopped()

    play(story())
