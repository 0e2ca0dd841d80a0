"""Where the manager works: the city and its files, the programs that it runs, and where those are reached."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from metromq.city_file import load_city
from metromq.control.city_status import is_ready
from metromq.control.core import Device, ServiceSpec
from metromq.control.data_directory import CITY_FILE, hold_port, keep_city, lives, read_place
from metromq.control.manager.runtimes import PodmanRuntime, ProcessRuntime, Runtime, RuntimeFailed, Unit
from metromq.control.running import resolved
from metromq.errors import UsageError
from metromq.federation import City, split_address
from metromq.files import replace_file

FOLDER = "manager"
TUNNELS_FILE = "tunnels.json"


class Workplace:
    """The city is read anew when its file has changed."""

    def __init__(self, city: City, data: Path, tunnel_host: str) -> None:
        if city.routing != "delegation":
            raise UsageError(f'city {city.name} has routing = "{city.routing}"; a manager needs "delegation"')
        self.data = data
        self.directory = data / FOLDER
        self.usage = self.directory / "usage"
        self._tunnel_host = tunnel_host
        if not (data / CITY_FILE).is_file():
            keep_city(data, resolved(city, data))
        self._stamp = 0
        self._listening: set[str] = set()
        self._city = city
        run = self.directory / "run"
        self.programs = ProcessRuntime(run)
        self._runtimes: Mapping[str, Runtime] = {"process": self.programs, "podman": PodmanRuntime(run)}

    @property
    def city(self) -> City:
        stamp = (self.data / CITY_FILE).stat().st_mtime_ns
        if stamp != self._stamp:
            self._city, self._stamp = load_city(self.data / CITY_FILE), stamp
        return self._city

    def runtime(self, spec: ServiceSpec) -> Runtime:
        return self._runtimes[spec.runtime]

    # Units.

    def broker_unit(self, name: str) -> Unit:
        command = (sys.executable, "-m", "metromq.cli.main", "serve", "--city", str(self.data / CITY_FILE))
        counting = {"METROMQ_RECORDER__KEEP_COUNTS": "true"} if "METROMQ_RECORDER__LAKE" not in os.environ else {}
        return Unit(f"broker-{name}", (*command, "--name", name, "--data", str(self.data)), counting)

    def tunnel_unit(self, broker: str) -> Unit:
        command = (sys.executable, "-m", "metromq.cli.main", "tunnel", "--listen", self.tunnel_address(broker))
        return Unit(f"tunnel-{broker}", (*command, "--broker", self.broker_address(broker)))

    def service_unit(self, spec: ServiceSpec, device: Device) -> Unit:
        usage = self.usage / f"{spec.name}.usage.jsonl"
        environment = {
            "MQTT_BROKER": self.broker_address(device.broker),
            "MQTT_CLIENT_ID": f"service-{spec.name}",
            "MQTT_TOPICS": " ".join(spec.topics),
            "SERVICE_NAME": spec.name,
            "SERVICE_DEVICE": device.name,
            "SERVICE_USAGE": str(usage.resolve()),
            "PYTHONUNBUFFERED": "1",
            **spec.environment,
        }
        shared = str(self.usage.resolve()) if spec.runtime == "podman" else ""
        name = f"service-{spec.name}"
        return Unit(name, spec.command, environment, spec.limits, spec.image, spec.rootfs, shared)

    # Addresses.

    def broker_address(self, name: str) -> str:
        place = read_place(self.data / name)
        return place.listen if place is not None and lives(place.pid) else self.city.broker(name).listen

    def is_up(self, name: str) -> bool:
        place = read_place(self.data / name)
        return place is not None and lives(place.pid)

    async def is_ready(self, name: str) -> bool:
        place = read_place(self.data / name)
        return place is not None and await is_ready(self.data / name, place.pid)

    def tunnel_address(self, broker: str) -> str:
        """Chosen once and kept, so that proxies find a tunnel again that was restarted."""
        known = self.tunnels()
        if broker not in known:
            with hold_port(self._tunnel_host) as held:
                known[broker] = f"{self._tunnel_host}:{held.getsockname()[1]}"
            self.directory.mkdir(parents=True, exist_ok=True)
            replace_file(self.directory / TUNNELS_FILE, json.dumps(known))
        return known[broker]

    def tunnels(self) -> dict[str, str]:
        """Where they end, by broker: all that there ever were."""
        try:
            return dict(json.loads((self.directory / TUNNELS_FILE).read_text()))
        except (OSError, ValueError):
            return {}

    async def tunnel_is_up(self, broker: str) -> bool:
        """Proxies are told of it once it listens, and not before."""
        if not await self.programs.is_running(f"tunnel-{broker}"):
            self._listening.discard(broker)
            return False
        if broker not in self._listening:
            try:
                _, writer = await asyncio.open_connection(*split_address(self.tunnel_address(broker)))
            except OSError:
                return False
            writer.close()
            self._listening.add(broker)
        return True

    def log_tail(self, name: str, lines: int = 8) -> str:
        try:
            text = (self.directory / "run" / f"{name}.log").read_text(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])


__all__ = ["RuntimeFailed", "Workplace"]
