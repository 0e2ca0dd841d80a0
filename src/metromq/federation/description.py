"""A city's description as shared knowledge: which epoch, by whom, when, and what would change; no I/O.

The description is a fact like any other: it merges by its epoch, is kept in every journal, and reaches whoever was away
with the next greeting. How brokers prove themselves to each other (`[links]`) is not in it: secrets do not travel.
"""

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from metromq.errors import ConfigError, ProtocolViolation, UsageError
from metromq.federation.city import BrokerSpec, City, CityPlan, FormerHome, LinkSecurity, ZooKeeperSettings
from metromq.federation.coordination.facts import CITY, Fact
from metromq.federation.coordination.sharing import Shared
from metromq.protocol.topics import areas_within
from metromq.reading import read_data

FORMER_S: Final = 86_400.0  # so long who was at home in an area still hears of subscriptions there
MOST_KEPT: Final = 20  # descriptions that a broker remembers
# Routings that change into each other while the city runs.
CHANGEABLE: Final = ("central", "flood-publications", "flood-subscriptions", "geographic", "overlay")
# What cannot change while the city runs, and why.
_FIXED: Final = {
    "name": "the name is what brokers know their city by",
    "coordination": "brokers with different coordinators cannot agree on anything",
    "attachment": "only one attachment is built",
    "transport": "only one transport is built",
}


@dataclass(frozen=True, slots=True)
class _Written:
    """What the value of the fact says."""

    author: str
    time: float
    city: CityPlan
    note: str = ""


@dataclass(frozen=True, slots=True)
class Description:
    """One version of a city. Epoch 0 is the city's file, which nobody has changed since the city started."""

    epoch: int
    city: City
    author: str = ""
    time: float = 0.0  # Unix time in seconds
    note: str = ""
    at: str = ""  # the broker at which it was said

    def to_fact(self) -> Fact:
        written = {"author": self.author, "time": self.time, "note": self.note, "city": plan_of(self.city)}
        return Fact(CITY, CITY, self.at, self.epoch, json.dumps(written, separators=(",", ":"), sort_keys=True))


def plan_of(city: City) -> dict[str, Any]:
    """What travels of a city, as plain data."""
    whole = dataclasses.asdict(city, dict_factory=_without_nothing)
    del whole["links"], whole["zookeeper"]
    return whole


def _without_nothing(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in items if value is not None}


def city_of(plan: CityPlan, links: LinkSecurity) -> City:
    return City(**{one.name: getattr(plan, one.name) for one in dataclasses.fields(CityPlan)}, links=links)


def text_of(city: City) -> str:
    """The city's file as the value of a fact would say it."""
    return _TEXTS.of(city)


def _text_of(city: City) -> str:
    return Description(0, city).to_fact().value


_TEXTS: Final = Shared(_text_of)


def described(fact: Fact, city: City) -> Description:
    """As `read_description`, with what a broker keeps to itself of the city that it knows."""
    return _described(fact, city.links, city.zookeeper)


@lru_cache(maxsize=4)
def _described(fact: Fact, links: LinkSecurity, zookeeper: ZooKeeperSettings) -> Description:
    """It is asked for more than once, by brokers of one process too: in a large city to read it takes long."""
    found = read_description(fact, links)
    return dataclasses.replace(found, city=dataclasses.replace(found.city, zookeeper=zookeeper))


def read_plan(raw: object, links: LinkSecurity) -> City:
    """The city of what `plan_of` made; raises ConfigError. What a later release added is left out."""
    city = city_of(read_data(CityPlan, raw, ignore_unknown=True), links)
    for field, problem in city.problems():
        raise ConfigError(field, problem)
    return city


def read_description(fact: Fact, links: LinkSecurity) -> Description:
    """Raises ProtocolViolation for a description that this release cannot follow."""
    try:
        written = read_data(_Written, json.loads(fact.value), ignore_unknown=True)
        city = city_of(written.city, links)
        for field, problem in city.problems():
            raise ConfigError(field, problem)
    except (ValueError, RecursionError, ConfigError) as error:
        raise ProtocolViolation(f"epoch {fact.epoch} of the city cannot be followed here: {error}") from error
    return Description(fact.epoch, city, written.author, written.time, written.note, fact.owner)


def next_description(known: Description, city: City, author: str, at: str, time: float, note: str = "") -> Description:
    """The description that follows the known one; raises UsageError for what cannot change in a running city."""
    for problem in forbidden(known.city, city):
        raise UsageError(problem)
    marked = dataclasses.replace(city, formerly=_former_homes(known.city, city, time))
    return Description(known.epoch + 1, marked, author, time, note, at)


def forbidden(before: City, after: City) -> Iterator[str]:
    for field, why in _FIXED.items():
        one, other = getattr(before, field), getattr(after, field)
        if one != other:
            yield f"{field} cannot change from {one} to {other} while the city runs: {why}"
    if before.areas.l_b != after.areas.l_b:
        yield (
            f"areas.l_b cannot change from {before.areas.l_b} to {after.areas.l_b} while the city runs: "
            "every area would be another one"
        )


def _former_homes(before: City, after: City, time: float) -> tuple[FormerHome, ...]:
    """Who was at home where until now, and who was until lately, while they are members."""
    kept = {(one.area, one.broker): one for one in before.formerly if time - one.until < FORMER_S}
    for area, broker in before.homes.items():
        if after.homes.get(area) != broker:
            kept[area, broker] = FormerHome(area, broker, time)
    return tuple(
        one
        for (area, broker), one in sorted(kept.items())
        if broker in after.by_name and after.homes.get(area) != broker
    )


def differences(before: City, after: City) -> tuple[str, ...]:
    """What would change, a line each, for people."""
    return (*_broker_differences(before, after), *_other_differences(before, after))


def _broker_differences(before: City, after: City) -> Iterator[str]:
    for name in after.names:
        if name not in before.by_name:
            yield f"+ broker {name}: {_told(after.by_name[name])}"
    for name in before.names:
        if name not in after.by_name:
            yield f"- broker {name}: {_told(before.by_name[name])}"
        else:
            yield from _field_differences(f"broker {name}", before.by_name[name], after.by_name[name])


def _told(spec: BrokerSpec) -> str:
    words = {"listen": spec.listen, "area": spec.area, "site": spec.site, "link_listen": spec.link_listen}
    return ", ".join(f"{name} {value}" for name, value in words.items() if value)


def _field_differences(what: str, one: Any, other: Any) -> Iterator[str]:
    for field in dataclasses.fields(one):
        was, is_now = getattr(one, field.name), getattr(other, field.name)
        if was != is_now:
            yield f"~ {what}: {field.name} {_value(was)} -> {_value(is_now)}"


def _value(value: object) -> str:
    return str(value) if value not in ("", None) else "(none)"


def _other_differences(before: City, after: City) -> Iterator[str]:
    sites, other_sites = ({site.name: site for site in city.sites} for city in (before, after))
    yield from (f"+ site {name}" for name in other_sites if name not in sites)
    yield from (f"- site {name}" for name in sites if name not in other_sites)
    for name in sites.keys() & other_sites.keys():
        yield from _field_differences(f"site {name}", sites[name], other_sites[name])
    for field in dataclasses.fields(CityPlan):
        was, is_now = getattr(before, field.name), getattr(after, field.name)
        if field.name in ("brokers", "sites", "formerly") or was == is_now:
            continue
        if dataclasses.is_dataclass(was):
            yield from _field_differences(field.name, was, is_now)
        else:
            yield f"~ {field.name}: {_value(was)} -> {_value(is_now)}"


def steps_to(before: City, after: City) -> tuple[City, ...]:
    """The descriptions that lead from one city to the other, each to be followed by all before the next begins.

    Another routing takes three (see routing/changing.py); everything else is one.
    """
    if (before.routing, before.central) == (after.routing, after.central):
        return (dataclasses.replace(after, beside="", beside_central=""),)
    for routing in (before.routing, after.routing):
        if routing not in CHANGEABLE:
            raise UsageError(f"routing = {routing}, and its central broker, cannot be changed while the city runs")
    if before.names != after.names:
        raise UsageError("change the routing and the brokers one after the other: each is a change of its own")
    first = dataclasses.replace(before, beside=after.routing, beside_central=after.central)
    second = dataclasses.replace(after, beside=before.routing, beside_central=before.central)
    return first, second, dataclasses.replace(after, beside="", beside_central="")


# Changes by name, for commands.


def with_area(city: City, area: str, broker: str) -> City:
    """The broker is at home in the area, and nobody else is."""
    city.broker(broker)
    moved = set(areas_within(area, city.areas.l_b))
    before = _areas_by_broker(city)
    homes = {name: [area for area in areas if area not in moved] for name, areas in before.items()}
    homes[broker] = sorted({*homes[broker], *moved})
    # Who keeps its areas may have written them as a shorter prefix.
    brokers = tuple(
        spec
        if sorted(homes[spec.name]) == sorted(before[spec.name])
        else dataclasses.replace(spec, area=" ".join(homes[spec.name]))
        for spec in city.brokers
    )
    return dataclasses.replace(city, brokers=brokers)


def _areas_by_broker(city: City) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {name: [] for name in city.names}
    for area, home in city.homes.items():
        found[home].append(area)
    return found


def with_broker(city: City, spec: BrokerSpec) -> City:
    """With the broker, or with this in its place; its areas are nobody else's."""
    others = tuple(one for one in city.brokers if one.name != spec.name)
    before = city.by_name.get(spec.name)
    bare = dataclasses.replace(spec, area=before.area if before is not None else "")
    if before is None:
        city = dataclasses.replace(city, brokers=(*others, bare))
    else:
        city = dataclasses.replace(city, brokers=tuple(bare if one.name == spec.name else one for one in city.brokers))
    for area in spec.area.split():
        city = with_area(city, area, spec.name)
    return city


def without_areas(city: City, name: str) -> City:
    """Every area of the broker goes to the nearest other one, of its cluster where that has any."""
    city.broker(name)
    others = [other for other in city.names if other != name]
    if not others:
        raise UsageError(f"{name} is the last broker of the city")
    cluster = [other for other in others if city.cluster_of(other) == city.cluster_of(name)]
    heir = min(cluster or others, key=lambda other: (city.distance_km(name, other), other))
    for area in [area for area, home in city.homes.items() if home == name]:
        city = with_area(city, area, heir)
    return city


def without_broker(city: City, name: str) -> City:
    """Raises UsageError while the broker is needed."""
    if any(home == name for home in city.homes.values()) and city.routing == "geographic":
        raise UsageError(f"{name} is at home in areas: move them first")
    if city.central == name:
        raise UsageError(f"{name} is the central broker: choose another one first")
    return dataclasses.replace(city, brokers=tuple(one for one in city.brokers if one.name != name))
