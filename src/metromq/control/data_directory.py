"""Where a city's files are on one machine: DIR/city.toml, and for each broker DIR/NAME with journal, log and address.

DIR/city.toml is the city as it is now: brokers write it anew when the city changes.
DIR/NAME/broker.json says where a running broker answers: `{"name", "pid", "listen", "http", "started", "city"}`. It is
written when the broker is ready and removed when it stops; after a crash it stays, and its process is gone.
"""

import dataclasses
import errno
import fcntl
import json
import os
import random
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metromq.city_file import PREFIX, PRESETS, city_text, load_city, load_preset
from metromq.documents import read_document
from metromq.errors import ConfigError, UsageError
from metromq.federation import BrokerSpec, City, split_address
from metromq.files import replace_file
from metromq.reading import read_data

DEFAULT_DATA = Path("metromq-data")
CITY_FILE = "city.toml"
BROKER_FILE = "broker.json"
LOG_FILE = "broker.log"
KEY_FILE = "control.key"
WORKER_FILE = "worker.pid"
LOCK_FILE = "up.lock"
ADDRESSES = ("listen", "link_listen")
LOWEST_PORT = 10_000  # of those that are chosen
_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """What broker.json says."""

    name: str
    pid: int
    listen: str
    http: str
    started: float  # Unix time in seconds
    city: str = ""  # the city's file, or the name of a preset; empty: an older broker, which does not say


def city_named(text: str, environ: Mapping[str, str]) -> City:
    """The city of a file, or a preset by its name."""
    if text in PRESETS and not Path(text).is_file():
        return load_preset(text)
    if not Path(text).is_file():
        raise UsageError(f"there is no file {text} and no such preset; the presets are {', '.join(PRESETS)}")
    return load_city(Path(text), {name: value for name, value in environ.items() if name.startswith(PREFIX)})


def city_running(text: str | None, data: Path, environ: Mapping[str, str]) -> City:
    """The city that a command is about: the named one, with the ports that were chosen for it, or the one of DIR."""
    chosen = data / CITY_FILE
    if text is None:
        if chosen.is_file():
            return load_city(chosen)
        served = next((place.city for place in running_here(data) if place.city), None)
        if served is None:
            raise UsageError(
                f"no city has been started in {data}: name the city's file, or its data directory with --data"
            )
        return city_named(served, environ)
    city = city_named(text, environ)
    return with_chosen_ports(city, load_city(chosen).by_name) if chosen.is_file() else city


def with_chosen_ports(city: City, chosen: Mapping[str, BrokerSpec]) -> City:
    """Brokers that leave their port to the system get the one of an earlier start."""
    brokers = list(city.brokers)
    for number, broker in enumerate(brokers):
        before = chosen.get(broker.name)
        for name in ADDRESSES if before is not None else ():
            address, earlier = getattr(broker, name), getattr(before, name)
            if address.endswith(":0") and earlier and split_address(earlier)[0] == split_address(address)[0]:
                broker = _with_address(broker, name, earlier)
        brokers[number] = broker
    return dataclasses.replace(city, brokers=tuple(brokers))


def choose_ports(city: City) -> City:
    """Every port 0 becomes a free one; all are held until the last is chosen, so that none is chosen twice."""
    with ExitStack() as stack:
        brokers = []
        for broker in city.brokers:
            for name in ADDRESSES:
                address = getattr(broker, name)
                if address.endswith(":0"):
                    broker = _with_address(broker, name, _held(stack, broker.name, address))
            brokers.append(broker)
    return dataclasses.replace(city, brokers=tuple(brokers))


def _with_address(broker: BrokerSpec, name: str, address: str) -> BrokerSpec:
    changes: dict[str, Any] = {name: address}
    return dataclasses.replace(broker, **changes)


def _held(stack: ExitStack, name: str, address: str) -> str:
    """The address with a port that nobody else gets before the stack is left."""
    host, _ = split_address(address)
    try:
        held = stack.enter_context(hold_port(host))
    except OSError as error:
        raise ConfigError(f"broker {name}", f"cannot listen on {host}: {error.strerror}") from error
    return f"{f'[{host}]' if ':' in host else host}:{held.getsockname()[1]}"


def hold_port(host: str) -> socket.socket:
    """A socket on a port that the system gives to no outgoing connection: it stays free until a broker needs it."""
    for port in _candidates():
        held = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            held.bind((host, port))
            return held
        except OSError as error:
            held.close()
            if error.errno != errno.EADDRINUSE or port == 0:
                raise
    raise AssertionError("the last candidate is any port")


def _candidates() -> Iterator[int]:
    try:
        outgoing = int(_OUTGOING.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        outgoing = 0
    lowest = max(LOWEST_PORT, outgoing - 16384)
    for _ in range(100 if outgoing > lowest else 0):
        yield random.randrange(lowest, outgoing)
    yield 0


def is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def keep_city(data: Path, city: City) -> Path:
    """Writes the city with its ports, so that other commands find them; it may hold the secret, so only we may read."""
    data.mkdir(parents=True, exist_ok=True)
    replace_file(data / CITY_FILE, city_text(city), mode=0o600)
    return data / CITY_FILE


def keep_place(directory: Path, place: RunningBroker) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    replace_file(directory / BROKER_FILE, json.dumps(dataclasses.asdict(place)) + "\n", durable=False, mode=0o644)


def keep_worker(directory: Path) -> None:
    """Says that the coordination worker of this process works."""
    directory.mkdir(parents=True, exist_ok=True)
    replace_file(directory / WORKER_FILE, f"{os.getpid()}\n", durable=False, mode=0o644)


async def worker_works(directory: Path, pid: int) -> bool:
    try:
        return (directory / WORKER_FILE).read_text().strip() == str(pid)
    except OSError:
        return False


def forget_place(directory: Path, pid: int) -> None:
    """Removes our own broker.json, and no one else's."""
    place = read_place(directory)
    if place is not None and place.pid == pid:
        (directory / BROKER_FILE).unlink(missing_ok=True)


def read_place(directory: Path) -> RunningBroker | None:
    try:
        return read_data(RunningBroker, read_document(directory / BROKER_FILE), ignore_unknown=True)
    except ConfigError:
        return None


def new_key(directory: Path) -> str:
    """What whoever may change the city at this broker must know: its user can read it, and nobody else."""
    directory.mkdir(parents=True, exist_ok=True)
    key = secrets.token_hex(32)
    replace_file(directory / KEY_FILE, key + "\n", durable=False, mode=0o600)
    return key


def read_key(directory: Path) -> str:
    try:
        return (directory / KEY_FILE).read_text().strip()
    except OSError as error:
        raise UsageError(
            f"{directory / KEY_FILE} cannot be read: {error.strerror}. Are you the broker's user?"
        ) from None


def running_here(data: Path) -> list[RunningBroker]:
    """The brokers that run in a data directory, whoever started them."""
    places = (read_place(file.parent) for file in sorted(data.glob(f"*/{BROKER_FILE}")))
    return [place for place in places if place is not None and lives(place.pid)]


def lives(pid: int) -> bool:
    """Whether a process has this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def only_one(data: Path) -> Iterator[None]:
    """Holds the directory: two supervisors of the same brokers would restart each other's."""
    data.mkdir(parents=True, exist_ok=True)
    with open(data / LOCK_FILE, "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise UsageError(
                f"a city is already running in {data} (process {file.read().strip() or 'unknown'}): "
                "stop it first, or choose another data directory with --data"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
