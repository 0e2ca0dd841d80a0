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
from metromq.reading import read_data

LOOK_S = 0.05


async def delegations(city: City, data: Path) -> tuple[Delegation, ...]:
    """Every filter that is delegated, as the central broker knows it."""
    return await delegations_at(_central(city, data).http)


async def delegations_at(http: str) -> tuple[Delegation, ...]:
    """The same from the address of a broker's HTTP listener; raises NoAnswer."""
    return _read(await get_json(http, "/delegations"))


async def delegate(city: City, data: Path, topic_filter: str, broker: str, wait_s: float) -> Delegation | None:
    """What has become of the filter; None: nobody in particular is responsible for it now."""
    answer = await give_order(data, _central(city, data), "/delegate", filter=topic_filter, broker=broker)
    found = _one(_read(answer), topic_filter)
    end = time.monotonic() + wait_s
    while found is not None and found.phase and time.monotonic() < end:
        await asyncio.sleep(LOOK_S)
        found = _one(await delegations(city, data), topic_filter)
    return found


def _one(found: tuple[Delegation, ...], topic_filter: str) -> Delegation | None:
    return next((delegation for delegation in found if delegation.filter == topic_filter), None)


def _read(answer: dict[str, Any]) -> tuple[Delegation, ...]:
    return tuple(read_data(Delegation, item, "delegation") for item in answer["delegations"])


def _central(city: City, data: Path) -> RunningBroker:
    if city.routing != "delegation":
        raise UsageError(f'city {city.name} has routing = "{city.routing}"; filters are delegated with "delegation"')
    place = read_place(data / city.central)
    if place is None or not lives(place.pid):
        raise UsageError(f"{city.central}, the central broker, is not running here; start it, or name its --data")
    return place
