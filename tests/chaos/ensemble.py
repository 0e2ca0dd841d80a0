"""The ensemble of a live storm: three servers, a relay between each of them and each broker, and workers."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from metromq.city_file import city_text
from metromq.control import ensemble
from metromq.control.data_directory import worker_works
from metromq.federation import City, ZooKeeperSettings, split_address
from tests.chaos.relay import Relay, Way

SESSION_MS = 3000  # shorter ones end when the machine is slow
SERVERS = 3
WORKERS = ("w0", "w1")
PATIENCE_S = 120.0

Run = Callable[[Coroutine[Any, Any, Any]], Any]


class StandsStill(AssertionError):
    """What should run does not answer, or has ended by itself."""


def is_there() -> bool:
    """Whether this machine has what a live ensemble needs."""
    return all(jar.exists() for jar in ensemble.JARS)


class LiveEnsemble:
    """`run` does something on the relays' loop."""

    def __init__(self, city: City, data: Path, has_workers: bool, run: Run) -> None:
        self._run, self._data = run, data
        self._addresses = tuple(f"127.0.0.1:{port}" for port in ensemble.free_ports(SERVERS))
        self._programs = ensemble.server_programs(self._addresses, data)
        self._servers: dict[int, subprocess.Popen[bytes]] = {}
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        self._fallen: dict[str, int] = {}
        self._back = {name: Way() for name in city.names}  # what servers say to a broker
        self._relays = {
            (name, number): Relay(Way(), self._back[name]) for name in city.names for number in range(SERVERS)
        }
        overlay = replace(city.overlay, workers=len(WORKERS) if has_workers else 0)
        settings = ZooKeeperSettings(servers=self._addresses, session_timeout_ms=SESSION_MS)
        self.city = replace(city, coordination="zookeeper", overlay=overlay, zookeeper=settings)
        self._names = WORKERS if has_workers else ()
        self._file = data / "workers.toml"
        self._file.write_text(city_text(self.city), encoding="utf-8")
        self._file.chmod(0o600)

    def city_of(self, broker: str) -> City:
        """The city as a broker knows it: it reaches the servers through relays."""
        ports = [self._relays[broker, number].port for number in range(SERVERS)]
        servers = tuple(f"127.0.0.1:{port}" for port in ports)
        return replace(self.city, zookeeper=replace(self.city.zookeeper, servers=servers))

    # All of it.

    def open(self) -> None:
        for (_, number), relay in self._relays.items():
            relay.target = split_address(self._addresses[number])
            self._run(relay.open())
        self.mend()

    def close(self) -> None:
        for process in (*self._workers.values(), *self._servers.values()):
            _end(process)
        for relay in self._relays.values():
            self._run(relay.close())
        self.heal()

    def mend(self) -> None:
        """All servers serve, and all workers work."""
        self.back()
        self._fallen.clear()
        for name in self._names:
            self.hire(name)
        for number, program in enumerate(self._programs):
            pid = self._servers[number].pid
            self._await(partial(program.is_ready, pid), program.log)
        for name, worker in self._workers.items():
            self._await(partial(worker_works, self._data / name, worker.pid), self._log(name))

    def heal(self) -> None:
        self._run(self._healed())

    async def _healed(self) -> None:
        for relay in self._relays.values():
            relay.is_cut = False
        for way in self._back.values():
            way.mend()

    # Faults.

    def away(self) -> None:
        for number in list(self._servers):
            _end(self._servers.pop(number))

    def back(self) -> None:
        for number in range(SERVERS):
            self._start(number)

    def fall(self, server: str) -> None:
        """The leader, or the first of the others."""
        leads = {number: "Mode: leader" in self._said(number) for number in self._servers}
        number = next((one for one, is_leader in leads.items() if is_leader == (server == "leader")), None)
        if number is not None and server not in self._fallen:
            self._fallen[server] = number
            _end(self._servers.pop(number))

    def rise(self, server: str) -> None:
        if server in self._fallen:
            self._start(self._fallen.pop(server))

    def unreach(self, broker: str) -> None:
        self._run(self._cut(broker))

    async def _cut(self, broker: str) -> None:
        for (name, _), relay in self._relays.items():
            if name == broker:
                relay.cut()

    def expire(self, broker: str) -> None:
        """It does not reach the servers for a bit longer than its session lasts."""
        self._run(self._cut(broker))
        self._run(self._later(broker))

    async def _later(self, broker: str) -> None:
        asyncio.get_running_loop().call_later(SESSION_MS / 1000 + 1.0, self._uncut, broker)

    def _uncut(self, broker: str) -> None:
        for (name, _), relay in self._relays.items():
            relay.is_cut = relay.is_cut and name != broker

    def lag(self, broker: str, by_s: str) -> None:
        self._back[broker].delay_s = float(by_s)

    def fell(self, worker: str) -> None:
        if worker in self._workers:
            _end(self._workers.pop(worker))

    def hire(self, worker: str) -> None:
        """It begins to work when it reaches the servers, which may be away."""
        if worker not in self._workers and worker in self._names:
            options = ("--until-eof", "--city", str(self._file), "--data", str(self._data), "--name", worker)
            command = (sys.executable, "-m", "metromq.cli.main", "coordinate", *options)
            self._workers[worker] = _begun(command, self._log(worker))

    def _log(self, worker: str) -> Path:
        return self._data / f"{worker}.log"

    # Processes.

    def _start(self, number: int) -> None:
        if number not in self._servers:
            program = self._programs[number]
            self._servers[number] = _begun(program.command, program.log)

    def _await(self, is_ready: Callable[[], Awaitable[bool]], log: Path) -> None:
        end = time.monotonic() + PATIENCE_S
        while not self._run(_answer(is_ready)):
            if time.monotonic() > end:
                last = log.read_text(errors="replace").splitlines()[-5:]
                raise StandsStill("\n".join((f"it does not come up; {log} says", *last)))
            time.sleep(0.05)

    def _said(self, number: int) -> str:
        return str(self._run(ensemble.asked(*split_address(self._addresses[number]))))


async def _answer(is_ready: Callable[[], Awaitable[bool]]) -> bool:
    return await is_ready()


def _begun(command: tuple[str, ...], log_file: Path) -> subprocess.Popen[bytes]:
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with open(log_file, "ab") as log:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """With all that it has started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdin is not None
    process.stdin.close()
