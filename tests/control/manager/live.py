"""A live city of three brokers with a manager process, as users start them, for tests."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from metromq.control import ManagerDoor, find_manager, keep_city
from metromq.control.running import resolved
from metromq.federation import City, grid_city, split_address

DEADLINE_S = 90.0
CITY = grid_city("delegation", count=3, hello_interval_ms=300)
CENTRAL, FIRST, SECOND = CITY.names
EXAMPLES = Path(__file__).parent.parent.parent.parent / "examples"
COUNTING = {"METROMQ_RECORDER__KEEP_COUNTS": "true", "METROMQ_RECORDER__WINDOW_S": "1"}


def wait_for(true: Callable[[], Any], what: str) -> Any:
    """What it returns once that is true."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        found = true()
        if found:
            return found
        threading.Event().wait(0.1)
    raise AssertionError(f"not within {DEADLINE_S:g} s: {what}")


class LiveCity:
    """Processes by name; `kill` and `start` as often as you like."""

    def __init__(self, data: Path, city: City = CITY) -> None:
        self.data = data
        self.city = resolved(city, data)
        keep_city(data, self.city)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def _spawn(self, name: str, *words: str, program: tuple[str, ...] = ("metromq.cli.main",)) -> None:
        with open(self.data / f"{name}.out", "ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", *program, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | COUNTING,
            )

    def start_broker(self, *names: str) -> None:
        """All at once: most of a start is reading code."""
        file = str(self.data / "city.toml")
        for name in names:
            self._spawn(name, "serve", "--city", file, "--name", name, "--data", str(self.data))
        for name in names:
            wait_for(partial(self.answers, self.port(name)), f"{name} answers")

    def port(self, name: str) -> int:
        return self.city.broker(name).port

    @staticmethod
    def answers(port: int) -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        return True

    def start_dying_manager(self, action: str, *options: str) -> None:
        """It is killed when it begins a step of that kind, which may be at once."""
        words = ("manager", "--data", str(self.data), "--listen", "127.0.0.1:0", *options)
        self._spawn("manager", *words, program=("tests.control.manager.dying", action))

    def await_death(self, name: str) -> None:
        assert self._processes.pop(name).wait(DEADLINE_S) == -signal.SIGKILL

    def start_manager(self, *options: str) -> ManagerDoor:
        self._spawn("manager", "manager", "--data", str(self.data), "--listen", "127.0.0.1:0", *options)
        return self.find_manager()

    def find_manager(self) -> ManagerDoor:
        process = self._processes["manager"]

        def found() -> ManagerDoor | None:
            assert process.poll() is None, (self.data / "manager.out").read_text()[-3000:]
            door = find_manager(self.data)
            with contextlib.suppress(OSError):
                place = split_address(door.url.removeprefix("http://")) if door is not None else ("", 0)
                return door if door is not None and self.answers(place[1]) else None
            return None

        door = wait_for(found, "the manager answers")
        assert isinstance(door, ManagerDoor)
        return door

    def start_proxy(self, door: ManagerDoor, name: str, port: int) -> None:
        token = str(self.data / "manager" / "token")
        words = ("--manager", door.url, "--token-file", token, "--name", name, "--listen", f"127.0.0.1:{port}")
        self._spawn(name, "proxy", *words)
        wait_for(lambda: self.answers(port), f"{name} answers")

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        process = self._processes.pop(name)
        process.send_signal(number)
        process.wait(DEADLINE_S)

    def close(self) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for file in sorted((self.data / "manager" / "run").glob("*.pid")):  # what managers started outlives them
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.killpg(int(file.read_text()), signal.SIGKILL)


@contextlib.contextmanager
def live_city(data: Path, *brokers: str) -> Iterator[LiveCity]:
    made = LiveCity(data)
    try:
        made.start_broker(*(brokers or made.city.names))
        yield made
    finally:
        made.close()


def service(name: str, *topics: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "topics": list(topics), **fields}


def example(name: str) -> list[str]:
    return [sys.executable, str(EXAMPLES / f"{name}.py")]


def records(data: Path) -> list[dict[str, Any]]:
    lines = (data / "manager" / "manager.log.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]
