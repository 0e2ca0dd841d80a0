"""The placement file as a checked Problem: every refusal names the field that is wrong and says what it should be."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from metromq.constraints import Range, shown
from metromq.errors import ConfigError
from metromq.planning.arrays import compile_arrays
from metromq.planning.model import Device, Mbps, Name, PerUnit, Placement, Problem, Service, Topic
from metromq.reading import raise_problems, read_data

Hops = Annotated[int, Range(0, 1_000)]


@dataclass(frozen=True, slots=True)
class PlacementFile:
    """What `metromq plan --from FILE` reads; docs/planner.md has an example."""

    broker_workload_per_mbps: PerUnit
    network_mw_per_mbps: PerUnit
    devices: tuple[Device, ...]
    topics: tuple[Topic, ...]
    services: tuple[Service, ...]
    # How far devices are from each other: each pair's hops, or the links from which they follow.
    hops: Mapping[str, Mapping[str, Hops]] | None = None
    links: tuple[tuple[str, str], ...] | None = None

    def problems(self) -> Iterator[tuple[str, str]]:
        if not self.devices:
            yield "devices", "there must be at least one device"
        repeated = [
            *_repeated("devices", self.devices),
            *_repeated("topics", self.topics),
            *_repeated("services", self.services),
        ]
        yield from repeated
        if self.devices and not repeated:  # else whatever refers to them would be wrong as well
            yield from self._name_problems()

    def _name_problems(self) -> Iterator[tuple[str, str]]:
        devices = {device.name for device in self.devices}
        topics = {topic.name for topic in self.topics}
        for number, topic in enumerate(self.topics):
            yield from _strangers(f"topics[{number}].client_mbps", topic.client_mbps, "device", devices)
        for number, service in enumerate(self.services):
            yield from _strangers(f"services[{number}].topic_mbps", service.topic_mbps, "topic", topics)
            yield from _strangers(f"services[{number}].user_mbps", service.user_mbps, "device", devices)
        yield from self._distance_problems(devices)

    def _distance_problems(self, devices: set[str]) -> Iterator[tuple[str, str]]:
        if self.hops is not None and self.links is not None:
            yield "hops", "is also given as links; keep only one of them"
        elif self.hops is not None:
            yield from _hops_problems(self.hops, [device.name for device in self.devices])
        elif self.links is not None:
            for number, link in enumerate(self.links):
                for end, name in enumerate(link):
                    if name not in devices:
                        yield f"links[{number}][{end}]", f"unknown device {shown(name)}{_listed(devices)}"
        else:
            yield "hops", "either hops or links must be given"


@dataclass(frozen=True, slots=True)
class PlanFile:
    """What `metromq plan --json` prints, as far as it says what runs where."""

    topics: Mapping[str, str] = field(default_factory=dict)
    services: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Machine:
    name: Name


@dataclass(frozen=True, slots=True)
class ServiceTable:
    name: Name
    topic_mbps: Mapping[str, Mbps] = field(default_factory=dict)
    user_mbps: Mapping[str, Mbps] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MachinesFile:
    """What must be right in a file of devices before traffic from elsewhere is added to it."""

    devices: tuple[Machine, ...] = ()
    services: tuple[ServiceTable, ...] = ()


def read_problem(raw: object, source: str = "") -> Problem:
    """The problem of a decoded JSON or TOML document; raises ConfigError. `source` is put before every field's name."""
    file = read_data(PlacementFile, raw, source)
    names = tuple(device.name for device in file.devices)
    try:
        problem = Problem(
            broker_workload_per_mbps=file.broker_workload_per_mbps,
            network_mw_per_mbps=file.network_mw_per_mbps,
            devices=file.devices,
            hops=_hops(file.hops, names) if file.hops is not None else hops_of_links(file.links or (), names),
            topics=file.topics,
            services=file.services,
        )
        _check_unit(problem)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error.where}" if source else error.where, error.problem) from None
    return problem


def read_placement(raw: object, problem: Problem, source: str = "") -> Placement:
    """The `topics` and `services` of a plan's JSON, as the present placement; containers that are gone are kept."""
    file = read_data(PlanFile, raw, source, ignore_unknown=True)
    devices = {device.name for device in problem.devices}
    before = f"{source}: " if source else ""
    problems = [
        ConfigError(f"{before}{part}.{name}", f"unknown device {shown(device)}{_listed(devices)}")
        for part, entries in (("topics", file.topics), ("services", file.services))
        for name, device in entries.items()
        if device not in devices
    ]
    raise_problems(problems, source)
    return Placement(file.topics, file.services)


def check_machines(raw: Mapping[str, Any], source: str) -> None:
    """Raises ConfigError; after it, devices and services are lists of tables with names."""
    read_data(MachinesFile, raw, source, ignore_unknown=True)


def _repeated(part: str, entries: Sequence[Device | Topic | Service]) -> Iterator[tuple[str, str]]:
    first: dict[str, int] = {}
    for number, entry in enumerate(entries):
        if entry.name in first:
            yield f"{part}[{number}].name", f"{shown(entry.name)} is already the name of {part}[{first[entry.name]}]"
        first.setdefault(entry.name, number)


def _strangers(where: str, names: Iterable[str], kind: str, known: set[str]) -> Iterator[tuple[str, str]]:
    for name in names:
        if name not in known:
            yield f"{where}.{name}", f"unknown {kind}{_listed(known)}"


def _listed(names: Iterable[str]) -> str:
    listed = sorted(names)
    return f"; use one of {', '.join(listed[:8])}{' ...' if len(listed) > 8 else ''}" if listed else ""


def _hops_problems(rows: Mapping[str, Mapping[str, int]], devices: list[str]) -> Iterator[tuple[str, str]]:
    known = set(devices)
    given: dict[tuple[str, str], int] = {}
    for first, row in rows.items():
        if first not in known:
            yield f"hops.{first}", f"unknown device{_listed(known)}"
            continue
        yield from _strangers(f"hops.{first}", row, "device", known)
        for second, hops in row.items():
            where = f"hops.{first}.{second}"
            if second in known and (hops == 0) != (first == second):
                yield where, "a device is 0 hops from itself and at least 1 from any other"
            before = given.get((second, first), hops)
            if before != hops:
                yield where, f"is {hops}, but hops.{second}.{first} is {before}"
            given[first, second] = hops
    for number, first in enumerate(devices):
        for second in devices[:number]:
            if (first, second) not in given and (second, first) not in given:
                yield f"hops.{second}.{first}", "is missing: every two devices must be connected"
                return


def _hops(rows: Mapping[str, Mapping[str, int]], names: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
    def distance(first: str, second: str) -> int:
        return rows[first][second] if second in rows.get(first, {}) else rows[second][first]

    return tuple(tuple(0 if a == b else distance(a, b) for b in names) for a in names)


def hops_of_links(links: Iterable[tuple[str, str]], names: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
    """Shortest paths over the links, by breadth-first search from every device."""
    peers: dict[str, set[str]] = {name: set() for name in names}
    for one, other in links:
        peers[one].add(other)
        peers[other].add(one)
    return tuple(tuple(_reached(peers, name, names)) for name in names)


def _reached(peers: Mapping[str, set[str]], start: str, names: tuple[str, ...]) -> Iterator[int]:
    far = {start: 0}
    ring = [start]
    while ring:
        ring = [peer for peer in dict.fromkeys(p for name in ring for p in sorted(peers[name])) if peer not in far]
        far.update(dict.fromkeys(ring, max(far.values()) + 1))
    missing = [name for name in names if name not in far]
    if missing:
        raise ConfigError("links", f"the graph is disconnected: no path leads from {start} to {', '.join(missing[:5])}")
    return (far[name] for name in names)


def _check_unit(problem: Problem) -> None:
    """A capacity in GHz or Mbps instead of workload shows: not even the smallest container fits anywhere."""
    loads = compile_arrays(problem).load
    if not len(loads):
        return
    largest = max(range(len(problem.devices)), key=lambda d: problem.devices[d].capacity_workload)
    capacity = problem.devices[largest].capacity_workload
    if loads.min() > capacity * (1 + 1e-9):
        raise ConfigError(
            f"devices[{largest}].capacity_workload",
            f"{capacity:g} is the largest capacity, but the smallest container needs {loads.min():,.6g}, so nothing "
            "fits; capacity counts workload (Mbps times workload per Mbps): is it in another unit?",
        )
