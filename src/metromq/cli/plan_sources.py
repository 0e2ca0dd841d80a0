"""Where `metromq plan` gets its problem from: a file, a running city, or the lake's tables."""

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metromq.control import ask_city, city_running
from metromq.documents import read_document
from metromq.errors import ConfigError, UsageError
from metromq.federation import UP, BrokerStatus, CityStatus
from metromq.planning import Placement, Problem, check_machines, read_placement, read_problem

# A city's status knows traffic, not machines: without --devices every broker is a device of the paper's middle size.
CITY_DEFAULTS = {"broker_workload_per_mbps": 10.0, "network_mw_per_mbps": 0.0137}
CITY_DEVICE = {"capacity_workload": 30_000.0, "mw_per_workload": 0.19}


Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Source:
    """A problem, and the placement that is in force where the source knows it."""

    problem: Problem
    present: Placement | None = None
    notes: tuple[str, ...] = ()  # what the reader of a plan should know about its traffic


def from_file(path: Path) -> Source:
    return Source(read_problem(read_document(path), str(path)))


def present_from(path: Path, problem: Problem) -> Placement:
    """A plan that `metromq plan --json` printed, as the present placement."""
    return read_placement(read_document(path), problem, str(path))


def from_lake(lake: str, devices: Path | None) -> Source:
    """Traffic from the tables; devices, links and the services' workload per Mbps from a file, which has no traffic."""
    if devices is None:
        raise UsageError("--from lake needs --devices FILE: the tables have traffic, but no capacities and links")
    rows = _lake_rows(lake, ("planner_tau", "planner_dsd", "planner_dst"), ("delegation_inputs",))
    site = read_document(devices)
    check_machines(site, str(devices))
    raw = lake_document(site, rows["planner_tau"], rows["planner_dsd"], rows["planner_dst"], rows["delegation_inputs"])
    return Source(read_problem(raw, f"{devices} with {lake}"))


def _lake_rows(lake: str, needed: tuple[str, ...], others: tuple[str, ...] = ()) -> dict[str, list[dict[str, Any]]]:
    try:
        from metromq.pipeline import Lake
    except ImportError as error:
        raise UsageError("the lake needs an extra package: pip install 'metromq[pipeline]'") from error
    tables = Lake(lake)
    missing = [name for name in needed if not tables.exists(name)]
    if missing:
        raise UsageError(
            f"{lake} has no table {', '.join(missing)}; run `metromq pipeline refresh --lake {lake}` first"
        )
    return {name: tables.arrow(name).to_pylist() if tables.exists(name) else [] for name in (*needed, *others)}


def lake_document(
    site: Mapping[str, Any], tau: Iterable[Row], dsd: Iterable[Row], dst: Iterable[Row], counts: Iterable[Row]
) -> dict[str, Any]:
    """The placement file that the tables and the devices file make together."""
    topics: dict[str, dict[str, Any]] = {}
    services = {str(entry.get("name")): dict(entry) for entry in site.get("services", ())}
    for row in tau:
        topic = topics.setdefault(row["topic"], {"name": row["topic"], "client_mbps": {}})
        topic["client_mbps"][row["device"]] = row["mbps"]
    for table, field, other, rows in (
        ("planner_dsd", "user_mbps", "device", dsd),
        ("planner_dst", "topic_mbps", "topic", dst),
    ):
        for row in rows:
            name = row["service"]
            if name not in services:
                raise ConfigError(
                    "services",
                    f"table {table} has service {name!r}: set its mqtt_workload_per_mbps and user_workload_per_mbps",
                )
            services[name].setdefault(field, {})[row[other]] = row["mbps"]
            if other == "topic":  # a topic without clients still needs its broker
                topics.setdefault(row["topic"], {"name": row["topic"], "client_mbps": {}})
    inside = {str(device.get("name")) for device in site.get("devices", ())}
    for name, seen in _counted(counts, inside).items():
        if name in topics:
            topics[name]["statistics"] = seen
    return {**site, "topics": [topics[name] for name in sorted(topics)], "services": list(services.values())}


def _counted(rows: Iterable[Row], inside: set[str]) -> dict[str, dict[str, int]]:
    """Publishers and subscribers of each topic at our devices and elsewhere; a row's two counts sum up to all."""
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        mine = row["site"] in inside
        seen = found.setdefault(
            row["topic"],
            {
                "publishers_inside": 0,
                "publishers_outside": row["publishers_inside"] + row["publishers_outside"],
                "subscribers_inside": 0,
                "subscribers_outside": row["subscribers_inside"] + row["subscribers_outside"],
            },
        )
        for kind in ("publishers", "subscribers") if mine else ():
            seen[f"{kind}_inside"] += row[f"{kind}_inside"]
            seen[f"{kind}_outside"] -= row[f"{kind}_inside"]
    return found


def from_city(city: str | None, data: Path, devices: Path | None, lake: str | None = None) -> Source:
    """The areas of a running city as topics, and where they are served now; traffic by topic if there is a lake."""
    status = asyncio.run(ask_city(city_running(city, data, os.environ), data))
    tau = None if lake is None else _lake_rows(lake, ("planner_tau",))["planner_tau"]
    if devices is None:
        return city_source(status, None, tau)
    site = read_document(devices)
    check_machines(site, str(devices))
    return city_source(status, site, tau)


def city_source(status: CityStatus, site: Mapping[str, Any] | None, tau: Iterable[Row] | None = None) -> Source:
    """What a city's status says as a problem; devices are brokers, or sites where the devices file names those.

    `tau` are the lake's rows of traffic by topic. Without them each broker's clients are taken to use its own areas,
    because a broker's status counts its clients' bytes, and not on which topics.
    """
    running = [broker for broker in status.brokers if broker.state == UP]
    if not running:
        raise UsageError(f"no broker of {status.city} is up; start it with `metromq up`")
    known = None if site is None else {str(device.get("name")) for device in site.get("devices", ())}
    home = {broker.name: _device_of(broker, known) for broker in running}
    document: dict[str, Any] = dict(site) if site is not None else _city_machines(list(home.values()))
    present = {area: home[broker.name] for broker in running for area in _areas(broker)}
    if tau is None:
        rates, notes = _by_broker(running, home)
    else:
        rates, notes = _by_topic(running, home, present, tau)
    document["topics"] = [{"name": area, "client_mbps": rates.get(area, {})} for area in present]
    document.setdefault("services", [])
    return Source(read_problem(document, f"city {status.city}"), Placement(present, {}), notes)


def _areas(broker: BrokerStatus) -> list[str]:
    return [f"{area.area}/#" if area.area else "#" for area in broker.areas] or [f"{broker.name}/#"]


Rates = dict[str, dict[str, float]]  # topic -> device -> Mbps


def _by_broker(running: Sequence[BrokerStatus], home: Mapping[str, str]) -> tuple[Rates, tuple[str, ...]]:
    rates: Rates = {}
    for broker in running:
        areas = _areas(broker)
        for area in areas:
            rates[area] = {name: mbps / len(areas) for name, mbps in _client_mbps(broker, home).items()}
    if not any(sum(found.values()) for found in rates.values()):
        return rates, ("no client sends anything now, so any placement is as good as the present one",)
    return rates, (
        "brokers count bytes by client, not by topic: each broker's traffic is taken to be that of its own areas, in "
        "equal parts; --lake LAKE takes what each topic really carried",
    )


def _by_topic(
    running: Sequence[BrokerStatus], home: Mapping[str, str], present: Mapping[str, str], tau: Iterable[Row]
) -> tuple[Rates, tuple[str, ...]]:
    """Each topic's traffic goes to the area that it is in, at the device of the broker or site that counted it."""
    places = {broker.site: home[broker.name] for broker in reversed(running) if broker.site} | dict(home)
    places |= {device: device for device in home.values()}
    rates: Rates = {}
    elsewhere: dict[str, float] = {}
    for row in tau:
        topic, device, mbps = str(row["topic"]), str(row["device"]), float(row["mbps"])
        area = next((name for name in _filters_of(topic) if name in present), "")
        if not area or device not in places:
            reason = "topics outside the areas that are served" if not area else f"site {device}, which has no device"
            elsewhere[reason] = elsewhere.get(reason, 0.0) + mbps
            continue
        found = rates.setdefault(area, {})
        found[places[device]] = found.get(places[device], 0.0) + mbps
    return rates, tuple(f"{mbps:.3g} Mbps of {reason} are left out" for reason, mbps in elsewhere.items())


def _filters_of(topic: str) -> Iterator[str]:
    """The areas that may hold a topic, the narrowest first."""
    levels = topic.split("/")
    for n in range(len(levels), 0, -1):
        yield "/".join(levels[:n]) + "/#"
    yield "#"


def _device_of(broker: BrokerStatus, known: set[str] | None) -> str:
    if known is None or broker.name in known:
        return broker.name
    if broker.site in known:
        return broker.site
    raise ConfigError(
        "devices", f"no device for broker {broker.name}: name a device after it, or after its site {broker.site!r}"
    )


def _city_machines(names: list[str]) -> dict[str, Any]:
    """Brokers of a city have a link to every other, so each is one hop away."""
    links = [[a, b] for n, a in enumerate(names) for b in names[n + 1 :]]
    return {**CITY_DEFAULTS, "devices": [{"name": name, **CITY_DEVICE} for name in names], "links": links}


def _client_mbps(broker: BrokerStatus, home: Mapping[str, str]) -> dict[str, float]:
    """tau of what a broker serves: its own clients' traffic without what its links carry on, and what peers send it."""
    rates: dict[str, float] = {}
    sent = 0.0
    for link in broker.links:
        sent += link.bytes_sent_per_s
        if link.peer in home and link.bytes_received_per_s > 0:
            device = home[link.peer]
            rates[device] = rates.get(device, 0.0) + link.bytes_received_per_s * 8e-6
    own = broker.traffic.bytes_received_per_s + broker.traffic.bytes_sent_per_s - sent
    device = home[broker.name]
    rates[device] = rates.get(device, 0.0) + max(own, 0.0) * 8e-6
    return rates
