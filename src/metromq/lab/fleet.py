"""Lets simulated sensors speak to a live city: each through the broker that is nearest to it now."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from metromq.client import Client
from metromq.errors import MetroError
from metromq.federation import City, haversine_km
from metromq.lab.sensors import Reading, Sensor

AVOID_S = 5.0  # a broker that was not there is tried again after this
PATIENCE_S = 3.0
PAUSE_S = 0.5  # when no broker is there


@dataclass(slots=True)
class Tally:
    published: int = 0
    moves: int = 0  # to another broker because it is nearer


class Fleet:
    """`speed_up` makes simulated time pass faster than the clock: a bus takes ten minutes through an area."""

    def __init__(self, city: City, sensors: Sequence[Sensor], speed_up: float = 10.0) -> None:
        self._city = city
        self._sensors = sensors
        self._speed_up = speed_up
        self._avoid_until: dict[str, float] = {}
        self.tally = Tally()

    def __len__(self) -> int:
        return len(self._sensors)

    async def run(self) -> None:
        """Until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for number, sensor in enumerate(self._sensors):
                # Spread over the interval, so that not all speak at once.
                delay_s = sensor.kind.interval_s * number / len(self._sensors)
                group.create_task(self._live(sensor, delay_s))

    async def _live(self, sensor: Sensor, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        waiting: list[Reading] = []  # what a lost connection left unconfirmed goes to the next broker
        while True:
            broker = self._nearest(sensor)
            spec = self._city.broker(broker)
            try:
                async with Client(spec.host, spec.port, identifier=sensor.name, keepalive_s=20) as client:
                    await self._report(sensor, client, broker, waiting)
                self.tally.moves += 1
            except (MetroError, OSError, TimeoutError):
                self._avoid_until[broker] = asyncio.get_running_loop().time() + AVOID_S
                if len(self._avoided()) == len(self._city.names):
                    await asyncio.sleep(PAUSE_S)

    async def _report(self, sensor: Sensor, client: Client, broker: str, waiting: list[Reading]) -> None:
        """Until another broker is nearer."""
        while self._nearest(sensor) == broker:
            if not waiting:
                waiting += sensor.readings()
            while waiting:
                async with asyncio.timeout(PATIENCE_S):  # a broker that hangs is as good as gone
                    await client.publish(waiting[0].topic, waiting[0].payload, qos=1, retain=waiting[0].retain)
                waiting.pop(0)
                self.tally.published += 1
            await asyncio.sleep(sensor.kind.interval_s)
            sensor.step(sensor.kind.interval_s * self._speed_up)

    def _avoided(self) -> set[str]:
        now = asyncio.get_running_loop().time()
        return {name for name, until in self._avoid_until.items() if until > now}

    def _nearest(self, sensor: Sensor) -> str:
        """Of the brokers that were there when last tried; of all, when none was."""
        avoided = self._avoided()
        names = [name for name in self._city.names if name not in avoided] or list(self._city.names)
        place = sensor.latitude, sensor.longitude
        return min(names, key=lambda name: (haversine_km(*place, *self._city.place_of(name)), name))
