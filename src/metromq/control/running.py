"""A city on one machine: its programs, started together, and looked at until their links are up."""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from metromq.city_file import load_city
from metromq.control import ensemble
from metromq.control.city_status import ask_city, is_ready
from metromq.control.data_directory import (
    ADDRESSES,
    CITY_FILE,
    LOG_FILE,
    choose_ports,
    is_free,
    keep_city,
    with_chosen_ports,
    worker_works,
)
from metromq.control.processes import Keeper, ProcessSpec, Supervisor
from metromq.errors import UsageError
from metromq.federation import DOWN, UP, BrokerSpec, City, CityStatus, split_address

LINKS_PATIENCE_S = 20.0
LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class CityOptions:
    """What every broker of the city gets on its command line."""

    durability: str | None = None
    config_file: Path | None = None


class RunningCity:
    """Call `start` once, then `stop`. `tell` gets a sentence for every event."""

    def __init__(
        self, city: City, data: Path, only: tuple[str, ...], options: CityOptions, tell: Callable[[str], None]
    ) -> None:
        for name in only:
            city.broker(name)
        self.data = data
        self.city = resolved(city, data)
        self.names = only or self.city.names
        servers = ensemble.server_programs(self.city.zookeeper.servers, data) if ensemble.is_needed(city) else ()
        file = keep_city(data, self.city)
        workers = tuple(worker_program(file, data, f"worker-{one + 1}") for one in range(self.city.overlay.workers))
        programs = tuple(broker_program(file, data, name, options) for name in self.names)
        self.supervisor = Supervisor((*servers, *workers, *programs), tell)

    async def start(self, ready: Callable[[Keeper], None]) -> None:
        await self.supervisor.start(ready)

    async def joined(self, look: Callable[[int, int], None]) -> CityStatus:
        """The status once every link between the brokers started here is up, or after a while without that."""
        status = await ask_city(self.city, self.data)
        try:
            async with asyncio.timeout(LINKS_PATIENCE_S):
                while not self._is_joined(status, look):
                    await asyncio.sleep(LOOK_S)
                    status = await ask_city(self.city, self.data)
        except TimeoutError:
            pass
        return status

    def _is_joined(self, status: CityStatus, look: Callable[[int, int], None]) -> bool:
        """Brokers of a large city keep links to some of the others only, and tell to which."""
        brokers = [broker for broker in status.brokers if broker.name in self.names]
        links = [link for broker in brokers for link in broker.links if link.peer in self.names]
        up = sum(1 for link in links if link.state != DOWN)
        look(up, len(links))
        return up == len(links) and all(broker.state == UP for broker in brokers)

    async def stop(self) -> None:
        await self.supervisor.stop()


def resolved(city: City, data: Path) -> City:
    """With a port for every broker: the file's, the one of an earlier start in this directory, or a free one.

    A city that needs an ensemble, and names none, gets the addresses of one in the same way.
    """
    earlier = _earlier(data)
    if ensemble.is_needed(city):
        city = ensemble.with_local_ensemble(city, earlier)
    if earlier is None:
        return choose_ports(city)
    free = {broker.name: broker for broker in earlier.brokers if broker.port and _is_free(broker)}
    return choose_ports(with_chosen_ports(city, free))


def _earlier(data: Path) -> City | None:
    try:
        return load_city(data / CITY_FILE) if (data / CITY_FILE).is_file() else None
    except UsageError:
        return None  # an old or broken file is written anew


def _is_free(broker: BrokerSpec) -> bool:
    addresses = (getattr(broker, name) for name in ADDRESSES)
    return all(is_free(*split_address(address)) for address in addresses if address)


def broker_program(city_file: Path, data: Path, name: str, options: CityOptions) -> ProcessSpec:
    command = [sys.executable, "-m", "metromq.cli.main", "serve", "--until-eof"]
    command += ["--city", str(city_file), "--name", name, "--data", str(data)]
    if options.durability is not None:
        command += ["--durability", options.durability]
    if options.config_file is not None:
        command += ["--config", str(options.config_file)]
    log, ready = data / name / LOG_FILE, partial(is_ready, data / name)
    return ProcessSpec(name, "broker", tuple(command), log, ready, partial(is_member, city_file, name))


def worker_program(city_file: Path, data: Path, name: str) -> ProcessSpec:
    command = (sys.executable, "-m", "metromq.cli.main", "coordinate", "--until-eof", "--city", str(city_file))
    ready = partial(worker_works, data / name)
    return ProcessSpec(name, "worker", (*command, "--name", name, "--data", str(data)), data / name / LOG_FILE, ready)


def is_member(city_file: Path, name: str) -> bool:
    """Whether the city still has the broker; a file that cannot be read says nothing about that."""
    try:
        return name in load_city(city_file).by_name
    except UsageError:
        return True
