"""Where `metromq plan` gets its problem from: a file, a running city, or the lake's tables."""

import asyncio
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metromq.control.asking import ask_city
from metromq.control.places import city_running
from metromq.documents import read_document
from metromq.errors import ConfigError, UsageError
from metromq.federation.status import UP, BrokerStatus, CityStatus
from metromq.planning.model import Placement, Problem
from metromq.planning.reading import check_machines, read_placement, read_problem

# A city's status knows traffic, not machines: without --devices every broker is a device of the paper's middle size.
CITY_DEFAULTS = {"broker_workload_per_mbps": 10.0, "network_mw_per_mbps": 0.0137}
CITY_DEVICE = {"capacity_workload": 30_000.0, "mw_per_workload": 0.19}


@dataclass(frozen=True, slots=True)
class Source:
    """A problem, and the placement that is in force where the source knows it."""

    problem: Problem
    present: Placement | None = None


def from_file(path: Path) -> Source:
    return Source(read_problem(read_document(path), str(path)))


def present_from(path: Path, problem: Problem) -> Placement:
    """A plan that `metromq plan --json` printed, as the present placement."""
    return read_placement(read_document(path), problem, str(path))


def from_lake(lake: Path, devices: Path | None) -> Source:
    """Traffic from the tables; devices, links and the services' workload per Mbps from a file, which has no traffic."""
    if devices is None:
        raise UsageError("--from lake needs --devices FILE: the tables have traffic, but no capacities and links")
    try:
        from metromq.pipeline.lake import Lake
    except ImportError as error:
        raise UsageError("--from lake needs an extra package: pip install 'metromq[pipeline]'") from error
    tables = Lake(lake)
    names = ("planner_tau", "planner_dsd", "planner_dst", "delegation_inputs")
    missing = [name for name in names[:3] if not tables.exists(name)]
    if missing:
        raise UsageError(
            f"{lake} has no table {', '.join(missing)}; run `metromq pipeline refresh --lake {lake}` first"
        )
    rows = {name: tables.arrow(name).to_pylist() if tables.exists(name) else [] for name in names}
    site = read_document(devices)
    check_machines(site, str(devices))
    raw = lake_document(site, rows["planner_tau"], rows["planner_dsd"], rows["planner_dst"], rows["delegation_inputs"])
    return Source(read_problem(raw, f"{devices} with {lake}"))


Row = Mapping[str, Any]


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


def from_city(city: str | None, data: Path, devices: Path | None) -> Source:
    """The areas of a running city as topics, with the traffic of the last seconds, and where they are served now."""
    status = asyncio.run(ask_city(city_running(city, data, os.environ), data))
    if devices is None:
        return city_source(status, None)
    site = read_document(devices)
    check_machines(site, str(devices))
    return city_source(status, site)


def city_source(status: CityStatus, site: Mapping[str, Any] | None) -> Source:
    """What a city's status says as a problem; devices are brokers, or sites where the devices file names those."""
    running = [broker for broker in status.brokers if broker.state == UP]
    if not running:
        raise UsageError(f"no broker of {status.city} is up; start it with `metromq up`")
    known = None if site is None else {str(device.get("name")) for device in site.get("devices", ())}
    home = {broker.name: _device_of(broker, known) for broker in running}
    document: dict[str, Any] = dict(site) if site is not None else _city_machines(list(home.values()))
    topics: list[dict[str, Any]] = []
    present: dict[str, str] = {}
    for broker in running:
        areas = [f"{area.area}/#" if area.area else "#" for area in broker.areas] or [f"{broker.name}/#"]
        for area in areas:
            rates = {name: mbps / len(areas) for name, mbps in _client_mbps(broker, home).items()}
            topics.append({"name": area, "client_mbps": rates})
            present[area] = home[broker.name]
    document["topics"] = topics
    document.setdefault("services", [])
    return Source(read_problem(document, f"city {status.city}"), Placement(present, {}))


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
