"""Sensors: the same seed gives the same walk, nobody leaves the city, topics follow the place."""

import json

from metromq.city_file import load_preset
from metromq.federation.city import City, haversine_km
from metromq.lab.sensors import AIR, BUS, PARKING, Sensor, city_sensors
from metromq.protocol.topics.areas import box_of


def city() -> City:
    return load_preset("geographic")


def walk(seed: int, steps: int) -> list[tuple[str, float, float]]:
    sensors = city_sensors(city(), seed)
    for _ in range(steps):
        for sensor in sensors:
            sensor.step(30.0)
    return [(sensor.name, sensor.latitude, sensor.longitude) for sensor in sensors]


def test_the_seed_decides() -> None:
    assert walk(1, 20) == walk(1, 20)
    assert walk(1, 20) != walk(2, 20)


def test_more_buses_change_no_other_sensor() -> None:
    few, many = city_sensors(city(), 1, buses=2), city_sensors(city(), 1, buses=9)
    places = {sensor.name: (sensor.latitude, sensor.longitude) for sensor in many}
    assert all(places[sensor.name] == (sensor.latitude, sensor.longitude) for sensor in few)


def test_buses_keep_their_speed_and_stay_in_the_city() -> None:
    town = city()
    for sensor in city_sensors(town, 3, buses=5, bikes=5):
        for _ in range(200):
            before = sensor.latitude, sensor.longitude
            sensor.step(20.0)
            assert town.square.box().holds(sensor.latitude, sensor.longitude)
            moved_m = 1000 * haversine_km(*before, sensor.latitude, sensor.longitude)
            assert moved_m <= sensor.kind.speed_m_s * 20.0 * 1.01


def test_topics_name_the_area_where_the_sensor_is() -> None:
    town = city()
    for sensor in city_sensors(town, 1):
        for reading in sensor.readings():
            area = "/".join(reading.topic.split("/")[: town.areas.k])
            assert box_of(town.square.box(), area).holds(sensor.latitude, sensor.longitude)
            assert reading.topic.startswith(f"{area}/{sensor.kind.name}/{sensor.number}/")
            assert isinstance(json.loads(reading.payload), dict)
            assert reading.retain == (sensor.kind in (AIR, PARKING))


def test_every_broker_has_an_air_station() -> None:
    town = city()
    stations: list[Sensor] = [sensor for sensor in city_sensors(town, 1) if sensor.kind is AIR]
    assert [town.nearest(station.latitude, station.longitude) for station in stations] == list(town.names)
    assert sum(1 for sensor in city_sensors(town, 1) if sensor.kind is BUS) == 32
