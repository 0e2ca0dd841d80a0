"""Asks the central broker of a running city to hand over a topic filter, and waits until it has changed hands."""

import asyncio
import time
from pathlib import Path
from typing import Any

from metromq.control.changing import give_order
from metromq.control.city_status import get_json
from metromq.control.data_directory import RunningBroker, lives, read_place
from metromq.errors import UsageError
from metromq.federation import City, Delegation
from metromq.protocol.topics import narrowest
from metromq.reading import read_data

LOOK_S = 0.05


async def delegations(city: City, data: Path) -> tuple[Delegation, ...]:
    """Every filter that is delegated, as the central broker knows it."""
    return await delegations_at(_central(city, data).http)


async def delegations_at(http: str) -> tuple[Delegation, ...]:
    """The same from the address of a broker's HTTP listener; raises NoAnswer."""
    return _read(await get_json(http, "/delegations"))


async def delegate(city: City, data: Path, topic_filter: str, broker: str, wait_s: float) -> Delegation | None:
    """Who is responsible for the filter now: its own entry, or that of the wider one that it is a part of; None: nobody
    in particular."""
    answer = await give_order(data, _central(city, data), "/delegate", filter=topic_filter, broker=broker)
    found = _holder(_read(answer), topic_filter)
    end = time.monotonic() + wait_s
    while found is not None and found.phase and time.monotonic() < end:
        await asyncio.sleep(LOOK_S)
        found = _holder(await delegations(city, data), topic_filter)
    return found


def _holder(found: tuple[Delegation, ...], topic_filter: str) -> Delegation | None:
    by_filter = {delegation.filter: delegation for delegation in found}
    name = narrowest(topic_filter, by_filter)
    return by_filter[name] if name is not None else None


def _read(answer: dict[str, Any]) -> tuple[Delegation, ...]:
    return tuple(read_data(Delegation, item, "delegation") for item in answer["delegations"])


def _central(city: City, data: Path) -> RunningBroker:
    if city.routing != "delegation":
        raise UsageError(f'city {city.name} has routing = "{city.routing}"; filters are delegated with "delegation"')
    place = read_place(data / city.central)
    if place is None or not lives(place.pid):
        raise UsageError(f"{city.central}, the central broker, is not running here; start it, or name its --data")
    return place
