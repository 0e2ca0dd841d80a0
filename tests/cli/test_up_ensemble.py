"""`metromq up` with ZooKeeper: it starts an ensemble of its own, stops it with the city, and says what is missing."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from metromq.control import RunningCity, ensemble
from metromq.control.running import CityOptions
from metromq.errors import UsageError
from metromq.federation.city import City, grid_city
from tests.peers import play

needs_package = pytest.mark.skipif(
    not all(jar.exists() for jar in ensemble.JARS), reason="needs the Debian package zookeeper"
)


def city() -> City:
    return replace(grid_city("overlay", count=2), coordination="zookeeper")


@needs_package
@pytest.mark.timeout(200)
def test_an_ensemble_comes_and_goes_with_its_city(tmp_path: Path) -> None:
    async def story() -> list[int]:
        running = RunningCity(city(), tmp_path, (), CityOptions("memory"), lambda text: None)
        await running.start(lambda keeper: None)
        try:
            status = await running.joined(lambda up, wanted: None)
            assert [broker.state for broker in status.brokers] == ["up", "up"]
            assert list(running.supervisor.keepers) == ["zookeeper-1", "b00", "b20"]
            return [os.getpgid(keeper.pid) for keeper in running.supervisor.keepers.values()]
        finally:
            await running.stop()

    groups = play(story(), 150)
    assert not [process for process in psutil.process_iter() if _is_of(process, groups)]


def _is_of(process: psutil.Process, groups: list[int]) -> bool:
    try:
        return os.getpgid(process.pid) in groups and process.status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False


@needs_package
@pytest.mark.timeout(100)
def test_servers_end_when_whoever_started_them_is_gone(tmp_path: Path) -> None:
    """Nobody closes them politely: the pipe on their standard input just ends."""

    async def story() -> None:
        (program,) = ensemble.server_programs((f"127.0.0.1:{ensemble.free_ports(1)[0]}",), tmp_path)
        process = await asyncio.create_subprocess_exec(*program.command, stdin=asyncio.subprocess.PIPE)
        while not await program.is_ready(process.pid):
            await asyncio.sleep(0.1)
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()

    play(story(), 90)


def test_without_the_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ensemble, "JARS", (tmp_path / "no.jar",))
    with pytest.raises(UsageError, match="apt install zookeeper; or name the servers"):
        RunningCity(city(), tmp_path, (), CityOptions(), lambda text: None)
