"""Real servers for the tests: Mosquitto as a process, MetroMQ in a thread, both on free loopback ports."""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any, TypeVar

import pytest

from metromq.broker import Broker
from metromq.config import Config
from metromq.control.data_directory import hold_port

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Server:
    """Where a server listens, in the order of its listeners."""

    name: str
    ports: tuple[int, ...]

    @property
    def port(self) -> int:
        return self.ports[0]


def play(story: Coroutine[Any, Any, T], deadline_s: float = 30) -> T:
    """Runs a coroutine to its end, or fails after a generous time."""

    async def bounded() -> T:
        async with asyncio.timeout(deadline_s):
            return await story

    return asyncio.run(bounded())


def require(program: str) -> str:
    """The path of a program: where it is missing a test is skipped, but fails where CI promised it."""
    path = shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin")
    if path is None:
        if os.environ.get("CI"):
            pytest.fail(f"{program} is not installed, and CI is set")
        pytest.skip(f"{program} is not installed")
    return path


def npm_install(directory: Path, what: str) -> None:
    """What the package.json in a directory asks for; on a machine that may be without a network tests are skipped."""
    command = [require("npm"), "ci", "--no-audit", "--no-fund", "--silent", "--ignore-scripts"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=110)
    if done.returncode != 0:
        reason = f"npm cannot install {what}: {done.stderr[-500:]}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


@contextlib.contextmanager
def open_directory() -> Iterator[Path]:
    """A directory that every user of the machine may enter, as pytest's own may not."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        if not all(above.stat().st_mode & 0o001 for above in directory.resolve().parents):
            pytest.skip("temporary directories are closed to others on this machine")
        yield directory


@contextlib.contextmanager
def mosquitto(directory: Path, listeners: int, *lines: str) -> Iterator[Server]:
    """Mosquitto with `listeners` ports; in `lines`, {0}, {1}, ... stand for them."""
    program = require("mosquitto")
    for _ in range(5):
        ports = free_ports(listeners)
        config = directory / "mosquitto.conf"
        config.write_text("".join(line.format(*ports) + "\n" for line in ("user root", *lines)))
        log = directory / "mosquitto.log"
        with log.open("wb") as out:
            process = subprocess.Popen([program, "-c", str(config)], stdout=out, stderr=out)
        try:
            if answers(process, ports):
                yield Server("mosquitto", tuple(ports))
                return
        finally:
            process.terminate()
            process.wait()
    pytest.fail(f"mosquitto does not start: {log.read_text()}")


@contextlib.contextmanager
def metromq(config: Config) -> Iterator[Server]:
    """MetroMQ with this configuration in a thread of its own."""
    told: Queue[Server | BaseException] = Queue()
    stop: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        stop.append((asyncio.get_running_loop(), asyncio.Event()))
        async with Broker(config) as broker:
            told.put(Server("metromq", tuple(broker.ports)))
            await stop[0][1].wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            told.put(error)

    thread = threading.Thread(target=run)
    thread.start()
    started = told.get(timeout=30)
    if isinstance(started, BaseException):
        thread.join()
        raise started
    try:
        yield started
    finally:
        loop, event = stop[0]
        loop.call_soon_threadsafe(event.set)
        thread.join(timeout=30)
        assert not thread.is_alive(), "the broker does not stop"


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(hold_port("127.0.0.1")) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


def free_port() -> int:
    return free_ports(1)[0]


def answers(process: subprocess.Popen[bytes], ports: list[int], deadline_s: float = 20) -> bool:
    """Whether all ports accept connections; False when the process ended, for instance because a port was taken."""
    end = time.monotonic() + deadline_s
    for port in ports:
        while True:
            if process.poll() is not None or time.monotonic() > end:
                return False
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.01)
    return True
