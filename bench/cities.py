"""Cities for the bench: MetroMQ brokers as processes that can be killed, and mosquitto brokers joined by bridges."""

import asyncio
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.generator import connect
from bench.peers import BUILD, COMPILED, free_port, mosquitto_path
from metromq.control.city_status import ask_city, is_ready
from metromq.control.data_directory import choose_ports, keep_city
from metromq.control.running import CityOptions, broker_program
from metromq.errors import UsageError
from metromq.federation.city import City
from metromq.federation.status import RESTING, UP, CityStatus

PATIENCE_S = 60.0
START_S = 600.0  # for dozens of brokers on a busy machine,
AT_ONCE = 6  # of which so many start at once: each needs a second of a core before it answers
POLL_S = 0.05


def is_compiled() -> bool:
    return any(COMPILED.glob("*__mypyc*.so"))


def wait_until(what: str, condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            raise UsageError(f"{what}: not within {patience_s:.0f} s")
        time.sleep(POLL_S)


class BenchCity:
    """Nobody starts again what dies here: that is the bench's to do."""

    def __init__(self, city: City, data: Path, durability: str, settings: Mapping[str, str]) -> None:
        self.city = choose_ports(city)
        self.detours: Mapping[tuple[str, str], int] = {}  # ports at which a broker reaches another, if not its own
        self.all_run: Callable[[], None] = lambda: None  # called when they do, before they must have met
        self.data = data
        self._file = keep_city(data, self.city)
        self._options = CityOptions(durability)
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("METROMQ_")}
        tree = COMPILED if is_compiled() else BUILD.parent / "src"
        own = {"PYTHONPATH": str(tree), "METROMQ_LIMITS__MAX_CONNECTS_PER_S": "0"}
        self.environment = inherited | own | dict(settings)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def port(self, name: str) -> int:
        return self.city.broker(name).port

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def open(self) -> None:
        for start in range(0, len(self.city.names), AT_ONCE):
            some = self.city.names[start : start + AT_ONCE]
            for name in some:
                self._launch(name)
            for name in some:
                self._await(name)
        self.all_run()
        self.settle()

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()

    def _launch(self, name: str) -> None:
        program = broker_program(self._file, self.data, name, self._options)
        program.log.parent.mkdir(parents=True, exist_ok=True)
        detours = [f"--peer={peer}=127.0.0.1:{port}" for (own, peer), port in self.detours.items() if own == name]
        with open(program.log, "ab") as log:
            self._processes[name] = subprocess.Popen(
                (*program.command, *detours), env=self.environment, stdin=subprocess.PIPE, stdout=log, stderr=log
            )

    def _await(self, name: str) -> None:
        wait_until(f"{name} starts", lambda: asyncio.run(is_ready(self.data / name, self.pid(name))), START_S)

    def start(self, name: str) -> None:
        self._launch(name)
        self._await(name)

    def kill(self, name: str) -> None:
        self._processes[name].kill()

    def bury(self, name: str) -> None:
        process = self._processes[name]
        process.wait()
        assert process.stdin is not None
        process.stdin.close()

    def pause(self, name: str) -> None:
        os.kill(self.pid(name), signal.SIGSTOP)

    def resume(self, name: str) -> None:
        os.kill(self.pid(name), signal.SIGCONT)

    def status(self) -> CityStatus:
        return asyncio.run(self.status_now())

    async def status_now(self) -> CityStatus:
        return await ask_city(self.city, self.data)

    def settle(self) -> None:
        """Every link up, every area at home, all tables equal, nothing waiting."""
        wait_until("the city comes to rest", lambda: _is_settled(self.status()), START_S)

    def between(self) -> tuple[int, int]:
        """Messages sent over links, and delivered to clients, once all that was sent has come."""
        found: list[tuple[int, int, int]] = [(-1, 0, 0)]

        def is_quiet() -> bool:
            brokers = self.status().brokers
            sent = sum(link.messages_sent for broker in brokers for link in broker.links)
            received = sum(link.messages_received for broker in brokers for link in broker.links)
            found.append((sent, received, sum(broker.traffic.messages_sent for broker in brokers)))
            return sent == received and found[-1] == found[-2]

        wait_until("links are quiet", is_quiet)
        return found[-1][0], found[-1][2]


def _is_settled(status: CityStatus) -> bool:
    brokers = status.brokers
    return (
        all(broker.state == UP for broker in brokers)
        and len({broker.table for broker in brokers}) == 1
        and all(link.state in (UP, RESTING) and not link.backlog for broker in brokers for link in broker.links)
        and all(area.home for broker in brokers for area in broker.areas)
    )


@contextmanager
def bench_city(
    city: City, durability: str = "memory", settings: Mapping[str, str] | None = None
) -> Iterator[BenchCity]:
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="bench-") as name:
        running = BenchCity(city, Path(name), durability, settings or {})
        try:
            running.open()
            yield running
        finally:
            running.close()


# --- mosquitto ----------------------------------------------------------------------------------------------------


@contextmanager
def bridged(pairs: Sequence[tuple[int, int]]) -> Iterator[list[int]]:
    """Mosquitto brokers by number; the first of each pair keeps a bridge to the second that carries everything."""
    count = 1 + max(number for pair in pairs for number in pair)
    ports = [free_port() for _ in range(count)]
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="bench-") as directory:
        try:
            for number in reversed(range(count)):
                file = Path(directory) / f"{number}.conf"
                file.write_text(_configuration(number, ports, [other for one, other in pairs if one == number]))
                processes.append(
                    subprocess.Popen([mosquitto_path() or "mosquitto", "-c", str(file)], stderr=subprocess.DEVNULL)
                )
            for port in ports:
                wait_until("mosquitto listens", lambda port=port: _answers(port))  # type: ignore[misc]
            yield ports
        finally:
            for process in processes:
                process.kill()
                process.wait()


def _configuration(number: int, ports: Sequence[int], others: Sequence[int]) -> str:
    lines = [f"listener {ports[number]} 127.0.0.1", "allow_anonymous true", "log_dest none", "user root"]
    lines += ["sys_interval 1", "set_tcp_nodelay true"]
    for other in others:
        lines += [f"connection from{number}to{other}", f"address 127.0.0.1:{ports[other]}", "topic # both 0"]
        lines += ["cleansession true", "notifications false", "restart_timeout 1"]
    return "\n".join(lines) + "\n"


def _answers(port: int) -> bool:
    try:
        connect(port, "probe").close()
    except (OSError, UsageError):
        return False
    return True
