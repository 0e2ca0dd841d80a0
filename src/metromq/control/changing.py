"""Asks a broker on this machine what its city is, and has been, and gives it orders that change the city."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metromq.control.city_status import NoAnswer, get_json, post
from metromq.control.data_directory import RunningBroker, read_key, running_here
from metromq.errors import UsageError
from metromq.federation import City, CityPlan, LinkSecurity, city_of
from metromq.reading import read_data


@dataclass(frozen=True, slots=True)
class CityVersion:
    epoch: int
    author: str
    time: float
    note: str
    at: str
    plan: CityPlan
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Departure:
    state: str
    waits_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Page:
    """What a broker's /city says."""

    broker: str
    epoch: int
    author: str
    time: float
    note: str
    at: str
    plan: CityPlan
    following: Mapping[str, int]
    alive: tuple[str, ...]
    leaving: Departure
    history: tuple[CityVersion, ...] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class CityNow:
    """The city as one of its brokers knows it."""

    place: RunningBroker
    page: _Page
    city: City

    @property
    def away(self) -> list[str]:
        return [name for name in self.city.names if name not in self.page.alive]

    @property
    def behind(self) -> list[str]:
        """Members that do not follow the newest description yet."""
        following = self.page.following
        return [name for name in self.city.names if following.get(name, 0) < self.page.epoch]

    def version(self, epoch: int) -> City:
        for one in self.page.history:
            if one.epoch == epoch:
                return city_of_plan(one.plan)
        known = ", ".join(str(one.epoch) for one in self.page.history)
        raise UsageError(f"{self.page.broker} does not remember epoch {epoch}, only {known}")


def city_of_plan(plan: CityPlan) -> City:
    """A command's own city has no secret: descriptions come without one."""
    return city_of(plan, LinkSecurity(secret="descriptions have no secret"))


async def city_now(data: Path, broker: str | None = None) -> CityNow:
    """Of the named broker, or of the first that runs in the data directory."""
    places = [place for place in running_here(data) if broker in (None, place.name)]
    if not places:
        who = broker or "no broker of a city"
        raise UsageError(f"{who} runs {'not ' if broker else ''}in {data}: name its data directory with --data")
    page = read_data(_Page, await get_json(places[0].http, "/city"), ignore_unknown=True)
    return CityNow(places[0], page, city_of_plan(page.plan))


async def give_order(data: Path, place: RunningBroker, path: str, **words: Any) -> dict[str, Any]:
    """Raises UsageError with what the broker has against it."""
    try:
        answer = json.loads(await post(place.http, path, read_key(data / place.name), json.dumps(words).encode()))
    except NoAnswer as error:
        raise UsageError(str(error)) from error
    assert isinstance(answer, dict)
    return answer
