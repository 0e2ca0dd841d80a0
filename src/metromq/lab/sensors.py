"""A city's sensors: buses and bicycles that move, stations that measure. Pure: time and seed are arguments."""

import json
import math
from dataclasses import dataclass
from random import Random
from typing import Final

from metromq.federation import City
from metromq.protocol.topics import centre_of

METRES_PER_DEGREE: Final = 111_195.0  # of latitude
MARGIN: Final = 0.02  # of the square, so that nobody walks along its edge


@dataclass(frozen=True, slots=True)
class Reading:
    """A message that a sensor publishes."""

    topic: str
    payload: bytes
    retain: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """How sensors of a kind move and how often they report."""

    name: str
    interval_s: float
    speed_m_s: float = 0.0


BUS: Final = Kind("bus", 1.0, 8.0)
BIKE: Final = Kind("bike", 2.0, 4.0)
AIR: Final = Kind("air", 5.0)
PARKING: Final = Kind("parking", 5.0)


class Sensor:
    """One of them. `step` lets time pass, `readings` says what it reports then."""

    def __init__(self, kind: Kind, number: int, city: City, place: tuple[float, float], random: Random) -> None:
        self.kind = kind
        self.number = number
        self.latitude, self.longitude = place
        self._city = city
        self._random = random
        self._level = random.random()  # what it measures, between 0 and 1
        self._target = self._somewhere()

    @property
    def name(self) -> str:
        return f"{self.kind.name}-{self.number}"

    def step(self, seconds: float) -> None:
        """Goes on towards its target, and on to the next one from there."""
        self._level = min(1.0, max(0.0, self._level + self._random.gauss(0.0, 0.02) * math.sqrt(seconds)))
        left_m = self.kind.speed_m_s * seconds
        while left_m > 0.0:
            north_m, east_m = self._way()
            distance_m = math.hypot(north_m, east_m)
            if distance_m > left_m:
                self._go(north_m * left_m / distance_m, east_m * left_m / distance_m)
                return
            self.latitude, self.longitude = self._target
            self._target = self._somewhere()
            left_m -= max(distance_m, 1.0)

    def readings(self) -> tuple[Reading, ...]:
        city = self._city
        base = f"{city.area_at(self.latitude, self.longitude)}/{self.kind.name}/{self.number}"
        if self.kind.speed_m_s:
            return (Reading(f"{base}/position", self._position()),)
        if self.kind is AIR:
            return (
                _measured(f"{base}/pm25", 4 + 40 * self._level, "ug/m3"),
                _measured(f"{base}/temperature", 12 + 14 * self._level, "degC"),
            )
        return (_measured(f"{base}/free", round(200 * self._level), "places"),)

    def _position(self) -> bytes:
        facts = {
            "latitude": round(self.latitude, 6),
            "longitude": round(self.longitude, 6),
            "passengers": round(60 * self._level) if self.kind is BUS else round(self._level),
        }
        return json.dumps(facts).encode()

    def _way(self) -> tuple[float, float]:
        """Metres north and east to the target."""
        north_m = (self._target[0] - self.latitude) * METRES_PER_DEGREE
        return north_m, (self._target[1] - self.longitude) * METRES_PER_DEGREE * self._shrink()

    def _go(self, north_m: float, east_m: float) -> None:
        self.latitude += north_m / METRES_PER_DEGREE
        self.longitude += east_m / (METRES_PER_DEGREE * self._shrink())

    def _shrink(self) -> float:
        """Degrees of longitude are shorter away from the equator."""
        return max(0.01, math.cos(math.radians(self.latitude)))

    def _somewhere(self) -> tuple[float, float]:
        return somewhere(self._city, self._random)


def somewhere(city: City, random: Random) -> tuple[float, float]:
    square = city.square
    down, right = (MARGIN + (1 - 2 * MARGIN) * random.random() for _ in range(2))
    return square.north - down * (square.north - square.south), square.west + right * (square.east - square.west)


def _measured(topic: str, value: float, unit: str) -> Reading:
    return Reading(topic, json.dumps({"value": round(value, 1), "unit": unit}).encode(), True)


def city_sensors(city: City, seed: int, buses: int = 32, bikes: int = 16, parkings: int = 8) -> list[Sensor]:
    """The fleet of a demo: what moves starts anywhere, and every broker has an air station in its middle."""
    sensors: list[Sensor] = []
    for kind, count in ((BUS, buses), (BIKE, bikes), (PARKING, parkings)):
        for number in range(1, count + 1):
            random = Random(f"{seed} {kind.name} {number}")  # each its own, so that more buses change no bicycle
            sensors.append(Sensor(kind, number, city, somewhere(city, random), random))
    box = city.square.box()
    for number, broker in enumerate(city.brokers, 1):
        areas = broker.area.split()
        place = centre_of(box, areas[0]) if areas else city.place_of(broker.name)
        sensors.append(Sensor(AIR, number, city, place, Random(f"{seed} air {number}")))
    return sensors
